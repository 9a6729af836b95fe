"""Loops that load for several steps, of inputs of every type and place: drawn kernels are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, exp, maximum, recur, reduce, tanh, where
from ir.inputs import random_inputs
from ir.plain.code import Loop
from ir.plain.strides import elements
from ir.program import Program
from ir.schedule import Schedule, Value
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.plain.plain_held import FAR, REGISTERS, Held, held_of
from ir.targets.cuda.space.engines import routes_of
from ir.targets.cuda.space.plain import PlainCudaKernel
from ir.values import uniform
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def rows(dtype: str, n: int, t: int = 7) -> Program:
    """A state of n numbers for each channel; what adds to it is a row of n neighbours."""
    g = Graph("rows")
    b, time, d, e = g.axes(b=8, t=t, d=128, n=n)
    row = cast(g.input("R", (b, time, e), dtype, values=uniform(0, 3)), "f32")
    x, decay = g.input("X", (time, b, d), "f32"), g.input("A", (d, e), "f32")
    s = g.state(time, (b, d, e))
    new = s * exp(-decay * decay) + x * row
    recur(s, new)
    g.output("Y", reduce("sum", new * row, over=e), "f32", (b, time, d))
    return g.program()


def turned(t: int = 13) -> Program:
    """Steps that read an input from its end on, and every other element of one."""
    g = Graph("turned")
    b, time = g.axes(b=40, t=t)
    x, y = g.tensor("X", (40, t), "f16"), g.tensor("Y", (40, 2 * t), "f32")
    s = g.state(time, (b,), 0.5)
    new = s * 0.75 + cast(x[b, t - 1 - time], "f32") + y[b, time * 2] * y[b, time * 2 + 1]
    g.output("L", recur(s, new), "f32", (b,))
    g.output("S", s + x[b, time], "f32", (time, b))
    return g.program()


def gathered(t: int = 12) -> Program:
    """Steps that read a place of a table, which stands in an input itself."""
    g = Graph("gathered")
    b, time, e = g.axes(b=5, t=t, n=8)
    table, places = g.tensor("T", (30, 8), "bf16"), g.input("P", (b, time), "i32")
    s = g.state(time, (b, e))
    new = s * 0.5 + cast(table[places, e], "f32")
    g.output("L", recur(s, new), "f32", (b, e))
    g.output("S", new, "f32", (b, time, e))
    return g.program()


def flagged(t: int = 17) -> Program:
    """States that begin anew where a flag says so, and grow by whole numbers of a byte."""
    g = Graph("flagged")
    b, time = g.axes(b=40, t=t)
    anew, more = g.input("F", (b, time), "bool"), g.input("X", (b, time), "i8")
    s = g.state(time, (b,), 0, "i32")
    new = where(anew, 0, s) + cast(more, "i32")
    g.output("L", recur(s, new), "i32", (b,))
    g.output("S", new, "i32", (b, time))
    return g.program()


def doubles(t: int = 10) -> Program:
    """Two states in f64, of which one is made of the other, and read before its step."""
    g = Graph("doubles")
    b, time = g.axes(b=33, t=t)
    x, gain = g.input("X", (time, b), "f64"), g.input("G", (b,), "f64")
    first, second = g.state(time, (b,), 0.0, "f64"), g.state(time, (b,), 1.0, "f64")
    new = first + gain * gain * (x - first) * 0.1
    recur(first, new)
    other = maximum(second * 0.5, new) + tanh(first)
    recur(second, other)
    g.output("S", other, "f64", (time, b))
    return g.program()


def late(t: int = 14) -> Program:
    """Steps of which some read what others may not: outside of it there is nothing."""
    g = Graph("late")
    b, time, e = g.axes(b=9, t=t, n=4)
    x, y = g.tensor("X", (9, t, 4), "f32", fill=0.25), g.tensor("Y", (9, t, 4), "f32")
    s = g.state(time, (b, e))
    new = s * 0.5 + x[b, time - 2, e] + x[b, time + 1, e] + y[b, time, e]
    recur(s, new)
    g.output("S", new, "f32", (b, time, e))
    return g.program()


def chosen(t: int = 9) -> Program:
    """Steps that read one of two inputs, as a flag says."""
    g = Graph("chosen")
    b, time = g.axes(b=40, t=t)
    flag = g.input("F", (b, time), "bool")
    x, y = g.input("X", (b, time), "f32"), g.input("Y", (time, b), "f32")
    s = g.state(time, (b,))
    new = s * 0.5 + where(flag, x * 2.0, y)
    recur(s, new)
    g.output("S", new, "f32", (b, time))
    return g.program()


CASES: dict[str, Callable[[], Program]] = {
    "f32 x 16": lambda: rows("f32", 16),
    "f32 x 6": lambda: rows("f32", 6),
    "bf16 x 8": lambda: rows("bf16", 8),
    "f16 x 4": lambda: rows("f16", 4),
    "f16 x 2": lambda: rows("f16", 2),
    "bf16 x 3": lambda: rows("bf16", 3),
    "i16 x 8": lambda: rows("i16", 8),
    "u16 x 4": lambda: rows("u16", 4),
    "i32 x 4": lambda: rows("i32", 4),
    "u32 x 4": lambda: rows("u32", 4),
    "e4m3 x 16": lambda: rows("e4m3", 16),
    "u8 x 8": lambda: rows("u8", 8),
    "turned": turned,
    "gathered": gathered,
    "flagged": flagged,
    "doubles": doubles,
    "late": late,
    "chosen": chosen,
}


def _kernel(program: Program) -> PlainCudaKernel:
    kernel = routes_of(program, HARDWARE)[0].kernels[0]
    assert isinstance(kernel, PlainCudaKernel)
    return kernel


def _held(kernel: PlainCudaKernel) -> tuple[Held, ...]:
    plain = kernel.whole.plain
    loops = (s for s in plain.body if isinstance(s, Loop))
    return tuple(one for loop in loops for one in held_of(plain, loop))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.alike(2)
def test_steps_of_every_count_are_right(name: str) -> None:
    program, rng = CASES[name](), np.random.default_rng(len(name))
    counts = [count for count in _kernel(program).whole.step_counts if count > 1]
    assert counts
    inputs = random_inputs(program, rng)
    wanted = bounds_of(program, inputs)
    for count in counts:
        values: dict[str, Value] = {
            "threads": int(rng.choice([32, 64, 128])),
            "steps": count,
            "prefetch": bool(rng.integers(2)),
        }
        schedule = Schedule.of(CudaBackend.name, {"early": False, **values})
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        found = problems(program, kernel, inputs, wanted, int(rng.integers(16)))
        assert not found, schedule.to_json()


@pytest.mark.parametrize("name", CASES)
def test_what_waits_has_room_and_its_words_lie_at_their_places(name: str) -> None:
    kernel = _kernel(CASES[name]())
    held, counts = _held(kernel), kernel.whole.step_counts
    each = sum(one.registers for one in held if one.moves)
    assert each
    assert max(counts) * each + sum(one.registers for one in held if not one.moves) <= REGISTERS
    assert max(counts) <= kernel.program.axes["t"]
    for one in held:
        assert one.word in (0, 4, 8, 16)
        assert not any(elements((one.element.index,)))
        if one.word:
            assert one.inside[-1][1] % one.unit == 0
            assert one.registers * 4 == one.points * one.size


WORDS = {
    "f32 x 16": 16, "f32 x 6": 8, "bf16 x 8": 16, "f16 x 4": 8, "f16 x 2": 4, "bf16 x 3": 0,
    "i16 x 8": 16, "u16 x 4": 8, "u32 x 4": 16, "e4m3 x 16": 16,
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_rows_are_loaded_in_the_longest_words_that_they_are_made_of(name: str) -> None:
    held = _held(_kernel(CASES[name]()))
    assert {one.word for one in held if one.element.array == "R"} == {WORDS[name]}
    assert {one.moves for one in held if one.element.array == "A"} == {False}


def test_what_a_condition_or_an_input_leads_to_is_loaded_in_its_step() -> None:
    assert [one.element.array for one in _held(_kernel(late()))] == ["Y"]
    assert [one.element.array for one in _held(_kernel(gathered()))] == ["P"]
    assert [one.element.array for one in _held(_kernel(chosen()))] == ["F"]


def test_memory_is_asked_for_what_later_turns_read_and_never_past_the_end() -> None:
    program = turned(t=100)
    for count in _kernel(program).whole.step_counts[1:]:
        values: dict[str, Value] = {"threads": 64, "steps": count, "prefetch": True}
        schedule = Schedule.of(CudaBackend.name, {"early": False, **values})
        text = BACKEND.lower(program, schedule, HARDWARE).text("cuda").split("//@ kernel")[1]
        assert f"+ {max(FAR, count)}ll, 99ll)" in text
        assert text.count("tw_prefetch(") == 4
