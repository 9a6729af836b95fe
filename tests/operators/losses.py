"""Losses: minus the logarithm of the label's probability, row by row."""

from __future__ import annotations

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _loss(logits: Array, labels: Array) -> Array:
    rows = []
    for row, label in zip(logits, labels, strict=True):
        weights = np.exp(row)
        rows.append(-np.log(weights[label] / weights.sum()))
    return np.array(rows)


def _cross_entropy(x: Inputs, **_: object) -> Array:
    return _loss(x["X"], x["label"])


def _linear(x: Inputs, **_: object) -> Array:
    return _loss(x["X"] @ x["W"].T, x["label"])


CASES = (
    Case("cross_entropy", {"m": 9, "n": 71}, _cross_entropy),
    Case("cross_entropy", {"m": 5, "n": 300, "dtype": "bf16"}, _cross_entropy),
    Case("linear_cross_entropy", {"m": 9, "n": 71, "k": 24}, _linear),
    Case("linear_cross_entropy", {"m": 17, "n": 130, "k": 32, "dtype": "bf16"}, _linear),
)
