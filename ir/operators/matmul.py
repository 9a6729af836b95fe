"""Matrix products, and what is fused with them."""

from __future__ import annotations

from collections.abc import Callable

from ir import Axis, Graph, Tile, UsageError, contract, gelu, operator, relu, silu

_ACTIVATIONS: dict[str, Callable[[Tile], Tile]] = {
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
    "none": lambda value: value,
}


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
    """C = A B. A is stored (m, k), or (k, m) with ta; B (k, n), or (n, k) with tb.

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
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UsageError(f"matmul_bias_act: activation={activation!r}: known are {known}")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    left = _matrix(g, "A", (), (mm, kk), dtype, ta)
    right = _matrix(g, "B", (), (kk, nn), dtype, tb)
    result = _ACTIVATIONS[activation](
        contract(left, right, over=kk) + g.input("bias", (nn,), dtype)
    )
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
def scaled_matmul(
    g: Graph, m: int, n: int, k: int, dtype: str = "e4m3", out: str = "bf16",
    activation: str = "none",
) -> None:  # fmt: skip
    """C = activation(A B^T * scale_a * scale_b): narrow operands with one scale a tensor.

    A is stored (m, k), B (n, k); the scales are f32 scalars.
    """
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise UsageError(f"scaled_matmul: activation={activation!r}: known are {known}")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (mm, kk), dtype), g.input("B", (nn, kk), dtype)
    scale = g.input("scale_a", (), "f32") * g.input("scale_b", (), "f32")
    g.output("C", _ACTIVATIONS[activation](contract(a, b, over=kk) * scale), out, (mm, nn))
