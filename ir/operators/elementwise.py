"""Maps of tensors, element by element: activations, gates, rotary positions, dropout."""

from __future__ import annotations

from collections.abc import Callable

from ir import Graph, Tile, UsageError, gelu, operator, relu, sigmoid, silu, tanh, where
from ir.values import uniform

_TOKENS: dict[str, dict[str, object]] = {
    "small": {"m": 7, "n": 65},
    "llama3-8b": {"m": 8192, "n": 14336, "dtype": "bf16"},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "activation": _TOKENS,
    "glu": _TOKENS | {"small-geglu": {"m": 7, "n": 65, "gate": "gelu"}},
    "glu_backward": _TOKENS,
    "bias_residual": _TOKENS,
    "dropout": _TOKENS,
    "rope": {
        "small": {"tokens": 9, "heads": 3, "d": 10},
        "small-interleaved": {"tokens": 9, "heads": 3, "d": 10, "interleaved": True},
        "llama3-8b": {"tokens": 8192, "heads": 32, "d": 128, "dtype": "bf16"},
    },
}


def _gelu_tanh(x: Tile) -> Tile:
    return x * 0.5 * (1.0 + tanh((x + x * x * x * 0.044715) * 0.7978845608028654))


_FUNCTIONS: dict[str, Callable[[Tile], Tile]] = {
    "gelu": gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": silu,
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}


def _function(what: str, name: str) -> Callable[[Tile], Tile]:
    if name not in _FUNCTIONS:
        raise UsageError(f"{what}={name!r}: known are {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[name]


@operator
def activation(g: Graph, m: int, n: int, kind: str = "gelu", dtype: str = "f32") -> None:
    """Y[m, n] = gelu(X); or gelu_tanh, silu, relu, sigmoid, tanh, as `kind` says."""
    mm, nn = g.axes(m=m, n=n)
    function = _function("activation: kind", kind)
    g.output("Y", function(g.input("X", (mm, nn), dtype)), dtype, (mm, nn))


@operator
def glu(g: Graph, m: int, n: int, gate: str = "silu", dtype: str = "f32") -> None:
    """Y[m, n] = silu(X[m, n]) * X[m, n + j], j from n to 2n: both halves of a row.

    The gated linear unit between two products (SwiGLU); `gate` gelu, sigmoid, .. make it another.
    """
    mm, nn = g.axes(m=m, n=n)
    x = g.tensor("X", (m, 2, n), dtype)
    value = _function("glu: gate", gate)(x[mm, 0, nn]) * x[mm, 1, nn]
    g.output("Y", value, dtype, (mm, nn))


@operator
def glu_backward(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """dA = dY B s (1 + A (1 - s)), dB = dY A s, s = sigmoid(A): the gradient of silu(A) * B."""
    mm, nn = g.axes(m=m, n=n)
    a, b, dy = (g.input(name, (mm, nn), dtype) for name in ("A", "B", "dY"))
    s = sigmoid(a)
    g.output("dA", dy * b * s * (1.0 + a * (1.0 - s)), dtype, (mm, nn))
    g.output("dB", dy * a * s, dtype, (mm, nn))


@operator
def bias_residual(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, n] = X[m, n] + bias[n] + R[m, n]."""
    mm, nn = g.axes(m=m, n=n)
    total = g.input("X", (mm, nn), dtype) + g.input("bias", (nn,), dtype)
    g.output("Y", total + g.input("R", (mm, nn), dtype), dtype, (mm, nn))


@operator
def dropout(g: Graph, m: int, n: int, rate: float = 0.1, dtype: str = "f32") -> None:
    """Y[m, n] = X / (1 - rate) where mask is true, else 0."""
    if not 0 <= rate < 1:
        raise UsageError(f"dropout: rate={rate}; it is at least 0 and below 1")
    mm, nn = g.axes(m=m, n=n)
    x, mask = g.input("X", (mm, nn), dtype), g.input("mask", (mm, nn), "bool")
    g.output("Y", where(mask, x * (1 / (1 - rate)), 0.0), dtype, (mm, nn))


@operator
def rope(
    g: Graph, tokens: int, heads: int, d: int, interleaved: bool = False, dtype: str = "f32"
) -> None:
    """Y[t, h, 0, j] = X0 cos[t, j] - X1 sin[t, j], Y[t, h, 1, j] = X1 cos[t, j] + X0 sin[t, j].

    Rotary positions: X0 and X1 are the halves of a head's d numbers, or with `interleaved` the even
    and the odd ones. In memory X and Y are (tokens, heads, d).
    """
    if d % 2:
        raise UsageError(f"rope: d={d} is odd; numbers are turned in pairs")
    t, h, p, j = g.axes(t=tokens, h=heads, p=2, j=d // 2)
    x = g.tensor("X", (tokens, heads, *((d // 2, 2) if interleaved else (2, d // 2))), dtype)
    own, other = (x[t, h, j, p], x[t, h, j, 1 - p]) if interleaved else (
        x[t, h, p, j], x[t, h, 1 - p, j])  # fmt: skip
    cosine = g.input("cos", (t, j), "f32", uniform(-1, 1))
    sine = g.input("sin", (t, j), "f32", uniform(-1, 1))
    turned = own * cosine + other * sine * (2.0 * g.iota(p) - 1.0)
    g.output("Y", turned, dtype, (t, h, j, p) if interleaved else (t, h, p, j))
