"""Keys of drawn values of every type that has some, and what a program beside them keeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from ir import Graph, argmax, argmin, cast, cumulative, exp, fold, reduce, scan
from ir.axes import Axis
from ir.dtypes import dtype_of, numpy_dtype
from ir.ops.base import Array
from ir.ops.fold import Fold
from ir.ops.reduce import Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.keyed import rewritten
from ir.tiles import Tile
from tests.few import by_turns

DTYPES = ("f32", "tf32", "bf16", "f16", "e4m3", "e5m2", "i32", "i16", "u16", "i8", "u8")
ENDS = {"max": argmax, "min": argmin}
ROWS = 5


def _values(dtype: str, columns: int) -> st.SearchStrategy[Array]:
    """Any patterns of bits: NaNs of both signs, infinities, subnormals and ties among them."""
    word = np.dtype(f"uint{dtype_of(dtype).bits}")
    ends = st.sampled_from([0, 1, 1 << (word.itemsize * 8 - 1), (1 << word.itemsize * 8) - 1])
    some = st.one_of(ends, st.integers(0, 3), drawn.from_dtype(word))
    bits = drawn.arrays(word, (ROWS, columns), elements=some)
    return bits.map(lambda array: array.view(numpy_dtype(dtype)))


def _same(program: Program, values: Array) -> Program:
    """The program rewritten, which gives the same."""
    found = rewritten(program)
    assert found is not None
    wanted, had = evaluate(program, {"V": values}), evaluate(found[1], {"V": values})
    for name, array in wanted.items():
        np.testing.assert_array_equal(had[name], array, err_msg=name)
    return found[1]


def _reduces(program: Program) -> list[tuple[str, str]]:
    return [(n.op.kind, n.dtype) for n in program.nodes if isinstance(n.op, Reduce)]


def _folds(program: Program) -> int:
    return sum(isinstance(node.op, Fold) for node in program.nodes)


@pytest.mark.parametrize(("dtype", "kind"), by_turns(DTYPES, ENDS))
@settings(max_examples=20)
@given(data=st.data(), columns=st.integers(1, 9))
@pytest.mark.alike(2)
def test_places_and_values_of_any_bits(
    kind: str, dtype: str, data: st.DataObject, columns: int
) -> None:
    g = Graph("rows")
    a, b = g.axes(a=ROWS, b=columns)
    v = g.input("V", (a, b), dtype)
    g.output("I", ENDS[kind](v, b), "i32", (a,))
    g.output("M", reduce(kind, v, over=b), dtype, (a,))
    made = _same(g.program(), data.draw(_values(dtype, columns)))
    assert _reduces(made) == [("max", "i64")]
    assert _folds(made) == 0


def _both_ends(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, b), argmin(v, b), reduce("max", v, over=b), reduce("min", v, over=b)


def _both_axes(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, a), argmax(v, b), reduce("max", v, over=b), reduce("max", v, over=a)


def _twice(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmin(v, b), argmin(v, b) * 2 + 1, reduce("min", v, over=b) + 1.0


def _both_parts(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    value, place = fold("argmin", (v, v.graph.iota(b)), b)
    return exp(value), place + 1


def _other_end(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, b), reduce("min", v, over=b)


def _all_of_it(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, b), reduce("max", v, over=(a, b))


def _of_another(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, b), reduce("max", v * 2.0, over=b)


def _softmax(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    p = exp(v - reduce("max", v, over=b))
    return argmax(v, b), p / reduce("sum", p, over=b)


def _running(v: Tile, a: Axis, b: Axis) -> tuple[Tile, ...]:
    return argmax(v, b), cumulative("max", v, b), scan("argmax", (v, v.graph.iota(b)), b)[1]


LEFT: tuple[tuple[Callable[[Tile, Axis, Axis], tuple[Tile, ...]], list[tuple[str, str]], int], ...]
LEFT = (
    (_both_ends, [("max", "i64"), ("max", "i64")], 0),
    (_both_axes, [("max", "i64"), ("max", "i64")], 0),
    (_twice, [("max", "i64"), ("min", "f32")], 0),
    (_both_parts, [("max", "i64")], 0),
    (_other_end, [("max", "i64"), ("min", "f32")], 0),
    (_all_of_it, [("max", "f32"), ("max", "i64")], 0),
    (_of_another, [("max", "f32"), ("max", "i64")], 0),
    (_softmax, [("max", "f32"), ("max", "i64"), ("sum", "f32")], 0),
    (_running, [("max", "i64")], 2),
)


@pytest.mark.parametrize(
    ("made", "reduces", "folds"), LEFT, ids=lambda x: getattr(x, "__name__", "")
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_each_end_along_each_axis_is_one_maximum(
    made: Callable[[Tile, Axis, Axis], tuple[Tile, ...]],
    reduces: list[tuple[str, str]],
    folds: int,
    dtype: str,
) -> None:
    g = Graph("several")
    a, b = g.axes(a=6, b=7)
    axes = {"a": a, "b": b}
    v = g.input("V", (a, b), dtype)
    for number, tile in enumerate(made(cast(v, "f32"), a, b)):
        g.output(f"Y{number}", tile, tile.dtype, tuple(axes[axis] for axis in tile.axes))
    rng = np.random.default_rng(len(reduces))
    values = rng.choice(np.array([0.5, -0.5, 1.5, -2.0], np.float32), (6, 7))
    stored = values if dtype == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16)
    found = _same(g.program(), stored)
    assert sorted(_reduces(found)) == reduces
    assert _folds(found) == folds


@pytest.mark.parametrize("dtype", ["f64", "i64", "u32"])
@pytest.mark.parametrize("kind", ENDS)
def test_types_without_room_for_a_place_are_left_alone(dtype: str, kind: str) -> None:
    g = Graph("wide")
    a, b = g.axes(a=3, b=4)
    g.output("I", ENDS[kind](g.input("V", (a, b), dtype), b), "i32", (a,))
    assert rewritten(g.program()) is None
