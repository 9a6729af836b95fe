"""Agreement, as functions, with the `tensor-layouts` package on thousands of random layouts.

Where the peer's answer is not what the definition says, ours must be right or a refusal.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ir.layout import tree
from ir.layout.algebra import (
    coalesce,
    complement,
    composition,
    filter_zeros,
    logical_product,
    max_common_vector,
    right_inverse,
)
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from ir.layout.swizzle import Swizzle
from ir.layout.tree import IntTree
from tests.layout.random_layouts import attempt

peer = pytest.importorskip("tensor_layouts", reason="the peer package tensor-layouts is not here")
COUNT = 3_000


def _shape(rng: random.Random, level: int = 0) -> IntTree:
    if level == 2 or rng.random() < 0.6:
        return rng.choice((1, 2, 2, 3, 4, 4, 5, 6, 8))
    return tuple(_shape(rng, level + 1) for _ in range(rng.randrange(1, 4)))


def random_layout(rng: random.Random) -> Layout:
    """Half of them with strides in some order over one another, half with any."""
    shape = _shape(rng)
    while tree.product(shape) > 256:
        shape = _shape(rng)
    extents = tree.flatten(shape)
    if rng.random() < 0.5:
        strides = rng.choices((0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64), k=len(extents))
    else:
        strides, step = [0] * len(extents), 1
        for leaf in rng.sample(range(len(extents)), len(extents)):
            step *= rng.choice((1, 1, 1, 2))
            strides[leaf], step = step, step * extents[leaf]
    return Layout(shape, tree.like(shape, iter(strides)))


def theirs(layout: Layout) -> Any:
    return peer.Layout(layout.shape, layout.stride)


def ours(layout: Any) -> Layout:
    return Layout(layout.shape, layout.stride)


def asked(function: Callable[..., Any], *arguments: Any) -> Layout | None:
    """The peer's answer as a value of ours; None where it refuses."""
    try:
        return ours(function(*arguments))
    except (ValueError, TypeError, AssertionError, ZeroDivisionError, peer.LayoutError):
        return None


def pairs(seed: int, count: int) -> Iterator[tuple[Layout, Layout]]:
    rng = random.Random(seed)
    for _ in range(count):
        yield random_layout(rng), random_layout(rng)


def same(left: Layout, right: Layout) -> bool:
    return np.array_equal(left.offsets(), right.offsets())


def test_values_and_simplification() -> None:
    """Function, size, cosize and coalescing of many layouts."""
    for a, b in pairs(1, COUNT // 2):
        for layout in (a, b):
            other = theirs(layout)
            assert peer.size(other) == layout.size
            index = layout.size // 2
            assert [other(0), other(index), other(layout.size - 1)] == [
                layout(0), layout(index), layout(layout.size - 1)
            ]  # fmt: skip
            simple = ours(peer.coalesce(other))
            assert same(simple, layout)
            assert same(simple, coalesce(layout))
            assert len(simple.flat()) == len(coalesce(layout).flat())


def test_composition() -> None:
    """Within the outer layout: equal, or the peer is wrong at some point and we refuse."""
    seen: Counter[str] = Counter()
    for outer, inner in pairs(2, COUNT):
        if inner.cosize > outer.size:
            continue
        wanted = outer.at(inner.offsets())
        mine, other = (
            attempt(composition, outer, inner),
            asked(peer.compose, theirs(outer), theirs(inner)),
        )
        if isinstance(mine, LayoutError):
            seen["refused"] += 1
            right = other is not None and np.array_equal(other.offsets(), wanted)
            seen["refused, peer right"] += right
            continue
        seen["ours"] += 1
        assert np.array_equal(mine.offsets(), wanted)
        if other is not None:
            seen["both"] += 1
    assert seen["both"] > COUNT // 20
    assert seen["refused, peer right"] <= seen["ours"] // 50, seen


def test_complement() -> None:
    seen = 0
    for layout, _ in pairs(3, COUNT):
        size = layout.cosize * 2
        mine = attempt(complement, layout, size)
        other = asked(peer.complement, theirs(layout), size)
        if isinstance(mine, LayoutError):
            continue
        whole = concat(filter_zeros(layout), mine).offsets()
        assert np.unique(whole).size == whole.size
        if other is not None:
            both = concat(filter_zeros(layout), other).offsets()
            if np.unique(both).size == both.size:
                seen += 1
                assert set(range(size)) & set(both.tolist()) == set(range(size)) & set(
                    whole.tolist()
                )
    assert seen > COUNT // 10


def test_right_inverses() -> None:
    right = 0
    for layout, _ in pairs(4, COUNT):
        mine, other = right_inverse(layout), asked(peer.right_inverse, theirs(layout))
        assert other is not None
        if np.array_equal(layout.at(other.offsets()), np.arange(other.size)):
            right += 1
            assert mine.size >= other.size
            assert same(mine, other) or not layout.injective
    assert right > COUNT // 2


def test_products() -> None:
    """Of injective layouts, where the peer's result repeats the block without overlap."""
    seen = 0
    for block, tiler in itertools.islice(pairs(5, COUNT), 3000):
        if not (block.injective and tiler.injective) or block.size * tiler.size > 2048:
            continue
        found, theirs_found = (
            attempt(logical_product, block, tiler),
            asked(peer.logical_product, theirs(block), theirs(tiler)),
        )
        if isinstance(found, LayoutError) or theirs_found is None:
            continue
        table = theirs_found.offsets()
        if np.unique(table).size == table.size == block.size * tiler.size:
            seen += 1
            assert set(table.tolist()) == set(found.offsets().tolist())
            if block.rank == 1:
                continue
            assert same(found, theirs_found)
    assert seen > 100


def test_common_vectors() -> None:
    for left, right in itertools.islice(pairs(7, COUNT), 3000):
        if left.size == right.size and left.injective and right.injective:
            try:
                other = peer.max_common_vector(theirs(left), theirs(right))
            except (ValueError, AssertionError, peer.LayoutError):
                continue
            assert max_common_vector(left, right) == other


def test_swizzles() -> None:
    rng = np.random.default_rng(8)
    for _ in range(300):
        bits = int(rng.integers(0, 5))
        base, shift = int(rng.integers(0, 6)), int(rng.integers(bits, 7))
        mine, other = Swizzle(bits, base, shift), peer.Swizzle(bits, base, shift)
        for offset in rng.integers(0, 1 << 16, 20).tolist():
            assert mine(offset) == other(offset)
