"""References of products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * _sigmoid(x),
    "none": lambda x: x,
}


def _matmul(x: Inputs, ta: bool = False, tb: bool = False, **_: Any) -> Array:
    a = np.swapaxes(x["A"], -1, -2) if ta else x["A"]
    b = np.swapaxes(x["B"], -1, -2) if tb else x["B"]
    return np.asarray(np.matmul(a, b))


def _bias_act(x: Inputs, activation: str = "gelu", residual: bool = True, **how: Any) -> Array:
    result = _ACTIVATIONS[activation](_matmul(x, **how) + x["bias"])
    return np.asarray(result + x["residual"]) if residual else result


def _gated(x: Inputs, tb: bool = False, **_: Any) -> Array:
    w1, w3 = (x[name].T if tb else x[name] for name in ("W1", "W3"))
    return np.asarray(_ACTIVATIONS["silu"](x["X"] @ w1) * (x["X"] @ w3))


def _lora(x: Inputs, scale: float = 1.0, **_: Any) -> Array:
    return np.asarray(x["X"] @ (x["W"] + scale * x["A"] @ x["B"]))


def _mlp(x: Inputs, activation: str = "gelu", **_: Any) -> Array:
    hidden = _ACTIVATIONS[activation](x["X"] @ x["W1"] + x["b1"])
    return np.asarray(hidden @ x["W2"] + x["b2"])


def _whole_gated(x: Inputs, activation: str = "silu", **_: Any) -> Array:
    return np.asarray(_ACTIVATIONS[activation](x["X"] @ x["W1"]) * (x["X"] @ x["W3"]) @ x["W2"])


def _tensor_scaled(x: Inputs, activation: str = "none", **_: Any) -> Array:
    a, b = x["A"] * x["scale_a"], x["B"] * x["scale_b"]
    return _ACTIVATIONS[activation](a @ b.T)


def _row_scaled(x: Inputs, **_: Any) -> Array:
    return np.asarray((x["A"] * x["scale_a"][:, None]) @ (x["B"] * x["scale_b"][:, None]).T)


def _block_scaled(x: Inputs, m: int, n: int, k: int, block: int = 128, **_: Any) -> Array:
    a = x["A"].reshape(m, k) * np.repeat(x["scale_a"], block, axis=1)
    fine = np.repeat(np.repeat(x["scale_b"], block, axis=0), block, axis=1)
    return np.asarray(a @ (x["B"].reshape(n, k) * fine).T).reshape(m, n // block, block)


def _w4a16(x: Inputs, m: int, n: int, k: int, group: int = 128, **_: Any) -> Array:
    weights = np.empty((n, k))
    packed = x["W"].reshape(n, k // 2)
    weights[:, 0::2], weights[:, 1::2] = packed % 16, packed // 16
    zero = np.repeat(x["zero"] % 16, group, axis=1) if "zero" in x else 8
    weights = (weights - zero) * np.repeat(x["scale"], group, axis=1)
    return np.asarray(x["A"].reshape(m, k) @ weights.T)


def _w8a16(x: Inputs, **_: Any) -> Array:
    return np.asarray(x["A"] @ (x["W"] * x["scale"][:, None]).T)


def _w8a8(x: Inputs, **_: Any) -> Array:
    a, w = x["A"], x["W"].astype(np.int64)
    found = np.empty((len(a), len(w)))
    for i, row in enumerate(a):
        step = np.abs(row).max() / 127
        whole = np.floor(row / step + 0.5).astype(np.int64)
        found[i] = (w @ whole) * step * x["scale"]
    return found


def _grouped(x: Inputs, **_: Any) -> Array:
    return np.stack([a @ w.T for a, w in zip(x["A"], x["W"], strict=True)])


def _ragged(x: Inputs, **_: Any) -> Array:
    """Of rows and of blocks of rows."""
    return np.stack([a @ x["W"][group].T for a, group in zip(x["A"], x["group"], strict=True)])


def _gate_up(x: Inputs, blocks: int, rows: int, n: int, **_: Any) -> Array:
    found = np.empty((blocks, rows, n))
    for block, expert in enumerate(x["expert"]):
        for row, token in enumerate(x["token"][block]):
            gate, up = x["W1"][expert] @ x["X"][token], x["W3"][expert] @ x["X"][token]
            found[block, row] = gate / (1 + np.exp(-gate)) * up
    return found


def _down(x: Inputs, **_: Any) -> Array:
    return np.stack([h @ x["W2"][expert].T for h, expert in zip(x["H"], x["expert"], strict=True)])


def _combine(x: Inputs, tokens: int, top: int, n: int, **_: Any) -> Array:
    found = np.zeros((tokens, n))
    for token in range(tokens):
        for place in range(top):
            found[token] += x["weight"][token, place] * x["Y"][x["row"][token, place]]
    return found


_PLAIN: dict[str, Any] = {"m": 33, "n": 47, "k": 65}
_MLP: dict[str, Any] = {"m": 13, "k": 21, "hidden": 35}
_BLOCKS: dict[str, Any] = {"blocks": 5, "rows": 9, "n": 33, "k": 45}
_ROUTED: dict[str, Any] = {"tokens": 23, "blocks": 4, "rows": 9, "n": 19, "k": 33, "experts": 3}

CASES = (
    Case("matmul", _PLAIN | {"batch": 3, "tb": True, "dtype": "bf16"}, _matmul),
    Case("matmul_bias_act", _PLAIN | {"activation": "gelu"}, _bias_act),
    Case("gated_mlp", _PLAIN | {"dtype": "bf16", "tb": True}, _gated),
    Case("lora_matmul", _PLAIN | {"rank": 7, "scale": 0.5}, _lora),
    Case("lora_matmul", {"m": 32, "n": 40, "k": 64, "rank": 8, "dtype": "bf16"}, _lora),
    Case("mlp", _MLP, _mlp),
    Case("mlp", {"m": 32, "k": 48, "hidden": 64, "n": 24, "dtype": "bf16"}, _mlp),
    Case("whole_gated_mlp", _MLP, _whole_gated),
    Case("whole_gated_mlp", {"m": 16, "k": 32, "hidden": 48, "dtype": "bf16"}, _whole_gated),
    Case("scaled_matmul", _PLAIN, _tensor_scaled),
    Case("row_scaled_matmul", _PLAIN, _row_scaled),
    Case("block_scaled_matmul", {"m": 9, "n": 32, "k": 48, "block": 16}, _block_scaled),
    Case("w4a16_matmul", {"m": 9, "n": 21, "k": 48, "group": 48}, _w4a16),
    Case("w4a16_matmul", {"m": 9, "n": 21, "k": 48, "group": 16, "zero": True}, _w4a16),
    Case("w8a16_matmul", {"m": 9, "n": 33, "k": 77}, _w8a16),
    Case("w8a8_matmul", {"m": 9, "n": 33, "k": 77}, _w8a8),
    Case("grouped_matmul", {"groups": 3, "m": 17, "n": 33, "k": 45}, _grouped),
    Case("ragged_matmul", {"m": 21, "n": 16, "k": 32, "groups": 5, "dtype": "bf16"}, _ragged),
    Case("ragged_block_matmul", _BLOCKS | {"groups": 3}, _ragged),
    Case("ragged_block_matmul", _BLOCKS | {"groups": 3, "k": 48, "dtype": "bf16"}, _ragged),
    Case("moe_gate_up", _ROUTED | {"k": 32, "dtype": "bf16"}, _gate_up),
    Case("moe_down", _BLOCKS | {"experts": 3}, _down),
    Case("moe_combine", {"tokens": 13, "top": 3, "n": 37, "routed": 41}, _combine),
)
