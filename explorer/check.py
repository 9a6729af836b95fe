"""When an output counts as right: tolerances, bounds around the oracle's values, poison.

Pure numpy; knows neither kernels nor processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import is_float, numpy_dtype, to_float, within

Array = NDArray[Any]
_CHUNK = 1 << 16
_POISON = {1: 0x5A, 2: 0x7FDE, 4: 0x7FDEADDE, 8: 0x7FFDEADDEADDEADD}
_ERROR_SAMPLE = 1 << 14
_REPEATED = 2.0  # times what an element is off with the oracle's own roundings
_EXTREME = 6.0  # standard deviations that no element of a large output exceeds


def tolerance(dtype: str, length: int) -> float:
    """The admitted error of an output of `dtype` whose longest reduction has `length` terms.

    An element is right when |error| <= tolerance * (|reference| + rms(reference)). Integers must be
    exact. Narrow floats are bound by the rounding of the output itself, with room for one
    intermediate rounded alike. f32 and f64 accumulate: random errors grow with the root of the
    length, and 1e-4 leaves an order of magnitude up to 4096 terms.
    """
    if not is_float(dtype):
        return 0.0
    narrow = {"bf16": 2e-2, "f16": 4e-3, "tf32": 4e-3, "e4m3": 8e-2}
    if dtype in narrow:
        return narrow[dtype]
    growth = max(1.0, sqrt(length / 4096))
    return (1e-11 if dtype == "f64" else 1e-4) * growth


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error` is the largest |error| / (|reference| + rms) seen; `detail` is empty when right."""

    error: float
    detail: str = ""

    @property
    def right(self) -> bool:
        return not self.detail


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an output may be: the oracle's values, and the interval around each."""

    dtype: str
    reference: Array
    scale: float
    tolerance: float
    low: Array
    high: Array
    picks: tuple[tuple[int, ...], ...] | None

    @classmethod
    def around(
        cls,
        reference: Array,
        dtype: str,
        length: int,
        picks: tuple[tuple[int, ...], ...] | None,
        others: Sequence[Array] = (),
    ) -> Bounds:
        """Bounds for an output of which `picks` (indices along each dimension) are known.

        `others` are outputs with the roundings that the program asks for on its way. A kernel's
        roundings are others of the same size, so an element may be off by twice what it is off
        there, and by the extreme of a normal distribution as wide as all of them are off. Integers
        lie between the extremes.
        """
        if not is_float(dtype):
            storage = numpy_dtype(dtype)
            exact, *moved = (np.ascontiguousarray(a).astype(storage) for a in (reference, *others))
            low, high = exact, exact
            for other in moved:
                low, high = np.minimum(low, other), np.maximum(high, other)
            return cls(dtype, exact, 1.0, 0.0, np.asarray(low), np.asarray(high), picks)
        finite = reference[np.isfinite(reference)]
        scale = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
        scale = scale or 1.0
        allowed = tolerance(dtype, length)
        with np.errstate(invalid="ignore"):
            room = allowed * (np.abs(reference) + scale) + _rounding_room(reference, others)
            low, high = within(reference - room, dtype), within(reference + room, dtype)
        exact_inf = np.isinf(reference)
        low[exact_inf] = high[exact_inf] = reference[exact_inf]
        wide = np.float64 if dtype == "f64" else np.float32
        return cls(dtype, reference, scale, allowed, low.astype(wide), high.astype(wide), picks)

    def judge(self, output: Array) -> Verdict:
        """Compare storage of `dtype` with the oracle's values."""
        known = output if self.picks is None else output[np.ix_(*self.picks)]
        flat = np.ascontiguousarray(known).reshape(-1)
        if not _within(flat, self.low.reshape(-1), self.high.reshape(-1), self.dtype):
            detail = self._explain(flat, known.shape)
            if detail:
                return Verdict(self._error(flat, 1), detail)
        if self.picks is not None and is_float(self.dtype) and not np.isnan(self.low).any():
            missing = _count_nan(output.reshape(-1), self.dtype)
            if missing:
                return Verdict(float("inf"), f"{missing} of {output.size} elements are NaN")
        return Verdict(self._error(flat, max(1, flat.size // _ERROR_SAMPLE)))

    def _error(self, flat: Array, step: int) -> float:
        have = to_float(flat[::step], self.dtype).astype(np.float64)
        want = self.reference.reshape(-1)[::step].astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(have - want) / (np.abs(want) + self.scale)
        error[(have == want) | (np.isnan(have) & np.isnan(want))] = 0.0
        return float(np.max(np.nan_to_num(error, nan=np.inf), initial=0.0))

    def _explain(self, flat: Array, shape: tuple[int, ...]) -> str:
        """What is wrong, in words; empty when only expected NaNs failed the comparison."""
        value = to_float(flat, self.dtype)
        want, low, high = (a.reshape(-1) for a in (self.reference, self.low, self.high))
        if is_float(self.dtype):
            wide = value.astype(low.dtype)
            inside = (wide >= low) & (wide <= high) | (np.isnan(want) & np.isnan(value))
        else:
            inside = (whole(flat) >= whole(low)) & (whole(flat) <= whole(high))
        bad = ~inside
        if not bad.any():
            return ""
        first = int(np.argmax(bad))
        index = tuple(int(i) for i in np.unravel_index(first, shape))
        if self.picks is not None:
            index = tuple(pick[i] for pick, i in zip(self.picks, index, strict=True))
        untouched = int(np.count_nonzero(bad & (_bits(flat) == poison_bits(self.dtype))))
        count = int(np.count_nonzero(bad))
        what = f"{count} of {flat.size} elements wrong, first at {list(index)}: "
        what += f"{value[first]!s} instead of {want[first]!s}"
        return what + (f"; {untouched} never written" if untouched else "")


def _rounding_room(reference: Array, others: Sequence[Array]) -> Array:
    """How far an element may be off because of roundings inside the program."""
    off = np.zeros_like(reference)
    for other in others:
        apart = np.nan_to_num(np.abs(other - reference), nan=0.0, posinf=0.0)
        off = np.maximum(off, apart)
    extreme = _EXTREME * np.sqrt(np.mean(np.square(off)))
    return np.asarray(_REPEATED * off + extreme)


def _within(flat: Array, low: Array, high: Array, dtype: str) -> bool:
    """Whether every element lies in its interval; in chunks, so that temporaries stay in cache."""
    if not is_float(dtype):
        value = whole(flat)
        return bool(np.all(value >= whole(low)) and np.all(value <= whole(high)))
    for start in range(0, flat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        value = _widen(flat[part], dtype)
        if not (np.all(value >= low[part]) and np.all(value <= high[part])):
            return False
    return True


def _widen(flat: Array, dtype: str) -> Array:
    if dtype == "bf16":
        return (flat.astype(np.uint32) << 16).view(np.float32)
    if dtype == "e4m3":
        return to_float(flat, dtype).astype(np.float32)
    return flat.astype(np.float32) if dtype == "f16" else flat


def _count_nan(flat: Array, dtype: str) -> int:
    starts = range(0, flat.size, _CHUNK)
    return sum(
        int(np.count_nonzero(np.isnan(_widen(flat[at : at + _CHUNK], dtype)))) for at in starts
    )


def whole(flat: Array) -> Array:
    """Integers, of which those that stand for booleans can be told from poison."""
    return flat.view("u1") if flat.dtype == bool else flat


def _bits(flat: Array) -> Array:
    return flat.view(f"u{flat.itemsize}")


def poison_bits(dtype: str) -> int:
    """The pattern in outputs before a run: a NaN where the type has one."""
    return _POISON[numpy_dtype(dtype).itemsize]


def poison(output: Array, dtype: str) -> None:
    """Fill an output with what no kernel would write."""
    _bits(output.reshape(-1))[...] = poison_bits(dtype)
