"""An array module that stands for one on a device: like CuPy, it refuses arrays of numpy.

What is evaluated for a device has to be made of its arrays alone; numpy forgives what CuPy does
not, so without a device nobody would find a stray array of numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_MAKERS = ("asarray", "array", "ascontiguousarray")  # take arrays of numpy to the device
_TAKING = "take"  # and indices
_NAME = "far_numpy"


class FarArray(NDArrayOperatorsMixin):
    """An array that functions take only together with its like and with numbers."""

    def __init__(self, own: np.ndarray[Any, Any]) -> None:
        self._own = own

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        _refuse_near((*inputs, *out), ufunc.__name__)
        if out:
            options["out"] = tuple(map(near, out))
        found = getattr(ufunc, method)(*map(near, inputs), **options)
        return out[0] if out else far(found)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> Any:
        return _applied(func, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._own, name)
        return _far_function(found) if callable(found) else far(found)

    def __getitem__(self, key: Any) -> Any:
        return far(self._own[near(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[near(key)] = near(value)

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[Any]:
        return map(far, self._own)

    def __bool__(self) -> bool:
        return bool(self._own)

    def __int__(self) -> int:
        return int(self._own)

    def __float__(self) -> float:
        return float(self._own)

    def __index__(self) -> int:
        return int(self._own)

    def get(self) -> np.ndarray[Any, Any]:
        """The same in numpy, as CuPy's arrays give it."""
        return self._own.copy()


class FarGenerator:
    """numpy's draws, far."""

    def __init__(self, own: np.random.Generator) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return _far_function(getattr(self._own, name))


class _FarNumpy(ModuleType):
    """numpy's functions, whose arrays are far."""

    @property
    def random(self) -> Any:
        return SimpleNamespace(default_rng=lambda seed: FarGenerator(np.random.default_rng(seed)))

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, np.ufunc) or not callable(found) or isinstance(found, type):
            return found
        return _far_function(found, name in _MAKERS)


def near(value: Any) -> Any:
    """The same for numpy's own code."""
    if isinstance(value, FarArray):
        return value._own
    return type(value)(map(near, value)) if type(value) in (list, tuple) else value


def far(value: Any) -> Any:
    """What numpy's code returned, as arrays of the device; these are so without dimensions too."""
    if isinstance(value, np.ndarray | np.generic):
        return FarArray(np.asarray(value))
    return tuple(map(far, value)) if type(value) is tuple and _has_arrays(value) else value


def _has_arrays(values: tuple[Any, ...]) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _far_function(function: Callable[..., Any], makes: bool = False) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        return _applied(function, args, options, makes)

    return called


def _applied(
    function: Callable[..., Any], args: Any, options: Mapping[str, Any], makes: bool = False
) -> Any:
    if not makes and function.__name__ != _TAKING:
        _refuse_near(args, function.__name__)
    return far(function(*map(near, args), **{key: near(one) for key, one in options.items()}))


def _refuse_near(values: Any, name: str) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(f"{name}: unsupported type {type(value)} of shape {value.shape}")


far_numpy = _FarNumpy(_NAME)
FarArray.__module__ = _NAME  # what has an array finds the library that it is of
sys.modules[_NAME] = far_numpy
