"""Steps of optimisers, as their papers have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _adamw(
    x: Inputs, rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.95, decay: float = 0.1,
    step: int = 10, eps: float = 1e-8, **_: object,
) -> Mapping[str, Array]:  # fmt: skip
    gradient = x["G"]
    first = x["M"] + (1 - beta1) * (gradient - x["M"])
    second = x["V"] + (1 - beta2) * (gradient**2 - x["V"])
    ratio = (first / (1 - beta1**step)) / (np.sqrt(second / (1 - beta2**step)) + eps)
    return {"P1": x["P"] - rate * (ratio + decay * x["P"]), "M1": first, "V1": second}


def _sgd(
    x: Inputs, rate: float = 1e-2, momentum: float = 0.9, decay: float = 1e-4, **_: object
) -> Mapping[str, Array]:
    moment = momentum * x["M"] + (x["G"] + decay * x["P"])
    return {"P1": x["P"] - rate * moment, "M1": moment}


CASES = (
    Case("adamw", {"n": 1003}, _adamw),
    Case("adamw", {"n": 517, "dtype": "bf16", "step": 1, "decay": 0.0}, _adamw),
    Case("sgd", {"n": 1003}, _sgd),
)
