"""When an output counts as right: an interval for each element, words for what is outside, poison.

Works on the arrays of numpy and of libraries like it, where the output is. Knows neither kernels
nor processes; how far a right kernel may be off is the oracle's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import CODES, from_float, is_float, numpy_dtype, to_float
from ir.oracle import Answer
from ir.reduced import count, every, some
from ir.roundoff import FLUSHED, FORMATS, SAFETY

Array = NDArray[Any]
_CHUNK = 1 << 16
_WHOLE_POISON = {1: 0x5A, 2: 0x7FDE, 4: 0x7FDEADDE, 8: 0x7FFDEADDEADDEADD}
_FLOAT_POISON = {  # a NaN, numbers near the largest of both signs
    "f64": (0x7FFDEADDEADDEADD, 0x7FEDEADDEADDEADD, 0xFFEDEADDEADDEADD),
    "f32": (0x7FDEADDE, 0x7F5EADDE, 0xFF5EADDE),
    "tf32": (0x7FDEADDE, 0x7F5EADDE, 0xFF5EADDE),
    "f16": (0x7FDE, 0x7BDE, 0xFBDE),
    "bf16": (0x7FDE, 0x7F5E, 0xFF5E),
    "e4m3": (0x7F, 0x7D, 0xFD),
    "e5m2": (0x7F, 0x7A, 0xFA),
    "e8m0": (0xFF, 0xFD, 0x01),  # which has no sign: a number near the least
}
_ONE_NAN = ("e4m3", "e8m0")  # types in which a NaN that was written is the poison's
TURNS = 3  # patterns of poison, one for each check of a kernel
_ERROR_SAMPLE = 1 << 14
_ODD = 3.0  # standard deviations of an element's error that an interval has to either side
_UNLIKELY = 4.0  # standard deviations of a mean error
_COARSE = 0.125  # part of itself that an element may be off and still be a rounded number
LEANING = 0.004  # part of itself by which an output of right roundings may lean to one side
_HAIR = 1 + 2.0**-20  # ends of intervals are kept in f32
_TIED = 2.0**-18  # part of itself by which ends that are kept so may lie beside a number's own
_UNSIGNED = {"bf16": 0x7FFF, "f16": 0x7FFF, "e5m2": 0x7F, "e4m3": 0x7F}  # bits but for the sign's
_INFINITE = {"bf16": 0x7F80, "f16": 0x7C00, "e5m2": 0x7C, "e4m3": 0x7E}  # above which are NaNs


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
    """The interval in which each element of an output must lie.

    `picks` are the indices along each dimension at which it is known; None if it is everywhere. An
    interval without ends says nothing of its element; one of NaN asks for NaN. Roundings fall to
    either side: all elements together may be too large or too small by the part `leaning` at most.
    """

    dtype: str
    low: Array
    high: Array
    scale: float
    picks: tuple[Array, ...] | None = None
    leaning: float = LEANING

    @classmethod
    def around(
        cls,
        answer: Answer,
        dtype: str,
        picks: tuple[Array, ...] | None = None,
        leaning: float = LEANING,
    ) -> Bounds:
        """The exact values, widened by what a right kernel may be off and by their own rounding.

        What is infinite is so for certain, unless numbers on the way leave the range of their type.
        """
        if not is_float(dtype):
            return cls(dtype, *_whole_interval(answer, dtype), 1.0, picks)
        value, form = answer.value, FORMATS[dtype]
        with np.errstate(all="ignore"):
            room = SAFETY * answer.reach.astype(np.float64)
            size = np.abs(value)
            room = room + form.half_unit(size + np.where(np.isfinite(room), room, 0.0)) * _HAIR
            room = room + FLUSHED.get(dtype, 0.0)
            room = np.where(np.isfinite(value), room * (2 if dtype == "f32" else 1), 0.0)
            low, high = _beyond(value - room, form.largest), _beyond(value + room, form.largest)
            doubtful = np.isinf(value) & (answer.reach == np.inf)
            low, high = np.where(doubtful, -np.inf, low), np.where(doubtful, np.inf, high)
            if form.saturates:
                low, high = np.minimum(low, form.largest), np.maximum(high, -form.largest)
            finite = size[np.isfinite(size)]
            scale = float(np.sqrt(np.square(finite).mean())) if finite.size else 0.0
            wide = np.float64 if dtype == "f64" else np.float32
            ends = low.astype(wide), high.astype(wide)
            return cls(dtype, *ends, scale or 1.0, picks, leaning)

    @classmethod
    def of_nothing(cls, dtype: str, dims: int, xp: Any) -> Bounds:
        """Those of an output of which no element is known."""
        none = xp.zeros((0,) * dims)
        picks = tuple(xp.asarray(pick) for pick in np.ix_(*([np.arange(0)] * dims)))
        return cls(dtype, none, none, 1.0, picks)

    @property
    def unbounded(self) -> int:
        """Elements of which nothing is known: any number as large as the output's usual ones is
        right, of either sign."""
        if not is_float(self.dtype):
            return 0
        return count((self.low <= -self.scale) & (self.high >= self.scale))

    def judge(self, output: Array) -> Verdict:
        """Compare storage of `dtype` with the intervals."""
        known = output if self.picks is None else output[self.picks]
        flat = known.reshape(-1)
        if all(_inside(*part, self.dtype) for part in self._parts(flat)):
            if self.picks is not None and (missing := self._strangers(output)):
                return Verdict(float("inf"), f"{missing} of {output.size} elements are NaN")
            step = max(1, flat.size // _ERROR_SAMPLE)
            return Verdict(self._error(flat, step), self._lean(flat, step))
        detail = self._explain(flat, known.shape)
        return Verdict(self._error(flat, 1) if detail else 0.0, detail)

    def rehearse(self, output: Array) -> None:
        """Compute what judging a right output takes, whatever this one holds: a device's library
        compiles it the first time."""
        flat = (output if self.picks is None else output[self.picks]).reshape(-1)
        step = max(1, flat.size // _ERROR_SAMPLE)
        for part in self._parts(flat):
            _inside(*part, self.dtype)
        if self.picks is not None:
            self._strangers(output)
        self._error(flat, step)
        self._lean(flat, step)

    def _parts(self, flat: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Elements and the ends of their intervals; numpy's in chunks that stay in its caches."""
        low, high = self.low.reshape(-1), self.high.reshape(-1)
        step = _CHUNK if isinstance(flat, np.ndarray) else max(1, flat.size)
        for start in range(0, flat.size, step):
            part = slice(start, start + step)
            yield flat[part], low[part], high[part]

    def _strangers(self, output: Array) -> int:
        """NaNs where nothing else is known, if none are expected where something is."""
        if not is_float(self.dtype) or not self.low.size or some(np.isnan(self.low)):
            return 0
        flat = output.reshape(-1)
        step = _CHUNK if isinstance(flat, np.ndarray) else max(1, flat.size)
        starts = range(0, flat.size, step)
        return sum(count(are_nan(flat[s : s + step], self.dtype)) for s in starts)

    def _lean(self, flat: Array, step: int) -> str:
        """Words for an output that is too large or too small in the mean, though no element is."""
        if not is_float(self.dtype):
            return ""
        have, want, low, high = self._sampled(flat, step)
        with np.errstate(all="ignore"):
            known = np.isfinite(have) & np.isfinite(low) & np.isfinite(high)
            have, want, room = have[known], want[known], (high - low)[known] / 2
            stored, odd = _stored(want, room, self.dtype)
            told = stored == stored
            have, want, room, stored, odd = (a[told] for a in (have, want, room, stored, odd))
            weight = np.square(want).sum()
            lean = ((have - stored) * want).sum() / weight
            chance = np.sqrt(np.square(odd * want).sum()) / weight
            coarse = room > _COARSE * np.abs(want)  # which may all fall to one side of a step
            allowed = self.leaning + (np.abs(want) * room)[coarse].sum() / weight
        most = allowed + _UNLIKELY * chance
        if not abs(lean) > most:
            return ""
        side = "large" if lean > 0 else "small"
        return f"elements are {abs(lean):.2%} too {side} in the mean; {most:.2%} may be by chance"

    def _sampled(self, flat: Array, step: int) -> tuple[Array, Array, Array, Array]:
        """Every `step`th element, the middle of its interval and both ends, in float64."""
        have = host(widen(flat[::step], self.dtype)).astype(np.float64)
        low, high = (host(a.reshape(-1)[::step]).astype(np.float64) for a in (self.low, self.high))
        with np.errstate(all="ignore"):
            want = np.where(np.isfinite(low) & np.isfinite(high), (low + high) / 2, have)
        return have, want, low, high

    def _error(self, flat: Array, step: int) -> float:
        have, want, low, high = self._sampled(flat, step)
        with np.errstate(all="ignore"):
            error = np.abs(have - want) / (np.abs(want) + self.scale)
        error[(have == low) | (have == high) | (np.isnan(have) & np.isnan(low))] = 0.0
        return float(np.max(np.nan_to_num(error, nan=np.inf), initial=0.0))

    def _explain(self, flat: Array, shape: tuple[int, ...]) -> str:
        """What is wrong, in words; empty when only expected NaNs failed the comparison."""
        flat, low, high = host(flat), host(self.low).reshape(-1), host(self.high).reshape(-1)
        bad = ~admitted(flat, low, high, self.dtype)
        if not bad.any():
            return ""
        first = int(np.argmax(bad))
        index = tuple(int(i) for i in np.unravel_index(first, shape))
        if self.picks is not None:
            picks = [host(pick).reshape(-1) for pick in self.picks]
            index = tuple(int(pick[i]) for pick, i in zip(picks, index, strict=True))
        untouched = int(np.count_nonzero(bad & _poisoned(flat, self.dtype)))
        value = to_float(flat[first : first + 1], self.dtype)[0]
        what = f"{np.count_nonzero(bad)} of {flat.size} elements wrong, first at {list(index)}: "
        what += f"{value!s} instead of {_interval(low[first], high[first])}"
        return what + (f"; {untouched} never written" if untouched else "")


def _stored(want: Array, room: Array, dtype: str) -> tuple[Array, Array]:
    """The exact values as `dtype` holds them, and how far a right kernel's usually are from that.

    Only where rounding is in doubt: elsewhere a right kernel stores the same number. No number
    where it is in doubt for the ends' own rounding alone, as it is of numbers between two others.
    """
    slack = np.maximum(room - FORMATS[dtype].half_unit(np.abs(want)), 0.0)
    low, stored, high = (_nearest(value, dtype) for value in (want - slack, want, want + slack))
    stored = np.where((low != high) & (slack <= _TIED * np.abs(want)), np.nan, stored)
    flips = np.minimum((high - low) / 2, room)
    return stored, np.where(flips > 0, np.hypot(slack / _ODD, np.minimum(flips, room - slack)), 0.0)


def _nearest(value: Array, dtype: str) -> Array:
    """What storing makes of a value."""
    return to_float(from_float(value, dtype), dtype).astype(np.float64)


def _interval(low: Any, high: Any) -> str:
    return str(low) if low == high or low != low else f"{low!s} to {high!s}"


def _beyond(end: Array, largest: float) -> Array:
    """Numbers too large for a type are infinite in it."""
    return np.where(np.abs(end) > largest, np.copysign(np.inf, end), end)


def _whole_interval(answer: Answer, dtype: str) -> tuple[Array, Array]:
    """Integers are exact but where what they are made of leaves a choice."""
    storage, value = numpy_dtype(dtype), answer.value
    if value.dtype.kind == "b":
        return value & ~(answer.reach > 0), value | (answer.reach > 0)
    limits = np.iinfo(storage) if storage.kind in "iu" else None
    steps = np.ceil(np.minimum(answer.reach, 2.0**62)).astype(np.int64)
    if limits is None:
        return value.astype(storage), value.astype(storage)
    exact = value.astype(storage)
    with np.errstate(over="ignore"):  # ends beyond 64 bits wrap, and are the last numbers there
        low, high = value - steps, value + steps
    low, high = np.where(low > value, limits.min, low), np.where(high < value, limits.max, high)
    low, high = (np.clip(end, limits.min, limits.max) for end in (low, high))
    sure = steps == 0
    low, high = (np.where(sure, exact, end.astype(storage)) for end in (low, high))
    return low, high


def admitted(flat: Array, low: Array, high: Array, dtype: str) -> Array:
    """Which elements are right, exactly: expected NaNs and elements that may be anything too."""
    if not is_float(dtype):
        value = whole(flat)
        return (value >= whole(low)) & (value <= whole(high))
    with np.errstate(invalid="ignore"):
        value = widen(flat, dtype)
        inside = (value >= low) & (value <= high)
        free = np.isinf(low) & np.isinf(high) & (low < high)
        free &= (dtype in _ONE_NAN) | ~_poisoned(flat, dtype, 1)
    return inside | free | (np.isnan(low) & np.isnan(value))


def _inside(flat: Array, low: Array, high: Array, dtype: str) -> bool:
    """Whether every element lies in its interval."""
    value = widen(flat, dtype) if is_float(dtype) else whole(flat)
    low, high = (low, high) if is_float(dtype) else (whole(low), whole(high))
    return every((value >= low) & (value <= high))


def widen(flat: Array, dtype: str) -> Array:
    """Narrow floats as f32, exactly; others as they are."""
    if dtype == "bf16":
        return (flat.astype(np.uint32) << 16).view(np.float32)
    if dtype in CODES:
        return to_float(flat, dtype).astype(np.float32)
    return flat.astype(np.float32) if dtype == "f16" else flat


def are_nan(flat: Array, dtype: str) -> Array:
    """Which elements are NaN; of narrow floats by their bits, several times as fast as widened."""
    if dtype not in _INFINITE:
        return np.isnan(widen(flat, dtype))
    bits = _bits(flat)
    one = bits.dtype.type
    found: Array = (bits & one(_UNSIGNED[dtype])) > one(_INFINITE[dtype])
    return found


def host(array: Array) -> Array:
    """The array as numpy's."""
    if isinstance(array, np.ndarray):
        return array
    copied: Array = array.get()
    return copied


def whole(flat: Array) -> Array:
    """Integers, of which those that stand for booleans can be told from poison."""
    return flat.view("u1") if flat.dtype == bool else flat


def _bits(flat: Array) -> Array:
    return flat.view(f"u{flat.dtype.itemsize}")


@cache
def poison_bits(dtype: str, turn: int = 0) -> int:
    """The pattern in outputs before check `turn`: a NaN where the type has one, then numbers.

    What combines its results with what was there finds something else that it cannot be right with.
    """
    if is_float(dtype):
        return _FLOAT_POISON[dtype][turn]
    storage = numpy_dtype(dtype)
    pattern, every = _WHOLE_POISON[storage.itemsize], (1 << 8 * storage.itemsize) - 1
    below = ~pattern & every if storage.kind == "i" else 0
    return below if turn % 2 else pattern


def _poisoned(flat: Array, dtype: str, turns: int = TURNS) -> Array:
    """Which elements have one of the first patterns of poison."""
    patterns = {poison_bits(dtype, turn) for turn in range(turns)} - {0}
    poisoned: Array = _bits(flat) == patterns.pop()
    for pattern in patterns:
        poisoned = poisoned | (_bits(flat) == pattern)
    return poisoned


def poison(output: Array, dtype: str, turn: int = 0) -> None:
    """Fill an output with what no kernel would write."""
    bits = _bits(output.reshape(-1))
    bits[...] = bits.dtype.type(poison_bits(dtype, turn))
