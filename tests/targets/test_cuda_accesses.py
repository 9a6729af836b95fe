"""Few long accesses where there were many short ones: bytes of steps, ends of rows, tables."""

from __future__ import annotations

import re

import numpy as np
import pytest

from explorer.strategies.opening import estimates
from ir import Graph, cast, cumulative, erf, exp, log, lookup, recur, scatter, where
from ir.ops.scatter import Scatter
from ir.program import Program
from ir.registry import load_operator
from ir.space import Space
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.text.scalars import table_storage, table_text
from ir.values import indices, offsets, uniform
from tests.targets.test_unforeseen import emulated, needs_compiler

CUDA, HOPPER = get_backend("cuda"), known_hardware("h200")


def hashed(rows: int, length: int, dtype: str) -> Program:
    """A state that takes one element of a row at each step."""
    g = Graph("hashed")
    T, B = g.axes(t=length, b=rows)
    x = g.input("X", (B, T), dtype, values=uniform(0, 1 if dtype == "bool" else 100))
    h = g.state(T, (B,), g.constant(17, "i64"))
    new = ((h ^ cast(x, "i64")) * 31) & 0xFFFF
    g.output("hash", recur(h, new), "i64", (B,))
    return g.program()


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "length", "access"),
    [("u8", 64, 16), ("i8", 48, 16), ("u8", 44, 4), ("bool", 32, 16), ("u16", 32, 16)],
)
def test_what_steps_read_of_a_row_comes_in_words(dtype: str, length: int, access: int) -> None:
    program = hashed(37, length, dtype)
    space = CUDA.space(program, HOPPER).pin(steps=16, prefetch=True)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    text = CUDA.lower(program, schedule, HOPPER).text("cuda")
    assert f"tw_load_{access}(X" in text
    assert emulated(program, schedule, HOPPER) == []


@needs_compiler
def test_rows_that_no_word_divides_are_read_byte_by_byte() -> None:
    program = hashed(37, 45, "u8")
    space = CUDA.space(program, HOPPER).pin(steps=16)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    assert "tw_load_" not in _body(program, space)
    assert emulated(program, schedule, HOPPER) == []


def _body(program: Program, space: Space) -> str:
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    text = CUDA.lower(program, schedule, HOPPER).text("cuda")
    return text[text.index("//@ kernel") :]


def test_to_ask_memory_ahead_is_estimated_to_cost_something() -> None:
    space = CUDA.space(hashed(1 << 20, 64, "u8"), HOPPER)
    asking, not_asking = (
        estimates(one, one.seed_rows(np.random.default_rng(0))).min()
        for one in (space.pin(prefetch=True), space.pin(prefetch=False))
    )
    assert not_asking < asking


def line(count: int, dtype: str) -> Program:
    """Something of each element of one long row."""
    g = Graph("line")
    (N,) = g.axes(n=count)
    x = g.input("X", (N,), dtype, values=uniform(-1, 1))
    g.output("Y", exp(cast(x, "f32")), dtype, (N,))
    return g.program()


@needs_compiler
@pytest.mark.parametrize(
    ("count", "dtype"), [(1, "f32"), (1027, "f32"), (2049, "bf16"), (515, "f16")]
)
def test_the_last_vector_of_a_row_may_end_outside(count: int, dtype: str) -> None:
    program = line(count, dtype)
    space = CUDA.space(program, HOPPER)
    long = 0
    for row in space.sample(np.random.default_rng(2), 6):
        schedule = space.schedule(row)
        assert emulated(program, schedule, HOPPER) == []
        vector = int(dict(schedule.values)["vector"])
        word = vector * (4 if dtype == "f32" else 2)
        text = CUDA.lower(program, schedule, HOPPER).text("cuda")
        if count > 1 and word >= 8:
            assert f"tw_load_{word}" in text
            assert f"tw_store_{word}" in text
            long += 1
    assert long or count == 1


@needs_compiler
def test_a_row_may_be_longer_than_what_is_read_of_it() -> None:
    """Then no vector needs a guard."""
    g = Graph("steps")
    (B,) = g.axes(b=64)
    start = g.input("start", (g.axis("s", 65),), "i32", values=offsets(900))
    g.output("L", start.at(s=B + 1) - start.at(s=B), "i32", (B,))
    program = g.program()
    space = CUDA.space(program, HOPPER)
    for row in space.sample(np.random.default_rng(6), 8):
        assert emulated(program, space.schedule(row), HOPPER) == []
    g = Graph("part")
    M, N = g.axes(m=3, n=128)
    x = g.tensor("X", (3, 129), "f32")
    y = g.tensor("Y", (131,), "f32")
    g.output("O", x[M, N] + y[N], "f32", (M, N))
    program = g.program()
    space = CUDA.space(program, HOPPER)
    for row in space.sample(np.random.default_rng(7), 8):
        assert emulated(program, space.schedule(row), HOPPER) == []


@needs_compiler
@pytest.mark.parametrize("rows", [(3, 1001), (2, 3, 77)])
def test_rows_that_begin_anywhere_have_no_vectors(rows: tuple[int, ...]) -> None:
    g = Graph("rows")
    axes = g.axes(**{f"a{n}": extent for n, extent in enumerate(rows)})
    x = g.input("X", axes, "f32")
    g.output("Y", x * 2.0, "f32", axes)
    program = g.program()
    space = CUDA.space(program, HOPPER)
    for row in space.sample(np.random.default_rng(4), 4):
        assert emulated(program, space.schedule(row), HOPPER) == []


def test_lanes_store_neighbours_where_rows_begin_anywhere() -> None:
    """Parts of sectors are stores of their own: vectors that are none cost more."""

    def cheapest(length: int, vector: int) -> float:
        g = Graph("rows")
        M, N = g.axes(m=1 << 16, n=length)
        g.output("Y", g.input("X", (M, N), "bf16") * 2.0, "bf16", (M, N))
        space = CUDA.space(g.program(), HOPPER).pin(vector=vector)
        return float(estimates(space, space.sample(np.random.default_rng(0), 64)).min())

    assert cheapest(4095, 1) < cheapest(4095, 8) - 1
    assert cheapest(4096, 8) <= cheapest(4096, 1)


@pytest.mark.parametrize(
    ("entries", "dtype", "kept"),
    [
        ((0.0, 255.0), "i64", "u8"), ((-1.0, 3.0), "i32", "i8"), ((0.0, 65535.0), "u32", "u16"),
        ((0.0, 4294967295.0), "u32", "u32"), ((-(2.0**40), 0.0), "i64", "i64"),
        ((-70000.0, 9.0), "i64", "i32"), ((0.5, 1.0), "f32", "f32"), ((), "i32", "i32"),
    ],
)  # fmt: skip
def test_tables_of_whole_numbers_are_as_narrow_as_they_can_be(
    entries: tuple[float, ...], dtype: str, kept: str
) -> None:
    assert table_storage(entries, dtype) == kept
    assert f"static const {kept} " in table_text(entries, dtype)


@needs_compiler
@pytest.mark.parametrize("most", [200, 60_000, 2**32 - 1])
def test_what_is_looked_up_in_a_narrow_table_is_right(most: int) -> None:
    entries = tuple(float(n * most // 255) for n in range(256))
    g = Graph("table")
    (N,) = g.axes(n=300)
    x = g.input("X", (N,), "u8", values=uniform(0, 255))
    g.output("Y", lookup(entries, x, "i64") * 3 - 1, "i64", (N,))
    program = g.program()
    space = CUDA.space(program, HOPPER)
    for row in space.sample(np.random.default_rng(1), 3):
        assert emulated(program, space.schedule(row), HOPPER) == []


def histogram(count: int, bins: int) -> Program:
    g = Graph("weighed")
    B, N, K = g.axes(b=3, n=count, k=bins)
    w = g.input("W", (B, N), "f32", values=uniform(0, 1))
    x = g.input("X", (B, N), "i32", values=indices(bins))
    g.output("H", scatter("sum", w, {B: g.iota(B), K: x}), "f32", (B, K))
    return g.program()


@needs_compiler
def test_floats_may_be_added_up_in_what_a_group_shares() -> None:
    program = histogram(700, 90)
    assert any(isinstance(node.op, Scatter) for node in program.nodes)
    space = CUDA.space(program, HOPPER).pin(shared=True)
    for row in space.sample(np.random.default_rng(3), 4):
        assert emulated(program, space.schedule(row), HOPPER) == []


def test_tables_of_many_bins_are_estimated_to_be_best_shared() -> None:
    space = CUDA.space(histogram(1 << 24, 4096), HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    first = dict(space.schedule(rows[int(estimates(space, rows).argmin())]).values)
    assert any(name.split(".")[-1].startswith("shared") and value for name, value in first.items())


def test_ends_of_windows_are_told_part_by_part() -> None:
    """Two of four warps did all of their reads one by one where one part of a thread's bends."""
    program = load_operator("experiments/corpus/particles.py:lifting").build(b=4, n=8190)
    pins = {"tile.i": 4096, "own.i": 16, "vector": 8, "tile.b": 1, "own.b": 1}
    space = CUDA.space(program, HOPPER).pin(pins)
    schedule = space.schedule(space.any_legal(np.random.default_rng(0)))
    text = CUDA.lower(program, schedule, HOPPER).text("cuda")
    conditions = re.findall(r"if \((.*) >= 0 && .* < 8190\)", text)
    assert conditions
    assert all(re.search(r"\bi\w* \* 2048|\bi\w* \* 4096", one) for one in conditions)


def test_lanes_that_share_a_scan_do_not_write_far_apart() -> None:
    """Where its points lie beside each other in memory, a thread has each by itself."""
    g = Graph("ranks")
    T, N, D = g.axes(t=4096, n=4096, d=16)
    digit = g.input("K", (T, N), "i32", values=indices(16))
    hot = where(digit == D, g.constant(1, "i32"), 0)
    g.output("R", cumulative("sum", hot, N), "i32", (T, N, D))
    space = CUDA.space(g.program(), HOPPER)
    rows = space.seed_rows(np.random.default_rng(0))
    first = dict(space.schedule(rows[int(estimates(space, rows).argmin())]).values)
    folds = {value for name, value in first.items() if name.split(".")[0] == "fold"}
    assert folds == {"thread"}


def test_functions_of_wide_floats_are_estimated_to_bind() -> None:
    """Memory binds them in 32 bits, series of many terms in 64."""

    def costs(dtype: str) -> float:
        g = Graph("waves")
        (N,) = g.axes(n=1 << 24)
        x = cast(g.input("X", (N,), "f32", values=uniform(0, 1)), dtype)
        g.output("Y", log(exp(x) + exp(-x * x) + erf(x) + 2.0), "f32", (N,))
        space = CUDA.space(g.program(), HOPPER)
        return float(estimates(space, space.seed_rows(np.random.default_rng(0))).min())

    assert costs("f64") > costs("f32") + 1.5
