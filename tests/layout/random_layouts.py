"""Hypothesis strategies: layouts, and layouts that meet every offset once.

A layout is read off one string of bytes, a choice a byte: a choice that hypothesis draws itself
costs more than most of what is tested with it. Zero is the simplest choice, so layouts shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from ir.layout import tree
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.tree import IntTree

EXTENTS = (1, 2, 3, 4, 5, 6)
STRIDES = (0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48)
POWERS = (1, 2, 4, 8)
POWER_STRIDES = (0, 1, 2, 4, 8, 16, 32, 64, 128)
MOST_POINTS = 512
MOST_GAPS = 64  # by how much gaps may spread these points
DEEPEST = 3
CHOICES = st.binary(min_size=48, max_size=48)

T = TypeVar("T")


def attempt(function: Callable[..., T], *arguments: object) -> T | LayoutError:
    """A result, or the refusal in its place."""
    try:
        return function(*arguments)
    except LayoutError as error:
        return error


class Choices:
    """Choices read off bytes; the first ones where there are no more."""

    def __init__(self, data: bytes) -> None:
        self.data = iter(data)
        self.room, self.slack = MOST_POINTS, MOST_GAPS

    def below(self, count: int) -> int:
        return next(self.data, 0) % count

    def one(self, values: Sequence[int]) -> int:
        return values[self.below(len(values))]

    def shape(self, extents: Sequence[int], depth: int = 0) -> IntTree:
        """A nested shape of a few modes and at most MOST_POINTS points."""
        modes = self.below(4) if depth < DEEPEST else 0
        if modes:
            return tuple(self.shape(extents, depth + 1) for _ in range(modes))
        extent = self.one(extents)
        extent = extent if extent <= self.room else 1
        self.room //= extent
        return extent

    def layout(self, extents: Sequence[int], strides: Sequence[int]) -> Layout:
        shape = self.shape(extents)
        leaves = [self.one(strides) for _ in tree.flatten(shape)]
        return Layout(shape, tree.like(shape, iter(leaves)))

    def gap(self) -> int:
        gap = min(1 + self.below(3), self.slack)
        self.slack //= gap
        return gap

    def ordered(self, extents_of: Sequence[int], gaps: bool) -> Layout:
        shape = self.shape(extents_of)
        extents = tree.flatten(shape)
        left = list(range(len(extents)))
        strides = [0] * len(extents)
        step = 1
        while left:
            leaf = left.pop(self.below(len(left)))
            step *= self.gap() if gaps else 1
            strides[leaf] = step
            step *= extents[leaf]
        return Layout(shape, tree.like(shape, iter(strides)))


def layouts(strides: Sequence[int] = STRIDES) -> st.SearchStrategy[Layout]:
    """Any layout of non-negative strides."""
    return CHOICES.map(lambda data: Choices(data).layout(EXTENTS, strides))


def ordered(gaps: bool = True, extents: Sequence[int] = EXTENTS) -> st.SearchStrategy[Layout]:
    """An injective layout: leaves in some order, each stepping over all smaller ones."""
    return CHOICES.map(lambda data: Choices(data).ordered(extents, gaps))


def power_layouts() -> st.SearchStrategy[Layout]:
    """Extents and strides that are powers of two: nearly everything divides."""
    return CHOICES.map(lambda data: Choices(data).layout(POWERS, POWER_STRIDES))
