"""Launching kernels through the CUDA driver: what CuPy's own launch cannot say."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_VALUE_BYTES = 64


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("identifier", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int * (_VALUE_BYTES // 4)),
    )


class Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def attribute_of(kernel: Mapping[str, Any]) -> int:
    """The launch attribute that a kernel of a plan asks for, 0 if none: that all of its blocks run
    at a time, or that it may start while the one before it in the stream still runs."""
    if kernel.get("cooperative"):
        return _COOPERATIVE
    return _EARLY if kernel.get("early") else 0


def configuration(
    grid: tuple[int, int, int], block: int, shared: int, attribute: int = 0
) -> Configuration:
    """Blocks, threads of a block, bytes of dynamic shared memory; the stream is filled in later.

    `attribute` is what `attribute_of` a kernel says.
    """
    found = Configuration(grid, (block, 1, 1), shared)
    if attribute:
        attributes = (Attribute * 1)()
        attributes[0].identifier = attribute
        attributes[0].value[0] = 1
        found.attributes, found.count = attributes, 1
    return found
