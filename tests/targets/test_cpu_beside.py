"""Sums over everything beside outputs of every point: parts of both for the threads of a CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from explorer.measure import Measurer
from ir import Graph, absolute, maximum, minimum, reduce, where
from ir.program import Program
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cpu.splitting import split_program

CPU = get_backend("cpu")
M, N = 512, 64


def loss() -> Program:
    """A loss over all points, and its gradient at each."""
    g = Graph("loss")
    i, j = g.axes(i=M, j=N)
    apart = g.input("X", (i, j), "f32") - g.input("Y", (i, j), "f32")
    far = absolute(apart)
    each = where(far < 1.0, 0.5 * apart * apart, far - 0.5)
    g.output("L", reduce("sum", each, over=(i, j)) * (1 / (M * N)), "f32", ())
    g.output("G", maximum(minimum(apart, 1.0), -1.0), "f32", (i, j))
    return g.program()


def backward() -> Program:
    """Gradients of rows and of columns: a norm's."""
    g = Graph("backward")
    i, j = g.axes(i=M, j=N)
    x, dy = g.input("X", (i, j), "f32"), g.input("D", (i, j), "f32")
    mean = reduce("sum", x, over=j) * (1 / N)
    g.output("dX", (x - mean) * reduce("sum", dy * x, over=j), "f32", (i, j))
    g.output("dW", reduce("sum", dy * (x - mean), over=i), "f32", (j,))
    return g.program()


@pytest.mark.parametrize("make", [loss, backward])
def test_threads_have_parts_of_sums_and_of_the_outputs_beside_them(
    make: object, code_cache: Path
) -> None:
    assert callable(make)
    program, hardware = make(), CPU.hardware(2)
    space = CPU.space(program, hardware)
    name = next(name for name in space.names if name.rpartition(".")[2] == "split")
    assert "i:2" in space.decision(name).domain
    parted = split_program(program, "i:2")
    assert {"i_part", "i_in"} <= {*parted.program.axes}
    rows = space.pin({name: "i:2"}).sample(np.random.default_rng(1), 4)
    schedules = [space.schedule(row) for row in rows]
    with Measurer(program, "cpu", hardware, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


def test_a_schedule_from_before_there_were_parts_is_one() -> None:
    program, hardware = loss(), CPU.hardware(2)
    space = CPU.space(program, hardware)
    values = space.schedule(space.sample(np.random.default_rng(0), 1)[0]).as_dict()
    del values["split"]
    row = space.encode(Schedule.of("cpu", values))
    assert space.schedule(row)["split"] == "none"


def test_rows_that_no_parts_divide_stay_whole() -> None:
    g = Graph("odd")
    i, j = g.axes(i=521, j=N)
    x = g.input("X", (i, j), "f32")
    g.output("L", reduce("sum", x, over=(i, j)), "f32", ())
    g.output("G", absolute(x), "f32", (i, j))
    assert "split" not in CPU.space(g.program(), CPU.hardware(2)).names
