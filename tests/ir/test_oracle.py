"""The oracle: pieces, restriction, streamed reductions, gathers, inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir.oracle
from ir import (
    Graph,
    Program,
    ProgramError,
    UsageError,
    carry,
    cast,
    evaluate,
    exp,
    load_operator,
    now,
    prior,
    random_inputs,
    recur,
    reduce,
    rsqrt,
    where,
)
from ir.ops.base import TileArray
from ir.ops.product import product_sum
from ir.scalar import scalar_function
from ir.values import indices
from tests.ir.programs import legendre, programs

Array = np.ndarray[Any, Any]
_OWN = ("row", "moved", "both")  # ways to look up that have an axis of their own


def _inputs(program: Program, seed: int = 0) -> dict[str, Array]:
    return random_inputs(program, np.random.default_rng(seed))


def _same(left: dict[str, Array], right: dict[str, Array]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], rtol=1e-9, atol=1e-9)


@given(programs(), st.integers(1, 6))
@settings(max_examples=35, deadline=None)
def test_pieces_and_blocks_do_not_matter(program: Program, block: int) -> None:
    inputs = _inputs(program)
    whole = evaluate(program, inputs, block=100)
    limit, ir.oracle._PIECE = ir.oracle._PIECE, 16
    try:
        pieces = evaluate(program, inputs, block=block)
    finally:
        ir.oracle._PIECE = limit
    _same(whole, pieces)


@given(programs(), st.randoms(use_true_random=False))
@settings(max_examples=35, deadline=None)
def test_restriction_selects(program: Program, random: Any) -> None:
    inputs = _inputs(program)
    whole = evaluate(program, inputs)
    stored = {axis for _, store in program.stores() for axis in store.axes}
    chosen: dict[str, Array] = {}
    for axis in sorted(stored - ir.oracle.reduced_axes(program)):
        extent = program.axes[axis]
        chosen[axis] = np.array(sorted(random.sample(range(extent), random.randint(1, extent))))
    wanted = {}
    for _, store in program.stores():
        index = [chosen.get(axis, np.arange(program.axes[axis])) for axis in store.axes]
        wanted[store.tensor] = whole[store.tensor][np.ix_(*index)] if index else whole[store.tensor]
    _same(evaluate(program, inputs, chosen), wanted)


def test_restricting_a_reduced_axis_is_refused() -> None:
    program = load_operator("matmul").build(m=4, n=5, k=6)
    with pytest.raises(UsageError, match="cannot restrict axis 'k'; these can: m, n"):
        evaluate(program, _inputs(program), {"k": np.array([0])})


def test_missing_and_misshapen_inputs_are_refused() -> None:
    program = load_operator("matmul").build(m=4, n=5, k=6)
    inputs = _inputs(program)
    with pytest.raises(UsageError, match="matmul: input B is missing"):
        evaluate(program, {"A": inputs["A"]})
    with pytest.raises(UsageError, match=r"input B is float64\(6, 5\), needs float32\(6, 5\)"):
        evaluate(program, inputs | {"B": inputs["B"].astype(np.float64)})


# --- streamed reductions by hand --------------------------------------------------------------


def _online_softmax(masked: bool = False) -> Program:
    g = Graph("online_softmax")
    m, n = g.axes(m=6, n=11)
    x = g.input("X", (m, n), "f64")
    if masked:
        x = where(g.iota(n) >= 11 - (m + 1), x, -math.inf)
    top = carry("max", x, n)
    total = carry("sum", exp(x - now(top)), n, factor=exp(prior(top) - now(top)))
    g.output("Y", exp(x - top) / total, dims=(m, n))
    g.output("top", top)
    return g.program()


@pytest.mark.parametrize("block", [0, 1, 2, 3, 10, 11, 50])
@pytest.mark.parametrize("masked", [False, True])
def test_online_softmax(block: int, masked: bool) -> None:
    program = _online_softmax(masked)
    inputs = _inputs(program)
    inputs["X"] = inputs["X"] * 300  # weights underflow: the rescaling must not
    x = inputs["X"]
    if masked:  # whole blocks of -inf at the beginning
        x = np.where(np.arange(11)[None] >= 10 - np.arange(6)[:, None], x, -np.inf)
    weights = np.exp(x - x.max(1, keepdims=True))
    found = evaluate(program, inputs, block=block)
    np.testing.assert_allclose(found["Y"], weights / weights.sum(1, keepdims=True), atol=1e-15)
    np.testing.assert_array_equal(found["top"], x.max(1))


def test_a_running_variance_uses_addends() -> None:
    """Chan's update: M2 += (mean_before - mean_now)^2 * count_before, and so on, by hand."""
    g = Graph("variance")
    m, n = g.axes(m=3, n=10)
    x = g.input("X", (m, n), "f64")
    one = x * 0.0 + 1.0
    count = carry("sum", one, n)
    total = carry("sum", x, n)
    mean, before = now(total) / now(count), prior(total) / prior(count)
    shift = before - mean
    # sum (x - mean)^2 over the earlier elements grows by count_before * shift^2
    square = carry("sum", (x - mean) * (x - mean), n, addend=prior(count) * shift * shift)
    g.output("Y", (x - total / count) * rsqrt(square / count), dims=(m, n))
    program = g.program()
    inputs = _inputs(program)
    x64 = inputs["X"]
    wanted = (x64 - x64.mean(1, keepdims=True)) / x64.std(1, keepdims=True)
    for block in (1, 3, 4, 10):
        found = evaluate(program, inputs, block=block)["Y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_streamed_product_is_contracted() -> None:
    g = Graph("flash")
    q, k, d, e = g.axes(q=5, k=12, d=4, e=3)
    scores = reduce("sum", g.input("Q", (q, d), "f64") * g.input("K", (k, d), "f64"), d)
    top = carry("max", scores, k)
    p, rescale = exp(scores - now(top)), exp(prior(top) - now(top))
    total = carry("sum", p, k, factor=rescale)
    value = carry("sum", cast(p, "f64") * g.input("V", (k, e), "f64"), k, factor=rescale)
    g.output("O", value / total, dims=(q, e))
    program = g.program()
    inputs = _inputs(program)
    weights = np.exp(inputs["Q"] @ inputs["K"].T)
    wanted = weights @ inputs["V"] / weights.sum(1, keepdims=True)
    for block in (0, 1, 5, 12):
        np.testing.assert_allclose(evaluate(program, inputs, block=block)["O"], wanted, rtol=1e-12)


def test_nested_streams() -> None:
    """A carry along one axis whose body needs a finished carry along another."""
    g = Graph("nested")
    m, n, k = g.axes(m=3, n=7, k=5)
    x = g.input("X", (m, n, k), "f64")
    inner = carry("max", x, k)
    soft = carry("sum", exp(x - now(inner)), k, factor=exp(prior(inner) - now(inner)))
    outer = carry("max", soft, n)
    g.output("Y", carry("sum", soft / now(outer), n, factor=prior(outer) / now(outer)))
    g.output("Z", outer)
    program = g.program()
    inputs = _inputs(program)
    e = np.exp(inputs["X"] - inputs["X"].max(2, keepdims=True)).sum(2)
    found = evaluate(program, inputs, block=2)
    np.testing.assert_allclose(found["Z"], e.max(1), rtol=1e-12)
    np.testing.assert_allclose(found["Y"], (e / e.max(1, keepdims=True)).sum(1), rtol=1e-12)


def test_a_stream_that_needs_its_own_end_is_refused() -> None:
    g = Graph("impossible")
    m, n = g.axes(m=3, n=7)
    x = g.input("X", (m, n), "f64")
    top = carry("max", x, n)
    g.output("Y", carry("sum", exp(x - now(top)) * exp(x - top), n))
    program = g.program()
    with pytest.raises(ProgramError, match="a carry over n needs its own end value"):
        evaluate(program, _inputs(program))


# --- loads, inputs, products ------------------------------------------------------------------


def _paged() -> Program:
    g = Graph("paged")
    s, o, d = g.axes(s=6, o=4, d=3)
    pages = g.input("pages", (s,), "i32")
    pool = g.tensor("pool", (8, 4, 3), "f32")
    g.output("Y", pool[pages, o, d], dims=(s, o, d))
    return g.program()


def test_gathers_and_their_inputs() -> None:
    program = _paged()
    inputs = _inputs(program)
    assert inputs["pages"].dtype == np.int32
    draws = np.concatenate([_inputs(program, seed)["pages"] for seed in range(40)])
    assert (draws.min(), draws.max()) == (0, 7)
    found = evaluate(program, inputs)["Y"]
    np.testing.assert_array_equal(found, inputs["pool"][inputs["pages"]])


def test_int_inputs_fill_their_range_only_where_i32_has_room() -> None:
    small = load_operator("matmul").build(m=64, n=64, k=64, dtype="i8")
    assert _inputs(small)["A"].min() == -128
    assert _inputs(small)["A"].max() == 127
    long = load_operator("matmul").build(m=1, n=1, k=200_000, dtype="i8")
    assert abs(_inputs(long)["A"].astype(int)).max() == 8


def test_inputs_are_in_storage_dtype_and_repeat() -> None:
    program = load_operator("matmul").build(m=4, n=5, k=6, dtype="bf16")
    first, second = _inputs(program, 3), _inputs(program, 3)
    assert {array.dtype for array in first.values()} == {np.dtype(np.uint16)}
    _same(first, second)


_AXES = st.permutations("abcd").flatmap(lambda p: st.integers(0, 4).map(lambda n: tuple(p[:n])))


@given(_AXES, _AXES, st.sets(st.sampled_from("abcd")), st.booleans())
@settings(max_examples=80, deadline=None)
def test_product_sum_is_einsum(
    left: tuple[str, ...], right: tuple[str, ...], over: set[str], whole: bool
) -> None:
    rng = np.random.default_rng(0)
    extents = {"a": 2, "b": 3, "c": 4, "d": 5}
    tiles = []
    for axes in (left, right):
        shape = tuple(extents[axis] for axis in axes)
        array = rng.integers(-9, 9, shape) if whole else rng.standard_normal(shape)
        tiles.append(TileArray(axes, np.asarray(array)))
    summed = tuple(axis for axis in over if axis in left + right)
    kept = "".join(sorted(set(left + right) - set(summed)))
    wanted = np.einsum(f"{''.join(left)},{''.join(right)}->{kept}", *(t.array for t in tiles))
    found = product_sum(tiles[0], tiles[1], summed)
    assert found.array.dtype == wanted.dtype
    np.testing.assert_allclose(found.aligned(tuple(kept)), wanted, rtol=1e-12, atol=1e-12)


def test_whole_number_products_beyond_float64_stay_exact() -> None:
    tile = TileArray(("a", "k"), np.full((2, 3), 2**28 + 1))
    other = TileArray(("k", "b"), np.full((3, 2), 2**28 + 1))
    assert (product_sum(tile, other, ("k",)).array == 3 * (2**28 + 1) ** 2).all()


def test_erf_of_large_arrays_is_as_good_as_of_small_ones() -> None:
    x = np.linspace(-7, 7, 20_001)
    found = scalar_function("erf").meaning(x)
    wanted = np.array([math.erf(value) for value in x])
    assert np.abs(found - wanted).max() < 1e-15


def test_large_programs_stay_in_small_pieces() -> None:
    program = load_operator("attention").build(b=1, heads=2, sq=512, d=8)
    coordinates = ir.oracle._coordinates(program, {})
    plan = ir.oracle._pieces(program, coordinates, ir.oracle._PIECE)
    share = math.prod(count for _, count in plan) or 1
    assert 2 * 512 * 512 * 8 / share <= ir.oracle._PIECE


def _stepped(t: int) -> Program:
    """A state that decays, what it is read with, and the state at the end."""
    g = Graph("stepped")
    rows, steps, width = g.axes(m=2, t=t, d=3)
    x, w = (g.input(name, (rows, steps, width), "f32") for name in "XW")
    state = g.state(steps, (rows, width))
    after = state * 0.5 + x
    g.output("Y", reduce("sum", after * w, over=width))
    g.output("S", recur(state, after))
    return g.program()


def test_a_loop_may_be_asked_for_its_first_steps_alone() -> None:
    long, short = _stepped(150), _stepped(70)
    inputs = _inputs(long, 4)
    few = {name: np.ascontiguousarray(array[:, :70]) for name, array in inputs.items()}
    _same(evaluate(long, inputs, {"t": np.arange(70)}), evaluate(short, few))
    state = np.zeros((2, 3))
    for step in range(150):
        state = state * 0.5 + inputs["X"][:, step]
    np.testing.assert_allclose(evaluate(long, inputs)["S"], state)
    with pytest.raises(UsageError, match="cannot restrict axis 't'"):
        evaluate(long, inputs, {"t": np.arange(3, 70)})


@given(st.lists(st.sampled_from(["row", "moved", "told", "both", "same"]), min_size=4, max_size=4))
@settings(max_examples=55, deadline=None)
def test_lookups_along_any_dimensions_are_indexing(ways: list[str]) -> None:
    """Rows of neighbours, some of them outside, and rows that a tile names, side by side or not."""
    g = Graph("lookup")
    s = g.axis("s", 5)
    named = g.input("named", (s,), "i32", indices(6))
    pool = g.tensor("pool", (6, 6, 6, 6), "f32", fill=-1.0)
    own = {place: g.axis(f"a{place}", 6) for place, way in enumerate(ways) if way in _OWN}
    said: dict[str, Any] = {"told": lambda _: named, "same": lambda _: s, "row": lambda a: a}
    said |= {"moved": lambda a: a + 2, "both": lambda a: a + named}
    index = tuple(said[way](own.get(place)) for place, way in enumerate(ways))
    g.output("Y", pool[index], dims=(s, *own.values()))
    program = g.program()
    inputs = _inputs(program)
    grid = np.indices((5, *(6 for _ in own)))
    along = dict(zip(own, grid[1:], strict=True))
    meant: dict[str, Any] = {"told": lambda _: inputs["named"][grid[0]], "same": lambda _: grid[0]}
    meant |= {"row": lambda a: a, "moved": lambda a: a + 2}
    meant |= {"both": lambda a: a + inputs["named"][grid[0]]}
    places = [meant[way](along.get(place)) for place, way in enumerate(ways)]
    outside = np.any([place > 5 for place in places], axis=0)
    wanted = inputs["pool"][tuple(np.minimum(place, 5) for place in places)]
    found = evaluate(program, inputs)["Y"]
    np.testing.assert_array_equal(found, np.where(outside, np.float32(-1), wanted))


def test_states_weighed_and_summed_over_all_steps() -> None:
    """The product that only the sum reads is never formed, and its state is the loop's."""
    program = legendre(6, 3, 20)
    inputs = random_inputs(program, np.random.default_rng(0))
    x, c = inputs["x"].astype(np.float64), inputs["C"].astype(np.float64)
    wanted = np.stack([np.polynomial.legendre.legval(x, row) for row in c])
    np.testing.assert_allclose(evaluate(program, inputs)["Y"], wanted, atol=1e-12)


def test_a_weighed_state_may_be_of_other_steps_too() -> None:
    g = Graph("decay")
    t, n = g.axes(t=5, n=3)
    x = g.input("X", (t, n), "f32")
    state = g.state(t, (n,))
    g.output("last", recur(state, 0.5 * state + x))
    g.output("sum", reduce("sum", x * state, over=t))
    g.output("most", reduce("max", x * state, over=t))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(0))
    rows, before = inputs["X"].astype(np.float64), [np.zeros(3)]
    for row in rows:
        before.append(0.5 * before[-1] + row)
    terms = rows * np.stack(before[:-1])
    found = evaluate(program, inputs)
    np.testing.assert_allclose(found["sum"], terms.sum(0), rtol=1e-12)
    np.testing.assert_allclose(found["most"], terms.max(0), rtol=1e-12)
    np.testing.assert_allclose(found["last"], before[-1], rtol=1e-12)
