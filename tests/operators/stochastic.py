"""Stochastic rounding, with Philox as its paper has it (Salmon et al., 2011), number by number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.ops.base import Array
from tests.operators.contract import Case, Inputs


def _philox(counter: list[int], key: list[int], word: int) -> int:
    """Word `word` of the four that ten rounds make of a counter of four under a key of two."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [second >> 32 ^ counter[1] ^ key[0], second % 2**32,
                   first >> 32 ^ counter[3] ^ key[1], first % 2**32]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter[word]


def _quantise(x: Inputs, seed: int = 0, **_: object) -> Mapping[str, Array]:
    scale = np.abs(x["X"]).max(1) / 127
    rows, columns = x["X"].shape
    words = [
        [_philox([n // 4, 0, m, 0], [seed, 0], n % 4) for n in range(columns)] for m in range(rows)
    ]
    chance = (np.array(words) >> 8) / 2**24
    found = np.clip(np.floor(x["X"] / scale[:, None] + chance), -127, 127)
    return {"Q": found, "scale": scale}


CASES = (
    Case("quantise_stochastic", {"m": 7, "n": 53}, _quantise),
    Case("quantise_stochastic", {"m": 3, "n": 8, "seed": 11, "dtype": "bf16"}, _quantise),
)
