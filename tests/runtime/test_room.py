"""What a device has to spare decides in how large pieces a check is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer.afforded import DEVICE, Means
from explorer.expectation import Expected, Recipe, in_room
from explorer.recipe import recipe_of
from explorer.runtime.base import HasRoom
from explorer.runtime.cuda import CudaRuntime
from ir import Graph, contract, load_operator
from ir.target import get_backend


def test_a_card_that_others_use_is_checked_on_in_smaller_pieces() -> None:
    asked: list[Means] = []
    free = iter([64 << 30, 16 << 30, 16 << 30, 4 << 30, 4 << 30])

    def make(means: Means) -> Expected:
        asked.append(means)
        if len(asked) < 4:
            raise MemoryError("the GPU has too little memory")
        return Expected({}, {})

    assert in_room(make, DEVICE, lambda: next(free)) == Expected({}, {})
    pieces = [means.piece for means in asked]
    assert pieces[0] == (64 << 30) // 256
    assert pieces == sorted(pieces, reverse=True)
    assert len(set(pieces)) == 4
    assert asked[0].bytes == (64 << 30) // 6


def test_without_any_room_it_says_so() -> None:
    def make(means: Means) -> Expected:
        raise MemoryError(f"no {means.piece} bytes")

    with pytest.raises(MemoryError, match="no 8388608 bytes"):
        in_room(make, DEVICE, lambda: 1 << 30)


def test_pieces_do_not_change_what_is_expected() -> None:
    program = load_operator("softmax").build(m=33, n=70)
    recipe = Recipe(program, 3)
    large = recipe.expected(0, DEVICE)
    small = recipe.expected(0, DEVICE.within(1 << 30))
    for name, bounds in large.bounds.items():
        np.testing.assert_array_equal(bounds.low, small.bounds[name].low)


def test_a_form_whose_sums_cancel_is_given_its_own_roundings() -> None:
    """A (B + C) rounds B + C first, which counts where that is little beside them."""
    g = Graph("shared")
    m, n, k = g.axes(m=150, n=150, k=150)
    a, b = g.input("a", (m, k), "f32"), g.input("b", (k, n), "f32")
    c = g.input("c", (k, n), "f32")
    g.output("y", contract(a, b, over=k) + contract(a, c, over=k), "f32", (m, n))
    program, backend = g.program(), get_backend("cpu")
    recipe = recipe_of(program, 0, backend, backend.hardware(1))
    assert len(recipe.forms) == 1
    alone = replace(recipe, forms=()).expected(0, DEVICE).bounds["y"]
    both = recipe.expected(0, DEVICE).bounds["y"]
    assert (both.low <= alone.low).all()
    assert (both.high >= alone.high).all()
    assert (both.high - both.low).sum() > (alone.high - alone.low).sum()


def test_the_cuda_runtime_tells_its_room() -> None:
    assert issubclass(CudaRuntime, HasRoom)
