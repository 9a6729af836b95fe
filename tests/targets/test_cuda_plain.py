"""Plain kernels of groups of threads on CUDA: what they share, and when they meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph
from ir.dtypes import rounded
from ir.errors import MissingTarget
from ir.merges import NAMED, merge_of
from ir.ops.base import TensorSpec
from ir.plain.code import (
    GROUP,
    THREAD,
    Accumulate,
    Array,
    Assign,
    Call,
    Claim,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.target import Hardware
from ir.targets.cuda.launch import Launch, placed, plan_json
from ir.targets.cuda.prelude import prelude_text
from ir.targets.cuda.space.plain import PlainCudaKernel
from tests.emulator.emulate import MODES, compiler, emulate
from tests.targets.cuda_cases import HARDWARE

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
POINTS, SIZE = 5, 150
ROW, AT, STEP = Name("p_1"), Name("i_1"), Name("j_1")


def whole(value: int) -> Number:
    return Number(value, "i64")


def call(function: str, *args: Scalar) -> Call:
    kind = "bool" if function in ("lt", "le", "eq", "not") else args[-1].dtype
    return Call(function, args, kind)


def place(i: Scalar = AT) -> Call:
    """Element i of the point's row."""
    return call("add", call("mul", ROW, whole(SIZE)), i)


def f32(array: str, index: Scalar) -> Element:
    return Element(array, index, "f32")


def spread(*body: Statement, size: int = SIZE) -> Spread:
    return Spread(((AT, size),), body)


def kernel(*body: Statement, arrays: tuple[Array, ...] = ()) -> PlainKernel:
    """A group for each row of `x`, which writes the row of `y`."""
    tensors = (
        TensorSpec("x", (POINTS, SIZE), "f32", "input"),
        TensorSpec("y", (POINTS, SIZE), "f32", "output"),
    )
    own = tuple(Array(spec.name, spec.dtype, POINTS * SIZE) for spec in tensors)
    return PlainKernel("rows", tensors, own + arrays, ((ROW, POINTS),), body, cooperative=True)


def lowered(
    plain: PlainKernel, threads: int, hardware: Hardware = HARDWARE, alone: bool = False
) -> Launch:
    g = Graph("rows")
    i, j = g.axes(i=POINTS, j=SIZE)
    g.output("y", g.input("x", (i, j), "f32"), "f32", (i, j))
    found = PlainCudaKernel(g.program(), "", hardware, plain)
    values = {"threads": threads, "run": 2, "early": True, "alone": alone}
    (launch,) = found.launches(values, "rows")
    return launch


def ran(
    plain: PlainKernel, threads: int, hardware: Hardware = HARDWARE, alone: bool = False
) -> tuple[Any, Any]:
    """`x` and what `y` becomes, alike in several orders of threads and blocks."""
    launch = lowered(plain, threads, hardware, alone)
    places = {room.argument: 0 for room in launch.rooms}
    plan = plan_json((placed(launch, places),), "sm_90a", sum(r.bytes for r in launch.rooms), ())
    found = []
    x = np.random.default_rng(0).integers(-9, 9, (POINTS, SIZE)).astype(np.float32)
    for mode in (0, 9, 15):
        arrays = {"x": x.copy(), "y": np.full((POINTS, SIZE), 77, np.float32)}
        arrays["x"].flags.writeable = False
        run = emulate(launch.text, plan, arrays, mode=MODES[mode], limit=30)
        assert not run.faults
        found.append(arrays["y"])
    assert all(np.array_equal(found[0], other) for other in found)
    return x, found[0]


def turned(place_of_row: str = GROUP) -> PlainKernel:
    """y = the row backward, times two, by way of an array of the group."""
    row = Array("row_1", "f32", SIZE, place_of_row)
    back = call("sub", whole(SIZE - 1), AT)
    return kernel(
        spread(Write("row_1", AT, call("add", f32("x", place()), f32("x", place())))),
        spread(Write("y", place(), f32("row_1", back))),
        arrays=(row,),
    )


@needs_compiler
@pytest.mark.parametrize("threads", [32, 64, 256])
def test_iterations_are_shared_and_seen_by_all(threads: int) -> None:
    x, y = ran(turned(), threads)
    assert np.array_equal(y, 2 * x[:, ::-1])


@needs_compiler
@pytest.mark.parametrize("room", [0, 150 * 32 * 4, 200_000])
def test_a_thread_that_has_a_point_alone_has_columns_of_shared_memory(room: int) -> None:
    """Of what does not fit it has arrays of its own."""
    facts = tuple((k, room if k == "shared_bytes" else v) for k, v in HARDWARE.facts)
    hardware = replace(HARDWARE, facts=facts)
    launch = lowered(turned(), 32, hardware, alone=True)
    assert launch.shared == (150 * 32 * 4 if room else 0)
    assert ("tw_column<f32, 32>" in launch.text) == bool(room)
    assert "tw_sync" not in launch.text
    x, y = ran(turned(), 32, hardware, alone=True)
    assert np.array_equal(y, 2 * x[:, ::-1])


def many(plain: PlainKernel, points: int = 100) -> PlainCudaKernel:
    g = Graph("rows")
    i, j = g.axes(i=POINTS, j=SIZE)
    g.output("y", g.input("x", (i, j), "f32"), "f32", (i, j))
    return PlainCudaKernel(g.program(), "", HARDWARE, replace(plain, points=((ROW, points),)))


def test_points_are_alone_where_they_are_many_and_little_and_nothing_is_counted() -> None:
    count = Array("count_1", "i32", 1, GROUP)
    claims = spread(
        Claim(Name("n_1", "i32"), "count_1", whole(0)), Write("y", place(), f32("x", AT))
    )
    large = Array("large_1", "f32", 4096, GROUP)
    for found, choices in (
        (many(turned()), {"alone"}),
        (many(turned(), 63), set()),
        (many(kernel(spread(Write("y", place(), f32("x", AT))), arrays=(large,))), set()),
        (many(kernel(claims, arrays=(count,))), set()),
    ):
        assert {d.name for d in found.decisions()} & {"alone"} == choices
    seeds = many(turned(), 32 * int(HARDWARE["sms"])).seeds()
    assert [seed["alone"] for seed in seeds[:4]] == [True, True, True, False]


@needs_compiler
def test_arrays_that_do_not_fit_are_in_the_workspace() -> None:
    facts = tuple((k, 512 if k == "shared_bytes" else v) for k, v in HARDWARE.facts)
    small = replace(HARDWARE, facts=facts)
    launch = lowered(turned(), 64, small)
    assert launch.shared == 0
    assert launch.rooms[0].bytes == POINTS * 608
    x, y = ran(turned(), 64, small)
    assert np.array_equal(y, 2 * x[:, ::-1])
    assert lowered(turned(), 64).shared == 608


@needs_compiler
@pytest.mark.parametrize("threads", [32, 128])
def test_a_loop_around_what_is_shared(threads: int) -> None:
    """Each step reads what the step before wrote, in the group's array and outside `Spread`."""
    row, one = Array("row_1", "f32", SIZE, GROUP), Array("one_1", "f32", 1, GROUP)
    old, zero = Name("old_1", "f32"), whole(0)
    left = call("sub", AT, whole(1))
    sums = call("add", f32("y", place()), f32("y", place(left)))
    x, y = ran(
        kernel(
            spread(Write("row_1", AT, f32("x", place()))),
            Write("one_1", zero, Number(0.0, "f32")),
            Loop(STEP, 3, (
                Let(old, f32("one_1", zero)),
                Write("one_1", zero, call("add", old, f32("row_1", whole(7)))),
                spread(Write("y", place(), call("add", f32("one_1", zero), f32("row_1", AT)))),
                spread(
                    If(call("lt", whole(0), AT), (Write("row_1", AT, sums),)),
                ),
            )),
            arrays=(row, one),
        ),
        threads,
    )  # fmt: skip
    row_now, one_now = x.astype(np.float64), np.zeros(POINTS)
    for _ in range(3):
        one_now = one_now + row_now[:, 7]
        wanted = row_now + one_now[:, None]
        row_now = row_now.copy()
        row_now[:, 1:] = wanted[:, 1:] + wanted[:, :-1]
    assert np.array_equal(y, wanted)


@needs_compiler
@pytest.mark.parametrize("threads", [32, 64, 128])
def test_folds_in_a_loop_take_turns_in_shared_memory(threads: int) -> None:
    """Three rounds, of an uneven number of chunks each: y becomes its own running sum."""
    state, value = Name("s_1", "f32"), Name("v_1", "f32")
    fold = Accumulate(
        AT, SIZE, False, (Let(value, f32("y", place())),), (value,), (state,),
        merge_of(NAMED["sum"]), (Write("row_1", AT, state),),
    )  # fmt: skip
    x, y = ran(
        kernel(
            spread(Write("y", place(), f32("x", place()))),
            Loop(STEP, 3, (
                fold,
                spread(Write("y", place(), f32("row_1", AT))),
                Write("y", place(whole(0)), state),
            )),
            arrays=(Array("row_1", "f32", SIZE, GROUP),),
        ),
        threads,
    )  # fmt: skip
    wanted = x.astype(np.float64)
    for _ in range(3):
        wanted = np.cumsum(wanted, axis=1)
        wanted[:, 0] = wanted[:, -1]
    assert np.allclose(y, wanted, rtol=1e-5)


@needs_compiler
def test_what_a_thread_has_alone() -> None:
    """An array of a thread, a fold inside a shared iteration, and a branch all threads agree on."""
    held = Array("held_1", "i32", 4, THREAD)
    total, k = Name("t_1", "f32"), Name("k_1")
    chosen = Name("c_1", "bool")
    near = call("min", call("add", AT, k), whole(SIZE - 1))
    inner = Accumulate(
        k, 4, True, (Write("held_1", k, Convert(k, "i32", "i32")),), (f32("x", place(near)),),
        (total,), merge_of("b0"),
    )  # fmt: skip
    more = Convert(Element("held_1", whole(3), "i32"), "f32", "f32")
    x, y = ran(
        kernel(
            Let(chosen, call("lt", ROW, whole(2))),
            If(call("eq", ROW, whole(4)), (Assign(chosen, Number(True, "bool")),)),
            If(chosen, (spread(inner, Write("y", place(), call("add", total, more))),),
               (spread(Write("y", place(), Number(-1.0, "f32"))),)),
            arrays=(held,),
        ),
        64,
    )  # fmt: skip
    wanted = np.where(np.isin(np.arange(POINTS), (0, 1, 4))[:, None], x + 3, -1)
    assert np.array_equal(y, wanted)


@needs_compiler
def test_narrow_floats_are_rounded_on_the_way() -> None:
    third = call("mul", f32("x", place()), Number(1 / 3, "f32"))
    row = Array("row_1", "f16", SIZE, GROUP)
    x, y = ran(
        kernel(
            spread(Write("row_1", AT, Convert(third, "bf16", "f32"))),
            spread(Write("y", place(), f32("row_1", AT))),
            arrays=(row,),
        ),
        32,
    )
    wanted = rounded(rounded((x * np.float32(1 / 3)).astype(np.float64), "bf16"), "f16")
    assert np.array_equal(y, wanted)


def test_a_group_compiles() -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    text = lowered(turned(), 128).text
    code, _ = nvrtc.compile_text(prelude_text(text) + text, "sm_90a", ())
    assert code
