"""Sums and extremes at computed places: histograms, segments, the gradient of an embedding."""

from __future__ import annotations

from ir import Graph, UsageError, apply, operator, reduce, where
from ir import scatter as scattered
from ir.values import ascending, indices

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "histogram": {
        "small": {"m": 3, "n": 101, "bins": 16},
        "images": {"m": 256, "n": 150528, "bins": 256, "dtype": "u8"},
        "experts": {"m": 1, "n": 32768, "bins": 256},
    },
    "histogram_edges": {
        "small": {"n": 101, "bins": 7},
        "large": {"n": 16777216, "bins": 64},
    },
    "weighted_histogram": {
        "small": {"n": 101, "bins": 16},
        "large": {"n": 16777216, "bins": 256},
    },
    "segment_sum": {
        "small": {"m": 31, "segments": 9, "d": 6},
        "products graph": {"m": 2449029, "segments": 61859, "d": 100},
    },
    "segment_mean": {
        "small": {"m": 31, "segments": 9, "d": 6},
        "products graph": {"m": 2449029, "segments": 61859, "d": 100},
    },
    "scatter": {
        "small": {"m": 23, "rows": 11, "d": 6, "kind": "max"},
        "message passing": {"m": 1166243, "rows": 169343, "d": 128, "kind": "max"},
    },
    "embedding_backward": {
        "small": {"m": 23, "rows": 11, "d": 6},
        "llama3-8b": {"m": 8192, "rows": 128256, "d": 4096, "dtype": "bf16"},
    },
}


@operator
def histogram(g: Graph, m: int, n: int, bins: int, dtype: str = "i32") -> None:
    """H[m, b] = how many of X[m, n] are b; X is whole numbers, those outside 0..bins-1 dropped."""
    mm, nn, b = g.axes(m=m, n=n, b=bins)
    x = g.input("X", (mm, nn), dtype, indices(bins))
    g.output("H", scattered("sum", g.constant(1, "i32"), {mm: mm, b: x}), "i32", (mm, b))


@operator
def weighted_histogram(g: Graph, n: int, bins: int, dtype: str = "f32") -> None:
    """H[b] = the sum of W[n] where X[n] = b."""
    nn, b = g.axes(n=n, b=bins)
    x = g.input("X", (nn,), "i32", indices(bins))
    g.output("H", scattered("sum", g.input("W", (nn,), dtype), {b: x}), "f32", (b,))


@operator
def histogram_edges(g: Graph, n: int, bins: int, dtype: str = "f32") -> None:
    """H[b] = how many X[n] have edge[b] <= X < edge[b + 1]; the bins+1 edges rise.

    How many lie at or above each edge, and the differences of that: nothing is scattered.
    """
    nn, edges, b = g.axes(n=n, e=bins + 1, b=bins)
    x = g.input("X", (nn,), dtype)
    edge = g.input("edge", (edges,), dtype, ascending(-3, 3))
    above = reduce("sum", where(x >= edge, g.constant(1, "i32"), 0), over=nn)
    g.output("H", above.at(e=b) - above.at(e=b + 1), "i32", (b,))


@operator
def segment_sum(g: Graph, m: int, segments: int, d: int, dtype: str = "f32") -> None:
    """Y[s, d] = the sum of X[m, d] over the m with segment[m] = s; segment rises."""
    mm, s, dd = g.axes(m=m, s=segments, d=d)
    segment = g.input("segment", (mm,), "i32", ascending(0, segments - 1))
    g.output("Y", scattered("sum", g.input("X", (mm, dd), dtype), {s: segment, dd: dd}), dtype)


@operator
def segment_mean(g: Graph, m: int, segments: int, d: int, dtype: str = "f32") -> None:
    """Y[s, d] = the mean of X[m, d] over the m with segment[m] = s, 0 for a segment of none."""
    mm, s, dd = g.axes(m=m, s=segments, d=d)
    segment = g.input("segment", (mm,), "i32", ascending(0, segments - 1))
    total = scattered("sum", g.input("X", (mm, dd), dtype), {s: segment, dd: dd})
    count = scattered("sum", g.constant(1, "i32"), {s: segment})
    g.output("Y", where(count > 0, total / where(count > 0, count, 1), 0.0), dtype, (s, dd))


@operator
def scatter(g: Graph, m: int, rows: int, d: int, kind: str = "sum", dtype: str = "f32") -> None:
    """Y[r, d] = base[r, d] with the sum (max, min) of all X[m, d] that have index[m] = r."""
    if kind not in ("sum", "max", "min"):
        raise UsageError(f"scatter: kind={kind!r}: known are sum, max, min")
    mm, r, dd = g.axes(m=m, r=rows, d=d)
    index = g.input("index", (mm,), "i32", indices(rows))
    sent = scattered(kind, g.input("X", (mm, dd), dtype), {r: index, dd: dd})
    base = g.input("base", (r, dd), dtype)
    found = base + sent if kind == "sum" else apply(kind, base, sent)
    g.output("Y", found, dtype, (r, dd))


@operator
def embedding_backward(
    g: Graph, m: int, rows: int, d: int, padding: int = -1, dtype: str = "f32"
) -> None:
    """dtable[r, d] = the sum of dY[m, d] over the m with index[m] = r; 0 for the row `padding`."""
    mm, r, dd = g.axes(m=m, r=rows, d=d)
    index = g.input("index", (mm,), "i32", indices(rows))
    sums = scattered("sum", g.input("dY", (mm, dd), dtype), {r: index, dd: dd})
    kept = sums if padding < 0 else where(g.iota(r) == padding, 0.0, sums)
    g.output("dtable", kept, dtype, (r, dd))
