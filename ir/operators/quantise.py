"""Quantisation: numbers as narrow ones with a scale for each row, block or square."""

from __future__ import annotations

from ir import Axis, Graph, Tile, UsageError, absolute, apply, maximum, minimum, operator, reduce
from ir.values import positive

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "quantise_tensor": {
        "small": {"m": 7, "n": 65},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "bf16", "out": "e4m3"},
    },
    "quantise_rows": {
        "small": {"m": 7, "n": 65},
        "small-e4m3": {"m": 7, "n": 65, "out": "e4m3"},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "bf16", "out": "e4m3"},
    },
    "quantise_blocks": {
        "small": {"m": 5, "n": 96, "block": 32},
        "small-i8": {"m": 5, "n": 96, "block": 32, "out": "i8"},
        "deepseek-v3": {"m": 4096, "n": 7168, "dtype": "bf16"},
    },
    "quantise_squares": {
        "small": {"m": 24, "n": 36, "block": 12},
        "deepseek-v3": {"m": 7168, "n": 2048, "dtype": "bf16"},
    },
    "dequantise_rows": {
        "small": {"m": 7, "n": 65},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "e4m3", "out": "bf16"},
    },
    "dequantise_blocks": {
        "small": {"m": 5, "n": 96, "block": 32},
        "deepseek-v3": {"m": 4096, "n": 7168, "out": "bf16"},
    },
    "dequantise_squares": {
        "small": {"m": 24, "n": 36, "block": 12},
        "deepseek-v3": {"m": 7168, "n": 2048, "out": "bf16"},
    },
}
_LARGEST = {"i8": 127.0, "e4m3": 448.0}
_TINY = 1e-10  # of a scale times the largest: rows of zeros stay zeros


def to_narrow(value: Tile, over: Axis | tuple[Axis, ...], out: str) -> tuple[Tile, Tile]:
    """`value` in steps of a scale whose largest along `over` is the largest of `out`; the scale."""
    if out not in _LARGEST:
        raise UsageError(f"out={out!r}: numbers are quantised to {' or '.join(_LARGEST)}")
    largest = _LARGEST[out]
    scale = maximum(reduce("max", absolute(value), over=over), _TINY) * (1.0 / largest)
    steps = value / scale
    if out == "i8":  # to the nearest whole number
        steps = apply("floor", steps + 0.5)
    return maximum(minimum(steps, largest), -largest), scale


def _blocks(what: str, extent: int, block: int) -> int:
    if block < 1 or extent % block:
        raise UsageError(f"{what}: {extent} is no multiple of block={block}")
    return extent // block


@operator
def quantise_tensor(g: Graph, m: int, n: int, dtype: str = "f32", out: str = "i8") -> None:
    """Y[m, n] = round(X / scale), scale = max |X| / 127 over the whole tensor.

    To `out` i8 or e4m3, whose largest is 448.
    """
    mm, nn = g.axes(m=m, n=n)
    narrow, scale = to_narrow(g.input("X", (mm, nn), dtype), (mm, nn), out)
    g.output("Y", narrow, out, (mm, nn))
    g.output("scale", scale, "f32", ())


@operator
def quantise_rows(g: Graph, m: int, n: int, dtype: str = "f32", out: str = "i8") -> None:
    """Y[m, n] = round(X / scale), scale[m] = max |X| / 127 along n.

    To `out` i8 or e4m3, whose largest is 448.
    """
    mm, nn = g.axes(m=m, n=n)
    narrow, scale = to_narrow(g.input("X", (mm, nn), dtype), nn, out)
    g.output("Y", narrow, out, (mm, nn))
    g.output("scale", scale, "f32", (mm,))


@operator
def quantise_blocks(
    g: Graph, m: int, n: int, block: int = 128, dtype: str = "f32", out: str = "e4m3"
) -> None:
    """Y[m, j, b] = X / scale, scale[m, j] = max |X| / 448 over the `block` numbers b of a block j.

    Blocks lie along rows: in memory X and Y are (m, n). To `out` e4m3, or i8, whose largest is 127.
    """
    count = _blocks("quantise_blocks", n, block)
    mm, jj, bb = g.axes(m=m, j=count, b=block)
    narrow, scale = to_narrow(g.input("X", (mm, jj, bb), dtype), bb, out)
    g.output("Y", narrow, out, (mm, jj, bb))
    g.output("scale", scale, "f32", (mm, jj))


@operator
def quantise_squares(
    g: Graph, m: int, n: int, block: int = 128, dtype: str = "f32", out: str = "e4m3"
) -> None:
    """Y[i, a, j, b] = X / scale, scale[i, j] = max |X| / 448 over a square of block by block.

    In memory X and Y are (m, n). To `out` e4m3, or i8, whose largest is 127.
    """
    rows, columns = (_blocks("quantise_squares", extent, block) for extent in (m, n))
    i, a, j, b = g.axes(i=rows, a=block, j=columns, b=block)
    narrow, scale = to_narrow(g.input("X", (i, a, j, b), dtype), (a, b), out)
    g.output("Y", narrow, out, (i, a, j, b))
    g.output("scale", scale, "f32", (i, j))


@operator
def dequantise_rows(g: Graph, m: int, n: int, dtype: str = "i8", out: str = "f32") -> None:
    """Y[m, n] = X * scale[m]."""
    mm, nn = g.axes(m=m, n=n)
    scale = g.input("scale", (mm,), "f32", positive(0.01))
    g.output("Y", g.input("X", (mm, nn), dtype) * scale, out, (mm, nn))


@operator
def dequantise_blocks(
    g: Graph, m: int, n: int, block: int = 128, dtype: str = "e4m3", out: str = "f32"
) -> None:
    """Y[m, j, b] = X * scale[m, j], one scale for `block` neighbours of a row."""
    count = _blocks("dequantise_blocks", n, block)
    mm, jj, bb = g.axes(m=m, j=count, b=block)
    scale = g.input("scale", (mm, jj), "f32", positive(0.01))
    g.output("Y", g.input("X", (mm, jj, bb), dtype) * scale, out, (mm, jj, bb))


@operator
def dequantise_squares(
    g: Graph, m: int, n: int, block: int = 128, dtype: str = "e4m3", out: str = "f32"
) -> None:
    """Y[i, a, j, b] = X * scale[i, j], one scale for a square of block by block."""
    rows, columns = (_blocks("dequantise_squares", extent, block) for extent in (m, n))
    i, a, j, b = g.axes(i=rows, a=block, j=columns, b=block)
    scale = g.input("scale", (i, j), "f32", positive(0.01))
    g.output("Y", g.input("X", (i, a, j, b), dtype) * scale, out, (i, a, j, b))
