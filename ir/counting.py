"""Philox 4x32-10, random bits by counting (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011): constants, and the meaning on arrays of numpy and of libraries like it.

Four words of 32 bits come of a counter of four words and a key of two, by multiplications and
exclusive ors alone, so they are the same bits on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)  # by which the words of the key grow from round to round
WORD = "i64"
"""The dtype of a word: its numbers are 0 .. 2^32 - 1."""
FRACTION = 24  # bits of a word that a number of [0, 1) has

_MASK = 0xFFFFFFFF


def philox(counter: Any, stream: Any, seed: Any, word: Any) -> Any:
    """Word `word` (0 to 3) of the block at (counter, stream) under the key `seed`, 64 bits each."""
    state = [*_words(counter), *_words(stream)]
    key = [*_words(seed)]
    for _ in range(ROUNDS):
        low, high = (
            state[place] * np.uint64(factor)
            for place, factor in zip((0, 2), MULTIPLIERS, strict=True)
        )
        state = [
            _high(high) ^ state[1] ^ key[0],
            high & np.uint64(_MASK),
            _high(low) ^ state[3] ^ key[1],
            low & np.uint64(_MASK),
        ]
        key = [
            (one + np.uint64(step)) & np.uint64(_MASK) for one, step in zip(key, STEPS, strict=True)
        ]
    chosen = word & 3
    pairs = [np.where(chosen & 1, state[place + 1], state[place]) for place in (0, 2)]
    return np.where(chosen & 2, pairs[1], pairs[0]).astype(np.int64)


def unit(word: Any) -> Any:
    """The upper bits of a word as a number of [0, 1), one of 2^24 that are equally far apart."""
    return (np.right_shift(word, 32 - FRACTION) & ((1 << FRACTION) - 1)) * 2.0**-FRACTION


def _words(value: Any) -> tuple[Any, Any]:
    bits = value.astype(np.uint64)
    return bits & np.uint64(_MASK), _high(bits)


def _high(bits: Any) -> Any:
    return np.right_shift(bits, np.uint64(32))
