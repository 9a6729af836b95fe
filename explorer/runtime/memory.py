"""Host memory for operands and workspaces: 64-byte aligned, on huge pages if large, guarded ends.

Knows numpy and the operating system's memory calls; no kernel.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from math import prod

import numpy as np

from explorer.runtime.base import Array
from ir.dtypes import numpy_dtype

LINE = 64
PAGE = mmap.PAGESIZE
HUGE = 2 << 20


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
    mapping = mmap.mmap(-1, pages + PAGE + (HUGE if huge else 0))
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


def protect(address: int, size: int, *, readable: bool) -> None:
    """Take the right to write, or any access, from whole pages."""
    right = mmap.PROT_READ if readable else 0
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), right):
        raise OSError(ctypes.get_errno(), "mprotect failed")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
