"""Frames: every point of a tile lies in exactly one register of one thread."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.layout.instructions.wgmma import accumulator
from ir.rewrite.forms import WRITTEN
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.layouts.access import Access, Dimension
from ir.targets.cuda.layouts.frame import WARP, Digit, Frame, Share, ThreadDigit, blocked
from ir.targets.cuda.plans.planning import make_plan
from ir.targets.cuda.plans.tensor_plan import GROUP, ROWS, Plan
from ir.targets.cuda.space.tensor import TensorKernel
from tests.few import few
from tests.layout.semantics import table
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn


def points(frame: Frame, axes: tuple[str, ...]) -> Counter[tuple[int, ...]]:
    """How often each point of the tile over `axes` is held."""
    found: Counter[tuple[int, ...]] = Counter()
    own = frame.own(axes)
    for values in product(*(range(d.size) for d in own)):
        for thread in range(frame.team):
            place = dict.fromkeys(axes, 0)
            for digit, value in zip(own, values, strict=True):
                place[digit.axis] += value * digit.stride
            for weight, step in frame.weights():
                for axis in axes:
                    place[axis] += thread // weight % step.size * step.stride(axis)
            found[tuple(place[axis] for axis in axes)] += 1
    return found


@st.composite
def shares(draw: st.DrawFn) -> tuple[Share, ...]:
    found: list[Share] = []
    for axis in draw(st.sampled_from(["a", "ab", "abc"])):
        own = 1 << draw(st.integers(0, 3))
        tile = own << draw(st.integers(0, 3))
        vector = 1 << draw(st.integers(0, own.bit_length() - 1)) if not found else 1
        found.append(Share(axis, tile, own, vector))
    return tuple(found)


@given(shares())
@settings(max_examples=35, deadline=None)
def test_a_blocked_frame_holds_every_point_once(given_shares: tuple[Share, ...]) -> None:
    frame = blocked(given_shares)
    axes = tuple(share.axis for share in given_shares)
    held = points(frame, axes)
    assert len(held) == np.prod([share.tile for share in given_shares])
    assert set(held.values()) == {1}
    assert {share.axis: frame.tile(share.axis) for share in given_shares} == {
        share.axis: share.tile for share in given_shares
    }


@given(shares())
@settings(max_examples=35, deadline=None)
def test_no_thread_digit_reaches_over_a_warp(given_shares: tuple[Share, ...]) -> None:
    for weight, digit in blocked(given_shares).weights():
        assert weight >= WARP or weight * digit.size <= WARP


def test_a_value_over_fewer_axes_is_replicated() -> None:
    frame = blocked((Share("n", 64, 2, 2), Share("m", 4, 2)))
    assert set(points(frame, ("m",)).values()) == {32}


def test_an_axis_that_is_not_placed_has_no_digits() -> None:
    frame = Frame((Digit("m", 2, 1),), (ThreadDigit(4, (("m", 2),)),))
    assert frame.own(("k",)) == ()
    assert frame.tile("k") == 1


_PLANS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"}, {}),
    ("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"},
     {"tile.m": 64, "tile.n": 256, "partition": "columns"}),
    ("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"},
     {"tile.m": 128, "tile.n": 72, "partition": "whole"}),
    ("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"},
     {"swap": True, "tile.m": 24, "tile.n": 128}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "changed"), _PLANS)
def test_accumulators_lie_as_wgmma_leaves_them(
    name: str, arguments: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Row 16 w + lane / 4 + 8 h and column 8 j + 2 (lane % 4) + e in register 4 j + 2 h + e."""
    program = built(name, arguments)
    (kernel,) = kernels_of(program, HARDWARE)
    assert isinstance(kernel, TensorKernel)
    values = {**kernel.complete(kernel.seeds()[0]), **changed}
    swap = bool(values["swap"])
    roles = kernel.swapped if swap else kernel.roles
    assert roles is not None
    plan = make_plan(program, roles, values, "")
    frame, row, column = plan.frame, roles.rows[0], plan.column_axis
    held = points(frame, (row, column))
    assert len(held) == plan.tile_rows * plan.tile_columns
    assert set(held.values()) == {1}
    own = frame.own((row, column))
    for thread in range(0, frame.team, 37):
        warp, lane = thread % 128 // 32, thread % 32
        for register in range(plan.group_columns // 2):
            place, rest = {row: 0, column: 0}, register
            for digit in own:
                place[digit.axis] += rest % digit.size * digit.stride
                rest //= digit.size
            for weight, thread_digit in frame.weights():
                for axis in (row, column):
                    step = thread // weight % thread_digit.size
                    place[axis] += step * thread_digit.stride(axis)
            j, h, e = register // 4, register // 2 % 2, register % 2
            group = thread // 128
            base_row = group * plan.group_rows if plan.partition == "rows" else 0
            base_column = group * plan.group_columns if plan.partition == "columns" else 0
            assert place[row] == base_row + 16 * warp + lane // 4 + 8 * h
            assert place[column] == base_column + 8 * j + 2 * (lane % 4) + e


def places(frame: Frame, axis: str, own: tuple[Digit, ...]) -> np.ndarray[Any, Any]:
    """[thread, register] -> point along `axis`, for a value with the register digits `own`."""
    threads = np.zeros(frame.team, np.int64)
    for weight, digit in frame.weights():
        threads += np.arange(frame.team) // weight % digit.size * digit.stride(axis)
    registers = np.zeros(1, np.int64)
    for step in own:
        steps = np.arange(step.size) * (step.stride if step.axis == axis else 0)
        registers = np.add.outer(steps, registers).reshape(-1)
    return np.add.outer(threads, registers)


def drawn_plans(number: int) -> list[Plan]:
    """Plans of drawn schedules of a small program, of those of its kernels with products."""
    program = built(*SMALL[number])
    tensor = [k for k in kernels_of(program, HARDWARE) if isinstance(k, TensorKernel)]
    found = []
    for schedule in drawn(program, number, 4, 8, "wgmma"):
        values = schedule.as_dict()
        for kernel in tensor if values.get("form", WRITTEN) == WRITTEN else ():
            roles = kernel.swapped if values[kernel.name("swap")] else kernel.roles
            assert roles is not None
            found.append(make_plan(kernel.program, roles, values, kernel.mark))
    return found


@pytest.mark.parametrize("number", few(range(len(SMALL)), (0, 2, 6, 8, 10, 18, 20, 21), NAMES))
@pytest.mark.alike(2)
def test_frames_of_drawn_plans_are_wgmma_accumulators(number: int) -> None:
    """Register r of a thread holds what register r of the instruction's fragment holds."""
    for plan in drawn_plans(number):
        frame, column = plan.frame, plan.column_axis
        own = frame.own((*plan.roles.rows, column))
        row = np.zeros((1, 1), np.int64)
        for axis in plan.roles.rows:
            row = row * plan.tiles[axis] + places(frame, axis, own)
        point = row * plan.tile_columns + places(frame, column, own)
        assert np.array_equal(np.sort(point.reshape(-1)), np.arange(point.size))
        assert point.size == plan.tile_rows * plan.tile_columns
        fragment = table(accumulator(plan.group_columns))
        groups = point.reshape(-1, GROUP, plan.row_blocks, fragment.shape[1])
        for group, held in enumerate(groups):
            first_row = group * plan.group_rows if plan.partition == "rows" else 0
            first_column = group * plan.group_columns if plan.partition == "columns" else 0
            for block in range(plan.row_blocks):
                rows = first_row + ROWS * block + fragment % ROWS
                columns = first_column + fragment // ROWS
                assert np.array_equal(held[:, block], rows * plan.tile_columns + columns)


@given(shares(), st.sampled_from(["bf16", "f32", "u8"]), st.integers(1, 96), st.integers(0, 9))
@settings(max_examples=45, deadline=None)
def test_vectors_are_neighbours_and_aligned(
    given_shares: tuple[Share, ...], dtype: str, extent: int, constant: int
) -> None:
    """Whatever the extent of the fastest dimension, in every tile."""
    frame = blocked(given_shares)
    first = given_shares[0].axis
    tiles = {share.axis: share.tile for share in given_shares}
    dimensions = [Dimension(((first, 1),), constant, None, 1, extent)]
    for share in given_shares[1:]:
        dimensions.append(Dimension(((share.axis, 1),), 0, None, extent * 7 ** len(dimensions), 7))
    access = Access("X", dtype, tuple(reversed(dimensions)))
    own = frame.own(tiles)
    width = access.vector(frame, own, tiles, {**tiles, first: extent})
    assert width * (2 if dtype == "bf16" else 4 if dtype == "f32" else 1) <= 16
    for corner in (0, 1, 3):
        address = np.full((1, 1), access.constant, np.int64)
        for axis, tile in tiles.items():
            address = address + access.stride(axis) * (corner * tile + places(frame, axis, own))
        vectors = address.reshape(frame.team, -1, width)
        assert (vectors[:, :, 0] % width == 0).all()
        assert (vectors - vectors[:, :, :1] == np.arange(width)).all()
    assert width == 1 or extent % width == 0


def test_vectors_are_as_wide_as_they_can_be() -> None:
    frame = blocked((Share("n", 256, 8, 8), Share("m", 4, 2)))
    rows = Dimension((("m", 1),), 0, None, 1024, 64)
    columns = Dimension((("n", 1),), 0, None, 1, 1024)
    tiles = {"n": 256, "m": 4}
    assert Access("X", "bf16", (rows, columns)).vector(frame, frame.own(tiles), tiles, tiles) == 8
    assert Access("X", "f32", (rows, columns)).vector(frame, frame.own(tiles), tiles, tiles) == 4


def test_vectors_are_as_narrow_as_they_must_be() -> None:
    """Threads six points apart; a tensor indexed by the sum of two axes, one of them by threes."""
    apart = Frame((Digit("n", 4, 1),), (ThreadDigit(4, (("n", 6),)),))
    plain = Dimension((("n", 1),), 0, None, 1, 1024)
    assert Access("X", "f32", (plain,)).vector(apart, apart.own("n"), {"n": 24}, {"n": 24}) == 2
    frame = blocked((Share("n", 32, 4, 4), Share("b", 2, 2)))
    for step, width in ((3, 1), (2, 2), (8, 4)):
        summed = Dimension((("n", 1), ("b", step)), 0, None, 1, 1024)
        tiles = {"n": 32, "b": 2}
        assert Access("X", "f32", (summed,)).vector(frame, frame.own(tiles), tiles, tiles) == width
    shifted = Dimension((("n", 1),), 2, None, 1, 1024)
    assert Access("X", "f32", (shifted,)).vector(frame, frame.own("n"), {"n": 32}, {"n": 32}) == 2


def test_the_backend_is_found_by_name() -> None:
    from ir.target import get_backend, target_names

    assert "cuda" in target_names()
    assert get_backend("cuda").generator == BACKEND.generator
