"""Hypothesis strategies: shapes, layouts, and layouts that meet every offset once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from ir.layout import tree
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.tree import IntTree

EXTENTS = st.integers(1, 6)
STRIDES = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48])


T = TypeVar("T")


def attempt(function: Callable[..., T], *arguments: object) -> T | LayoutError:
    """A result, or the refusal in its place."""
    try:
        return function(*arguments)
    except LayoutError as error:
        return error


def shapes(extents: st.SearchStrategy[int] = EXTENTS) -> st.SearchStrategy[IntTree]:
    """Nested shapes of a few modes."""
    inner = st.recursive(extents, lambda part: st.lists(part, min_size=1, max_size=3).map(tuple))
    return inner.filter(lambda shape: tree.product(shape) <= 512)


@st.composite
def layouts(draw: st.DrawFn, strides: st.SearchStrategy[int] = STRIDES) -> Layout:
    """Any layout of non-negative strides."""
    shape = draw(shapes())
    leaves = [draw(strides) for _ in tree.flatten(shape)]
    return Layout(shape, tree.like(shape, iter(leaves)))


@st.composite
def ordered(draw: st.DrawFn, gaps: bool = True) -> Layout:
    """An injective layout: leaves in some order, each stepping over all smaller ones."""
    shape = draw(shapes())
    extents = tree.flatten(shape)
    order = draw(st.permutations(range(len(extents))))
    strides = [0] * len(extents)
    step = 1
    for leaf in order:
        step *= draw(st.integers(1, 3)) if gaps else 1
        strides[leaf] = step
        step *= extents[leaf]
    return Layout(shape, tree.like(shape, iter(strides)))


POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def power_layouts(draw: st.DrawFn) -> Layout:
    """Extents and strides that are powers of two: nearly everything divides."""
    shape = draw(shapes(POWERS))
    strides = st.sampled_from([0, 1, 2, 4, 8, 16, 32, 64, 128])
    leaves = [draw(strides) for _ in tree.flatten(shape)]
    return Layout(shape, tree.like(shape, iter(leaves)))
