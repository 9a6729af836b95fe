"""Laws of the layout algebra: every result is compared with the definition, point by point."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ir.layout import tree
from ir.layout.algebra import (
    along_axes,
    coalesce,
    complement,
    composition,
    filter_zeros,
    logical_product,
    max_common_vector,
    right_inverse,
    upcast,
)
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from tests.layout.random_layouts import POWERS, attempt, layouts, ordered, power_layouts

L = Layout.parse
many = settings(max_examples=65)


@many
@given(layouts())
def test_coalesce_keeps_the_function_in_fewest_modes(layout: Layout) -> None:
    simple = coalesce(layout)
    assert np.array_equal(simple.offsets(), layout.offsets())
    assert not isinstance(simple.shape, tuple) or all(isinstance(e, int) for e in simple.shape)
    pairs = simple.flat()
    assert simple.size == 1 or all(extent > 1 for extent, _ in pairs)
    assert all(b[1] != a[0] * a[1] for a, b in pairwise(pairs))


@many
@given(layouts())
def test_coalesce_by_mode_keeps_the_modes(layout: Layout) -> None:
    simple = coalesce(layout, (0,) * layout.rank)
    assert [m.size for m in simple.modes] == [m.size for m in layout.modes]
    assert all(
        mode == coalesce(part) for mode, part in zip(simple.modes, layout.modes, strict=True)
    )
    assert np.array_equal(simple.offsets(), layout.offsets())


@many
@given(st.one_of(layouts(), power_layouts()), st.one_of(layouts(), power_layouts()))
def test_composition_is_exact_or_refused(outer: Layout, inner: Layout) -> None:
    result = attempt(composition, outer, inner)
    if isinstance(result, LayoutError):
        assert result.code in ("divisibility", "not-admissible")
        return
    assert np.array_equal(result.offsets(), outer.at(inner.offsets()))
    if isinstance(inner.shape, tuple):
        assert [m.size for m in result.modes] == [m.size for m in inner.modes]


@many
@given(power_layouts(), ordered(gaps=False, extents=POWERS))
def test_composition_with_a_permutation_is_never_refused_for_powers(
    outer: Layout, inner: Layout
) -> None:
    result = composition(outer, inner)
    assert np.array_equal(result.offsets(), outer.at(inner.offsets()))


@many
@given(layouts(), layouts(), layouts())
def test_composition_is_associative_where_it_exists(a: Layout, b: Layout, c: Layout) -> None:
    """Beyond a layout's size its last mode goes on, so c must stay inside b, and b inside a."""
    assume(b.cosize <= a.size and c.cosize <= b.size)
    try:
        left, right = composition(composition(a, b), c), composition(a, composition(b, c))
    except LayoutError:
        return
    assert np.array_equal(left.offsets(), right.offsets())


@many
@given(st.one_of(layouts(), ordered()), st.integers(1, 400))
def test_complement_is_disjoint_and_covers(layout: Layout, size: int) -> None:
    rest = attempt(complement, layout, size)
    if isinstance(rest, LayoutError):
        assert rest.code in ("not-injective", "divisibility")
        return
    whole = concat(filter_zeros(layout), rest).offsets()
    assert len(set(whole.tolist())) == whole.size
    assert set(range(size)) <= set(whole.tolist())
    assert all(a[1] < b[1] for a, b in pairwise(rest.flat()))


@many
@given(st.one_of(layouts(), ordered()))
def test_right_inverse(layout: Layout) -> None:
    inverse = right_inverse(layout)
    assert np.array_equal(layout.at(inverse.offsets()), np.arange(inverse.size))


@many
@given(ordered(gaps=False))
def test_right_inverse_of_a_permutation_is_whole(layout: Layout) -> None:
    assert right_inverse(layout).size == layout.size


@many
@given(ordered(), ordered())
def test_products_repeat_the_block(block: Layout, tiler: Layout) -> None:
    product = attempt(logical_product, block, tiler)
    if isinstance(product, LayoutError):
        return
    assert product.mode(0) == block
    assert product.mode(1).size == tiler.size
    table = product.offsets()
    assert len(set(table.tolist())) == table.size


@many
@given(power_layouts(), st.lists(st.sampled_from(POWERS), min_size=2, max_size=4))
def test_parts_of_modes_move_along_one_axis(layout: Layout, shape: list[int]) -> None:
    """Axis by axis, the parts add up to where an index lies; what goes beyond lies on the last."""
    assume(layout.cosize <= 4 * Layout(tuple(shape)).size)
    parts = list(along_axes(layout, tuple(shape)))
    places = np.zeros((len(shape), 1), np.int64)
    for axis, size, stride in parts:
        steps = np.zeros((len(shape), size), np.int64)
        if axis >= 0:
            steps[axis] = np.arange(size) * stride
        places = (places[:, None, :] + steps[:, :, None]).reshape(len(shape), -1)
    if layout.injective:
        weights = np.cumprod([1, *shape[:-1]])
        assert np.array_equal(weights @ places, layout.offsets())
    assert all(stride for axis, _, stride in parts if axis >= 0)


@many
@given(layouts())
def test_filters(layout: Layout) -> None:
    kept = filter_zeros(layout)
    assert set(kept.offsets().tolist()) == set(layout.offsets().tolist())
    assert all(stride or extent == 1 for extent, stride in kept.flat())
    assert tree.congruent(kept.shape, layout.shape)


@many
@given(layouts(), ordered())
def test_common_vector(left: Layout, right: Layout) -> None:
    count = max_common_vector(left, right)
    pairs = dict(zip(right.offsets().tolist()[::-1], range(right.size - 1, -1, -1), strict=True))
    assert all(left(pairs[offset]) == offset for offset in range(count) if offset in pairs)
    assert 1 <= count <= min(left.size, right.size)


@many
@given(layouts(), st.sampled_from([2, 4, 8]))
def test_upcast_covers_the_same_elements(layout: Layout, count: int) -> None:
    wide = attempt(upcast, layout, count)
    if isinstance(wide, LayoutError):
        assert wide.code in ("divisibility", "not-injective")
        return
    assert set(wide.offsets()) == set((layout.offsets() // count).tolist())


EXAMPLES = [
    (coalesce, ("(2,(1,6)):(1,(6,2))",), "12:1"),
    (coalesce, ("((2,2),(2,2)):((1,4),(8,32))",), "(2,4,2):(1,4,32)"),
    (coalesce, ("(2,4,6):(1,6,2)",), "(2,4,6):(1,6,2)"),
    (composition, ("(6,2):(8,2)", "(4,3):(3,1)"), "((2,2),3):((24,2),8)"),
    (composition, ("20:2", "(5,4):(4,1)"), "(5,4):(8,2)"),
    (composition, ("(10,2):(16,4)", "(5,4):(1,5)"), "(5,(2,2)):(16,(80,4))"),
    (composition, ("(4,3):(3,1)", "(6,2):(2,1)"), "((2,3),2):((6,1),3)"),
    (composition, ("(4,6,8,10):(2,3,5,7)", "6:12"), "(2,3):(9,5)"),
    (right_inverse, ("(8,4):(4,1)",), "(4,8):(8,1)"),
    (right_inverse, ("(2,4,6):(4,1,8)",), "(4,2,6):(2,1,8)"),
    (right_inverse, ("(4,2):(1,16)",), "4:1"),
    (right_inverse, ("4:2",), "1:0"),
    (logical_product, ("(2,2):(4,1)", "6:1"), "((2,2),(2,3)):((4,1),(2,8))"),
    (logical_product, ("(2,2):(4,1)", "(4,2):(2,1)"), "((2,2),(4,2)):((4,1),(8,2))"),
]


@pytest.mark.parametrize(("function", "arguments", "wanted"), EXAMPLES)
def test_documented_examples(function, arguments, wanted) -> None:  # type: ignore[no-untyped-def]
    found, wanted = function(*map(L, arguments)), L(wanted)
    assert np.array_equal(found.offsets(), wanted.offsets()), found
    assert found.size == wanted.size


@pytest.mark.parametrize(
    ("text", "size", "wanted"),
    [
        ("4:1", 24, "6:4"),
        ("6:4", 24, "4:1"),
        ("4:2", 24, "(2,3):(1,8)"),
        ("(2,4):(1,6)", 24, "3:2"),
        ("(2,2):(1,6)", 24, "(3,2):(2,12)"),
        ("(4,6):(1,4)", 24, "1:0"),
        ("(2,4,8):(8,1,64)", 512, "(2,4):(4,16)"),
    ],
)
def test_documented_complements(text: str, size: int, wanted: str) -> None:
    assert complement(L(text), size) == L(wanted)


@pytest.mark.parametrize(
    ("outer", "inner", "code"),
    [
        ("(2,2):(1,4)", "(2,2):(1,1)", "not-admissible"),  # 1 + 1 carries into the second mode
        ("(4,2):(1,8)", "(4,2):(1,2)", "not-admissible"),
        ("(4,6):(1,10)", "3:3", "divisibility"),
        ("(3,4):(1,7)", "(2,3):(2,1)", "not-admissible"),
    ],
)
def test_traps_are_refused(outer: str, inner: str, code: str) -> None:
    """What is silently wrong when it is composed mode by mode."""
    with pytest.raises(LayoutError) as caught:
        composition(L(outer), L(inner))
    assert caught.value.code in (code, "divisibility")


def test_truncation_breaks_associativity() -> None:
    """The last mode goes on: beyond b's size the two orders differ, and both are as defined."""
    a, b, c = L("(5,3):(1,7)"), L("4:1"), L("2:5")
    inner = composition(b, c)
    assert composition(a, inner).offsets().tolist() == a.at(inner.offsets()).tolist() == [0, 7]


def test_common_vectors_stop_at_the_shorter_layout() -> None:
    assert max_common_vector(L("2:1"), L("(2,2):(2,1)")) == 1
    assert max_common_vector(L("8:1"), L("(2,4):(1,2)")) == 8


def test_large_sizes_are_exact() -> None:
    assert complement(L("1:0"), 2**53 + 1).size == 2**53 + 1


def test_impossible_widths_are_refused() -> None:
    with pytest.raises(LayoutError, match="at least 1"):
        upcast(L("4:1"), 0)
