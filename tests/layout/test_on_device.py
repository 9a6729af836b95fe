"""The executable meanings against a real device: every mma shape, wgmma through descriptors,
matrix copies and tensor copies. Skipped where there is no CuPy or no device of compute 9.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ir.layout.instructions import CopyRow, MatrixRow, tma
from ir.layout.instructions.descriptor import MODES, Descriptor
from ir.layout.widths import bits
from tests.layout import semantics
from tests.layout.descriptors import canonical, operand_addresses
from tests.layout.patterns import decode, encode
from tests.layout.rows import copying, find_matrix, multiplying
from tests.layout.tensors import footprint

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")


def _is_hopper() -> bool:
    try:
        return str(cupy.cuda.Device(0).compute_capability) == "90"
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


if not _is_hopper():
    pytest.skip("no device of compute capability 9.0", allow_module_level=True)

from tests.layout import device  # noqa: E402

SHARED = 128 * 1024


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    low = 0 if dtype in ("u8", "u4") else -4
    return decode(encode(rng.integers(low, 5, shape), dtype), dtype)


def types_of(row: MatrixRow) -> list[tuple[str, str, str]]:
    return [(row.a.dtype, b, c) for b in row.b.dtypes for c in row.c.dtypes]


@pytest.mark.parametrize("row", multiplying("mma"), ids=lambda row: row.name)
def test_mma(row: MatrixRow) -> None:
    rng = np.random.default_rng(1)
    for types in types_of(row):
        parts = [
            semantics.from_tile(operand, whole(rng, operand.extents, dtype))
            for operand, dtype in zip((row.a, row.b, row.c), types, strict=True)
        ]
        want = semantics.multiply(row, parts[0], parts[1], parts[2], types[2])
        assert np.array_equal(device.mma(row, types, parts[0], parts[1], parts[2]), want), types


def store(memory: NDArray[np.uint8], at: int, form: Any, tile: NDArray[Any]) -> None:
    """Every operand of the tile through the numpy meaning's own descriptors."""
    step = 256 // bits(form.dtype)
    rows_step = form.atom[0] if form.major == "mn" else 8
    for row in range(0, tile.shape[0], rows_step):
        for k in range(0, tile.shape[1], step):
            addresses = operand_addresses(
                form.descriptor(at, row, k), form.major, rows_step, step, form.dtype
            )
            part = tile[row : row + rows_step, k : k + step]
            semantics.write(memory, addresses, part, form.dtype)


WGMMA_CASES = [
    (dtype, a_major, b_major, mode, packed)
    for dtype, majors in (
        ("f16", ("k", "mn")),
        ("bf16", ("k", "mn")),
        ("tf32", ("k",)),
        ("e4m3", ("k",)),
        ("e5m2", ("k",)),
        ("i8", ("k",)),
        ("u8", ("k",)),
    )
    for a_major in majors
    for b_major in majors
    for mode in MODES
    for packed in (("mn", "k") if dtype == "f16" else (None,))
]


@pytest.mark.parametrize(("dtype", "a_major", "b_major", "mode", "packed"), WGMMA_CASES)
def test_wgmma(dtype: str, a_major: str, b_major: str, mode: str, packed: str | None) -> None:
    rng = np.random.default_rng(2)
    step = 256 // bits(dtype)
    span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[mode] * 8 // bits(dtype)
    depth = max(2 * span, 2 * step)
    n = {"none": 24, "32B": 96, "64B": 96, "128B": 192}[mode]
    short = {"i8": "s8"}.get(dtype, dtype)
    row = find_matrix(f"wgmma.m64n{n}k{step}.{short}.ss")
    a, b = whole(rng, (64, depth), dtype), whole(rng, (n, depth), dtype)
    forms = (
        canonical(a_major, mode, 64, depth, dtype, packed),
        canonical(b_major, mode, n, depth, dtype, packed),
    )
    memory = rng.integers(0, 64, SHARED).astype(np.uint8)
    at = (2048, 65536)
    for form, tile, place in zip(forms, (a, b), at, strict=True):
        store(memory, place, form, tile)
    words = [
        [form.descriptor(place, 0, k).encode() for k in range(0, depth, step)]
        for form, place in zip(forms, at, strict=True)
    ]
    kind = row.c.dtype
    c = semantics.from_tile(row.c, whole(rng, row.c.extents, kind))
    want = semantics.from_tile(row.c, a @ b.T) + c
    majors = (a_major, b_major)
    types = (dtype, dtype, kind)
    got = device.wgmma(row, types, memory, words[0], words[1], c, majors)
    assert np.array_equal(got, want)
    if a_major == "k":
        registers = find_matrix(row.name.removesuffix("ss") + "rs")
        held = [semantics.from_tile(registers.a, a[:, k : k + step]) for k in range(0, depth, step)]
        got = device.wgmma(registers, types, memory, held, words[1], c, majors)
        assert np.array_equal(got, want)


RAW_CASES = [
    # major, mode, n, start, leading, stride: random bytes read as they lie
    ("k", "128B", 16, 1024 + 96, 16, 1024),
    ("k", "128B", 16, 384, 16, 1024),
    ("k", "64B", 24, 256, 16, 512),
    ("k", "32B", 24, 128, 16, 256),
    ("k", "none", 24, 48, 272, 144),
    ("k", "none", 40, 128, 128, 256),
    ("mn", "none", 40, 128, 768, 144),
    ("mn", "128B", 24, 1024, 4096, 1024),
    ("mn", "128B", 200, 1024, 4096, 2048),
    ("mn", "64B", 40, 512, 2048, 1536),
    ("mn", "32B", 24, 256, 1024, 512),
]


@pytest.mark.parametrize("case", RAW_CASES, ids=lambda case: "-".join(map(str, case)))
def test_addresses_of_raw_descriptors(case: tuple[str, str, int, int, int, int]) -> None:
    major, mode, n, start, leading, stride = case
    rng = np.random.default_rng(3)
    row = find_matrix(f"wgmma.m64n{n}k16.bf16.rs")
    memory = encode(rng.integers(-8, 9, SHARED // 2), "bf16").view(np.uint8)
    word = Descriptor(start, leading, stride, mode).encode()
    a = semantics.from_tile(row.a, whole(rng, (64, 16), "bf16"))
    zero = np.zeros((128, n // 2))
    want = semantics.multiply_shared(row, memory, a, word, zero, majors=("k", major))
    got = device.wgmma(row, ("bf16", "bf16", "f32"), memory, [a], [word], zero, ("k", major))
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("wgmma.m64n64k16.f16.rs", ("f16", "f16", "f16")),
        ("wgmma.m64n64k32.e4m3.rs", ("e4m3", "e5m2", "f16")),
        ("wgmma.m64n64k32.e5m2.rs", ("e5m2", "e4m3", "f32")),
        ("wgmma.m64n64k32.s8.rs", ("i8", "u8", "i32")),
    ],
)
def test_wgmma_of_mixed_types(name: str, types: tuple[str, str, str]) -> None:
    rng = np.random.default_rng(4)
    row = find_matrix(name)
    a, b = whole(rng, (64, row.k), types[0]), whole(rng, (64, row.k), types[1])
    form = canonical("k", "32B", 64, row.k, types[1])
    memory = np.zeros(SHARED, np.uint8)
    store(memory, 0, form, b)
    word = form.descriptor(0).encode()
    zero = np.zeros((128, 32))
    got = device.wgmma(
        row, types, memory, [semantics.from_tile(row.a, a)], [word], zero, ("k", "k")
    )
    assert np.array_equal(semantics.to_tile(row.c, got), a @ b.T)


@pytest.mark.parametrize(
    "row", [*copying("ldmatrix"), *copying("stmatrix")], ids=lambda row: row.name
)
def test_matrix_copies(row: CopyRow) -> None:
    rng = np.random.default_rng(5)
    memory = rng.integers(0, 256, 4096).astype(np.uint8)
    addresses = rng.permutation(256)[:32] * 16
    words = rng.integers(0, 1 << 32, (32, row.matrices), dtype=np.uint32)
    got_words, got_memory = device.matrix_copy(row, memory, addresses, words)
    if row.kind == "ldmatrix":
        words = semantics.ldmatrix(row, memory, addresses)
    else:
        semantics.stmatrix(row, memory, addresses, words)
    assert np.array_equal(got_words, words)
    assert np.array_equal(got_memory, memory)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", [(0, 0), (128, 20), (192, 40), (-8, -3)])
def test_tma_load(mode: str, coordinates: tuple[int, int]) -> None:
    rng = np.random.default_rng(6)
    inner = {"none": 40, "32B": 16, "64B": 24, "128B": 64}[mode]
    box = tma.TensorMap("f16", (200, 50), (416,), (inner, 32), mode)
    memory = rng.integers(1, 256, 16 + 50 * 416).astype(np.uint8)
    want = np.full(1024 + footprint(box) + 256, 255, np.uint8)
    semantics.tma_load(box, memory, 16, want, 1024, coordinates)
    assert np.array_equal(device.tma_load(box, memory, 16, 1024, coordinates), want)


LIMITS: list[dict[str, Any]] = [
    {},
    {"box": (257, 32), "mode": "none"},
    {"box": (256, 256), "mode": "none"},
    {"box": (72, 32)},
    {"box": (64, 32), "mode": "64B"},
    {"box": (12, 32)},
    {"strides": (408,)},
    {"box": (64, 0)},
    {"extents": (0, 50)},
    {"strides": (1 << 40,)},
    {"box": (24, 32), "mode": "64B"},
    {"box": (8, 32), "mode": "32B"},
    {"box": (40, 32), "mode": "64B"},
]


@pytest.mark.parametrize("changes", LIMITS, ids=str)
@pytest.mark.parametrize("base", [0, 8])
def test_the_driver_refuses_what_we_refuse(changes: dict[str, Any], base: int) -> None:
    fields: dict[str, Any] = {
        "dtype": "f16",
        "extents": (200, 50),
        "strides": (416,),
        "box": (64, 32),
        "mode": "128B",
    }
    tensor = tma.TensorMap(**(fields | changes))
    room = cupy.zeros(1 << 16, cupy.uint8)
    legal = isinstance(device.encode_map(tensor, room.data.ptr + base), np.ndarray)
    assert legal == (not tma.refusals(tensor, base))
