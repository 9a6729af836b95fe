"""Losses of classification, whose targets are labels: a logit is found at its label's place."""

from __future__ import annotations

from ir import Graph, contract, exp, log, operator, reduce
from ir.values import indices

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "cross_entropy": {
        "small": {"m": 9, "n": 71},
        "llama3": {"m": 4096, "n": 128256, "dtype": "bf16"},
    },
    "linear_cross_entropy": {
        "small": {"m": 9, "n": 71, "k": 24},
        "llama3-8b": {"m": 4096, "n": 128256, "k": 4096, "dtype": "bf16"},
    },
}


@operator
def cross_entropy(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """loss[m] = log(sum exp(X[m, n])) - X[m, label[m]], of logits X along n."""
    mm, nn = g.axes(m=m, n=n)
    logits = g.tensor("X", (m, n), dtype)
    x = logits[mm, nn]
    label = g.input("label", (mm,), "i32", indices(n))
    top = reduce("max", x, over=nn)
    total = reduce("sum", exp(x - top), over=nn)
    g.output("loss", log(total) + top - logits[mm, label], "f32", (mm,))


@operator
def linear_cross_entropy(g: Graph, m: int, n: int, k: int, dtype: str = "f32") -> None:
    """loss[m] = log(sum over n of exp(X W^T)) - X[m] . W[label[m]].

    The cross entropy of logits that are a product of hidden states X (m, k) with the head W (n, k),
    and need not be stored; the label's own logit is a product with one row.
    """
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    x = g.input("X", (mm, kk), dtype)
    weights = g.tensor("W", (n, k), dtype)
    label = g.input("label", (mm,), "i32", indices(n))
    logits = contract(x, weights[nn, kk], over=kk)
    top = reduce("max", logits, over=nn)
    total = reduce("sum", exp(logits - top), over=nn)
    at_label = reduce("sum", x * weights[label, kk], over=kk)
    g.output("loss", log(total) + top - at_label, "f32", (mm,))
