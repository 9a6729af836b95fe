"""Mamba 2: the recurrence, one head and one position at a time; parts of it by their sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _run(x: Inputs, b: int, t: int, heads: int, p: int, n: int, groups: int) -> tuple[Array, Array]:
    """Outputs (b, t, heads, p) and last states (b, heads, p, n)."""
    given, dt = x["x"].reshape(b, t, heads, p), x["dt"].reshape(b, t, heads)
    left, right = (x[name].reshape(b, t, groups, n) for name in "BC")
    rate, direct = x["A"].reshape(heads), x["D"].reshape(heads)
    y, last = np.zeros(given.shape), np.zeros((b, heads, p, n))
    for row, h in np.ndindex(b, heads):
        state, group = last[row, h], h // (heads // groups)
        for time in range(t):
            step, now = dt[row, time, h], given[row, time, h]
            state *= np.exp(step * rate[h])
            state += step * np.outer(now, left[row, time, group])
            y[row, time, h] = state @ right[row, time, group] + direct[h] * now
    return y, last


def _mamba(
    x: Inputs, b: int, t: int, heads: int, p: int, n: int, groups: int = 1, **_: object
) -> Mapping[str, Array]:
    y, last = _run(x, b, t, heads, p, n, groups)
    split = (groups, heads // groups)
    return {"y": y.reshape(b, t, *split, p), "last": last.reshape(b, *split, p, n)}


def _chunked(x: Inputs, chunk: int, **extents: int) -> Array:
    y = _mamba(x, **extents)["y"]
    return y.reshape(y.shape[0], -1, chunk, *y.shape[2:])


def _decode(
    x: Inputs, b: int, heads: int, p: int, n: int, groups: int = 1, **_: object
) -> Mapping[str, Array]:
    after = np.exp(x["dt"] * x["A"])[..., None, None] * x["S"]
    after = after + (x["dt"][..., None] * x["x"])[..., None] * x["B"][:, :, None, None, :]
    y = (after * x["C"][:, :, None, None, :]).sum(-1) + x["D"][..., None] * x["x"]
    return {"y": y, "S_next": after}


def _chunk_state(x: Inputs, **_: object) -> Array:
    b, c, chunk, groups, h, p = x["x"].shape
    found = np.zeros((b, c, groups, h, p, x["B"].shape[-1]))
    for row, part, i, group, head in np.ndindex(b, c, chunk, groups, h):
        total = x["a"][row, group, head, part]
        weight = np.exp(total[-1] - total[i]) * x["dt"][row, group, head, part, i]
        now, left = x["x"][row, part, i, group, head], x["B"][row, part, i, group]
        found[row, part, group, head] += weight * np.outer(now, left)
    return found


def _chunk_scan(x: Inputs, **_: object) -> Array:
    b, c, chunk, groups, h, p = x["x"].shape
    found = np.zeros((b, c, chunk, groups, h, p))
    for row, part, i, group, head in np.ndindex(b, c, chunk, groups, h):
        total, dt = x["a"][row, group, head, part], x["dt"][row, group, head, part]
        given, state = x["x"][row, part, :, group, head], x["S"][row, part, group, head]
        y = np.exp(total[i]) * state @ x["C"][row, part, i, group]
        for j in range(i + 1):
            y += x["CB"][row, part, group, i, j] * np.exp(total[i] - total[j]) * dt[j] * given[j]
        found[row, part, i, group, head] = y + x["D"][group, head] * given[i]
    return found


def _passing(x: Inputs, chunks: int, **_: object) -> Mapping[str, Array]:
    state, before = np.zeros_like(x["S"][:, 0]), []
    for c in range(chunks):
        before.append(state)
        state = np.exp(x["a"][:, :, c])[..., None, None] * state + x["S"][:, c]
    return {"before": np.stack(before, 1), "last": state}


_SMALL = {"b": 1, "t": 12, "heads": 4, "p": 3, "n": 5, "groups": 2}
CASES = (
    Case("mamba2", {"b": 2, "t": 7, "heads": 4, "p": 3, "n": 5, "groups": 2}, _mamba),
    Case("mamba2", {"b": 1, "t": 5, "heads": 2, "p": 3, "n": 4, "dtype": "bf16"}, _mamba),
    Case("mamba2_chunked", _SMALL | {"chunk": 4}, _chunked),
    Case("mamba2_chunked", _SMALL | {"chunk": 6, "dtype": "bf16"}, _chunked),
    Case("mamba2_chunk_state", _SMALL | {"chunk": 4}, _chunk_state),
    Case("mamba2_chunk_scan", _SMALL | {"chunk": 4, "dtype": "f16"}, _chunk_scan),
    Case("mamba2_chunk_scan", _SMALL | {"chunk": 6}, _chunk_scan),
    Case("mamba2_state_passing", {"b": 2, "chunks": 7, "heads": 3, "p": 4, "n": 5}, _passing),
    Case("mamba2_decode", {"b": 3, "heads": 4, "p": 3, "n": 5, "groups": 2}, _decode),
    Case("mamba2_decode", {"b": 3, "heads": 2, "p": 3, "n": 5, "dtype": "bf16"}, _decode),
)
