"""Rows of a table that indices name, alone or added up in bags."""

from __future__ import annotations

from ir import Graph, UsageError, maximum, minimum, operator, reduce, where
from ir.values import indices, lengths, offsets

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "embedding": {
        "small": {"m": 13, "rows": 40, "d": 10},
        "llama3-70b": {"m": 8192, "rows": 128256, "d": 8192, "dtype": "bf16"},
    },
    "embedding_bag": {
        "small": {"m": 9, "bag": 5, "rows": 40, "d": 10},
        "dlrm": {"m": 65536, "bag": 32, "rows": 1000000, "d": 128},
    },
    "ragged_embedding_bag": {
        "small": {"m": 9, "total": 31, "longest": 8, "rows": 40, "d": 10},
        "dlrm": {"m": 65536, "total": 1048576, "longest": 64, "rows": 1000000, "d": 128},
    },
    "padded_embedding_bag": {
        "small": {"m": 9, "bag": 5, "rows": 40, "d": 10},
        "dlrm": {"m": 65536, "bag": 32, "rows": 1000000, "d": 128},
    },
}


def _refuse_mode(what: str, mode: str) -> None:
    if mode not in ("sum", "mean"):
        raise UsageError(f"{what}: mode={mode!r}; it is sum or mean")


@operator
def embedding(g: Graph, m: int, rows: int, d: int, dtype: str = "f32") -> None:
    """Y[m, d] = table[index[m], d]."""
    mm, dd = g.axes(m=m, d=d)
    index = g.input("index", (mm,), "i32", indices(rows))
    g.output("Y", g.tensor("table", (rows, d), dtype)[index, dd], dtype, (mm, dd))


@operator
def embedding_bag(
    g: Graph, m: int, bag: int, rows: int, d: int, mode: str = "sum", dtype: str = "f32"
) -> None:
    """Y[m, d] = the sum (or mean) over t of table[index[m, t], d], for bags of one size."""
    _refuse_mode("embedding_bag", mode)
    mm, tt, dd = g.axes(m=m, t=bag, d=d)
    index = g.input("index", (mm, tt), "i32", indices(rows))
    total = reduce("sum", g.tensor("table", (rows, d), dtype)[index, dd], over=tt)
    g.output("Y", total if mode == "sum" else total * (1.0 / bag), dtype, (mm, dd))


@operator
def padded_embedding_bag(
    g: Graph, m: int, bag: int, rows: int, d: int, mode: str = "sum", dtype: str = "f32"
) -> None:
    """Y[m, d] = the sum (or mean) over t < length[m] of table[index[m, t], d]; of none it is 0."""
    _refuse_mode("padded_embedding_bag", mode)
    mm, tt, dd = g.axes(m=m, t=bag, d=d)
    index = g.input("index", (mm, tt), "i32", indices(rows))
    length = g.input("length", (mm,), "i32", lengths(bag))
    found = where(g.iota(tt) < length, g.tensor("table", (rows, d), dtype)[index, dd], 0.0)
    total = reduce("sum", found, over=tt)
    g.output("Y", total if mode == "sum" else total / maximum(length, 1), dtype, (mm, dd))


@operator
def ragged_embedding_bag(
    g: Graph, m: int, total: int, longest: int, rows: int, d: int, mode: str = "sum",
    dtype: str = "f32",
) -> None:  # fmt: skip
    """Y[m, d] = the sum (or mean) of table[index[i], d] for offset[m] <= i < offset[m + 1].

    Bags one behind the other, `total` indices in all; of none it is 0. No more than the first
    `longest` of a bag count.
    """
    _refuse_mode("ragged_embedding_bag", mode)
    mm, tt, dd = g.axes(m=m, t=longest, d=d)
    offset = g.tensor("offset", (m + 1,), "i32", values=offsets(total))
    first = offset[mm]
    size = minimum(offset[mm + 1] - first, longest)
    index = g.tensor("index", (total,), "i32", fill=0, values=indices(rows))[first + g.iota(tt)]
    found = where(g.iota(tt) < size, g.tensor("table", (rows, d), dtype)[index, dd], 0.0)
    added = reduce("sum", found, over=tt)
    g.output("Y", added if mode == "sum" else added / maximum(size, 1), dtype, (mm, dd))
