"""Room for outputs: whose memory it is, when it comes back, and how much of it is kept."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from explorer.exporters.outputs import _KEPT, _Block, _Room, text

MIB = 1 << 20


def address(array: Any) -> int:
    found: int = array.ctypes.data
    return found


def test_arrays_in_use_share_nothing_and_dead_ones_are_used_again() -> None:
    room = _Room((512, 300), "float32")
    first, second = room.array(), room.array()
    assert first.shape == (512, 300)
    assert first.dtype == np.float32
    assert not np.shares_memory(first, second)
    first[...], second[...] = 1, 2
    assert (first == 1).all()
    view, there = first[3:, ::2], address(first)
    del first
    assert address(room.array()) != there, "a view is still in use"
    del view
    gc.collect()
    assert address(room.array()) == there


@pytest.mark.parametrize("shape", [(1,), (), (0, 4), (128, 127)])
def test_small_ones_are_numpys_own(shape: tuple[int, ...]) -> None:
    assert _Room(shape, "float32").array().flags.owndata


@pytest.mark.parametrize("size", [70_000, MIB, 2 * MIB, 5 * MIB + 64])
def test_blocks_are_aligned_and_whole(size: int) -> None:
    array = _Room((size,), "uint8").array()
    assert address(array) % ((2 if size >= MIB else 1 / 256) * MIB) == 0
    array[...] = 7
    array.base.block.release()
    array[-1] = 8
    assert array[-1] == 8


def test_no_more_than_a_few_are_kept() -> None:
    room = _Room((MIB // 8,), "uint8")
    arrays = [room.array() for _ in range(_KEPT + 3)]
    assert not room.free
    arrays.clear()
    gc.collect()
    assert len(room.free) == _KEPT


def test_threads_never_get_the_same_block() -> None:
    room, wrong = _Room((MIB // 8,), "uint8"), []

    def work(mark: int) -> None:
        for _ in range(200):
            array = room.array()
            array[::4096] = mark
            if not (array[::4096] == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(room.free) <= _KEPT


def test_a_system_that_refuses_advice_loses_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: _Block) -> None:
        raise OSError(12, "no")

    monkeypatch.setattr(_Block, "release", refuse)
    room = _Room((MIB,), "uint8")
    kept = [room.array(), room.array()]
    kept.clear()
    gc.collect()
    assert len(room.free) == 1, "the one for a loop is not given back"


def test_text_stands_alone() -> None:
    namespace: dict[str, Any] = {}
    source = "from __future__ import annotations\nimport mmap\nimport numpy as np\n"
    exec(f"{source}from collections import deque\n{text()}", namespace)
    assert namespace["_Room"]((4, 4), "int64").array().nbytes == 128
