"""Layout values: text, facts and the function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.layout import tree
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from tests.layout.random_layouts import layouts


def test_worked_example() -> None:
    fragment = Layout.parse("((4,8),(2,2,2)):((32,1),(16,8,128))")
    assert fragment.size == 256
    assert fragment.rank == 2
    assert fragment((3, 5)) == 3 * 32 + 16 + 128
    assert fragment(((3, 0), (1, 0, 1))) == 3 * 32 + 16 + 128
    assert fragment.injective
    assert str(fragment.mode(0)) == "(4,8):(32,1)"


def test_compact_by_default() -> None:
    assert Layout(((2, 3), 4)) == Layout(((2, 3), 4), ((1, 2), 6))


@given(layouts())
def test_text_round_trip(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    assert hash(Layout.parse(str(layout))) == hash(layout)


@given(layouts())
def test_table_is_the_function(layout: Layout) -> None:
    table = layout.offsets()
    assert table.shape == (layout.size,)
    assert [layout(i) for i in range(layout.size)] == table.tolist()
    assert np.array_equal(layout.at(np.arange(layout.size)), table)
    assert layout.cosize == table.max() + 1


@given(layouts(), st.data())
def test_coordinates_of_every_depth_agree(layout: Layout, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, layout.size - 1))
    extents = tree.flatten(layout.shape)
    digits = np.unravel_index(index, extents, order="F")
    place = tree.like(layout.shape, iter([int(digit) for digit in digits]))
    assert layout(place) == layout(index)
    assert tree.index_of(place, layout.shape) == index


@given(layouts())
def test_injective_is_what_it_says(layout: Layout) -> None:
    table = layout.offsets()
    assert layout.injective == (len(set(table.tolist())) == len(table))


@given(layouts(), layouts())
def test_modes_are_put_side_by_side(left: Layout, right: Layout) -> None:
    both = concat(left, right)
    assert both.modes == (left, right)
    assert both((left.size - 1, right.size - 1)) == left(left.size - 1) + right(right.size - 1)


@pytest.mark.parametrize(
    ("shape", "stride", "code"),
    [
        ((2, 3), (1,), "congruence"),
        ((2, (3, 4)), (1, 2), "congruence"),
        ((2, 0), (1, 2), "extent"),
        (-3, 1, "extent"),
        ((1 << 40, 1 << 40), (1, 1), "extent"),
        ((2, 2.5), (1, 2), "congruence"),
        ((2, True), (1, 2), "congruence"),
        ((), (), "congruence"),
        ((2, ()), (1, ()), "congruence"),
        (4, 1 << 62, "extent"),
    ],
)
def test_refused_values(shape: object, stride: object, code: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Layout(shape, stride)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_refused_coordinates() -> None:
    layout = Layout.parse("(4,(2,3)):(1,(4,8))")
    for place in ((1, 2, 3), (1, (1, 1, 1)), ((1, 1), 0)):
        with pytest.raises(LayoutError) as caught:
            layout(place)
        assert caught.value.code == "coordinate"
    with pytest.raises(LayoutError, match="2 modes, not mode 2"):
        layout.mode(2)
