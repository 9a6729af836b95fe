"""Facts about all elements, as numpy has them and as a device's library is asked for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.reduced import count, every, is_finite, largest, some


class Elsewhere:
    """An array of another library: numpy's, of which it is noted what is reduced to one number."""

    def __init__(self, array: Any, sizes: list[int]) -> None:
        self.array, self.sizes = array, sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __getitem__(self, key: Any) -> Elsewhere:
        return Elsewhere(self.array[key], self.sizes)

    def reshape(self, *shape: Any) -> Elsewhere:
        return Elsewhere(self.array.reshape(*shape), self.sizes)

    def _reduced(self, how: str, axis: int | None) -> Any:
        if axis is None:
            self.sizes.append(self.array.size)
            return getattr(self.array, how)()
        return Elsewhere(getattr(self.array, how)(axis=axis), self.sizes)

    def any(self, axis: int | None = None) -> Any:
        return self._reduced("any", axis)

    def all(self, axis: int | None = None) -> Any:
        return self._reduced("all", axis)

    def sum(self, axis: int | None = None) -> Any:
        return self._reduced("sum", axis)

    def max(self, axis: int | None = None) -> Any:
        return self._reduced("max", axis)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("place", [None, 0, 7_777, 99_999])
def test_what_is_true_somewhere(elsewhere: bool, place: int | None) -> None:
    mask, sizes = np.zeros(100_000, bool), list[int]()
    if place is not None:
        mask[place] = True
    given: Any = Elsewhere(mask, sizes) if elsewhere else mask
    other: Any = Elsewhere(~mask, sizes) if elsewhere else ~mask
    assert some(given) is (place is not None)
    assert every(other) is (place is None)
    assert count(given) == (place is not None)
    assert count(other) == 100_000 - (place is not None)
    assert all(size <= 4096 for size in sizes)
    assert bool(sizes) == elsewhere


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_largest_and_whether_all_are_finite(elsewhere: bool) -> None:
    values, sizes = np.linspace(-3.0, 5.0, 50_001).reshape(3, -1), list[int]()
    given: Any = Elsewhere(values, sizes) if elsewhere else values
    assert largest(given) == 5.0
    assert is_finite(given)
    for wrong in (np.nan, np.inf, -np.inf):
        values[1, 17] = wrong
        assert not is_finite(given)
    assert all(size <= 4096 for size in sizes)


def test_what_an_axis_repeats_is_looked_at_once() -> None:
    sizes: list[int] = []
    wide = np.broadcast_to(np.array([[1.0], [2.0]]), (2, 1 << 20))
    given: Any = Elsewhere(wide, sizes)
    assert largest(given) == 2.0
    assert is_finite(given)
    assert sizes == [2, 2]
    assert not is_finite(float("inf"))
    assert is_finite(0.0)


def test_nothing_at_all() -> None:
    none = np.zeros((0, 4), bool)
    assert (some(none), every(none), count(none)) == (False, True, 0)
    assert some(np.broadcast_to(np.array(True), (0, 3))) is False
    with pytest.raises(ValueError, match=r"max\(\)"):
        largest(np.zeros(0))
