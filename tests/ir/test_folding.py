"""Folds, tops, scatters, states and tiles read elsewhere, against plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import (
    Graph,
    ProgramError,
    Tile,
    argmax,
    argmin,
    contract,
    cumulative,
    evaluate,
    exp,
    fold,
    maximum,
    parse,
    random_inputs,
    recur,
    recurrence,
    reduce,
    scan,
    scatter,
    top,
)
from ir.merges import MOST_STATES, merge_of
from ir.oracle import answers
from ir.roundoff import ErrorModel
from tests.judging import bounds_of

Arrays = dict[str, np.ndarray]
EXTENTS = st.integers(1, 9)


def results(g: Graph, seed: int = 0) -> tuple[Arrays, Arrays]:
    """Random inputs and what the program makes of them; its text says the same program."""
    program = g.program()
    assert parse(str(program)) == program
    inputs = random_inputs(program, np.random.default_rng(seed))
    return inputs, evaluate(program, inputs)


@settings(deadline=None)
@given(EXTENTS, EXTENTS, st.booleans(), st.sampled_from(["sum", "prod", "max", "min"]))
def test_cumulative_follows_numpy(t: int, c: int, backward: bool, kind: str) -> None:
    g = Graph("scan")
    time, column = g.axes(t=t, c=c)
    x = g.input("X", (column, time), "f64")
    g.output("Y", cumulative(kind, x, time, backward=backward))
    inputs, found = results(g)
    turn = slice(None, None, -1 if backward else 1)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
    expected = ufunc.accumulate(inputs["X"][:, turn], axis=1)[:, turn]
    np.testing.assert_allclose(found["Y"], expected, rtol=1e-12)


@settings(deadline=None)
@given(EXTENTS, st.booleans())
def test_a_recurrence_goes_step_by_step(t: int, backward: bool) -> None:
    g = Graph("recurrence")
    (time,) = g.axes(t=t)
    a, b = g.input("A", (time,), "f64"), g.input("B", (time,), "f64")
    g.output("H", recurrence(a, b, time, backward=backward))
    inputs, found = results(g)
    state, expected = 0.0, np.zeros(t)
    for place in range(t)[:: -1 if backward else 1]:
        state = inputs["A"][place] * state + inputs["B"][place]
        expected[place] = state
    np.testing.assert_allclose(found["H"], expected, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 1.0, -2.0, np.nan, np.inf, -np.inf]), min_size=1))
def test_argmax_and_argmin_take_the_first_and_nan(values: list[float]) -> None:
    g = Graph("arg")
    (place,) = g.axes(k=len(values))
    x = g.input("X", (place,), "f32")
    g.output("Most", argmax(x, place))
    g.output("Least", argmin(x, place))
    data = np.array(values, dtype=np.float32)
    found = evaluate(g.program(), {"X": data})
    assert int(found["Most"]) == int(np.argmax(data))
    assert int(found["Least"]) == int(np.argmin(data))


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 1.0, -2.0, np.nan, np.inf]), min_size=24, max_size=24))
def test_places_over_several_axes_are_counted_with_the_last_fastest(values: list[float]) -> None:
    g = Graph("arg")
    i, j, k = g.axes(i=2, j=3, k=4)
    x = g.input("X", (i, j, k), "f32")
    g.output("All", argmax(x, (i, j, k)))
    g.output("Rows", argmin(x, (j, k)))
    g.output("Turned", argmax(x, (k, i)))
    data = np.array(values, dtype=np.float32).reshape(2, 3, 4)
    found = evaluate(g.program(), {"X": data})
    assert int(found["All"]) == int(np.argmax(data))
    assert found["Rows"].tolist() == np.argmin(data.reshape(2, 12), axis=1).tolist()
    turned = data.transpose(1, 2, 0).reshape(3, 8)
    assert found["Turned"].tolist() == np.argmax(turned, axis=1).tolist()


def test_a_merge_of_ones_own_gives_mean_and_variance() -> None:
    def welford(a: tuple[Tile, ...], b: tuple[Tile, ...]) -> tuple[Tile, ...]:
        count = a[0] + b[0]
        apart = b[1] - a[1]
        mean = a[1] + apart * b[0] / count
        return count, mean, a[2] + b[2] + apart * apart * a[0] * b[0] / count

    g = Graph("welford")
    row, column = g.axes(m=3, n=17)
    x = g.input("X", (row, column), "f64")
    count, mean, squares = fold(welford, (x * 0.0 + 1.0, x, x * 0.0), column)
    g.output("Mean", mean)
    g.output("Variance", squares / count)
    inputs, found = results(g)
    np.testing.assert_allclose(found["Mean"], inputs["X"].mean(axis=1))
    np.testing.assert_allclose(found["Variance"], inputs["X"].var(axis=1))


@settings(deadline=None)
@given(EXTENTS, st.integers(1, 9), st.booleans())
def test_the_top_is_a_stable_sort(n: int, wanted: int, least: bool) -> None:
    wanted = min(n, wanted)
    g = Graph("top")
    row, column, rank = g.axes(m=2, n=n, k=wanted)
    x = g.input("X", (row, column), "f32")
    values, places = top(x, column, rank, least=least)
    g.output("V", values)
    g.output("P", places)
    data = np.random.default_rng(n).integers(-2, 3, (2, n)).astype(np.float32)
    data[1, n // 2] = np.nan
    found = evaluate(g.program(), {"X": data})
    for line in range(2):
        keys = [(not np.isnan(v), v if least else -v, i) for i, v in enumerate(data[line])]
        order = [
            i for _, _, i in sorted(keys, key=lambda k: (k[0], 0.0 if not k[0] else k[1], k[2]))
        ]
        assert found["P"][line].tolist() == order[:wanted]
        np.testing.assert_array_equal(found["V"][line], data[line][order[:wanted]])


@settings(deadline=None)
@given(st.sampled_from(["sum", "max", "min"]), st.integers(1, 12))
def test_a_scatter_combines_in_place_and_drops_what_is_outside(kind: str, n: int) -> None:
    g = Graph("scatter")
    point, bin_, column = g.axes(p=n, e=4, d=3)
    x = g.input("X", (point, column), "f64")
    where_to = g.input("I", (point,), "i32")
    g.output("Y", scatter(kind, x, {bin_: where_to, column: column}))
    program = g.program()
    rng = np.random.default_rng(n)
    inputs: Arrays = {
        "X": rng.normal(size=(n, 3)), "I": rng.integers(-1, 6, n).astype(np.int32),
    }  # fmt: skip
    expected = np.full((4, 3), {"sum": 0.0, "max": -np.inf, "min": np.inf}[kind])
    function = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
    for place, row in zip(inputs["I"], inputs["X"], strict=True):
        if 0 <= place < 4:
            expected[place] = function(expected[place], row)
    np.testing.assert_allclose(evaluate(program, inputs)["Y"], expected)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_where_nothing_is_sent_is_the_end_of_the_type(dtype: str) -> None:
    g = Graph("extremes")
    point, place = g.axes(p=2, e=3)
    x, to = g.input("X", (point,), dtype), g.input("I", (point,), "i32")
    g.output("Most", scatter("max", x, {place: to}))
    g.output("Least", scatter("min", x, {place: to}))
    low, high = np.iinfo(f"int{dtype[1:]}").min, np.iinfo(f"int{dtype[1:]}").max
    data = {"X": np.array([low + 1, high - 1], f"int{dtype[1:]}"), "I": np.array([0, 1], np.int32)}
    found = evaluate(g.program(), data)
    assert found["Most"].tolist() == [low + 1, high - 1, low]
    assert found["Least"].tolist() == [low + 1, high - 1, high]


def test_a_tile_is_read_shifted_renamed_and_gathered() -> None:
    g = Graph("reads")
    i, j, k = g.axes(i=5, j=5, k=3)
    a = g.input("A", (i, k), "f64")
    where_to = g.input("P", (j,), "i32")
    y = exp(a)
    g.output("Shifted", y.at(i=i - 1, fill=7.0))
    g.output("Apart", y - y.at(i=j))
    g.output("Gathered", y.at(i=where_to))
    inputs, found = results(g)
    y0 = np.exp(inputs["A"])
    np.testing.assert_allclose(found["Shifted"], np.vstack([np.full((1, 3), 7.0), y0[:-1]]))
    assert found["Apart"].shape == (5, 3, 5)
    np.testing.assert_allclose(found["Apart"], y0[:, :, None] - y0.T[None])
    assert set(inputs["P"].tolist()) <= set(range(5))
    np.testing.assert_allclose(found["Gathered"], y0[inputs["P"]].T)


def test_a_state_carries_a_matrix_and_its_history_can_be_read() -> None:
    g = Graph("delta")
    b, t, d, c = g.axes(b=2, t=6, d=3, c=4)
    k, v = g.input("K", (b, t, d), "f64"), g.input("V", (b, t, c), "f64")
    beta = g.input("B", (b, t), "f64")
    state = g.state(t, (b, d, c), dtype="f64")
    after = state + beta * k * (v - contract(state, k, over=d, acc="f64"))
    out = contract(after, k, over=d, acc="f64")
    g.output("O", out, dims=(b, t, c))
    g.output("S", recur(state, after))
    g.output("M", reduce("max", out, over=t))
    inputs, found = results(g)
    s, outs = np.zeros((2, 3, 4)), []
    for at in range(6):
        key, value = inputs["K"][:, at], inputs["V"][:, at]
        error = value - np.einsum("bdc,bd->bc", s, key)
        s = s + inputs["B"][:, at, None, None] * key[:, :, None] * error[:, None]
        outs.append(np.einsum("bdc,bd->bc", s, key))
    np.testing.assert_allclose(found["O"], np.stack(outs, axis=1))
    np.testing.assert_allclose(found["S"], s)
    np.testing.assert_allclose(found["M"], np.stack(outs).max(axis=0))


def test_two_states_go_together() -> None:
    g = Graph("fibonacci")
    (t,) = g.axes(t=10)
    one, two = g.state(t, (), 1, "i32"), g.state(t, (), 1, "i32")
    both = one + two
    g.output("F", both)
    g.output("Last", recur(two, both) + recur(one, two) * 0)
    _, found = results(g)
    assert found["F"].tolist() == [2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
    assert found["Last"] == 144


def test_a_loop_without_a_step_leaves_what_was_there() -> None:
    g = Graph("none")
    t, c = g.axes(t=0, c=3)
    x = g.input("X", (t, c), "f32")
    state = g.state(t, (c,), 2.0)
    after = state + x
    g.output("Last", recur(state, after))
    g.output("All", after)
    found = evaluate(g.program(), {"X": np.zeros((0, 3), np.float32)})
    assert found["Last"].tolist() == [2.0, 2.0, 2.0]
    assert found["All"].shape == (0, 3)


def test_a_state_without_a_step_is_refused() -> None:
    g = Graph("endless")
    (t,) = g.axes(t=3)
    g.output("Y", g.state(t, ()) + 1.0)
    with pytest.raises(ProgramError, match="has no step"):
        evaluate(g.program(), {})


@pytest.mark.parametrize("depth", [64, 2048])
def test_errors_of_folds_hold_what_kernels_do(depth: int) -> None:
    """What a fold in f32 gives, one by one, is within what a right kernel may be off."""
    g = Graph("sums")
    t, c = g.axes(t=depth, c=4)
    x = g.input("X", (t, c), "f32")
    g.output("S", cumulative("sum", x, t))
    g.output("H", recurrence(x * 0.1 + 0.8, x, t))
    g.output("A", argmax(x, t))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(1))
    found = answers(program, inputs, ErrorModel())
    one_by_one = np.cumsum(inputs["X"], axis=0, dtype=np.float32)
    assert (np.abs(one_by_one - found["S"].value) <= found["S"].reach).all()
    h, state = np.empty_like(inputs["X"]), np.zeros(4, np.float32)
    for at in range(depth):
        state = (inputs["X"][at] * np.float32(0.1) + np.float32(0.8)) * state + inputs["X"][at]
        h[at] = state
    assert (np.abs(h - found["H"].value) <= found["H"].reach).all()
    assert not found["A"].reach.any()
    assert found["S"].reach.max() < 1e-2 * np.abs(found["S"].value).max()


MISUSES: dict[str, tuple[Callable[[Graph, Any, Tile], object], str]] = {
    "an axis that the tile lacks": (lambda g, m, x: x.at(z=m), "read at z: no axis of the tile"),
    "outside without fill": (lambda g, m, x: x.at(m=m + 1), "give fill= to read outside"),
    "an index of floats": (lambda g, m, x: x.at(m=x), "f32, not whole"),
    "a fold over another axis": (
        lambda g, m, x: fold("sum", x, g.axis("q", 2)), "'q' is not an axis of the operands",
    ),
    "an unknown merge": (lambda g, m, x: fold("median", x, m), "merge"),
    "a merge of too few": (lambda g, m, x: fold("affine", x, m), "1 tiles for 2 states"),
    "a merge that makes floats of whole numbers": (
        lambda g, m, x: fold(lambda a, b: a[0] * 0.5 + b[0], g.iota(m), m), "state 0 is i32",
    ),
    "more than there are": (lambda g, m, x: top(x, m, g.axis("k", 9)), "9 of 4 elements"),
    "an unknown way to scatter": (lambda g, m, x: scatter("mean", x, {m: m}), "known are sum"),
    "truth values added": (lambda g, m, x: scatter("sum", x > 0.0, {m: m}), "or is for bool"),
    "a step of another type": (
        lambda g, m, x: recur(g.state(m, (), 0, "i32"), x), "the state is i32, its step f32",
    ),
    "a step that is wider": (
        lambda g, m, x: recur(g.state(m, ()), x * g.iota(g.axis("w", 2))), "the state is over",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISUSES)
def test_misuse_is_one_line(case: str) -> None:
    write, words = MISUSES[case]
    g = Graph("misuse")
    (m,) = g.axes(m=4)
    with pytest.raises(ProgramError) as told:
        write(g, m, g.input("A", (m,), "f32"))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_merges_are_read_strictly() -> None:
    for text in (
        "",
        "a0 + b0",
        "add(a0)",
        "add(a0, b1)",
        "(a0,",
        "nothing(a0, b0)",
        "add(a0, b0))",
    ):
        with pytest.raises(ProgramError, match="merge"):
            merge_of(text)
    many = ", ".join(["a0"] * (MOST_STATES + 1))
    with pytest.raises(ProgramError, match="states"):
        merge_of(f"({many})")


def test_a_scan_of_pairs_gives_every_state() -> None:
    g = Graph("pairs")
    (t,) = g.axes(t=5)
    x = g.input("X", (t,), "f64")
    most, where_at = scan("argmax", (x, g.iota(t)), t)
    g.output("Most", maximum(most, -1e30))
    g.output("Where", where_at)
    inputs, found = results(g)
    assert found["Where"].tolist() == [int(np.argmax(inputs["X"][: n + 1])) for n in range(5)]


def test_an_axis_that_has_no_name_here_is_read_elsewhere() -> None:
    g = Graph("op")
    i, j = g.axes(i=4, j=4)
    x = g.input("X", (i, j), "f64")
    g.output("Y", x.at({i: j, j: i}), dims=(i, j))
    inputs, found = results(g)
    np.testing.assert_array_equal(found["Y"], inputs["X"].T)
    with pytest.raises(ProgramError, match="read at: 'i' is not an axis"):
        x.at({"i": j})  # type: ignore[dict-item]


def test_a_state_is_stepped_though_nothing_reads_its_end() -> None:
    g = Graph("op")
    t, c = g.axes(t=5, c=3)
    x = g.input("X", (t, c), "f64")
    state = g.state(t, (c,), dtype="f64")
    recur(state, state * 0.5 + x)
    g.output("Before", state, dims=(t, c))
    unused = g.state(t, (c,))
    recur(unused, unused + 1.0)
    inputs, found = results(g)
    expected = np.zeros((5, 3))
    for step in range(4):
        expected[step + 1] = expected[step] * 0.5 + inputs["X"][step]
    np.testing.assert_allclose(found["Before"], expected)
    assert str(g.program()).count("recur") == 1


def test_a_product_is_read_in_the_order_of_its_axes() -> None:
    """Whatever order the product itself has been computed in."""
    g = Graph("op")
    i, h, d, j = g.axes(i=4, h=3, d=5, j=4)
    k = g.input("K", (i, h, d), "f64")
    products = contract(k, k.at(i=j), over=d)
    g.output("Y", products.at(h=2, j=3 - j), dims=(i, j))
    inputs, found = results(g)
    keys = inputs["K"][:, 2]
    np.testing.assert_allclose(found["Y"], (keys @ keys.T)[:, ::-1])


def test_which_of_numbers_out_of_range_is_largest_is_in_doubt() -> None:
    """What is a number in f64 still may be infinite in f32."""
    g = Graph("out_of_range")
    i, r = g.axes(i=12, r=2)
    x = g.input("X", (i,), "f32")
    g.output("I", top(x * x * x * x, i, r)[1], "i32", (r,))
    given = np.logspace(0, 30, 12, dtype=np.float32)  # the last ones out of range, and of f64
    bounds = bounds_of(g.program(), {"X": given})["I"]
    assert np.all(bounds.low < 0)
    assert np.all(bounds.high > 11)
    sure = bounds_of(g.program(), {"X": np.linspace(1, 2, 12, dtype=np.float32)})
    assert sure["I"].low.round().tolist() == [11, 10]


@pytest.mark.parametrize(("n", "m"), [(300_001, 1), (7_001, 130)])
def test_a_long_fold_is_of_blocks_in_their_order(n: int, m: int) -> None:
    """Such as stay in a cache; the first point and the last, which other orders would change."""
    g = Graph("g")
    i, j = g.axes(i=n, j=m)
    x = g.input("X", (i, j), "f64")
    ends = fold(lambda a, b: (a[0], b[1], a[2] + b[2]), (x, x, x), i)
    for name, tile in zip("ABS", ends, strict=True):
        g.output(name, tile, "f64", (j,))
    inputs, found = results(g)
    assert np.array_equal(found["A"], inputs["X"][0])
    assert np.array_equal(found["B"], inputs["X"][-1])
    np.testing.assert_allclose(found["S"], inputs["X"].sum(axis=0), rtol=1e-9, atol=1e-6)
    reach = answers(g.program(), inputs, ErrorModel())["S"].reach
    assert (reach > 0).all()
    assert (reach < 1e-6).all()
