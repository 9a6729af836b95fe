"""Indices that bend back at the ends of a tensor, on a CPU: vectors inside, lanes at the edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer.runtime.process import Answer, Worker, process_server
from ir import Graph, reduce
from ir.dtypes import numpy_dtype
from ir.kernel import Kernel
from ir.oracle import random_inputs
from ir.program import Program
from ir.target import get_backend
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.test_c_printer import check, needs_compiler
from tests.targets.test_cuda_bent import BENDS, OTHERS, Bending, boxes

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(1)


def line(bend: Bending, n: int, dtype: str = "f32", step: int = 1, turned: bool = False) -> Program:
    """A filter along a line, of every `step` points, from the front or from behind."""
    g = Graph("line")
    points, taps = g.axes(x=n // step, t=5)
    values, place = g.tensor("V", (n,), dtype), g.iota(points) * step
    place = (n - 1 - place if turned else place) + g.iota(taps) - 2
    weights = g.input("K", (taps,), "f32")
    g.output("O", reduce("sum", values[bend(place, n)] * weights, over=taps), "f32", (points,))
    return g.program()


def moved(bend: Bending, n: int) -> Program:
    """Bytes and truths of the point before, of several rows."""
    g = Graph("moved")
    rows, points = g.axes(r=3, x=n)
    codes, flags = g.tensor("C", (3, n), "u8"), g.tensor("F", (3, n), "bool")
    before = bend(g.iota(points) - 1, n)
    g.output("D", codes[rows, before], "u8", (rows, points))
    g.output("G", flags[rows, before], "bool", (rows, points))
    return g.program()


def drawn(program: Program, count: int) -> list[Kernel]:
    """Of seeds and of drawn schedules."""
    space, rng = BACKEND.space(program, HOST), np.random.default_rng(0)
    rows = [*space.seed_rows(rng)[: count // 2 + 1], *space.sample(rng, count // 2)]
    return [BACKEND.lower(program, space.schedule(row), HOST, full=True) for row in rows]


@pytest.fixture(scope="module")
def worker(code_cache: Path) -> Iterator[Worker]:
    """A process that runs kernels."""
    found = Worker(
        process_server("cpu", code_cache), "explorer.runtime.workers:Runner", "cpu", code_cache
    )
    yield found
    found.close()


def checked(program: Program, count: int, worker: Worker) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    for kernel in drawn(program, count):
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        arrays = [
            inputs[a.name] if a.role == "input" else np.full(a.shape, 0x5A, numpy_dtype(a.dtype))
            for a in operands
        ]
        reply = worker.ask(60.0, "run", kernel, arrays)
        assert isinstance(reply, Answer), reply
        outputs = [a.name for a in operands if a.role == "output"]
        for output, have in zip(outputs, reply.value[1], strict=True):
            assert bounds[output].judge(have).detail == "", output


@pytest.mark.parametrize("bend", BENDS)
@draws(4, 16)
def test_edges_of_images(bend: str, count: int, worker: Worker) -> None:
    checked(boxes(BENDS[bend], 23, 61), count, worker)


CASES: dict[str, Callable[[], Program]] = {
    "narrow": lambda: line(BENDS["repeated"], 203, "bf16"),
    "apart": lambda: line(BENDS["mirrored"], 67, step=2),
    "turned": lambda: line(BENDS["wrapped"], 131, turned=True),
    "short": lambda: line(BENDS["repeated"], 5),
    "never inside": lambda: line(OTHERS["backwards"], 97),
    "whole numbers": lambda: boxes(BENDS["symmetric"], 9, 40, "i32", step=2),
    "bytes": lambda: moved(BENDS["repeated"], 77),
}


@pytest.mark.parametrize("case", CASES)
@draws(4, 16)
def test_lanes_that_are_apart_or_turned(case: str, count: int, worker: Worker) -> None:
    checked(CASES[case](), count, worker)


@needs_compiler
def test_c_is_right(tmp_path: Path) -> None:
    program = line(BENDS["repeated"], 203)
    check(program, drawn(program, 1)[0], tmp_path)


def test_vectors_inside_are_read_whole() -> None:
    """Of lanes that are points there are both ways; where no plain index is inside there is one."""
    ways = {}
    for name in ("repeated", "backwards"):
        program = line({**BENDS, **OTHERS}[name], 4096)
        space = BACKEND.space(program, HOST).pin({"lane.s0": "x"})
        schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        ways[name] = BACKEND.lower(program, schedule, HOST, full=True).text("llvm").count("else")
    assert ways["repeated"] > ways["backwards"]
