"""Which points of a plain kernel run beside each other, and along which axis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explorer.workload import Workload
from ir.ops.base import TensorSpec
from ir.plain.build import plain_kernels
from ir.plain.code import (
    GROUP,
    Array,
    Call,
    Claim,
    Convert,
    Element,
    If,
    Let,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Statement,
    Write,
)
from ir.targets.cpu.plain_points import lane_axis

ROWS, COLUMNS = 6, 8
P, Q = Name("p"), Name("q")
HERE = Call("add", (Call("mul", (P, Number(COLUMNS, "i64")), "i64"), Q), "i64")
ZERO = Number(0, "i64")
X = Element("x", HERE, "f32")


def kernel(*body: Statement, own: tuple[Array, ...] = ()) -> PlainKernel:
    """Points (p, q), each with an element of x and y."""
    shape = (ROWS, COLUMNS)
    specs = (TensorSpec("x", shape, "f32", "input"), TensorSpec("y", shape, "f32", "output"))
    arrays = (*(Array(spec.name, "f32", ROWS * COLUMNS) for spec in specs), *own)
    return PlainKernel("points", specs, arrays, ((P, ROWS), (Q, COLUMNS)), body)


def axis_of(plain: PlainKernel, lanes: int = 4) -> str | None:
    found = lane_axis(plain, lanes)
    return None if found is None else found.name


def index_of(value: Scalar) -> Scalar:
    return Convert(value, "i64", "i64")


def test_points_whose_elements_are_neighbours_are_preferred() -> None:
    assert axis_of(kernel(Write("y", HERE, X))) == "q"
    turned = Call("add", (Call("mul", (Q, Number(ROWS, "i64")), "i64"), P), "i64")
    assert axis_of(kernel(Write("y", turned, Element("x", turned, "f32")))) == "p"
    assert axis_of(kernel(Write("y", HERE, X)), 7) == "q"
    assert axis_of(kernel(Write("y", HERE, X)), 9) is None


def test_what_a_point_has_found_decides_no_branch_and_no_place() -> None:
    found = Name("found", "f32")
    positive = Call("lt", (Number(0.0, "f32"), found), "bool")
    assert axis_of(kernel(Let(found, X), If(positive, (Write("y", HERE, found),)))) is None
    at = Call("add", (Call("mul", (P, Number(COLUMNS, "i64")), "i64"), index_of(found)), "i64")
    assert axis_of(kernel(Let(found, X), Write("y", HERE, Element("x", at, "f32")))) is None
    assert axis_of(kernel(Let(found, X), Write("y", at, found))) is None
    first = Element("x", ZERO, "f32")  # the same for all
    assert axis_of(kernel(Let(found, first), If(positive, (Write("y", HERE, found),)))) == "q"


def test_all_points_write_elements_of_their_own() -> None:
    assert axis_of(kernel(Write("y", P, X))) == "p"
    assert axis_of(kernel(Write("y", ZERO, X))) is None


def test_an_own_array_holds_what_differs() -> None:
    own = (Array("held", "f32", 3, GROUP), Array("count", "i32", 1, GROUP))
    held = Element("held", Number(1, "i64"), "f32")
    assert (
        axis_of(kernel(Write("held", Number(1, "i64"), X), Write("y", HERE, held), own=own)) == "q"
    )
    positive = Call("lt", (Number(0.0, "f32"), held), "bool")
    assert axis_of(kernel(If(positive, (Write("y", HERE, X),)), own=own)) is None
    number = Name("number", "i32")
    assert axis_of(kernel(Claim(number, "count", ZERO), Write("y", HERE, X), own=own)) is None


def test_what_is_read_back_is_not_run_twice() -> None:
    """The last vector of an axis that lanes do not divide runs some points again."""
    twice = kernel(Write("y", HERE, X), Write("y", HERE, Element("y", HERE, "f32")))
    assert axis_of(twice, 8) == "q"
    assert axis_of(twice, 7) is None
    assert axis_of(replace(twice, body=twice.body[:1]), 7) == "q"


@pytest.mark.parametrize(
    ("name", "arguments", "axis"),
    [
        ("gated_delta_net", {"b": 1, "t": 8, "heads": 2, "d": 32}, "i_dv_1"),
        ("linear_recurrence", {"b": 2, "t": 8, "d": 32}, "i_d_1"),
        ("linear_recurrence", {"b": 2, "t": 8, "d": 32, "dtype": "f64"}, "i_d_1"),
        ("logsumexp", {"m": 32, "n": 64}, "i_m_1"),
        ("cholesky", {"batch": 32, "n": 4}, "i_b_1"),
    ],
)
@pytest.mark.alike(2)
def test_recurrences_and_folds_run_beside_each_other(
    name: str, arguments: dict[str, Any], axis: str
) -> None:
    (plain, *_) = plain_kernels(Workload.of(name, arguments, "cpu").program)
    assert axis_of(plain, 16) == axis
