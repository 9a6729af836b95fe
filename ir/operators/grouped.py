"""Products with one matrix of several: groups of rows, mixtures of experts."""

from __future__ import annotations

from ir import Graph, contract, operator, reduce, silu
from ir.values import ascending, indices, probabilities

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "grouped_matmul": {
        "small": {"groups": 3, "m": 17, "n": 33, "k": 45},
        "deepseek-v3 gate and up, 64 experts of a device": {
            "groups": 64, "m": 128, "n": 4096, "k": 7168, "dtype": "bf16"},
    },
    "ragged_matmul": {
        "small": {"m": 21, "n": 33, "k": 45, "groups": 5},
        "multi-lora of llama-3-8b": {"m": 256, "n": 16, "k": 4096, "groups": 64, "dtype": "bf16"},
    },
    "ragged_block_matmul": {
        "small": {"blocks": 5, "rows": 9, "n": 33, "k": 45, "groups": 3},
        "mixtral-8x7b, 4096 tokens": {
            "blocks": 64, "rows": 128, "n": 28672, "k": 4096, "groups": 8, "dtype": "bf16"},
    },
    "moe_gate_up": {
        "small": {"tokens": 23, "blocks": 4, "rows": 9, "n": 19, "k": 33, "experts": 3},
        "mixtral-8x7b": {"tokens": 4096, "blocks": 64, "rows": 128, "n": 14336, "k": 4096,
                         "experts": 8, "dtype": "bf16"},
        "deepseek-v3": {"tokens": 4096, "blocks": 512, "rows": 64, "n": 2048, "k": 7168,
                        "experts": 256, "dtype": "bf16"},
    },
    "moe_down": {
        "small": {"blocks": 4, "rows": 9, "n": 33, "k": 19, "experts": 3},
        "mixtral-8x7b": {
            "blocks": 64, "rows": 128, "n": 4096, "k": 14336, "experts": 8, "dtype": "bf16"},
        "deepseek-v3": {
            "blocks": 512, "rows": 64, "n": 7168, "k": 2048, "experts": 256, "dtype": "bf16"},
    },
    "moe_combine": {
        "small": {"tokens": 13, "top": 3, "n": 37, "routed": 41},
        "mixtral-8x7b": {"tokens": 4096, "top": 2, "n": 4096, "routed": 8192, "dtype": "bf16"},
        "deepseek-v3": {"tokens": 4096, "top": 8, "n": 7168, "routed": 32768, "dtype": "bf16"},
    },
}  # fmt: skip


@operator
def grouped_matmul(g: Graph, groups: int, m: int, n: int, k: int, dtype: str = "f32") -> None:
    """C[g] = A[g] W[g]^T: groups of m rows each, a matrix for each group.

    A is (groups, m, k), W (groups, n, k).
    """
    group, rows, columns, depth = g.axes(g=groups, m=m, n=n, k=k)
    a = g.input("A", (group, rows, depth), dtype)
    w = g.input("W", (group, columns, depth), dtype)
    g.output("C", contract(a, w, over=depth), dtype, (group, rows, columns))


@operator
def ragged_matmul(g: Graph, m: int, n: int, k: int, groups: int, dtype: str = "f32") -> None:
    """C[i] = A[i] W[group[i]]^T: each row has the matrix that an index names.

    A is (m, k), W (groups, n, k), group (m) of i32.
    """
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    a, w = g.input("A", (rows, depth), dtype), g.tensor("W", (groups, n, k), dtype)
    group = g.input("group", (rows,), "i32", values=ascending(0, groups - 1))
    product = contract(a, w[group, columns, depth], over=depth)
    g.output("C", product, dtype, (rows, columns))


@operator
def ragged_block_matmul(
    g: Graph, blocks: int, rows: int, n: int, k: int, groups: int, dtype: str = "f32"
) -> None:
    """C[b] = A[b] W[group[b]]^T: groups of any size, padded to whole blocks of rows.

    A is (blocks, rows, k), W (groups, n, k), group (blocks) of i32.
    """
    block, row, columns, depth = g.axes(b=blocks, m=rows, n=n, k=k)
    a, w = g.input("A", (block, row, depth), dtype), g.tensor("W", (groups, n, k), dtype)
    group = g.input("group", (block,), "i32", values=ascending(0, groups - 1))
    product = contract(a, w[group, columns, depth], over=depth)
    g.output("C", product, dtype, (block, row, columns))


@operator
def moe_gate_up(
    g: Graph, tokens: int, blocks: int, rows: int, n: int, k: int, experts: int, dtype: str = "f32"
) -> None:
    """H[r] = silu(x W1^T) * (x W3^T) for x = X[token[r]]: the first matrices of routed experts.

    Routed rows lie in blocks of one expert each: token is (blocks, rows), expert (blocks), X
    (tokens, k), W1 and W3 are (experts, n, k), H is (blocks, rows, n).
    """
    block, row, columns, depth = g.axes(b=blocks, m=rows, n=n, k=k)
    token = g.input("token", (block, row), "i32", values=indices(tokens))
    expert = g.input("expert", (block,), "i32", values=ascending(0, experts - 1))
    x = g.tensor("X", (tokens, k), dtype)[token, depth]
    w1, w3 = (g.tensor(name, (experts, n, k), dtype) for name in ("W1", "W3"))
    gate = contract(x, w1[expert, columns, depth], over=depth)
    up = contract(x, w3[expert, columns, depth], over=depth)
    g.output("H", silu(gate) * up, dtype, (block, row, columns))


@operator
def moe_down(
    g: Graph, blocks: int, rows: int, n: int, k: int, experts: int, dtype: str = "f32"
) -> None:
    """Y[r] = H[r] W2[expert]^T: the last matrix of routed experts, block by block of their rows.

    H is (blocks, rows, k), expert (blocks), W2 (experts, n, k).
    """
    block, row, columns, depth = g.axes(b=blocks, m=rows, n=n, k=k)
    expert = g.input("expert", (block,), "i32", values=ascending(0, experts - 1))
    h, w2 = g.input("H", (block, row, depth), dtype), g.tensor("W2", (experts, n, k), dtype)
    product = contract(h, w2[expert, columns, depth], over=depth)
    g.output("Y", product, dtype, (block, row, columns))


@operator
def moe_combine(g: Graph, tokens: int, top: int, n: int, routed: int, dtype: str = "f32") -> None:
    """O[t] = sum over its experts of weight[t, e] * Y[row[t, e]]: routed rows brought together.

    Y is (routed, n), row and weight are (tokens, top).
    """
    token, chosen, columns = g.axes(t=tokens, e=top, n=n)
    row = g.input("row", (token, chosen), "i32", values=indices(routed))
    weight = g.input("weight", (token, chosen), "f32", values=probabilities())
    y = g.tensor("Y", (routed, n), dtype)[row, columns]
    g.output("O", reduce("sum", y * weight, over=chosen), dtype, (token, columns))
