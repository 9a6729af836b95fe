"""Comparing outputs on the device with what they may be; words for what is wrong are numpy's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from explorer.check import Bounds, Verdict, whole
from ir.dtypes import is_float, to_float

_bounds: dict[int, tuple[Bounds, Any, Any, Any]] = {}


def _device_bounds(xp: Any, bounds: Bounds) -> tuple[Any, Any, Any]:
    """Low, high and picked indices on the device, uploaded once."""
    if id(bounds) not in _bounds:
        picks = (
            None if bounds.picks is None else tuple(xp.asarray(np.asarray(p)) for p in bounds.picks)
        )
        _bounds[id(bounds)] = (bounds, xp.asarray(bounds.low), xp.asarray(bounds.high), picks)
    return _bounds[id(bounds)][1:]


def _widened(xp: Any, array: Any, dtype: str) -> Any:
    if dtype == "bf16":
        return (array.astype(xp.uint32) << 16).view(xp.float32)
    if dtype == "e4m3":
        return xp.asarray(_e4m3_table())[array]
    return array.astype(xp.float32) if dtype == "f16" else array


@cache
def _e4m3_table() -> Any:
    return to_float(np.arange(256, dtype=np.uint8), "e4m3").astype(np.float32)


def judge(xp: Any, bounds: Bounds, array: Any) -> Verdict:
    """`bounds.judge` of an array of CuPy's, `xp`; it goes to the host only if it is wrong."""
    low, high, picks = _device_bounds(xp, bounds)
    known = array if picks is None else array[xp.ix_(*picks)]
    if not is_float(bounds.dtype):
        found = whole(known)
        right = bool(((found >= whole(low)) & (found <= whole(high))).all())
        return Verdict(0.0) if right else bounds.judge(xp.asnumpy(array))
    value = _widened(xp, known, bounds.dtype)
    inside = bool(((value >= low) & (value <= high)).all())
    if inside and picks is not None:
        inside = not bool(xp.isnan(_widened(xp, array, bounds.dtype)).any())
    if not inside:
        return bounds.judge(xp.asnumpy(array))
    step = max(1, value.size // 16384)
    have = xp.asnumpy(value.reshape(-1)[::step]).astype(np.float64)
    want = bounds.reference.reshape(-1)[::step].astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(have - want) / (np.abs(want) + bounds.scale)
    error[have == want] = 0.0
    return Verdict(float(np.max(np.nan_to_num(error, nan=np.inf), initial=0.0)))
