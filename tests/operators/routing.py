"""Routing: sorted lists of slots in Python, and each token's experts one by one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _softmax(row: Array) -> Array:
    weights = np.exp(row - row.max())
    return np.asarray(weights / weights.sum())


def _best(values: Array, count: int) -> list[int]:
    return sorted(range(len(values)), key=lambda place: (-values[place], place))[:count]


def _gate(
    x: Inputs, chosen: int, scores: str = "softmax", bias: bool = False, groups: int = 1,
    kept: int = 1, renormalise: bool = True, scale: float = 1.0, **_: object,
) -> Mapping[str, Array]:  # fmt: skip
    weights, experts = [], []
    for logits in x["logits"]:
        found = _softmax(logits) if scores == "softmax" else 1 / (1 + np.exp(-logits))
        ranking = found + x["bias"] if bias else found.copy()
        if groups > 1:
            parts = np.split(np.arange(len(ranking)), groups)
            worth = np.array([np.sort(ranking[part])[-2:].sum() for part in parts])
            for group in set(range(groups)) - set(_best(worth, kept)):
                ranking[parts[group]] = -np.inf
        best = _best(ranking, chosen)
        weight = found[best]
        weights.append(weight / weight.sum() * scale if renormalise else weight * scale)
        experts.append(best)
    return {"weight": np.array(weights), "expert": np.array(experts)}


def _counts(expert: Array, experts: int) -> tuple[Array, Array]:
    count = np.array([(expert == e).sum() for e in range(experts)])
    return count, np.array([count[:e].sum() for e in range(experts)])


def _histogram(x: Inputs, experts: int, **_: object) -> Mapping[str, Array]:
    return dict(zip(("count", "offset"), _counts(x["expert"], experts), strict=True))


def _sorted(expert: Array) -> tuple[Array, Array]:
    """The slots in the order of their experts, and where each slot is in that."""
    slots = np.array(sorted(range(len(expert)), key=lambda slot: (expert[slot], slot)))
    return slots, np.array([list(slots).index(slot) for slot in range(len(expert))])


def _positions(x: Inputs, experts: int, **_: object) -> Mapping[str, Array]:
    slots, position = _sorted(x["expert"])
    return {"slot": slots, "position": position, "offset": _counts(x["expert"], experts)[1]}


def _permute(x: Inputs, chosen: int, **_: object) -> Mapping[str, Array]:
    slots, position = _sorted(x["expert"])
    return {"Y": x["X"][slots // chosen], "position": position}


def _moe(x: Inputs, chosen: int, **_: object) -> Array:
    out = []
    for row, logits in zip(x["X"], x["logits"], strict=True):
        best = _best(logits, chosen)
        total = np.zeros_like(row)
        for weight, e in zip(_softmax(logits[best]), best, strict=True):
            gate = x["W1"][e] @ row
            total += weight * (x["W2"][e] @ (gate / (1 + np.exp(-gate)) * (x["W3"][e] @ row)))
        out.append(total)
    return np.stack(out)


_GROUPED = {"tokens": 23, "experts": 12, "chosen": 3, "groups": 4, "kept": 2}
_SLOTS = {"tokens": 23, "chosen": 2, "experts": 7}
_LAYER = {"tokens": 13, "experts": 4, "chosen": 2, "d": 9, "n": 7, "block": 4}
CASES = (
    Case("moe_gate", {"tokens": 23, "experts": 8, "chosen": 2}, _gate),
    Case(
        "moe_gate",
        {"tokens": 9, "experts": 7, "chosen": 3, "renormalise": False, "dtype": "bf16"},
        _gate,
    ),
    Case("moe_gate", _GROUPED | {"scores": "sigmoid", "bias": True, "scale": 2.5}, _gate),
    Case("moe_gate", _GROUPED, _gate),
    Case(
        "moe_gate",
        {"tokens": 65, "experts": 23, "chosen": 19, "bias": True, "renormalise": False},
        _gate,
    ),
    Case("expert_histogram", _SLOTS, _histogram),
    Case("moe_positions", _SLOTS, _positions),
    Case("moe_permute", _SLOTS | {"d": 5, "dtype": "bf16"}, _permute),
    Case("moe", _LAYER, _moe),
)
