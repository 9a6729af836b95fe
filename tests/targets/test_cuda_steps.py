"""Loops of states: a thread loads for several steps at a time, and every kernel is right."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, cumulative, exp, operator, recur, reduce, where
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.plain.code import Loop
from ir.program import Program
from ir.rewrite.stated import stated
from ir.schedule import Schedule, Value
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.plain.plain_held import held_of
from ir.targets.cuda.space.engines import routes_of
from ir.targets.cuda.space.plain import PlainCudaKernel
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


@operator
def selective(g: Graph, b: int, t: int, d: int, n: int) -> None:
    """A state of n numbers for each channel, that decays by its own."""
    bb, tt, dd, nn = g.axes(b=b, t=t, d=d, n=n)
    x = cast(g.input("X", (bb, tt, dd), "bf16"), "f32")
    a, key, query = (
        g.input("A", (dd, nn), "f32"),
        cast(g.input("B", (bb, tt, nn), "bf16"), "f32"),
        g.input("C", (bb, tt, nn), "f32"),
    )
    s = g.state(tt, (bb, dd, nn))
    new = s * exp(a * -0.5) + x * key
    recur(s, new)
    g.output("Y", reduce("sum", new * query, over=nn), "f32", (bb, tt, dd))


@operator
def fired(g: Graph, b: int, t: int) -> None:
    """Neurons that fall back when they fire; what comes in a step late is 0 at first."""
    bb, tt = g.axes(b=b, t=t)
    x = g.tensor("X", (b, t), "f32", fill=0)
    s = g.state(tt, (bb,))
    v = s * 0.9 + x[bb, tt] + x[bb, tt - 1]
    recur(s, where(v > 1.0, 0.0, v))
    g.output("V", v, "f32", (bb, tt))


@operator
def rendered(g: Graph, rays: int, t: int, dtype: str) -> None:
    """What is seen along rays: the light that is left, three colours, and the largest weight."""
    r, tt, c = g.axes(r=rays, t=t, c=3)
    depth = cast(g.input("depth", (r, tt), dtype), "f32") * 0.1
    before = cumulative("sum", depth, tt) - depth
    w = exp(-before) * (1.0 - exp(-depth))
    g.output("C", reduce("sum", w * g.input("rgb", (r, tt, c), dtype), over=tt), "f32", (r, c))
    g.output("M", reduce("max", cumulative("max", w, tt) - depth, over=tt), "f32", (r,))


def _kernel(program: Program) -> PlainCudaKernel:
    kernel = routes_of(program, HARDWARE)[0].kernels[0]
    assert isinstance(kernel, PlainCudaKernel)
    return kernel


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("times", [16, 21])
@pytest.mark.parametrize("states", [16, 6])
def test_steps_that_are_loaded_together_are_right(times: int, states: int) -> None:
    _check(selective.build(b=16, t=times, d=72, n=states))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_states_of_one_number_are_right() -> None:
    _check(fired.build(b=40, t=19))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("times", "dtype", "words"), [
    (36, "f32", ("tw_load_16(",)), (40, "bf16", ("tw_load_16(", "tw_load_4(")), (33, "bf16", ()),
])  # fmt: skip
def test_what_steps_read_side_by_side_is_loaded_in_words(
    times: int, dtype: str, words: tuple[str, ...]
) -> None:
    program = stated(rendered.build(rays=1030, t=times, dtype=dtype))
    _check(program)
    counts = _kernel(program).whole.step_counts
    texts = "".join(_lowered(program, count, 0).text("cuda") for count in counts if count > 1)
    own = texts.split("//@ kernel")[1:]
    assert all(any(f"= {word}" in text for text in own) for word in words)
    assert words or not any("= tw_load_" in text for text in own)
    if words:  # what is asked for ahead is inside, whole turns of it
        asked = _lowered(program, counts[-1], 1).text("cuda").split("//@ kernel")[1]
        assert f", {times - counts[-1]}ll);" in asked


def _lowered(program: Program, count: int, number: int) -> Kernel:
    values: dict[str, Value] = {"threads": 32, "steps": count, "prefetch": number % 2 == 1}
    schedule = Schedule.of(CudaBackend.name, {"early": False, **values})
    return BACKEND.lower(program, schedule, HARDWARE)


def _check(program: Program) -> None:
    counts = _kernel(program).whole.step_counts
    assert len(counts) > 2
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for number, count in enumerate(counts):
        kernel = _lowered(program, count, number)
        assert ("held_1[" in kernel.text("cuda")) == (count > 1)
        assert not problems(program, kernel, inputs, wanted, number), count


def test_reads_that_a_condition_guards_are_not_loaded_ahead() -> None:
    kernel = _kernel(fired.build(b=40, t=19)).whole.plain
    (loop,) = [s for s in kernel.body if isinstance(s, Loop)]
    assert len(held_of(kernel, loop)) == 1  # x at the step's own point, not at the one before
