"""Convolutions: contractions over shifted indices; channels last, but for the causal one."""

from __future__ import annotations

from ir import Axis, Graph, Tile, UsageError, contract, operator, reduce, silu

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "conv1d": {
        "small": {"n": 2, "length": 33, "c": 10, "f": 12, "stride": 2, "padding": 1},
        "whisper": {"n": 8, "length": 3000, "c": 384, "f": 384, "padding": 1, "dtype": "f16"},
        "whisper, strided": {"n": 8, "length": 3000, "c": 384, "f": 384, "padding": 1, "stride": 2,
                             "dtype": "f16"},
        "wavenet": {"n": 8, "length": 16384, "c": 64, "f": 128, "r": 2, "dilation": 512,
                    "dtype": "f16"},
    },
    "conv2d": {
        "small": {"n": 1, "h": 11, "w": 9, "c": 6, "f": 10, "padding": 1, "dilation": 2},
        "resnet50": {
            "n": 128, "h": 56, "w": 56, "c": 64, "f": 64, "padding": 1, "dtype": "f16",
        },
        "resnet50-deep": {
            "n": 128, "h": 14, "w": 14, "c": 256, "f": 256, "padding": 1, "dtype": "f16",
        },
        "resnet50, strided": {
            "n": 128, "h": 56, "w": 56, "c": 128, "f": 128, "padding": 1, "stride": 2,
            "dtype": "f16",
        },
        "deeplab-v3": {
            "n": 16, "h": 33, "w": 33, "c": 2048, "f": 256, "padding": 12, "dilation": 12,
            "dtype": "f16",
        },
    },
    "conv3d": {
        "small": {"n": 1, "t": 5, "h": 6, "w": 7, "c": 4, "f": 6, "padding": 1},
        "video": {"n": 1, "t": 16, "h": 60, "w": 104, "c": 96, "f": 96, "padding": 1,
                  "dtype": "bf16"},
    },
    "depthwise_conv2d": {
        "small": {"n": 2, "h": 10, "w": 9, "c": 13, "padding": 1, "stride": 2},
        "convnext": {"n": 64, "h": 56, "w": 56, "c": 128, "r": 7, "s": 7, "padding": 3,
                     "dtype": "bf16"},
    },
    "grouped_conv2d": {
        "small": {"n": 1, "h": 8, "w": 9, "c": 12, "f": 18, "groups": 3, "padding": 1},
        "resnext50": {"n": 64, "h": 56, "w": 56, "c": 128, "f": 128, "groups": 32, "padding": 1,
                      "dtype": "bf16"},
    },
    "transposed_conv2d": {
        "small": {"n": 1, "h": 5, "w": 6, "c": 7, "f": 5},
        "decoder": {"n": 8, "h": 32, "w": 32, "c": 512, "f": 256, "dtype": "bf16"},
    },
    "causal_conv1d": {
        "small": {"b": 2, "length": 37, "c": 11},
        "mamba2": {"b": 8, "length": 4096, "c": 5376, "dtype": "bf16"},
    },
}  # fmt: skip


def _positions(
    what: str, extent: int, taps: int, stride: int, padding: int, dilation: int = 1
) -> int:
    """How many places a filter has along a dimension; refuses what has none."""
    if min(stride, dilation, taps) < 1 or padding < 0:
        raise UsageError(
            f"{what}: stride={stride}, padding={padding}, dilation={dilation}, {taps} taps; "
            "padding is 0 or more, the others 1 or more"
        )
    room = extent + 2 * padding - dilation * (taps - 1) - 1
    if room < 0:
        said = f", {dilation} apart," if dilation > 1 else ""
        raise UsageError(
            f"{what}: a filter of {taps}{said} does not fit {extent} with padding {padding}"
        )
    return room // stride + 1


def _store(g: Graph, value: Tile, dtype: str, out: str, dims: tuple[Axis, ...]) -> None:
    g.output("Y", value, out or ("i32" if dtype in ("i8", "u8") else dtype), dims)


@operator
def conv2d(
    g: Graph, n: int, h: int, w: int, c: int, f: int, r: int = 3, s: int = 3,
    stride: int = 1, padding: int = 0, dtype: str = "f32", out: str = "", dilation: int = 1,
) -> None:  # fmt: skip
    """Y[n, p, q, f] = sum_rsc X[n, p*stride + r*dilation - padding, .., c] W[r, s, c, f].

    The 2-d convolution; X is 0 outside. p and q count the places of the filter.
    """
    rows = _positions("conv2d", h, r, stride, padding, dilation)
    columns = _positions("conv2d", w, s, stride, padding, dilation)
    nn, p, q, ff = g.axes(n=n, p=rows, q=columns, f=f)
    rr, ss, cc = g.axes(r=r, s=s, c=c)
    x = g.tensor("X", (n, h, w, c), dtype, fill=0 if padding else None)
    y_at, x_at = p * stride + rr * dilation - padding, q * stride + ss * dilation - padding
    weights = g.input("W", (rr, ss, cc, ff), dtype)
    result = contract(x[nn, y_at, x_at, cc], weights, over=(rr, ss, cc))
    _store(g, result, dtype, out, (nn, p, q, ff))


@operator
def conv1d(
    g: Graph, n: int, length: int, c: int, f: int, r: int = 3, stride: int = 1,
    padding: int = 0, dilation: int = 1, dtype: str = "f32", out: str = "",
) -> None:  # fmt: skip
    """Y[n, p, f] = sum_rc X[n, p*stride + r*dilation - padding, c] W[r, c, f].

    The 1-d convolution; X is 0 outside.
    """
    places = _positions("conv1d", length, r, stride, padding, dilation)
    nn, p, ff, rr, cc = g.axes(n=n, p=places, f=f, r=r, c=c)
    x = g.tensor("X", (n, length, c), dtype, fill=0 if padding else None)
    window = x[nn, p * stride + rr * dilation - padding, cc]
    result = contract(window, g.input("W", (rr, cc, ff), dtype), over=(rr, cc))
    _store(g, result, dtype, out, (nn, p, ff))


@operator
def conv3d(
    g: Graph, n: int, t: int, h: int, w: int, c: int, f: int, taps: int = 3,
    stride: int = 1, padding: int = 0, dtype: str = "f32", out: str = "", dilation: int = 1,
) -> None:  # fmt: skip
    """Y[n, o, p, q, f] = sum_krsc X[n, o*stride + k*dilation - padding, .., c] W[k, r, s, c, f].

    The 3-d convolution with a cube of `taps` in each direction; X is 0 outside.
    """
    places = [_positions("conv3d", extent, taps, stride, padding, dilation) for extent in (t, h, w)]
    nn, ff, cc = g.axes(n=n, f=f, c=c)
    outer = g.axes(o=places[0], p=places[1], q=places[2])
    inner = g.axes(k=taps, r=taps, s=taps)
    x = g.tensor("X", (n, t, h, w, c), dtype, fill=0 if padding else None)
    at = (p * stride + tap * dilation - padding for p, tap in zip(outer, inner, strict=True))
    weights = g.input("W", (*inner, cc, ff), dtype)
    result = contract(x[nn, *at, cc], weights, over=(*inner, cc))
    _store(g, result, dtype, out, (nn, *outer, ff))


@operator
def depthwise_conv2d(
    g: Graph, n: int, h: int, w: int, c: int, r: int = 3, s: int = 3,
    stride: int = 1, padding: int = 0, dtype: str = "f32", out: str = "", dilation: int = 1,
) -> None:  # fmt: skip
    """Y[n, p, q, c] = sum_rs X[n, p*stride + r*dilation - padding, .., c] W[r, s, c].

    Each channel is filtered by itself; X is 0 outside.
    """
    rows = _positions("depthwise_conv2d", h, r, stride, padding, dilation)
    columns = _positions("depthwise_conv2d", w, s, stride, padding, dilation)
    nn, p, q, cc, rr, ss = g.axes(n=n, p=rows, q=columns, c=c, r=r, s=s)
    x = g.tensor("X", (n, h, w, c), dtype, fill=0 if padding else None)
    at = (p * stride + rr * dilation - padding, q * stride + ss * dilation - padding)
    window = x[nn, *at, cc]
    result = contract(window, g.input("W", (rr, ss, cc), dtype), over=(rr, ss))
    _store(g, result, dtype, out, (nn, p, q, cc))


@operator
def grouped_conv2d(
    g: Graph, n: int, h: int, w: int, c: int, f: int, groups: int, r: int = 3, s: int = 3,
    stride: int = 1, padding: int = 0, dtype: str = "f32", out: str = "", dilation: int = 1,
) -> None:  # fmt: skip
    """Y[n, p, q, g, f] = sum_rsc X[n, p*stride + r*dilation - padding, .., g, c] W[g, r, s, c, f].

    Each of `groups` sees its share of the channels c and gives its share of f; in memory X is
    (n, h, w, c) and Y (n, p, q, f).
    """
    if groups < 1 or c % groups or f % groups:
        raise UsageError(f"grouped_conv2d: c={c} and f={f} are no multiples of groups={groups}")
    rows = _positions("grouped_conv2d", h, r, stride, padding, dilation)
    columns = _positions("grouped_conv2d", w, s, stride, padding, dilation)
    nn, p, q, gg, ff = g.axes(n=n, p=rows, q=columns, g=groups, f=f // groups)
    rr, ss, cc = g.axes(r=r, s=s, c=c // groups)
    x = g.tensor("X", (n, h, w, groups, c // groups), dtype, fill=0 if padding else None)
    at = (p * stride + rr * dilation - padding, q * stride + ss * dilation - padding)
    window = x[nn, *at, gg, cc]
    weights = g.input("W", (gg, rr, ss, cc, ff), dtype)
    _store(g, contract(window, weights, over=(rr, ss, cc)), dtype, out, (nn, p, q, gg, ff))


@operator
def transposed_conv2d(
    g: Graph, n: int, h: int, w: int, c: int, f: int, taps: int = 4, stride: int = 2,
    padding: int = 1, dtype: str = "f32", out: str = "",
) -> None:  # fmt: skip
    """Y[n, y, x, f] = sum_ijc X[n, i, j, c] W[y + padding - i*stride, .., c, f].

    The transposed convolution, `stride` times as high and wide as X; W is 0 outside its
    (taps, taps). Y is (n, h, stride, w, stride, f), the same bytes: y = p*stride + a. Phase a
    meets every stride-th tap alone, the first of them (a + padding) % stride, at the place
    (a + padding) // stride beyond its own.
    """
    _positions("transposed_conv2d", taps, taps, stride, padding)
    steps = -(-taps // stride)
    nn, ff, cc, t, u = g.axes(n=n, f=f, c=c, t=steps, u=steps)
    p, a, q, b = g.axes(p=h, a=stride, q=w, b=stride)
    x = g.tensor("X", (n, h, w, c), dtype, fill=0)
    weights = g.tensor("W", (taps, taps, c, f), dtype, fill=0 if taps % stride else None)
    down, across = g.iota(a) + padding, g.iota(b) + padding
    taps_at = weights[down % stride + t * stride, across % stride + u * stride, cc, ff]
    places = x[nn, down // stride + p - t, across // stride + q - u, cc]
    _store(g, contract(places, taps_at, over=(t, u, cc)), dtype, out, (nn, p, a, q, b, ff))


@operator
def causal_conv1d(
    g: Graph, b: int, length: int, c: int, taps: int = 4, activation: bool = True,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """Y[b, c, t] = silu(sum over k of X[b, c, t + k - taps + 1] W[c, k] + bias[c]).

    The short causal filter of state-space models, channel by channel; X is 0 before its
    beginning. Without `activation` the sum and the bias alone.
    """
    bb, cc, t, k = g.axes(b=b, c=c, t=length, k=taps)
    x = g.tensor("X", (b, c, length), dtype, fill=0)
    window = x[bb, cc, t + k - (taps - 1)]
    total = reduce("sum", window * g.input("W", (cc, k), dtype), over=k)
    total = total + g.input("bias", (cc,), dtype)
    g.output("Y", silu(total) if activation else total, dtype, (bb, cc, t))
