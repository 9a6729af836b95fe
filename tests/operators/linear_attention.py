"""Linear attention: the recurrence, one head and one position at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _run(x: Inputs, gates: Array) -> tuple[Array, Array]:
    """Outputs and last states; gates are (b, t, heads, d)."""
    b, t, heads, d = gates.shape
    k, v, q = (x[name].reshape(b, t, heads, -1) for name in "KVQ")
    out, states = np.zeros(v.shape), np.zeros((b, heads, d, v.shape[-1]))
    for n, h in np.ndindex(b, heads):
        state = states[n, h]
        for time in range(t):
            state[:] = gates[n, time, h][:, None] * state + np.outer(k[n, time, h], v[n, time, h])
            out[n, time, h] = q[n, time, h] @ state / np.sqrt(d)
    return out, states


def _retention(x: Inputs, b: int, t: int, heads: int, d: int, **_: object) -> Mapping[str, Array]:
    gates = np.broadcast_to(np.exp(x["rate"])[:, None], (b, t, heads, d))
    return dict(zip("OS", _run(x, gates), strict=True))


def _gla(x: Inputs, b: int, t: int, heads: int, d: int, **_: object) -> Mapping[str, Array]:
    return dict(zip("OS", _run(x, np.exp(x["G"]).reshape(b, t, heads, d)), strict=True))


def _cut(found: Array, chunk: int) -> Array:
    return found.reshape(found.shape[0], -1, chunk, *found.shape[2:])


def _retention_chunked(x: Inputs, chunk: int, **extents: int) -> Array:
    return _cut(_retention(x, **extents)["O"], chunk)


def _gla_chunked(x: Inputs, chunk: int, **extents: int) -> Array:
    return _cut(_gla(x, **extents)["O"], chunk)


def _decoded(x: Inputs, factor: Array, d: int) -> Mapping[str, Array]:
    after = x["S"] * factor + x["K"][..., :, None] * x["V"][..., None, :]
    return {"O": (x["Q"][..., None] * after).sum(-2) / np.sqrt(d), "S_next": after}


def _retention_decode(x: Inputs, d: int, **_: object) -> Mapping[str, Array]:
    return _decoded(x, np.exp(x["rate"])[:, None, None], d)


def _gla_decode(x: Inputs, d: int, **_: object) -> Mapping[str, Array]:
    return _decoded(x, np.exp(x["G"])[..., None], d)


_STEP = {"b": 2, "heads": 3, "d": 5, "dv": 7}
_SMALL = {"b": 1, "t": 12, "heads": 2, "d": 5, "dv": 6}
CASES = (
    Case("retention", {"b": 2, "t": 7, "heads": 3, "d": 5}, _retention),
    Case("retention", _SMALL | {"dtype": "bf16"}, _retention),
    Case("retention_chunked", _SMALL | {"chunk": 4}, _retention_chunked),
    Case("retention_chunked", _SMALL | {"chunk": 3, "dtype": "bf16"}, _retention_chunked),
    Case("retention_decode", _STEP | {"dtype": "bf16"}, _retention_decode),
    Case("gla", _SMALL, _gla),
    Case("gla_chunked", _SMALL | {"chunk": 4}, _gla_chunked),
    Case("gla_chunked", _SMALL | {"chunk": 12, "dtype": "bf16"}, _gla_chunked),
    Case("gla_decode", _STEP, _gla_decode),
)
