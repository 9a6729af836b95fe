"""The delta rule: the recurrence, one head and one position at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _step(state: Array, k: Array, v: Array, beta: Array, gate: Array) -> Array:
    """(I - beta k k^T) gate S + beta k v^T."""
    turned = np.eye(len(k)) - beta * np.outer(k, k)
    return np.asarray(turned @ (gate * state) + beta * np.outer(k, v))


def _run(x: Inputs, b: int, t: int, heads: int, d: int, **_: object) -> tuple[Array, Array]:
    q, k, v = (x[name].reshape(b, t, heads, -1) for name in "QKV")
    beta = x["beta"].reshape(b, t, heads)
    gate = np.exp(x["G"].reshape(b, t, heads)) if "G" in x else np.ones_like(beta)
    out, states = np.zeros(v.shape), np.zeros((b, heads, d, v.shape[-1]))
    for n, h in np.ndindex(b, heads):
        for p in range(t):
            at = n, p, h
            states[n, h] = _step(states[n, h], k[at], v[at], beta[at], gate[at])
            out[at] = q[at] @ states[n, h] / np.sqrt(d)
    return out, states


def _whole(x: Inputs, **extents: int) -> Mapping[str, Array]:
    return dict(zip("OS", _run(x, **extents), strict=True))


def _chunked(x: Inputs, chunk: int, **extents: int) -> Array:
    out, _ = _run(x, **extents)
    return out.reshape(out.shape[0], -1, chunk, *out.shape[2:])


def _chunked_whole(x: Inputs, chunk: int, **extents: int) -> Mapping[str, Array]:
    out, states = _run(x, **extents)
    return {"O": out.reshape(out.shape[0], -1, chunk, *out.shape[2:]), "S": states}


def _decode(x: Inputs, b: int, heads: int, d: int, **_: object) -> Mapping[str, Array]:
    after, out = np.zeros_like(x["S"]), np.zeros_like(x["V"])
    for at in np.ndindex(b, heads):
        gate = np.exp(x["G"][at]) if "G" in x else np.ones(())
        after[at] = _step(x["S"][at], x["K"][at], x["V"][at], x["beta"][at], gate)
        out[at] = x["Q"][at] @ after[at] / np.sqrt(d)
    return {"O": out, "S_next": after}


_STEP = {"b": 2, "heads": 3, "d": 5, "dv": 7}
_SMALL = {"b": 1, "t": 12, "heads": 2, "d": 5, "dv": 6}
CASES = (
    Case("delta_rule", {"b": 2, "t": 7, "heads": 3, "d": 5}, _whole),
    Case("delta_rule", _SMALL | {"dtype": "bf16"}, _whole),
    Case("delta_rule_chunked", _SMALL | {"chunk": 4}, _chunked_whole),
    Case("delta_rule_chunked", _SMALL | {"chunk": 6, "dtype": "bf16"}, _chunked_whole),
    Case("gated_delta_net", _SMALL, _whole),
    Case("gated_delta_net", {"b": 1, "t": 7, "heads": 1, "d": 4, "dtype": "f16"}, _whole),
    Case("gated_delta_net_chunked", _SMALL | {"chunk": 4}, _chunked),
    Case("gated_delta_net_chunked", _SMALL | {"chunk": 6, "dtype": "bf16"}, _chunked),
    Case("delta_rule_decode", _STEP | {"dtype": "bf16"}, _decode),
    Case("gated_delta_net_decode", _STEP, _decode),
)
