"""The algebra against its definitions: on all small layouts, what is refused has no lawful answer.

A brute force over every answer there could be; where the docstrings say that something is not
sought, the brute force leaves it out too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.layout.algebra import (
    Modes,
    complement,
    composition,
    filter_zeros,
    from_modes,
    max_common_vector,
    right_inverse,
    upcast,
)
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from tests.few import few
from tests.layout.random_layouts import attempt, ordered

L = Layout.parse
REACH = 14  # offsets up to which answers are sought


@cache
def small(most_stride: int = 7, modes: int = 2) -> tuple[Layout, ...]:
    """Layouts of up to two modes of 1 to 4 steps."""
    pairs = list(product((1, 2, 3, 4), range(most_stride + 1)))
    return tuple(from_modes(each) for n in range(1, modes + 1) for each in product(pairs, repeat=n))


@cache
def ascending() -> tuple[Layout, ...]:
    """Ordered layouts that meet no offset twice: what a complement may be."""
    pairs = list(product((2, 3, 4, 5, 6), range(1, 8)))
    found = [from_modes(()), *(Layout(*pair) for pair in pairs)]
    found += [from_modes([a, b]) for a, b in product(pairs, repeat=2) if a[1] < b[1]]
    return tuple(one for one in found if one.injective)


def offsets(layout: Layout) -> frozenset[int]:
    return frozenset(layout.offsets().tolist())


def disjoint(own: frozenset[int], rest: frozenset[int], size: int) -> bool:
    """Whether all sums differ and fill [0, size)."""
    one = sum(1 << offset for offset in rest)
    sums = 0
    for offset in own:
        if sums & one << offset:
            return False
        sums |= one << offset
    return sums & (1 << size) - 1 == (1 << size) - 1


@pytest.mark.parametrize("size", few([1, 2, 3, 5, 6], (0, 1, 2, 4)))
@pytest.mark.alike(2)
def test_no_complement_is_missed(size: int) -> None:
    every = [offsets(rest) for rest in ascending()]
    for layout in small():
        found, own = attempt(complement, layout, size), filter_zeros(layout)
        if not isinstance(found, LayoutError):
            assert disjoint(offsets(own), offsets(found), size), layout
        elif own.injective:
            answers = (rest for rest in every if disjoint(offsets(own), rest, size))
            assert next(answers, None) is None, (layout, size)
        else:
            assert found.code == "not-injective"


def factors(size: int) -> Iterator[tuple[int, ...]]:
    """All shapes of a size, without extents of 1."""
    if size == 1:
        yield ()
    for first in range(2, size + 1):
        if size % first == 0:
            yield from ((first, *rest) for rest in factors(size // first))


def has_right_inverse(layout: Layout, size: int) -> bool:
    """Whether a layout of `size` indices of `layout` gives the offsets 0, 1, ... in this order.

    Where offsets are met twice, of steps by one of each mode alone.
    """
    table = layout.offsets()
    units = [prod(e for e, _ in layout.flat()[:n]) for n in range(len(layout.flat()))]
    units = [unit for unit in units if unit < layout.size]
    sought = range(layout.size) if layout.injective else units
    for shape in factors(size):
        steps = [prod(shape[:n]) for n in range(len(shape))]
        for strides in product(*([n for n in sought if table[n] == step] for step in steps)):
            indices = from_modes(zip(shape, strides, strict=True)).offsets()
            inside = bool((indices < layout.size).all())
            if inside and np.array_equal(table[indices], np.arange(size)):
                return True
    return False


def test_no_larger_right_inverse_is_missed() -> None:
    for layout in small(most_stride=5):
        found = right_inverse(layout)
        assert np.array_equal(layout.at(found.offsets()), np.arange(found.size))
        larger = [size for size in range(found.size + 1, REACH) if has_right_inverse(layout, size)]
        assert not larger, (layout, found, larger)


def widened(layout: Layout, count: int) -> bool:
    """Whether steps of modes can be joined so that the rest is a layout of wide elements.

    Left out: steps that begin inside wide elements, and steps backwards inside one.
    """
    wanted = layout.offsets() // count
    choices = []
    for extent, stride in layout.flat():
        joined = [n for n in range(1, extent + 1) if extent % n == 0]
        choices.append([n for n in joined if n == extent or stride * n % count == 0])
    for inside in product(*choices):
        pairs: Modes = []
        for (extent, stride), n in zip(layout.flat(), inside, strict=True):
            pairs += [(n, 0), (extent // n, stride * n // count if extent > n else 0)]
        if np.array_equal(Layout(*zip(*pairs, strict=True)).offsets(), wanted):
            return True
    return False


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_upcast_is_missed(count: int) -> None:
    for layout in small():
        found = attempt(upcast, layout, count)
        assert isinstance(found, Layout) == widened(layout, count), layout
        if isinstance(found, Layout):
            assert offsets(found) == set((layout.offsets() // count).tolist())


@given(ordered(), st.integers(-40, 40), st.integers(0, 3))
def test_the_stride_of_a_single_step_means_nothing(layout: Layout, stride: int, at: int) -> None:
    pairs = list(layout.flat())
    more = from_modes([*pairs[:at], (1, stride), *pairs[at:]])
    assert complement(more, 60) == complement(layout, 60)
    assert right_inverse(more) == right_inverse(layout)
    table = Layout(layout.size).at(layout.offsets())
    assert np.array_equal(composition(Layout(layout.cosize), more).offsets(), table)
    cast = attempt(upcast, more, 2), attempt(upcast, layout, 2)
    if isinstance(cast[0], Layout) and isinstance(cast[1], Layout):
        assert np.array_equal(cast[0].offsets(), cast[1].offsets())
    else:
        assert type(cast[0]) is type(cast[1])


CASES = [
    (complement, ("(2,2):(7,1)", 4), "3:2"),
    (complement, ("(2,2):(3,5)", 2), "2:1"),
    (complement, ("(4,1):(1,-6)", 8), "2:4"),
    (right_inverse, ("(4,2):(1,1)",), "4:1"),
    (right_inverse, ("(4,6):(1,2)",), "(2,6):(1,4)"),
    (upcast, ("(8,1):(1,9)", 2), "(4,1):(1,5)"),
    (upcast, ("(4,1):(1,-6)", 2), "(2,1):(1,-3)"),
    (composition, ("8:1", "(4,1):(1,-6)"), "(4,1):(1,0)"),
]


@pytest.mark.parametrize(("function", "arguments", "wanted"), CASES)
def test_answers_where_a_rule_of_thumb_has_none(function, arguments, wanted) -> None:  # type: ignore[no-untyped-def]
    first, *rest = arguments
    assert function(L(first), *(L(a) if isinstance(a, str) else a for a in rest)) == L(wanted)


def test_the_vector_of_a_layout_that_overlaps_itself() -> None:
    assert max_common_vector(L("8:1"), L("(8,2):(1,1)")) == 8
