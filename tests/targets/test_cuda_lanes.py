"""Where lanes are: expressions made of layouts, against what instructions and frames say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.layout.expressions import constant, evaluated, remainder, total, variable
from ir.layout.instructions import find
from ir.layout.instructions.rows import MatrixRow
from ir.layout.swizzle import PLAIN, Swizzle
from ir.layout.widths import bits
from ir.targets.cuda.layouts.frame import Frame, ThreadDigit
from ir.targets.cuda.layouts.lanes import (
    digits_part,
    matrix_row,
    operand,
    place,
    places_of_values,
    thread_part,
)
from ir.targets.cuda.layouts.lines import TileLines, line_swizzle
from ir.targets.cuda.layouts.woven import woven

OPERANDS = (
    ("mma.m16n8k16.bf16", "a", 4), ("mma.m16n8k16.bf16", "b", 2), ("mma.m16n8k16.bf16", "c", 1),
    ("mma.m16n8k8.tf32", "a", 4), ("mma.m16n8k8.tf32", "b", 2), ("mma.m16n8k32.s8", "a", 4),
    ("mma.m16n8k32.s8", "b", 2), ("wgmma.m64n64k16.bf16.rs", "a", 4),
    ("wgmma.m64n64k32.s8.rs", "a", 4),
)  # fmt: skip


def held(name: str, role: str) -> tuple[int, np.ndarray, np.ndarray]:
    """Bits of a value; [thread, value] -> place along both axes, from the instruction's row."""
    row = find(name)
    assert isinstance(row, MatrixRow)
    own = getattr(row, role)
    threads = own.layout.mode(0).size
    table = own.layout.offsets().reshape(-1, threads).T
    return bits(own.dtype), table % own.extents[0], table // own.extents[0]


@pytest.mark.parametrize(("name", "role", "matrices"), OPERANDS, ids=str)
def test_rows_of_matrices_are_those_that_registers_hold(
    name: str, role: str, matrices: int
) -> None:
    """Thread t gets a part of row t / 4 of each matrix: 32 bits from place t % 4 on."""
    width, first, second = held(name, role)
    width = 16 if role == "c" else width  # sums are narrowed on their way
    starts = matrix_row(operand(name, role), width, matrices, False)
    thread = np.arange(len(first))
    packed = 32 // width
    for matrix in range(matrices):
        lane = thread // 32 * 32 + matrix * 8 + thread % 32 // 4
        at = [evaluated(part, lane=lane) for part in starts]
        for value in range(packed):
            assert np.array_equal(at[0], first[:, matrix * packed + value])
            along = at[1] + thread % 4 * packed + value
            assert np.array_equal(along, second[:, matrix * packed + value])


@pytest.mark.parametrize(
    ("name", "role", "matrices"), [one for one in OPERANDS if "bf16" in one[0]], ids=str
)
def test_rows_of_transposed_matrices(name: str, role: str, matrices: int) -> None:
    """Thread t gets a part of column t / 4: elements of rows t % 4 * 2 and the next."""
    _, first, second = held(name, role)
    starts = matrix_row(operand(name, role), 16, matrices, True)
    thread = np.arange(len(first))
    for matrix in range(matrices):
        for value in (0, 1):
            lane = thread // 32 * 32 + matrix * 8 + thread % 4 * 2 + value
            at = [evaluated(part, lane=lane) for part in starts]
            assert np.array_equal(at[0] + thread % 32 // 4, first[:, matrix * 2 + value])
            assert np.array_equal(at[1], second[:, matrix * 2 + value])


@pytest.mark.parametrize(("name", "role", "matrices"), OPERANDS, ids=str)
def test_places_of_values(name: str, role: str, matrices: int) -> None:
    _, first, second = held(name, role)
    value = variable("v", first.shape[1])
    lane, number = np.mgrid[0 : len(first), 0 : first.shape[1]]
    found = place(operand(name, role), value)
    for part, wanted in zip(found, (first, second), strict=True):
        assert np.array_equal(evaluated(part, lane=lane, v=number), wanted)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_woven_fragments_are_the_instruction_s_in_another_order_along_the_sum(dtype: str) -> None:
    """Lane t has neighbours from t % 4 * 4 on, in the places that both operands sum together."""
    fragments = woven(dtype)
    assert fragments.neighbours == 4
    for role, own in (("a", fragments.rows), ("b", fragments.columns), ("c", fragments.sums)):
        _, first, second = held(f"mma.m16n8k16.{dtype}", role)
        lane, number = np.mgrid[0 : len(first), 0 : first.shape[1]]
        found = place(own, variable("v", first.shape[1]), variable("lane", 32))
        at = [evaluated(part, lane=lane, v=number) for part in found]
        wanted = second // 2 % 4 * 4 + second // 8 * 2 + second % 2 if role != "c" else second
        assert np.array_equal(at[0], first)
        assert np.array_equal(at[1], wanted)


@pytest.mark.parametrize("threads", [32, 96])
def test_rows_of_woven_matrices(threads: int) -> None:
    """Transposed, thread t gets column t / 4 of elements that are its neighbours."""
    thread = np.arange(threads)
    lane = remainder(variable("thread", threads), 32)
    fragments = woven("bf16")
    for own, matrices in (
        (fragments.rows, 4), (fragments.columns, 2), (fragments.two_columns, 4)
    ):  # fmt: skip
        line, row = matrix_row(own, 16, matrices, True, lane)
        of, along = (evaluated(part, thread=thread) for part in (line, row))
        number = thread // 8 % matrices
        half, late = number // 2, number % 2
        if own == fragments.rows:
            half, late = late, half
        assert np.array_equal(of, half * 8)
        assert np.array_equal(along, thread % 8 // 2 * 4 + thread % 2 + late * 2)


AXES = st.lists(st.tuples(st.sampled_from("mn"), st.integers(1, 9)), max_size=2)
DIGITS = st.lists(st.tuples(st.sampled_from([2, 3, 4, 8]), AXES), min_size=1, max_size=4)


@given(DIGITS, st.integers(0, 15))
def test_parts_of_threads_are_what_the_frame_says(
    digits: list[tuple[int, list[tuple[str, int]]]], chosen: int
) -> None:
    frame = Frame((), tuple(ThreadDigit(size, tuple(dict(axes).items())) for size, axes in digits))
    thread = np.arange(frame.team)
    for axis in "mn":
        wanted = sum(
            thread // weight % digit.size * digit.stride(axis) for weight, digit in frame.weights()
        )
        assert np.array_equal(evaluated(thread_part(frame, axis, "t"), t=thread), wanted)
    picked = [digit for n, digit in enumerate(frame.threads) if chosen >> n & 1]
    zero = evaluated(digits_part(frame, picked, "t"), t=thread) == 0
    wanted = np.ones(frame.team, bool)
    for weight, digit in frame.weights():
        if any(digit is one for one in picked):
            wanted &= thread // weight % digit.size == 0
    assert np.array_equal(zero, wanted)


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("panels", [1, 3])
def test_bytes_of_panels(width: int, panels: int) -> None:
    """Panels are behind each other, each swizzled on its own."""
    length, swizzle = width or 48, line_swizzle(width)
    assert swizzle == {0: PLAIN, 32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3)}.get(
        width, Swizzle(3, 4, 3)
    )
    line, byte = np.mgrid[0:24, 0 : panels * length]
    lines = TileLines(24, length, swizzle)
    found = lines.offset(variable("line", 24), variable("byte", panels * length))
    wanted = swizzle(line * length + byte % length) + byte // length * 24 * length
    assert np.array_equal(evaluated(found, line=line, byte=byte), wanted)


@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_places_move_by_what_is_exchanged_and_what_is_added(width: int) -> None:
    """By lines and bytes that share no bit with the place, XOR and addition find the other one."""
    lines = TileLines(64, width or 64, line_swizzle(width))
    line, byte = np.mgrid[0:8, 0:16]  # a lane's
    own = lines.offset(variable("line", 8), variable("byte", 16))
    begun = evaluated(own, line=line, byte=byte)
    for down in (0, 8, 24):
        for along in range(0, 3 * lines.width, 16):
            exchanged, added = lines.moved(constant(down), constant(along))
            place = lines.offset(constant(down), constant(along))
            assert evaluated(place) == evaluated(total(exchanged, added))
            far = lines.offset(
                total(constant(down), variable("line", 8)),
                total(constant(along), variable("byte", 16)),
            )
            found = (begun ^ evaluated(exchanged)) + evaluated(added)
            assert np.array_equal(found, evaluated(far, line=line, byte=byte))


@pytest.mark.parametrize(("name", "role", "matrices"), OPERANDS, ids=str)
def test_values_of_a_thread(name: str, role: str, matrices: int) -> None:
    _, first, second = held(name, role)
    for at, (down, across) in enumerate(places_of_values(operand(name, role))):
        assert (first[:, at] - first[:, 0] == down).all()
        assert (second[:, at] - second[:, 0] == across).all()
