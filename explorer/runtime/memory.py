"""Host memory: aligned, on huge pages and with guarded ends, or as callers of a kernel have it.

Knows numpy and the operating system's memory calls; no kernel.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import prod

import numpy as np

from explorer.exporters.outputs import room
from explorer.runtime.base import Array
from ir.dtypes import numpy_dtype

PLAIN = "plain"  # the kind of memory that callers have; the other one is made here
LINE = 64
GIVEN = 16  # to which numpy aligns its arrays; other libraries do better
PAGE = mmap.PAGESIZE
HUGE = 2 << 20
_TRIM, _MMAP = -1, -3  # numbers of mallopt's parameters
_KEPT = (1 << 31) - 1  # bytes: an int's largest
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def aligned_empty(shape: tuple[int, ...], dtype: str, *, guard: bool = False) -> Array:
    """An uninitialised array in a mapping of its own, aligned to a cache line.

    With `guard`, the page behind the array (rounded up to 64 bytes) may not be touched: a kernel
    that runs over the end is a crash, not a wrong neighbour.
    """
    storage = numpy_dtype(dtype)
    size = max(prod(shape), 1) * storage.itemsize
    used = -(-size // LINE) * LINE
    pages = -(-used // PAGE) * PAGE
    huge = pages >= HUGE
    # Private memory: pages of a shared mapping are the system's to choose, whatever is advised.
    mapping = mmap.mmap(-1, pages + PAGE + (HUGE if huge else 0), flags=_PRIVATE)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapping, dtype=np.uint8)
    base = -whole.ctypes.data % HUGE if huge else 0
    if guard:
        protect(whole.ctypes.data + base + pages, PAGE, readable=False)
    start = base + pages - used
    return whole[start : start + size].view(storage)[: prod(shape)].reshape(shape)


def read_only_copy(array: Array, dtype: str) -> Array:
    """A guarded copy whose pages cannot be written, not even by generated code."""
    copy = aligned_empty(array.shape, dtype, guard=True)
    copy[...] = array
    first = copy.ctypes.data // PAGE * PAGE
    protect(first, -(-(copy.ctypes.data + copy.nbytes - first) // PAGE) * PAGE, readable=True)
    copy.flags.writeable = False
    return copy


def plain_copy(array: Array) -> Array:
    """A copy in memory as numpy and torch allocate it, where they ask the system for nothing more.

    The usual pages, and as little alignment as the worse of both gives: large arrays of numpy lie
    16 bytes behind the start of a page. (From 4 MiB on numpy asks for huge pages, torch does not.)
    """
    mapping = mmap.mmap(-1, GIVEN + max(array.nbytes, 1), flags=_PRIVATE)
    whole = np.frombuffer(mapping, dtype=np.uint8)
    copy: Array = whole[GIVEN : GIVEN + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def returned(shape: tuple[int, ...], dtype: str) -> Array:
    """An output as an exported module makes it for itself."""
    array: Array = room(shape, numpy_dtype(dtype).name)
    return array


def protect(address: int, size: int, *, readable: bool) -> None:
    """Take the right to write, or any access, from whole pages."""
    right = mmap.PROT_READ if readable else 0
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), right):
        raise OSError(ctypes.get_errno(), "mprotect failed")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Arrays that are freed within leave their pages to the next; behind it all are given back.

    The system hands out zeroed pages, which takes as long as the arithmetic on them. glibc alone
    has the calls; elsewhere nothing changes. The process goes on keeping what it frees.
    """
    with suppress(AttributeError):
        for parameter in (_MMAP, _TRIM):
            _libc().mallopt(parameter, _KEPT)
    try:
        yield
    finally:
        with suppress(AttributeError):
            _libc().malloc_trim(0)
