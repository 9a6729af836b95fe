"""tilewright layout: show a layout as a table or a picture, explain how a block is laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.app import LARGEST, OperatorName, Words, examples, group, pairs, whole
from explorer.cli.places import refuse_unwritable_file

layout_app = group("layout", "Show layouts, and explain those of an operator's block.")


@layout_app.command(
    "show",
    epilog=examples(
        "tilewright layout show '(4,8):(8,1)'",
        "tilewright layout show 'S(3,4,3) o 0 o (8,64):(64,1)' --svg layout.svg",
    ),
)
def show_layout(
    text: Annotated[
        str, typer.Argument(metavar="LAYOUT", help="(4,8):(8,1), or S(3,4,3) o 0 o (8,64):(64,1)")
    ],
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="write a picture too")] = None,
    bits: Annotated[int, typer.Option(help="bits of an element, for the banks")] = 16,
    tile: Annotated[
        str, typer.Option(metavar="ROWSxCOLUMNS", help="draw (thread, value) over this tile")
    ] = "",
) -> None:
    """Print a layout as a table of offsets."""
    from explorer.layouts import draw
    from ir.errors import UsageError
    from ir.layout.layout import Layout
    from ir.layout.swizzle import parse

    layout = parse(text)
    if tile and svg is None:
        raise UsageError(f"--tile {tile} is for the picture: add --svg FILE")
    if tile and not isinstance(layout, Layout):
        raise UsageError(f"--tile draws a (thread, value) layout; {text} has a swizzle")
    if svg is not None:
        refuse_unwritable_file("--svg", svg)
        drawn = draw.thread_svg(Layout.parse(text), _tile(tile)) if tile else None
        svg.write_text(drawn or draw.memory_svg(layout, bits))
    print(draw.table(layout))


def _tile(text: str) -> tuple[int, int]:
    """16x8 as numbers; raises UsageError."""
    from ir.errors import UsageError

    rows, _, columns = text.partition("x")
    try:
        return whole(rows), whole(columns)
    except ValueError:
        raise UsageError(f"--tile {text!r} is not of the form ROWSxCOLUMNS, as 16x8 is") from None


@layout_app.command(
    "explain",
    epilog=examples(
        "tilewright layout explain matmul m=512 n=512 k=512 dtype=bf16 --threads 256",
    ),
)
def explain_layouts(
    operator: OperatorName,
    words: Words = None,
    tile: Annotated[
        list[str] | None, typer.Option(metavar="AXIS=EXTENT", help="extent of an axis in the block")
    ] = None,
    threads: Annotated[int, typer.Option(help="threads of the block")] = 128,
    family: Annotated[str, typer.Option(help="matrix instructions: wgmma or mma")] = "wgmma",
    epilogue: Annotated[str, typer.Option(help="how results leave the block")] = "direct",
    solutions: Annotated[
        int, typer.Option(min=1, max=1000, help="how many of the ranked solutions")
    ] = 1,
) -> None:
    """Say how each tile of an operator's block is laid out, what decided it, what was refused."""
    from explorer.layouts.explain import explain_operator
    from ir.errors import UsageError

    extents = {}
    for name, value in pairs(tile, "--tile").items():
        try:
            extents[name] = whole(str(value))
        except ValueError:
            raise UsageError(
                f"--tile {name}={value}: the extent must be a whole number below {LARGEST:,}"
            ) from None
    arguments = {name: str(value) for name, value in pairs(words).items()}
    print(explain_operator(operator, arguments, extents, threads, family, epilogue, solutions))
