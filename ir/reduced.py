"""Facts about all elements of an array, of numpy or of a device's library.

A device's library gives a reduction to one number to one block where it has no ready routine: of
truths, and of what does not lie together. So rows are reduced first, by as many blocks as there are
rows, and what repeats itself is looked at once. Of a stand-in (`ir.at_once`) anything may be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.at_once import StandIn

Array = NDArray[Any]
_ROW = 1 << 12


def some(mask: Array) -> bool:
    """Whether any element is true."""
    if isinstance(mask, StandIn):
        return True
    return any(bool(part.any()) for part in _reduced(_distinct(mask), "any"))


def every(mask: Array) -> bool:
    """Whether all elements are true."""
    if isinstance(mask, StandIn):
        return False
    return all(bool(part.all()) for part in _reduced(_distinct(mask), "all"))


def count(mask: Array) -> int:
    """How many elements are true."""
    return sum(int(part.sum()) for part in _reduced(mask, "sum"))


def largest(array: Array) -> Any:
    """The largest element; raises ValueError where there is none."""
    return max(part.max() for part in _reduced(_distinct(array), "max") if part.size)


def is_finite(array: Array | float) -> bool:
    """Whether neither the elements nor their sum are infinite or no number."""
    if isinstance(array, float):
        return math.isfinite(array)
    if isinstance(array, StandIn):
        return False
    if isinstance(array, np.ndarray) and array.size <= _ROW:
        return math.isfinite(array.sum())
    return all(bool(np.isfinite(part.sum())) for part in _reduced(_distinct(array), "sum"))


def all_within(array: Array, most: float) -> bool:
    """Whether no element of numpy's is beyond `most` to either side or no number, if that is found
    sooner than it is worth; a device is not asked."""
    if not isinstance(array, np.ndarray) or not array.size:
        return False
    return bool(array.max() <= most and array.min() >= -most)


def _reduced(array: Array, how: str) -> list[Array]:
    """What is left to be reduced: on a device the rows of many elements are, one by one."""
    if isinstance(array, np.ndarray) or array.size < 2 * _ROW:
        return [array]
    flat = array.reshape(-1)
    whole = flat.size // _ROW * _ROW
    return [getattr(flat[:whole].reshape(-1, _ROW), how)(axis=-1), flat[whole:]]


def _distinct(array: Array) -> Array:
    """The elements without those that an axis repeats."""
    if isinstance(array, np.ndarray) and array.size <= _ROW:
        return array
    pairs = zip(array.strides, array.shape, strict=True)
    found: Array = array[tuple(slice(None) if step or not n else 0 for step, n in pairs)]
    return found
