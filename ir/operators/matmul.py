"""Matrix products, and what is fused with them."""

from __future__ import annotations

from collections.abc import Callable

from ir import Axis, Graph, Tile, UsageError, cast, contract, gelu, operator, relu, silu

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "matmul": {
        "small": {"m": 33, "n": 47, "k": 65},
        "large": {"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", "tb": True},
        "llama-3-8b qkv": {"m": 4096, "n": 6144, "k": 4096, "dtype": "bf16", "tb": True},
        "llama-3-8b down, one token": {"m": 1, "n": 4096, "k": 14336, "dtype": "bf16", "tb": True},
        "batched": {"batch": 8, "m": 2048, "n": 2048, "k": 2048, "dtype": "bf16"},
    },
    "matmul_bias_act": {
        "small": {"m": 33, "n": 47, "k": 65},
        "gpt-2": {"m": 4096, "n": 3072, "k": 768, "dtype": "bf16"},
    },
    "gated_mlp": {
        "small": {"m": 33, "n": 47, "k": 65},
        "llama-3-8b": {"m": 4096, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True},
    },
    "lora_matmul": {
        "small": {"m": 33, "n": 47, "k": 65, "rank": 7},
        "llama-3-8b q": {"m": 4096, "n": 4096, "k": 4096, "rank": 16, "dtype": "bf16"},
    },
    "mlp": {
        "small": {"m": 33, "k": 31, "hidden": 77},
        "gpt-2": {"m": 4096, "k": 768, "hidden": 3072, "dtype": "bf16"},
    },
    "whole_gated_mlp": {
        "small": {"m": 33, "k": 31, "hidden": 77},
        "llama-3-8b": {"m": 4096, "k": 4096, "hidden": 14336, "dtype": "bf16"},
    },
}

_ACTIVATIONS: dict[str, Callable[[Tile], Tile]] = {
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
    "none": lambda value: value,
}


def activation_of(operator: str, name: str) -> Callable[[Tile], Tile]:
    """The activation called `name`; raises UsageError in the name of `operator`."""
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UsageError(f"{operator}: activation={name!r}: known are {known}")
    return _ACTIVATIONS[name]


def _result_dtype(dtype: str, out: str) -> str:
    """Integers add up in i32; a float product keeps the type of its operands."""
    return out or ("i32" if dtype in ("i8", "u8") else dtype)


def _matrix(
    g: Graph, name: str, batch: tuple[Axis, ...], dims: tuple[Axis, Axis], dtype: str, turned: bool
) -> Tile:
    """An input matrix, stored the other way round if `turned`."""
    return g.input(name, (*batch, *(reversed(dims) if turned else dims)), dtype)


@operator
def matmul(
    g: Graph, m: int, n: int, k: int, dtype: str = "f32", out: str = "",
    ta: bool = False, tb: bool = False, batch: int = 0,
) -> None:  # fmt: skip
    """C = A B, a matrix product, plain or batched.

    A is stored (m, k), or (k, m) with ta; B (k, n), or (n, k) with tb.
    `batch` >= 1 puts an axis b in front of all three. `out` is the dtype of C.
    """
    b = g.axes(b=batch) if batch else ()
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    left = _matrix(g, "A", b, (mm, kk), dtype, ta)
    right = _matrix(g, "B", b, (kk, nn), dtype, tb)
    product = contract(left, right, over=kk)
    g.output("C", product, _result_dtype(dtype, out), (*b, mm, nn))


@operator
def matmul_bias_act(
    g: Graph, m: int, n: int, k: int, dtype: str = "f32", out: str = "",
    activation: str = "gelu", residual: bool = True, ta: bool = False, tb: bool = False,
) -> None:  # fmt: skip
    """C = activation(A B + bias) + residual; activation is gelu, relu, silu or none."""
    act = activation_of("matmul_bias_act", activation)
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    left = _matrix(g, "A", (), (mm, kk), dtype, ta)
    right = _matrix(g, "B", (), (kk, nn), dtype, tb)
    result = act(contract(left, right, over=kk) + g.input("bias", (nn,), dtype))
    if residual:
        result = result + g.input("residual", (mm, nn), dtype)
    g.output("C", result, _result_dtype(dtype, out), (mm, nn))


@operator
def gated_mlp(
    g: Graph, m: int, n: int, k: int, dtype: str = "f32", out: str = "", tb: bool = False
) -> None:
    """H = silu(X W1) * (X W3): the two first matrices of a gated MLP, W stored (k, n) or (n, k)."""
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    x = g.input("X", (mm, kk), dtype)
    gate = contract(x, _matrix(g, "W1", (), (kk, nn), dtype, tb), over=kk)
    value = contract(x, _matrix(g, "W3", (), (kk, nn), dtype, tb), over=kk)
    g.output("H", silu(gate) * value, _result_dtype(dtype, out), (mm, nn))


@operator
def lora_matmul(
    g: Graph, m: int, n: int, k: int, rank: int, dtype: str = "f32", scale: float = 1.0
) -> None:
    """Y = X W + (X A) B * scale: a product and what a low-rank adapter adds to it.

    X is (m, k), W (k, n), A (k, rank), B (rank, n).
    """
    rows, columns, depth, low = g.axes(m=m, n=n, k=k, rank=rank)
    x, w = g.input("X", (rows, depth), dtype), g.input("W", (depth, columns), dtype)
    a, b = g.input("A", (depth, low), dtype), g.input("B", (low, columns), dtype)
    adapted = contract(cast(contract(x, a, over=depth), dtype), b, over=low)
    g.output("Y", contract(x, w, over=depth) + adapted * scale, dtype, (rows, columns))


@operator
def mlp(
    g: Graph, m: int, k: int, hidden: int, n: int = 0, dtype: str = "f32", activation: str = "gelu"
) -> None:
    """Y = activation(X W1 + b1) W2 + b2: two layers.

    X is (m, k), W1 (k, hidden), W2 (hidden, n); n defaults to k.
    """
    act = activation_of("mlp", activation)
    rows, columns, depth, middle = g.axes(m=m, n=n or k, k=k, h=hidden)
    x, w1 = g.input("X", (rows, depth), dtype), g.input("W1", (depth, middle), dtype)
    h = act(contract(x, w1, over=depth) + g.input("b1", (middle,), dtype))
    y = contract(cast(h, dtype), g.input("W2", (middle, columns), dtype), over=middle)
    g.output("Y", y + g.input("b2", (columns,), dtype), dtype, (rows, columns))


@operator
def whole_gated_mlp(
    g: Graph, m: int, k: int, hidden: int, n: int = 0, dtype: str = "f32", activation: str = "silu"
) -> None:
    """Y = (activation(X W1) * (X W3)) W2: a gated MLP with all three matrices.

    X is (m, k), W1 and W3 (k, hidden), W2 (hidden, n); n defaults to k.
    """
    act = activation_of("whole_gated_mlp", activation)
    rows, columns, depth, middle = g.axes(m=m, n=n or k, k=k, h=hidden)
    x = g.input("X", (rows, depth), dtype)
    w1, w3 = (g.input(name, (depth, middle), dtype) for name in ("W1", "W3"))
    h = act(contract(x, w1, over=depth)) * contract(x, w3, over=depth)
    y = contract(cast(h, dtype), g.input("W2", (middle, columns), dtype), over=middle)
    g.output("Y", y, dtype, (rows, columns))
