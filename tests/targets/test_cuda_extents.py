"""Every extent is right: programs of drawn sizes, emulated; the smallest and the odd ones too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from tests.emulator.emulate import MODES, compiler
from tests.few import few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
EDGES = (1, 2, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 72, 127, 128, 129, 200, 257)
FLOATS = ("bf16", "f16", "f32")


def drawn_programs(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Operators with extents at and beside what tiles, lines and warps end at."""
    rng = np.random.default_rng(11)

    def edge(least: int = 1) -> int:
        return max(least, int(rng.choice(EDGES)))

    def word(*choices: str) -> str:
        return str(rng.choice(choices))

    def flag() -> bool:
        return bool(rng.random() < 0.5)

    for number in range(count):
        kind = number % 6
        if kind < 2:
            dtype = word("bf16", "f16", "tf32", "i8", "u8", "e4m3", "f32")
            sizes = {"m": edge(8), "n": edge(8), "k": edge(8)}
            yield "matmul", {**sizes, "dtype": dtype, "ta": flag(), "tb": flag()}
        elif kind == 2:
            name = word("softmax", "layernorm", "rmsnorm", "row_max", "row_sum")
            yield name, {"m": edge(), "n": edge(32), "dtype": word(*FLOATS)}
        elif kind == 3:
            name = word("column_sum", "column_max")
            yield name, {"m": edge(), "n": edge(32), "dtype": word(*FLOATS)}
        elif kind == 4:
            rows, dtype = edge(3), word(*FLOATS)
            depths = (7, 16, 24) if dtype == "f32" else (16, 24, 40, 64, 128)
            yield "attention", {
                "b": 1, "heads": 2, "sq": rows, "sk": rows + int(rng.integers(0, 70)),
                "d": int(rng.choice(depths)), "dtype": dtype, "causal": flag(),
            }  # fmt: skip
        else:
            yield "conv2d", {
                "n": 2, "h": int(rng.integers(4, 13)), "w": int(rng.integers(4, 13)),
                "c": int(rng.choice((1, 8, 16, 24))), "f": int(rng.choice((8, 20, 48))),
                "padding": int(rng.integers(0, 2)), "stride": int(rng.integers(1, 3)),
                "dtype": word(*FLOATS),
            }  # fmt: skip


def check(name: str, arguments: dict[str, Any], number: int) -> None:
    """A seed and a drawn schedule, in a mode that turns from program to program."""
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate(drawn(program, number, 1, 1)):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        mode = (5 * number + 7 * turn) % len(MODES)
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


PROGRAMS = tuple(drawn_programs(60))


@needs_compiler
@pytest.mark.parametrize("number", few(range(len(PROGRAMS)), range(14)))
@pytest.mark.alike(2)
def test_drawn_extents(number: int) -> None:
    name, arguments = PROGRAMS[number]
    check(name, arguments, number)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("row_sum", {"m": 7, "n": 1}),
        ("layernorm", {"m": 1, "n": 2}),
        ("matmul", {"m": 1, "n": 1, "k": 1}),
        ("matmul", {"m": 4, "n": 4, "k": 4, "dtype": "bf16"}),
    ],
)
def test_programs_of_less_than_a_warp_of_points(name: str, arguments: dict[str, Any]) -> None:
    check(name, arguments, 0)


@needs_compiler
@pytest.mark.parametrize("queries", few([16, 33, 64, 100], [1, 3]))
def test_few_queries_of_grouped_heads(queries: int) -> None:
    sizes = {"b": 1, "heads": 4, "kv_heads": 2, "sq": queries, "sk": 130, "d": 64}
    check("attention", {**sizes, "dtype": "bf16"}, 0)


@pytest.mark.parametrize("depth", few([7, 12, 20], [0]))
def test_heads_of_any_depth(depth: int) -> None:
    """Values are copied so that keys lie in a row; every legal block of keys fits it."""
    sizes = {"b": 1, "heads": 2, "sq": 9, "sk": 530, "d": depth, "dtype": "bf16"}
    program = built("attention", sizes)
    for schedule in drawn(program, 0, 4, 8):
        BACKEND.lower(program, schedule, HARDWARE)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "rows", "columns", "threads"),
    [("rmsnorm", 2, 2880, 256), ("softmax", 4, 1000, 128), ("softmax", 1, 5000, 256)],
)
def test_a_row_that_threads_do_not_divide_is_read_once(
    name: str, rows: int, columns: int, threads: int
) -> None:
    """Every thread reads so many vectors as its share of the next power of two has, guarded."""
    program = built(name, {"m": rows, "n": columns, "dtype": "f32"})
    tile = 1 << (columns - 1).bit_length()
    pins = {"tile.m": 1, "own.m": 1, "tile.n": tile, "own.n": tile // threads, "vector": 4}
    space = BACKEND.space(program, HARDWARE).pin(pins | {"lanes": "n"})
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted = bounds_of(program, inputs)
    for row in space.sample(np.random.default_rng(6), 2):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert f"__launch_bounds__({threads}" in kernel.text("cuda")
        assert f"< {columns}" in kernel.text("cuda")
        assert not problems(program, kernel, inputs, wanted, 0)
