"""Stochastic rounding, with the bits that are given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _quantise(x: Inputs, **_: object) -> Mapping[str, Array]:
    scale = np.abs(x["X"]).max(1) / 127
    chance = (x["bits"] % 2**24) / 2**24
    found = np.clip(np.floor(x["X"] / scale[:, None] + chance), -127, 127)
    return {"Q": found, "scale": scale}


CASES = (
    Case("quantise_stochastic", {"m": 7, "n": 53}, _quantise),
    Case("quantise_stochastic", {"m": 3, "n": 8, "dtype": "bf16"}, _quantise),
)
