"""The run of a kernel scalar by scalar: what it rounds, and the kernels that it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from ir.builder import Graph, cast, reduce
from ir.dtypes import from_float, to_float
from ir.errors import ProgramError
from ir.folding import fold
from ir.inputs import drawn_inputs
from ir.merges import merge_of
from ir.ops.base import TensorSpec
from ir.plain.block import depth
from ir.plain.build import plain_kernel
from ir.plain.code import (
    GROUP,
    Accumulate,
    Array,
    Assign,
    Call,
    Claim,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.meaning import meaning

PLACE = Name("i")


def _kernel(
    *body: Statement, dtype: str = "f32", points: int = 1, group: bool = True
) -> PlainKernel:
    tensors = (TensorSpec("x", (4,), dtype), TensorSpec("o", (4,), dtype, "output"))
    arrays = tuple(Array(spec.name, spec.dtype, 4) for spec in tensors)
    arrays += (Array("a", dtype, 4, GROUP), Array("k", "i32", 1, GROUP))
    return PlainKernel("hand", tensors, arrays, ((Name("p"), points),), body, group)


def _x(place: Scalar, array: str = "x") -> Element:
    return Element(array, place, "f32")


def _plus(place: Scalar, number: int) -> Scalar:
    return Call("add", (place, Number(number, "i64")), "i64")


def _run(kernel: PlainKernel) -> np.ndarray:
    return meaning(kernel, {"x": np.array([1, 2, 3, 4], np.float32)})["o"]


def test_shared_iterations_behind_each_other() -> None:
    both = Call("add", (_x(PLACE, "a"), _x(Number(0, "i64"), "a")), "f32")
    found = _run(
        _kernel(
            Spread(((PLACE, 4),), (Write("a", PLACE, _x(PLACE)),)),
            Spread(((PLACE, 4),), (Write("o", PLACE, both),)),
        )
    )
    assert list(found) == [2, 3, 4, 5]


NEXT = Call("min", (_plus(PLACE, 1), Number(3, "i64")), "i64")
COPY = Spread(((PLACE, 4),), (Write("a", PLACE, _x(PLACE)),))
REFUSED: dict[str, tuple[Statement, ...]] = {
    "iterations of a Spread meet in element": (
        COPY,
        Spread(((PLACE, 4),), (Write("a", PLACE, _x(NEXT, "a")),)),
    ),
    "element 0 is claimed, not written": (Claim(Name("n", "i32"), "k", Number(0, "i64")),),
    "element 0 is combined and used in one Spread": (
        Spread((), (Write("k", Number(0, "i64"), Number(0, "i32")),)),
        Spread(
            ((PLACE, 4),),
            (
                Claim(Name("n", "i32"), "k", Number(0, "i64")),
                Let(Name("m", "i32"), Element("k", Number(0, "i64"), "i32")),
            ),
        ),
    ),
    "numbers are a group's, and i32": (
        COPY,
        Claim(Name("n", "i32"), "a", Number(0, "i64")),
    ),
    "is written outside a Spread": (Write("a", Number(0, "i64"), _x(Number(0, "i64"))),),
    "element 1 is read and was not written": (
        Spread((), (Write("o", Number(0, "i64"), _x(Number(1, "i64"), "a")),)),
    ),
    "x: element 4 of 4": (Spread(((PLACE, 4),), (Write("o", PLACE, _x(_plus(PLACE, 1))),)),),
    "assigned in a Spread and defined outside": (
        Let(Name("v", "f32"), Number(0.0, "f32")),
        Spread(((PLACE, 4),), (Assign(Name("v", "f32"), _x(PLACE)),)),
    ),
    "v is not defined": (
        If(Number(True, "bool"), (Let(Name("v", "f32"), Number(0.0, "f32")),)),
        Spread((), (Write("o", Number(0, "i64"), Name("v", "f32")),)),
    ),
    "element 1 is never written": (
        Spread((), (Write("o", Number(0, "i64"), _x(Number(0, "i64"))),)),
    ),
    r"add of \['f32', 'i64'\]": (
        Let(Name("v", "f32"), Call("add", (Number(1.0, "f32"), Number(1, "i64")), "f32")),
    ),
    "v is f64, not f32": (Let(Name("v", "f64"), Number(1.0, "f32")),),
    "is an input": (Spread((), (Write("x", Number(0, "i64"), Number(1.0, "f32")),)),),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        _run(_kernel(*REFUSED[message]))


def test_points_that_meet_are_refused() -> None:
    with pytest.raises(ProgramError, match="points meet in element 0"):
        _run(_kernel(Write("o", Number(0, "i64"), Number(1.0, "f32")), points=2, group=False))


def test_values_round_where_they_are_converted_and_written() -> None:
    third, byte = Number(1 / 3, "f32"), Convert(Number(300, "i32"), "u8", "i32")
    truth = Convert(Number(-2.7, "f32"), "bool", "bool")
    body = (
        Write("o", Number(0, "i64"), third),
        Write("o", Number(1, "i64"), Convert(third, "e4m3", "f32")),
        Write("o", Number(2, "i64"), Convert(byte, "f32", "f32")),
        Write("o", Number(3, "i64"), Convert(truth, "f32", "f32")),
    )
    kernel = _kernel(*body, dtype="bf16", group=False)
    found = meaning(kernel, {"x": np.zeros(4, np.uint16)})["o"]
    wanted = from_float(np.array([1 / 3, 0.34375, 44.0, 1.0]), "bf16")
    assert list(found) == list(wanted)


@pytest.mark.parametrize("backward", [False, True])
def test_an_accumulation_begins_with_its_first_value(backward: bool) -> None:
    """a * 2 + b, which is not associative, so that the order shows."""
    state = Name("s", "f32")
    merge = merge_of("add(mul(a0, 2.0), b0)")
    keep = (Write("o", PLACE, state),)
    loop = Accumulate(PLACE, 4, backward, (Let(Name("v", "f32"), _x(PLACE)),), (Name("v", "f32"),),
                      (state,), merge, keep)  # fmt: skip
    found = _run(_kernel(loop, group=False))
    assert list(found) == ([49, 24, 11, 4] if backward else [1, 4, 11, 26])


def test_loops_go_backward() -> None:
    total = Name("t", "f32")
    tenfold = Call("mul", (total, Number(10.0, "f32")), "f32")
    step = (
        Assign(total, Call("add", (_x(PLACE), tenfold), "f32")),
        Write("o", PLACE, total),
    )
    body = (Let(total, Number(0.0, "f32")), Loop(PLACE, 4, step, backward=True))
    assert list(_run(_kernel(*body, group=False))) == [4321, 432, 43, 4]


# --- what is computed where it is read ------------------------------------------------------------


def test_long_chains_get_names_and_what_is_read_twice_is_computed_once() -> None:
    g = Graph("chain")
    i, t = g.axes(i=2, t=3)
    x = g.input("x", (i, t), "f64")
    for _ in range(400):
        x = x * 0.5 + x * 0.25
    for _ in range(1500):
        x = x + 0.125
    g.output("o", fold("max", x, t)[0])
    kernel = plain_kernel(g.program())
    loop = kernel.body[0]
    assert isinstance(loop, Accumulate)
    assert len(loop.body) < 1000
    assert max(depth(let.value) for let in loop.body if isinstance(let, Let)) < 12
    x_now = np.ones((2, 3))
    found = meaning(kernel, {"x": x_now})["o"]
    np.testing.assert_allclose(found, 0.75**400 + 1500 * 0.125)


def test_elementwise_values_read_elsewhere_and_sums_before() -> None:
    g = Graph("before")
    i, j, t = g.axes(i=3, j=2, t=4)
    x = g.input("x", (i, t), "bf16") * 2.0
    row = g.input("row", (i,), "u8")
    shifted = x.at(t=t - 1, i=cast(row, "i32"), fill=-3.0)
    y = reduce("sum", g.input("y", (j, i), "i8"), j)
    g.output("o", fold("sum", shifted * y, t)[0])
    program = g.program()
    inputs = {**drawn_inputs(program, 0), "row": np.array([2, 9, 0], np.uint8)}
    found = meaning(plain_kernel(program), inputs)["o"]
    x_now = to_float(inputs["x"], "bf16") * 2
    rows = np.array([x_now[2], np.full(4, -3.0), x_now[0]])
    rows = np.concatenate([np.full((3, 1), -3.0), rows[:, :3]], axis=1)
    np.testing.assert_allclose(found, rows.sum(axis=1) * inputs["y"].sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["bool", "i32", "f32"])
def test_reductions_of_each_kind_within_a_fold(kind: str, dtype: str) -> None:
    g = Graph("reductions")
    j, t = g.axes(j=3, t=4)
    x = g.input("x", (j, t), dtype)
    each = reduce(kind, x, j)
    g.output("o", fold("or" if each.dtype == "bool" else "sum", each, t)[0])
    x_now = from_float(np.random.default_rng(1).integers(0, 2, size=(3, 4)), dtype)
    found = meaning(plain_kernel(g.program()), {"x": x_now})["o"]
    whole = getattr(x_now, kind)(axis=0)
    assert found == (whole.any() if each.dtype == "bool" else whole.sum())
