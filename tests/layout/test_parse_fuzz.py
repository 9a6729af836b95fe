"""The parser reads layouts, or raises the one typed error; nothing else, whatever it is given."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.swizzle import parse
from tests.layout.random_layouts import attempt

PIECES = st.sampled_from(
    ["(", ")", ",", ":", "1", "0", "-2", "12", " ", "S(3,4,3)", " o ", "x", "9" * 30]
)
SCRAPS = st.lists(PIECES, max_size=25).map("".join)


@settings(max_examples=80)
@given(st.one_of(SCRAPS, st.text(max_size=40)))
@example("")
@example("(" * 500)
@example("\u0663:\u0661")
@example("S(1,2,3) o")
@example("S(99,99,99) o 0 o 1:1")
@example("(1,2):(3,4)\x00")
def test_never_fails_otherwise(text: str) -> None:
    for read in (parse, Layout.parse):
        value = attempt(read, text)
        if isinstance(value, LayoutError):
            assert value.code
            assert str(value)
            assert "\n" not in str(value)
        else:
            assert parse(str(value)) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(4,8", "the end"),
        ("(4,8):(1,4):2", "':' where nothing more"),
        ("(4,,8)", "','"),
        ("(4,8):(1)", r"shape \(4,8\) and stride \(1\)"),
        ("4:a", "'a' at 2"),
        ("S(3,4,3) (8,64):(64,1)", "o <offset> o <layout>"),
        ("S(3,4,2) o 0 o 8:1", "shift of 2 is below 3 bits"),
    ],
)
def test_messages_name_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        parse(text)
