"""Tensor maps (CUtensorMap) from the launch plan, encoded by the driver."""

from __future__ import annotations

import ctypes
from typing import Any

SIZE, ALIGNMENT = 128, 64
_TYPES = {
    "u8": 0, "i8": 0, "e4m3": 0, "bool": 0, "e5m2": 0, "e8m0": 0, "u16": 1, "i16": 1,
    "u32": 2, "i32": 3, "i64": 5, "f16": 6, "f32": 7, "tf32": 7, "f64": 8, "bf16": 9,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


def encode(driver: ctypes.CDLL, pointer: int, parameter: dict[str, Any]) -> Any:
    """The 128 bytes of a map of the tensor at `pointer`, aligned as the driver wants them."""
    rank = len(parameter["dims"])
    room = ctypes.create_string_buffer(SIZE + ALIGNMENT)
    start = -ctypes.addressof(room) % ALIGNMENT
    block = (ctypes.c_char * SIZE).from_buffer(room, start)
    result = driver.cuTensorMapEncodeTiled(
        ctypes.byref(block),
        _TYPES[parameter["dtype"]],
        rank,
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * rank)(*parameter["dims"]),
        (ctypes.c_uint64 * max(1, rank - 1))(*parameter["strides"]),
        (ctypes.c_uint32 * rank)(*parameter["box"]),
        (ctypes.c_uint32 * rank)(*([1] * rank)),
        0,
        _SWIZZLES[parameter["swizzle"]],
        _PROMOTIONS[parameter["l2"]],
        0,
    )
    if result:
        raise RuntimeError(f"tensor map of {parameter['argument']}: CUDA error {result}")
    return block
