"""Tensor maps: what a box copies, where it lands, and every limit with its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.layout.errors import LayoutError
from ir.layout.instructions import tma
from tests.layout import semantics
from tests.layout.tensors import check_map


def tensor(**changes: Any) -> tma.TensorMap:
    fields: dict[str, Any] = {
        "dtype": "f16",
        "extents": (200, 50),
        "strides": (416,),
        "box": (64, 32),
        "mode": "128B",
    }
    return tma.TensorMap(**(fields | changes))


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("coordinates", [(0, 0), (128, 20), (192, 40), (-8, -3)])
def test_tma_loads_a_box_zero_filled_and_swizzled(mode: str, coordinates: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    span = {"none": 64, "32B": 16, "64B": 32, "128B": 64}[mode]
    box = tensor(mode=mode, box=(span, 32))
    stored = rng.integers(1, 1000, (50, 208)).astype(np.uint16)
    memory = np.concatenate([np.zeros(16, np.uint8), stored.view(np.uint8).reshape(-1)])
    shared = np.full(16384, 255, np.uint8)
    counted = semantics.tma_load(box, memory, 16, shared, 1024, coordinates)
    assert counted == span * 32 * 2
    padded = np.zeros((50 + 96, 200 + 256), np.uint16)
    padded[48:98, 128:328] = stored[:, :200]
    column, line = coordinates[0] + 128, coordinates[1] + 48
    want = padded[line : line + 32, column : column + span].copy()
    octets = want.view(np.uint8).reshape(32, -1)
    phases = {"none": 0, "32B": 4, "64B": 2, "128B": 1}[mode]
    for row in range(32):
        for chunk in range(octets.shape[1] // 16):
            turn = row // phases % (8 // phases) if phases else 0
            at = 1024 + row * octets.shape[1] + (chunk ^ turn) * 16
            assert np.array_equal(shared[at : at + 16], octets[row, 16 * chunk : 16 * chunk + 16])
    assert (shared[:1024] == 255).all()
    assert (shared[1024 + counted :] == 255).all()
    target = np.zeros_like(memory)
    semantics.tma_store(box, target, 16, shared, 1024, coordinates)
    inside = np.zeros((50, 208), bool)
    columns = slice(max(0, coordinates[0]), max(0, min(200, coordinates[0] + span)))
    inside[max(0, coordinates[1]) : coordinates[1] + 32, columns] = True
    assert np.array_equal(target[16:].view(np.uint16).reshape(50, 208), stored * inside)


def test_tma_adds() -> None:
    box = tensor(dtype="f32", mode="none", extents=(8, 4), strides=(32,), box=(8, 4))
    memory = np.arange(32, dtype=np.float32).view(np.uint8).copy()
    shared = np.ones(32, np.float32).view(np.uint8)
    semantics.tma_store(box, memory, 0, shared, 0, (0, 1), add=True)
    want = np.arange(32, dtype=np.float32) + np.repeat([0, 1], [8, 24])
    assert np.array_equal(memory.view(np.float32), want)
    bytes_only = tensor(dtype="u8", mode="none", extents=(32, 4), strides=(32,), box=(32, 4))
    with pytest.raises(LayoutError, match="adding u8"):
        semantics.tma_store(bytes_only, memory, 0, shared, 0, (0, 0), add=True)


@pytest.mark.parametrize(
    ("changes", "at", "code", "numbers"),
    [
        ({"box": (257, 32), "mode": "none"}, 0, "tma-box", "257, legal are 1 to 256"),
        ({"box": (64, 0)}, 0, "tma-box", "0, legal are 1 to 256"),
        ({"box": (72, 32)}, 0, "tma-box", "144 bytes, swizzle 128B spans 128"),
        ({"box": (64, 32), "mode": "64B"}, 0, "tma-box", "128 bytes, swizzle 64B spans 64"),
        ({"box": (12, 32)}, 0, "tma-box", "24 bytes, no multiple of 16"),
        ({"strides": (408,)}, 0, "tma-stride", "408 bytes, no multiple of 16"),
        ({"strides": (1 << 40,)}, 0, "tma-stride", "1099511627776, legal"),
        ({"extents": (0, 50)}, 0, "tma-extent", "0, legal are 1 to 4294967296"),
        ({}, 8, "tma-alignment", "global address 8, no multiple of 16"),
        ({"dtype": "i4"}, 0, "tma-dtype", "i4 of 4 bits"),
        ({"box": (64,)}, 0, "tma-rank", "box has 1 entries, rank 2"),
        ({"extents": (8,) * 6}, 0, "tma-rank", "rank 6: 1 to 5"),
    ],
)
def test_tma_limits(changes: dict[str, Any], at: int, code: str, numbers: str) -> None:
    errors = tma.refusals(tensor(**changes), at)
    assert errors[0].code == code
    assert numbers in str(errors[0])
    with pytest.raises(LayoutError) as caught:
        check_map(tensor(**changes), at)
    assert caught.value.code == code
