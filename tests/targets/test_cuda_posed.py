"""What kernels ask of the layout synthesis beside their products, against its meaning in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.dtypes import dtype_of
from ir.layout.expressions import evaluated, variable
from ir.targets.cuda.layouts.copied import copied
from ir.targets.cuda.layouts.frame import Frame, ThreadDigit
from ir.targets.cuda.layouts.lanes import place
from ir.targets.cuda.layouts.meetings import meetings
from ir.targets.cuda.layouts.placed import NOBODY
from ir.targets.cuda.layouts.vectors import neighbours
from ir.targets.cuda.layouts.written import written

SIZES = st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4)


@given(SIZES, st.lists(st.booleans(), min_size=4, max_size=4), st.sampled_from([1, 3]))
@settings(max_examples=35, deadline=None)
def test_all_parts_of_a_result_meet(sizes: list[int], gone: list[bool], groups: int) -> None:
    """Every thread ends with the sum of those that differ from it along what is summed alone."""
    sizes = [*sizes, *([groups] if np.prod(sizes) % 32 == 0 else [])]
    along = [*gone[: len(sizes)], False][: len(sizes)]
    digits = [ThreadDigit(n, (("k" if k else "m", 1),)) for n, k in zip(sizes, along, strict=True)]
    frame = Frame((), tuple(digits))
    parts = np.random.default_rng(0).integers(0, 1 << 20, frame.team)
    axes = tuple(len(sizes) - 1 - at for at, summed in enumerate(along) if summed)
    cube = parts.reshape(sizes[::-1])
    wanted = np.broadcast_to(cube.sum(axis=axes, keepdims=True), cube.shape).reshape(-1)
    thread = np.arange(frame.team)
    for meeting in meetings(frame, ("k",)):
        for mask in meeting.lanes:
            assert mask < 32
            parts = parts + parts[thread ^ mask]
        for weight, size in meeting.across:
            assert weight >= 32
            first = thread - thread // weight % size * weight
            parts = sum(parts[first + step * weight] for step in range(size))
    assert np.array_equal(parts, wanted)


@pytest.mark.parametrize("threads", [32, 128, 256])
@pytest.mark.parametrize(("line", "lines"), [(64, 64), (16, 128), (8, 16)])
@pytest.mark.parametrize(("dtype", "vector"), [("f32", 4), ("bf16", 8), ("i8", 8), ("bf16", 1)])
def test_threads_write_lines_whole(
    dtype: str, vector: int, line: int, lines: int, threads: int
) -> None:
    """Every point once, vectors of neighbours, and a warp's vectors one after the other."""
    held = written(dtype, line, lines, threads, vector)
    table = np.zeros((2, 1), np.int64)
    for step in (*held.values, *held.threads):
        if step.axis != NOBODY:
            moved = np.zeros((2, step.size), np.int64)
            moved[step.axis] = np.arange(step.size) * step.stride
            table = (moved[:, :, None] + table[:, None, :]).reshape(2, -1)
    points = table[0] + line * table[1]
    assert np.array_equal(np.sort(points), np.arange(line * lines))
    vectors = points.reshape(-1, vector)
    assert np.array_equal(vectors, vectors[:, :1] + np.arange(vector))
    own = int(np.prod([step.size for step in held.values])) // vector
    side_by_side = min(len(vectors) // own, threads, line // vector)
    assert np.array_equal(vectors[::own, 0][:side_by_side], np.arange(side_by_side) * vector)


@pytest.mark.parametrize("threads", [32, 128, 512])
@pytest.mark.parametrize(("line", "lines"), [(16, 8), (64, 128), (256, 32), (512, 64)])
@pytest.mark.parametrize(("dtype", "piece"), [("bf16", 16), ("f32", 4), ("bf16", 2), ("u8", 1)])
def test_threads_copy_pieces_one_after_another(
    dtype: str, piece: int, line: int, lines: int, threads: int
) -> None:
    """In turn n thread t has piece t + n * threads of the tile, line after line."""
    held = copied(dtype, line, lines, threads, piece)
    points = piece // dtype_of(dtype).bytes
    pieces = line // points
    turns = -(-pieces * lines // threads)
    turn, thread = variable("turn", turns), variable("thread", threads)
    number = np.arange(min(turns * threads, pieces * lines))
    values = {"turn": number // threads, "thread": number % threads}
    start, own = (
        evaluated(part, **{n: values[n] for n in values if n in str(part)})
        for part in place(held, turn, thread)
    )
    assert np.array_equal(np.broadcast_to(own, number.shape), number // pieces)
    assert np.array_equal(np.broadcast_to(start, number.shape), number % pieces * points)


@given(
    st.sampled_from(["u8", "bf16", "f32"]), st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from([2, 4, 8]), st.integers(0, 24)), max_size=3),
    st.sampled_from([1, 2, 4, 8, 16]),
)  # fmt: skip
@settings(max_examples=45, deadline=None)
def test_neighbours_are_as_many_as_are_aligned(
    dtype: str, first: int, threads: list[tuple[int, int]], alignment: int
) -> None:
    size = dtype_of(dtype).bytes
    alignment = max(alignment, size)
    found = min(1 << first, neighbours(dtype, ((1 << first, 1),), tuple(threads), alignment))
    starts = [step * size for _, step in threads] + [alignment]
    widths = [1 << n for n in range(5) if (1 << n) * size <= 16 and n <= first]
    assert found == max(n for n in widths if all(start % (n * size) == 0 for start in starts))


@pytest.mark.parametrize("lines", [16, 24, 36, 72])
def test_pieces_that_threads_do_not_divide_go_round(lines: int) -> None:
    """No thread has a piece that another has too; some may lie behind the last line."""
    held = copied("bf16", 64, lines, 128, 16)
    turns = -(-lines * 8 // 128)
    assert int(np.prod([step.size for step in held.values])) == turns
    assert all(step.axis != NOBODY for step in held.threads)
