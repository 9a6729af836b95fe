"""Block kernels of very long sums: none in which a thread adds up more than is safe in f32."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, operator, reduce
from ir.space import Space
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.block_rules import MOST_TERMS


@operator
def squares(g: Graph, n: int, kind: str = "sum", dtype: str = "f32") -> None:
    """What all squares come to."""
    (axis,) = g.axes(n=n)
    x = g.input("X", (axis,), dtype)
    g.output("S", reduce(kind, x * x, over=axis))


def space_of(n: int, kind: str = "sum", dtype: str = "f32") -> Space:
    program = squares.build(n=n, kind=kind, dtype=dtype)
    return get_backend("cuda").space(program, known_hardware("h200"))


def rules(space: Space) -> list[str]:
    return [rule.name for rule in space.constraints if rule.name.endswith("terms")]


def test_a_thread_adds_up_few_numbers() -> None:
    n = 1 << 27
    space = space_of(n)
    rng = np.random.default_rng(0)
    rows = [*space.seed_rows(rng), *space.sample(rng, 100)]
    chosen = [space.schedule(row) for row in rows]
    terms = [n // int(s["tile.n"]) * int(s["own.n"]) // int(s.get("parts", 1) or 1) for s in chosen]
    assert len(terms) > 100
    assert max(terms) <= MOST_TERMS


@pytest.mark.parametrize(
    ("n", "kind", "dtype"),
    [(MOST_TERMS, "sum", "f32"), (1 << 27, "max", "f32"), (1 << 27, "sum", "f64")],
)
def test_short_sums_extremes_and_doubles_are_free(n: int, kind: str, dtype: str) -> None:
    assert rules(space_of(n, kind, dtype)) == []
    assert rules(space_of(1 << 27)) != []
