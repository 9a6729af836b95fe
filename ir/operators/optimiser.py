"""Steps of optimisers over a flat tensor of parameters: several inputs, several outputs."""

from __future__ import annotations

from ir import Graph, UsageError, operator, sqrt
from ir.values import normal, positive

_FLAT: dict[str, dict[str, object]] = {
    "small": {"n": 1003},
    "layer": {"n": 218103808},
}
EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "adamw": _FLAT | {"small-bf16": {"n": 1003, "dtype": "bf16"}},
    "sgd": _FLAT,
}


@operator
def adamw(
    g: Graph, n: int, dtype: str = "f32", rate: float = 1e-3, beta1: float = 0.9,
    beta2: float = 0.95, decay: float = 0.1, step: int = 10, eps: float = 1e-8,
) -> None:  # fmt: skip
    """P1 = P (1 - rate decay) - rate M' / (sqrt(V') + eps), a step of AdamW.

    M1 = beta1 M + (1 - beta1) G, V1 = beta2 V + (1 - beta2) G^2, M' = M1 / (1 - beta1^step),
    V' = V1 / (1 - beta2^step). Parameters P and gradients G are of `dtype`, the moments f32.
    """
    if step < 1:
        raise UsageError(f"adamw: step={step}; steps count from 1")
    (i,) = g.axes(i=n)
    p, grad = g.input("P", (i,), dtype), g.input("G", (i,), dtype)
    m, v = g.input("M", (i,), "f32", normal(0.1)), g.input("V", (i,), "f32", positive(0.1))
    m1 = m * beta1 + grad * (1 - beta1)
    v1 = v * beta2 + grad * grad * (1 - beta2)
    size = sqrt(v1 * (1 / (1 - beta2**step))) + eps
    p1 = p * (1 - rate * decay) - m1 * (rate / (1 - beta1**step)) / size
    g.output("P1", p1, dtype, (i,))
    g.output("M1", m1, "f32", (i,))
    g.output("V1", v1, "f32", (i,))


@operator
def sgd(
    g: Graph, n: int, dtype: str = "f32", rate: float = 1e-2, momentum: float = 0.9,
    decay: float = 1e-4,
) -> None:  # fmt: skip
    """M1 = momentum M + G + decay P, P1 = P - rate M1.

    Stochastic gradient descent with momentum; M is f32.
    """
    (i,) = g.axes(i=n)
    p = g.input("P", (i,), dtype)
    m1 = g.input("M", (i,), "f32") * momentum + g.input("G", (i,), dtype) + p * decay
    g.output("P1", p - m1 * rate, dtype, (i,))
    g.output("M1", m1, "f32", (i,))
