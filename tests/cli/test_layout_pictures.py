"""Pictures: what stands in each cell, valid XML, colours by bank and lane, refusals."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from explorer.layouts import draw
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.swizzle import parse

SVG = "{http://www.w3.org/2000/svg}"


def cells(svg: str) -> list[tuple[str, str]]:
    """(fill, text) of every cell that has a text."""
    found = re.findall(
        r"<rect [^>]*fill='(#\w+)' stroke[^>]*/>\n<text[^>]*font-size='9'[^>]*>([^<]*)<", svg
    )
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
    return found


def test_table_of_a_matrix() -> None:
    assert draw.table(Layout.parse("(2,4):(4,1)")) == "\n".join(
        [
            "(2,4):(4,1)",
            "  | 0 1 2 3",
            "--+--------",
            "0 | 0 1 2 3",
            "1 | 4 5 6 7",
        ]
    )


def test_table_of_one_mode_and_of_a_swizzle() -> None:
    assert draw.table(Layout(3)).splitlines()[-1] == "0 | 0 1 2"
    rows = draw.table(parse("S(1,0,1) o 0 o (2,2):(2,1)")).splitlines()
    assert rows[-2:] == ["0 | 0 1", "1 | 3 2"]


def test_memory_picture_colours_banks() -> None:
    found = cells(draw.memory_svg(Layout.parse("(4,64):(64,1)"), 16))
    assert [text for _, text in found] == [str(64 * r + c) for r in range(4) for c in range(64)]
    by_place = {int(text): fill for fill, text in found}
    assert by_place[0] == by_place[1] == by_place[64] != by_place[2]
    assert len(set(by_place.values())) == 32


def test_a_swizzle_spreads_a_column_over_banks() -> None:
    plain = cells(draw.memory_svg(Layout.parse("(8,64):(64,1)"), 16))
    mixed = cells(draw.memory_svg(parse("S(3,3,3) o 0 o (8,64):(64,1)"), 16))
    assert len({fill for fill, _ in plain[::64]}) == 1
    assert len({fill for fill, _ in mixed[::64]}) == 8


def test_thread_picture() -> None:
    svg = draw.thread_svg(Layout.parse("((4,8),(2,2)):((32,1),(16,8))"), (16, 8))
    found = cells(svg)
    assert len(found) == 128
    assert found[0][1] == "T0 V0"
    assert found[1][1] == "T0 V1"
    assert found[8 * 8][1] == "T0 V2"
    assert found[8][1] == "T4 V0"
    assert len({fill for fill, _ in found}) == 32


def test_several_owners_and_none() -> None:
    found = cells(draw.thread_svg(Layout.parse("(2,2):(0,1)"), (2, 2)))
    assert [text for _, text in found] == ["T0 V0+", "T0 V1+"]


def test_64_by_64_stays_readable() -> None:
    """Texts fit their cells: at least six units a character."""
    svg = draw.memory_svg(Layout.parse("(64,64):(64,1)"))
    width = int(re.findall(r"width='(\d+)' height='20'", svg)[0])
    assert width >= 6 * len("4095")
    assert len(cells(svg)) == 4096


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: draw.table(Layout((512, 512))), "extent"),
        (lambda: draw.memory_svg(Layout(4), 1), "extent"),
        (lambda: draw.thread_svg(Layout((2, 2, 2)), (4, 4)), "rank"),
        (lambda: draw.thread_svg(Layout((4, 8)), (4, 4)), "extent"),
    ],
)
def test_refused(call, code: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError) as caught:
        call()
    assert caught.value.code == code
