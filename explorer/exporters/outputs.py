"""Room for a kernel's outputs: aligned, on huge pages if large, used again once arrays on it die.

A fresh array costs a page fault for every page of it, which takes as long as many a kernel. Below
the line its text is part of exported modules, so that it knows numpy and the system's memory alone.
"""

from __future__ import annotations

import mmap
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np


def text() -> str:
    """What exported modules have of this file."""
    return Path(__file__).read_text(encoding="utf-8").partition(_LINE)[2].strip()


def room(shape: tuple[int, ...], stored: str) -> Any:
    """An output as an exported module makes it for itself."""
    return _Room(shape, stored).array()


_LINE = "# --- the text of exported modules " + 63 * "-" + "\n"

# --- the text of exported modules ---------------------------------------------------------------


_SMALL = 64 << 10  # bytes up to which numpy's own memory is used again as it is
_HUGE = 2 << 20
_KEPT = 2  # free blocks of an output: a loop has one, two threads have two


class _Room:
    """Outputs of one shape and dtype. No lock: every step on the deque is atomic."""

    def __init__(self, shape: tuple[int, ...], stored: str) -> None:
        self.dtype = np.dtype(stored)
        self.shape = shape
        self.bytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self.free: deque[_Block] = deque(maxlen=_KEPT)

    def array(self) -> Any:
        """An array with any content, whose memory comes back when nothing refers to it."""
        if self.bytes < _SMALL:
            return np.empty(self.shape, self.dtype)
        try:
            block = self.free.pop()
        except IndexError:
            block = _Block(self.bytes)
        return np.asarray(_Loan(self, block))


class _Block:
    """A mapping of its own, which ends with this value."""

    def __init__(self, size: int) -> None:
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        huge = 2 * size >= _HUGE  # no more than half of a page is wasted
        room = -(-pages // _HUGE) * _HUGE + _HUGE if huge else pages
        self.mapping = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            self.mapping.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(self.mapping, np.uint8).ctypes.data
        self.offset = -start % _HUGE if huge else 0
        self.address = start + self.offset
        # The system may take what is not in use; a page that is split for that would be slower.
        self.whole = -(-size // _HUGE) * _HUGE if size >= _HUGE else 0

    def release(self) -> None:
        """Let the system have the pages if it wants them; else they stay as they are.

        A tenth of the time of a kernel that streams them, in pages whose state changes.
        """
        if self.whole and hasattr(mmap, "MADV_FREE"):
            self.mapping.madvise(mmap.MADV_FREE, self.offset, self.whole)


class _Loan:
    """What arrays on a block refer to."""

    __slots__ = ("__array_interface__", "block", "room")

    def __init__(self, room: _Room, block: _Block) -> None:
        self.room, self.block = room, block
        self.__array_interface__ = {
            "version": 3,
            "shape": room.shape,
            "typestr": room.dtype.str,
            "data": (block.address, False),
        }

    def __del__(self) -> None:
        try:
            if self.room.free:  # the one that a loop needs stays as it is: to mark it takes time
                self.block.release()
            self.room.free.append(self.block)
        except Exception:  # noqa: BLE001 (the interpreter ends, or the system refuses: the block just goes)
            pass
