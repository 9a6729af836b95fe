"""Convolutions: contractions over shifted indices."""

from __future__ import annotations

from ir import Graph, UsageError, contract, operator


@operator
def conv2d(
    g: Graph, n: int, h: int, w: int, c: int, f: int, r: int = 3, s: int = 3,
    stride: int = 1, padding: int = 0, dtype: str = "f32", out: str = "",
) -> None:  # fmt: skip
    """Y[n, p, q, f] = sum over r, s, c of X[n, p*stride + r - padding, ..., c] W[r, s, c, f]."""
    if stride < 1 or padding < 0:
        raise UsageError(f"conv2d: stride={stride}, padding={padding}; needs >= 1 and >= 0")
    rows, columns = h + 2 * padding - r, w + 2 * padding - s
    if rows < 0 or columns < 0:
        raise UsageError(f"conv2d: a {r}x{s} filter does not fit {h}x{w} with padding {padding}")
    nn, p, q, ff = g.axes(n=n, p=rows // stride + 1, q=columns // stride + 1, f=f)
    rr, ss, cc = g.axes(r=r, s=s, c=c)
    x = g.tensor("X", (n, h, w, c), dtype, fill=0 if padding else None)
    window = x[nn, p * stride + rr - padding, q * stride + ss - padding, cc]
    result = contract(window, g.input("W", (rr, ss, cc, ff), dtype), over=(rr, ss, cc))
    g.output("Y", result, out or ("i32" if dtype in ("i8", "u8") else dtype), (nn, p, q, ff))
