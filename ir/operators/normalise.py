"""Row normalisations, as on paper: nothing here says in how many passes."""

from __future__ import annotations

from ir import Graph, exp, operator, reduce, rsqrt


@operator
def softmax(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, n] = exp(X - max X) / sum exp(X - max X), along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    weights = exp(x - reduce("max", x, over=nn))
    g.output("Y", weights / reduce("sum", weights, over=nn), dtype, (mm, nn))


@operator
def layernorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-5) -> None:
    """Y[m, n] = (X - mean) / sqrt(variance + eps) * gamma + beta, statistics along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    gamma, beta = g.input("gamma", (nn,), dtype), g.input("beta", (nn,), dtype)
    centred = x - reduce("sum", x, over=nn) * (1.0 / n)
    variance = reduce("sum", centred * centred, over=nn) * (1.0 / n)
    g.output("Y", centred * rsqrt(variance + eps) * gamma + beta, dtype, (mm, nn))


@operator
def rmsnorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-6) -> None:
    """Y[m, n] = X / sqrt(mean of X^2 + eps) * gamma, mean along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    square = reduce("sum", x * x, over=nn) * (1.0 / n)
    g.output("Y", x * rsqrt(square + eps) * g.input("gamma", (nn,), dtype), dtype, (mm, nn))
