"""Plain kernels cut into pieces: what they leave is what the program means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ir import Graph, cast
from ir.axes import Axis
from ir.dtypes import from_float
from ir.folding import fold, scan, scatter, top
from ir.ops.base import Array
from ir.plain.build import choices_of, plain_kernel, plain_kernels
from ir.plain.gathered import workers_of
from ir.plain.meaning import meaning, meanings
from ir.plain.pieces import WHOLE, Ways, parts_in
from ir.plain.strides import moved_bytes, steps_of
from ir.program import Program
from ir.tiles import Operand
from tests.judging import bounds_of

TYPES = ("f32", "f64", "bf16", "i32", "i64", "u8")
WAYS = st.builds(
    Ways, st.sampled_from((1, 3, 8)), st.sampled_from((1, 2, 3, 50)), inner=st.booleans()
)


def sent(kind: str, dtype: str, extents: tuple[int, int, int, int], owned: str) -> Program:
    """Elements over (i, t, d) sent to k by an index tile along t; `owned` axes to themselves."""
    g = Graph("sent")
    i, t, d, k = g.axes(**dict(zip("itdk", extents, strict=True)))
    x = g.input("x", (i, t, d), dtype)
    own = {"i": i, "d": d}
    into: dict[Axis, Operand] = {own[name]: own[name] for name in owned if name == "i"}
    into[k] = g.input("where", (t,), "i32")
    into |= {own[name]: own[name] for name in owned if name == "d"}
    g.output("o", scatter(kind, x, into))
    return g.program()


def drawn(program: Program, dtype: str, seed: int) -> dict[str, Array]:
    """Whole numbers, so that every order gives the same; some of the places are outside."""
    rng = np.random.default_rng(seed)
    shape = next(spec.shape for spec in program.inputs if spec.name == "x")
    high = program.axes["k"]
    values = rng.integers(0, 2 if dtype == "bool" else 9, size=shape)
    return {
        "x": from_float(values, dtype),
        "where": rng.integers(-1, high + 1, size=shape[1]).astype(np.int32),
    }


def same(program: Program, ways: Ways, inputs: dict[str, Array], seed: int = 0) -> None:
    kernels = plain_kernels(program, ways)
    found = meanings(kernels, inputs, seed)
    wanted = meaning(plain_kernel(program), inputs)
    for spec in program.outputs:
        assert np.array_equal(found[spec.name], wanted[spec.name]), ways
    for kernel in kernels:
        assert steps_of(kernel.body) >= 0
        assert moved_bytes(kernel) >= 0


@settings(max_examples=35, deadline=None)
@given(
    st.sampled_from(("sum", "max", "min", "or")),
    st.sampled_from(TYPES),
    st.sampled_from(((1, 1, 1, 1), (2, 7, 3, 4), (1, 10, 4, 2), (3, 4, 1, 5))),
    st.sampled_from(("", "i", "d", "id")),
    WAYS,
    st.integers(0, 2**32 - 1),
)
def test_a_scatter_however_it_is_cut(
    kind: str, dtype: str, extents: tuple[int, int, int, int], owned: str, ways: Ways, seed: int
) -> None:
    dtype = "bool" if kind == "or" else dtype
    program = sent(kind, dtype, extents, owned)
    inputs = drawn(program, dtype, seed)
    same(program, ways, inputs, seed % 5)
    for name, bounds in bounds_of(program, inputs).items():
        assert bounds.judge(meanings(plain_kernels(program, ways), inputs)[name]).right


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(("sum", "max", "min", "or")),
    st.sampled_from(TYPES),
    st.sampled_from(((1, 1, 1, 1), (2, 7, 3, 4), (1, 10, 4, 2))),
    st.sampled_from(("", "d", "id")),
    st.sampled_from((1, 2, 3, 50)),
    st.integers(0, 2**32 - 1),
)
def test_all_at_once(
    kind: str, dtype: str, extents: tuple[int, int, int, int], owned: str, pieces: int, seed: int
) -> None:
    dtype = "bool" if kind == "or" else dtype
    program, ways = sent(kind, dtype, extents, owned), Ways(pieces=pieces, atomic=True)
    if not choices_of(program).atomic:
        return
    same(program, ways, drawn(program, dtype, seed), seed % 5)
    same(program, replace(ways, shared=True), drawn(program, dtype, seed), seed % 5)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(("sum", "max", "min", "or")),
    st.sampled_from(TYPES),
    st.sampled_from(((1, 1, 1, 1), (2, 7, 3, 4), (1, 10, 4, 2), (1, 19, 1, 3))),
    st.sampled_from(("", "i", "d", "id")),
    st.sampled_from((1, 3)),
    st.integers(0, 2**32 - 1),
)
def test_each_worker_by_itself(
    kind: str, dtype: str, extents: tuple[int, int, int, int], owned: str, pieces: int, seed: int
) -> None:
    """Workers that have something to do, and some that have not."""
    dtype = "bool" if kind == "or" else dtype
    program = sent(kind, dtype, extents, owned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir.plain.gathered._WORKERS", (4,))
        ways = Ways(private=True, pieces=pieces)
        same(program, ways, drawn(program, dtype, seed), seed % 5)


def test_workers_sum_in_an_order_of_their_own() -> None:
    """Whoever runs first, the same bits."""
    program = sent("sum", "f32", (1, 100, 1, 3), "d")
    inputs = drawn(program, "f32", 0)
    inputs["x"] = np.random.default_rng(0).normal(size=(1, 100, 1)).astype(np.float32)
    kernels = plain_kernels(program, Ways(private=True, pieces=2))
    one, two = (meanings(kernels, inputs, seed)["o"] for seed in (0, 1))
    assert np.array_equal(one, two)


def test_how_many_workers_have_room() -> None:
    for places, count in ((96, 256), (97, 128), (768, 32), (769, 0)):
        program = sent("sum", "f32", (1, 9, 1, places), "d")
        (position,) = (p for p, node in enumerate(program.nodes) if node.op.name == "scatter")
        assert workers_of(program, position) == count
        assert choices_of(program).private == (count > 0)


def test_groups_combine_in_arrays_of_their_own() -> None:
    """A histogram of each row: what meets in memory are the bins, once for each piece."""
    g = Graph("bins")
    m, n, b = g.axes(m=3, n=50, b=4)
    x = g.input("X", (m, n), "u8")
    g.output("H", scatter("sum", g.constant(1, "i32"), {m: m, b: x}), "i32", (m, b))
    program = g.program()
    assert choices_of(program).shared
    drawn_bins = np.random.default_rng(0).integers(0, 5, size=(3, 50)).astype(np.uint8)
    for pieces, groups in ((1, 3), (3, 9)):
        kernels = plain_kernels(program, Ways(atomic=True, shared=True, pieces=pieces))
        assert np.prod([extent for _, extent in kernels[-1].points]) == groups
        found = meanings(kernels, {"X": drawn_bins})["H"]
        assert np.array_equal(found, [np.bincount(row, minlength=5)[:4] for row in drawn_bins])


def test_only_small_outputs_are_combined_by_groups() -> None:
    assert choices_of(sent("sum", "i32", (1, 99, 2, 4096), "d")).shared
    assert not choices_of(sent("sum", "i32", (1, 99, 2, 4097), "d")).shared
    assert choices_of(sent("sum", "f32", (1, 99, 2, 3), "d")).shared


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_sums_of_floats_may_be_added_as_they_come(dtype: str) -> None:
    """In memory, and in what a group shares: any order is right."""
    program = sent("sum", dtype, (2, 40, 3, 5), "d")
    assert choices_of(program).atomic
    assert choices_of(program).shared
    for ways in (Ways(atomic=True), Ways(atomic=True, shared=True, pieces=3)):
        same(program, ways, drawn(program, dtype, 3))


def test_sums_in_pieces_are_added_up_in_order() -> None:
    """Bit for bit what each piece alone gives, one after the other."""
    program = sent("sum", "f32", (1, 11, 2, 3), "d")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 11, 2)).astype(np.float32)
    where = rng.integers(0, 3, size=11).astype(np.int32)
    kernels = plain_kernels(program, Ways(pieces=3))
    found = meanings(kernels, {"x": x, "where": where})["o"]
    total = np.zeros((3, 2), np.float32)
    for first in (0, 4, 8):
        part = np.zeros((3, 2), np.float32)
        for place in range(first, min(first + 4, 11)):
            part[where[place]] += x[0, place]
        total = total + part if first else part
    assert np.array_equal(found, total)
    (parts,) = parts_in(program, kernels)
    assert parts.shape == (3, 3, 2)


def test_nothing_to_cut() -> None:
    """An element for each point alone: pieces change nothing, and none are offered."""
    g = Graph("copied")
    i, d = g.axes(i=3, d=4)
    g.output("o", scatter("sum", g.input("x", (i, d), "f32"), {i: i, d: d}))
    program = g.program()
    assert choices_of(program).longest == 0
    assert plain_kernels(program, Ways(pieces=5)) == plain_kernels(program)


def test_what_a_way_costs() -> None:
    """Pieces share the steps out; loops within read neighbours one after the other."""
    program = sent("sum", "f32", (1, 64, 16, 3), "d")
    whole, pieces, inner = (
        plain_kernels(program, ways)[0] for ways in (Ways(), Ways(pieces=4), Ways(inner=True))
    )
    assert steps_of(pieces.body) == pytest.approx(steps_of(whole.body) / 4, rel=0.2)
    assert moved_bytes(whole) * 16 > 4 * moved_bytes(inner)


# --- folds ----------------------------------------------------------------------------------------

MERGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sum", ("f32",)), ("max", ("bf16",)), ("and", ("bool",)), ("argmax", ("f32", "i32")),
    ("affine", ("i32", "i64")), ("(b0, sub(add(a1, b1), mul(0, a0)))", ("i32", "i32")),
)  # fmt: skip


def folded(number: int, shape: tuple[int, int, int], along: str, keep: bool, back: bool) -> Program:
    """Whole numbers folded along one of three axes, with what is elementwise around."""
    merge, dtypes = MERGES[number]
    g = Graph("folded")
    axes = g.axes(**dict(zip("ijk", shape, strict=True)))
    values = tuple(g.input(f"x{n}", axes, dtype) for n, dtype in enumerate(dtypes))
    axis = axes["ijk".index(along)]
    made = (scan if keep else fold)(merge, values, axis, backward=back)
    rest = tuple(a for a in axes if keep or a is not axis)
    for n, state in enumerate(made):
        found = state if state.dtype == "bool" else cast(state, "f64") * 2.0
        g.output(f"y{n}", found, found.dtype, rest)
    return g.program()


@settings(max_examples=35, deadline=None)
@given(
    st.integers(0, len(MERGES) - 1),
    st.sampled_from(((1, 1, 1), (2, 7, 3), (1, 10, 4), (5, 1, 2), (1, 1, 11))),
    st.sampled_from("ijk"),
    st.booleans(),
    st.booleans(),
    WAYS,
    st.integers(0, 2**32 - 1),
)
def test_a_fold_however_it_is_cut(
    number: int, shape: tuple[int, int, int], along: str, keep: bool, back: bool, ways: Ways,
    seed: int,
) -> None:  # fmt: skip
    program = folded(number, shape, along, keep, back)
    rng = np.random.default_rng(seed)
    inputs = {
        spec.name: from_float(rng.integers(0, 2 if spec.dtype == "bool" else 4, size=spec.shape),
                              spec.dtype)
        for spec in program.inputs
    }  # fmt: skip
    same(program, ways, inputs, seed % 5)


def test_two_passes_at_most() -> None:
    """Without prefixes each element is read once, with prefixes twice."""
    for keep, count in ((False, 2), (True, 3)):
        program = folded(0, (1, 100, 1), "j", keep, False)
        kernels = plain_kernels(program, Ways(pieces=7))
        reads = [kernel for kernel in kernels if any(s.name == "x0" for s in kernel.tensors)]
        assert (len(kernels), len(reads)) == (count, count - 1)


def test_neighbours_are_read_one_after_the_other() -> None:
    program = folded(0, (64, 1, 2000), "i", True, False)
    assert choices_of(program).inner
    (whole,), (inner,) = (plain_kernels(program, ways) for ways in (WHOLE, Ways(inner=True)))
    assert [extent for _, extent in inner.points] == [1, 4]
    points = 2000 * moved_bytes(whole), 4 * moved_bytes(inner)
    assert points[0] > 4 * points[1]
    assert not choices_of(folded(0, (64, 1, 2000), "k", True, False)).inner


# --- tops -----------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@example((2, 7), 2, "f32", False, 3, 0)  # the last piece is shorter than what is held
@given(
    st.sampled_from(((1, 1), (2, 7), (1, 12), (3, 11))),
    st.integers(1, 4),
    st.sampled_from(("f32", "i32", "bool")),
    st.booleans(),
    st.sampled_from((1, 2, 3, 5, 50)),
    st.integers(0, 2**32 - 1),
)
def test_a_top_however_it_is_cut(
    shape: tuple[int, int], ranks: int, dtype: str, least: bool, pieces: int, seed: int
) -> None:
    """Ties and NaN stand in the order of the whole axis."""
    g = Graph("tops")
    i, t, r = g.axes(i=shape[0], t=shape[1], r=min(ranks, shape[1]))
    values, places = top(g.input("x", (i, t), dtype), t, r, least=least)
    g.output("values", values)
    g.output("places", places)
    program = g.program()
    drawn = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 4, size=shape)
    x = from_float(drawn.astype(np.float64), dtype)
    if dtype == "f32":
        x[drawn == 3] = np.nan
    kernels = plain_kernels(program, Ways(pieces=pieces))
    found, wanted = meanings(kernels, {"x": x}, seed % 5), meaning(plain_kernel(program), {"x": x})
    assert np.array_equal(found["places"], wanted["places"])
    assert np.array_equal(found["values"], wanted["values"], equal_nan=dtype == "f32")
