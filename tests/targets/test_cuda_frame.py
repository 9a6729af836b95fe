"""Frames: every point of a tile lies in exactly one register of one thread."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.targets.cuda.frame import WARP, Digit, Frame, Share, ThreadDigit, blocked
from ir.targets.cuda.kernels import kernels_of
from ir.targets.cuda.tensor import TensorKernel
from ir.targets.cuda.tensor_plan import make_plan
from tests.targets.cuda_cases import BACKEND, HARDWARE, built


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
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=60, deadline=None)
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
    roles = kernel.turned if swap else kernel.roles
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


def test_the_backend_is_found_by_name() -> None:
    from ir.target import get_backend, target_names

    assert "cuda" in target_names()
    assert get_backend("cuda").generator == BACKEND.generator
