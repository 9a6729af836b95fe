"""Products with matrices of which only some tiles are there, each named by its place."""

from __future__ import annotations

from ir import Graph, UsageError, contract, operator, where
from ir.values import indices, offsets

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "blocked_sparse_matmul": {
        "small": {"m": 24, "n": 19, "k": 48, "tiles": 3, "block": 8},
        "pruned": {"m": 4096, "n": 4096, "k": 4096, "tiles": 8, "block": 64, "dtype": "bf16"},
    },
    "bsr_matmul": {
        "small": {"m": 24, "n": 19, "k": 48, "tiles": 10, "longest": 6, "block": 8},
        "pruned": {
            "m": 4096, "n": 4096, "k": 4096, "tiles": 512, "longest": 64, "block": 64,
            "dtype": "bf16",
        },
    },
    "sampled_matmul": {
        "small": {"m": 24, "n": 40, "k": 13, "tiles": 7, "block": 8},
        "pruned": {"m": 4096, "n": 4096, "k": 128, "tiles": 512, "block": 64, "dtype": "bf16"},
    },
    "tile_wise_matmul": {
        "small": {"m": 9, "n": 24, "k": 40, "kept": 11, "block": 8},
        "bert": {"m": 4096, "n": 3072, "k": 768, "kept": 192, "block": 128, "dtype": "bf16"},
    },
}  # fmt: skip


def _blocks(what: str, block: int, **extents: int) -> list[int]:
    """How many blocks each extent has; refuses parts of one."""
    for name, extent in extents.items():
        if block < 1 or extent % block:
            raise UsageError(f"{what}: {name}={extent} is no multiple of block={block}")
    return [extent // block for extent in extents.values()]


@operator
def blocked_sparse_matmul(
    g: Graph, m: int, n: int, k: int, tiles: int, block: int = 64, dtype: str = "f32"
) -> None:
    """C[r, a, n] = sum_tb A[r, t, a, b] B[column[r, t], b, n].

    The left matrix (m, k) has `tiles` tiles of block by block in each block row r, column[r, t]
    is the block column of one. In memory B is (k, n) and C (m, n).
    """
    rows, depth = _blocks("blocked_sparse_matmul", block, m=m, k=k)
    r, t, a, b, nn = g.axes(r=rows, t=tiles, a=block, b=block, n=n)
    column = g.input("column", (r, t), "i32", indices(depth))
    right = g.tensor("B", (depth, block, n), dtype)[column, b, nn]
    product = contract(g.input("A", (r, t, a, b), dtype), right, over=(t, b))
    g.output("C", product, dtype, (r, a, nn))


@operator
def bsr_matmul(
    g: Graph, m: int, n: int, k: int, tiles: int, longest: int, block: int = 64,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """C[r, a, n] = sum_ib A[i, a, b] B[column[i], b, n], for pointer[r] <= i < pointer[r + 1].

    The left matrix (m, k) is a list of `tiles` tiles of block by block, those of block row r
    between two pointers, no more than the first `longest` of a row. In memory B is (k, n) and
    C (m, n).
    """
    rows, depth = _blocks("bsr_matmul", block, m=m, k=k)
    r, t, a, b, nn = g.axes(r=rows, t=longest, a=block, b=block, n=n)
    pointer = g.tensor("pointer", (rows + 1,), "i32", values=offsets(tiles))
    place = pointer[r] + g.iota(t)
    column = g.tensor("column", (tiles,), "i32", fill=0, values=indices(depth))[place]
    left = g.tensor("A", (tiles, block, block), dtype, fill=0)[place, a, b]
    left = where(place < pointer[r + 1], left, 0.0)
    right = g.tensor("B", (depth, block, n), dtype)[column, b, nn]
    g.output("C", contract(left, right, over=(t, b)), dtype, (r, a, nn))


@operator
def sampled_matmul(
    g: Graph, m: int, n: int, k: int, tiles: int, block: int = 64, dtype: str = "f32"
) -> None:
    """C[i, a, b] = sum_k A[row[i], a, k] B[column[i], b, k], for a list of tiles i.

    A product of which only `tiles` tiles of block by block are computed. In memory A is (m, k)
    and B (n, k).
    """
    rows, columns = _blocks("sampled_matmul", block, m=m, n=n)
    i, a, b, kk = g.axes(i=tiles, a=block, b=block, k=k)
    row = g.input("row", (i,), "i32", indices(rows))
    column = g.input("column", (i,), "i32", indices(columns))
    left = g.tensor("A", (rows, block, k), dtype)[row, a, kk]
    right = g.tensor("B", (columns, block, k), dtype)[column, b, kk]
    g.output("C", contract(left, right, over=kk), dtype, (i, a, b))


@operator
def tile_wise_matmul(
    g: Graph, m: int, n: int, k: int, kept: int, block: int = 128, dtype: str = "f32"
) -> None:
    """C[m, j, b] = sum_t A[m, row[j, t]] B[j, t, b].

    A right matrix (k, n) that was pruned tile by tile: of each block j of columns only `kept`
    rows are there, row[j, t] says which. In memory A is (m, k) and C (m, n).
    """
    (columns,) = _blocks("tile_wise_matmul", block, n=n)
    mm, j, t, b = g.axes(m=m, j=columns, t=kept, b=block)
    row = g.input("row", (j, t), "i32", indices(k))
    left = g.tensor("A", (m, k), dtype)[mm, row]
    g.output("C", contract(left, g.input("B", (j, t, b), dtype), over=t), dtype, (mm, j, b))
