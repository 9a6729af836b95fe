"""Addresses made of what was loaded or chosen under a condition, which compilers must not fold."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, indices, minimum, reduce, where
from ir.catalogue import settings_of
from ir.program import Program
from ir.registry import load_operator
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware

HOPPER = known_hardware("h200")


def catalogue_program(name: str) -> Program:
    operator = load_operator(name)
    return operator.build(**settings_of(operator)["small"])


def looked_up(how: str) -> Program:
    """Sums of rows of a table: of those that are listed, that are chosen, or of every third."""
    g = Graph("looked_up")
    m, t, d = g.axes(m=24, t=8, d=64)
    first = g.tensor("first", (24,), "i32", values=indices(40))[m]
    if how == "listed":
        place = g.tensor("rows", (100,), "i32", fill=0)[first + g.iota(t)]
    elif how == "chosen":
        place = where(first > 3, first, 0) + g.iota(t)
    else:
        place = minimum(g.iota(t) * 3 + g.iota(m), 39)
    g.output("Y", reduce("sum", g.tensor("table", (140, 64), "f32", fill=0)[place, d], over=t))
    return g.program()


@pytest.mark.parametrize(("how", "opaque"), [("listed", True), ("chosen", True), ("far", False)])
def test_what_hangs_on_a_condition_is_opaque_where_it_is_an_address(how: str, opaque: bool) -> None:
    """ptxas 13.0 multiplies such an index under its condition, and reads the 0 of the others
    before it is there: an H200 died of one schedule in a hundred."""
    program, backend = looked_up(how), get_backend("cuda")
    space = backend.space(program, HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    rows = rows[space.legal(rows)]
    assert len(rows) > 3
    for row in rows:
        source = backend.lower(program, space.schedule(row), HOPPER).texts[0][1]
        assert ("tw_index(" in source) == opaque


def test_what_threads_of_points_look_up_is_opaque() -> None:
    """In kernels that are loops of statements too: what an assignment may have changed."""
    program, backend = catalogue_program("moe_positions"), get_backend("cuda")
    space = backend.space(program, HOPPER)
    row = space.seed_rows(np.random.default_rng(0))[0]
    source = backend.lower(program, space.schedule(row), HOPPER).texts[0][1]
    kernel = source[source.rindex("TW_INLINE i64 tw_index(i64") :]
    assert kernel.count("tw_index(") > 1
