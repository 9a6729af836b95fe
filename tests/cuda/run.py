"""What the tests of emulation share: skipping without g++, bf16 products, every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cuda import kernels
from tests.emulator.emulate import MODES, Emulation, Mode, compiler, emulate
from tests.layout.patterns import decode, encode

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no g++ on this machine")
Arrays = dict[str, NDArray[Any]]


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "bf16") -> NDArray[Any]:
    """Patterns of whole numbers whose products sum up exactly."""
    low = 0 if dtype == "u8" else -3
    return encode(rng.integers(low, 4, shape), dtype)


def gemm_arrays(m: int, n: int, k: int) -> tuple[Arrays, NDArray[Any]]:
    """Arrays of `kernels.gemm` and the patterns that C must have."""
    rng = np.random.default_rng(m + n + k)
    a, b = small(rng, (m, k)), small(rng, (n, k))
    wanted = encode(decode(a, "bf16") @ decode(b, "bf16").T, "bf16")
    return {"a": a, "b": b, "c": np.zeros((m, n), np.uint16)}, wanted


def in_modes(
    source: str, plan: kernels.Plan, arrays: Arrays, registers: int | None = None
) -> Iterator[tuple[Mode, Emulation]]:
    """The emulation in every mode, each on copies of `arrays`."""
    for mode in MODES:
        copies = {name: array.copy() for name, array in arrays.items()}
        yield mode, emulate(source, plan, copies, mode=mode, registers=registers)
