"""Descriptors: every bit of the word, the canonical forms, and wgmma reading through them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ir.layout.errors import LayoutError
from ir.layout.instructions import tma
from ir.layout.instructions.descriptor import (
    MODES,
    Descriptor,
)
from ir.layout.instructions.rows import MatrixRow
from ir.layout.widths import bits
from tests.layout import semantics
from tests.layout.descriptors import (
    CanonicalForm,
    canonical,
    canonical_forms,
    decode,
    element_swizzle,
    operand_addresses,
    swizzle_addresses,
)
from tests.layout.patterns import decode as values_of
from tests.layout.patterns import encode as patterns_of
from tests.layout.rows import find_matrix
from tests.layout.tensors import box_bytes

SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
LINES_A_TURN = {"none": 0, "32B": 4, "64B": 2, "128B": 1}


def turn(mode: str, line: int) -> int:
    """What the 16-byte chunks of a line of span bytes are turned by: chunk c is at c ^ turn."""
    every = LINES_A_TURN[mode]
    return line // every % (8 // every) if every else 0


def stored_in_panels(tile: NDArray[Any], dtype: str, mode: str) -> NDArray[np.uint8]:
    """Bytes of a tile [line, contiguous axis] cut into panels of a mode's span, chunks turned.

    Written from the picture in the PTX ISA, with loops; knows nothing of layouts.
    """
    octets = np.ascontiguousarray(patterns_of(tile, dtype)).view(np.uint8)
    lines, span = len(tile), SPAN[mode]
    memory = np.zeros(octets.size, np.uint8)
    for panel in range(octets.shape[1] // span):
        for line in range(lines):
            for chunk in range(span // 16):
                source = octets[line, panel * span + 16 * chunk :][:16]
                place = (panel * lines + line) * span + 16 * (chunk ^ turn(mode, line))
                memory[place : place + 16] = source
    return memory


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    low = 0 if dtype == "u8" else -4
    return values_of(patterns_of(rng.integers(low, 5, shape), dtype), dtype)


def place(memory: NDArray[np.uint8], at: int, octets: NDArray[np.uint8]) -> None:
    memory[at : at + octets.size] = octets


def product(
    row: MatrixRow,
    memory: NDArray[np.uint8],
    forms: tuple[CanonicalForm | NDArray[Any], CanonicalForm],
    at: tuple[int, int],
    depth: int,
) -> NDArray[Any]:
    """All k steps of a tile, every shared operand through an encoded descriptor."""
    d = semantics.from_tile(row.c, np.zeros((row.m, row.n)))
    for k in range(0, depth, row.k):
        a, b = forms
        first = (
            semantics.from_tile(row.a, a[:, k : k + row.k])
            if isinstance(a, np.ndarray)
            else a.descriptor(at[0], 0, k).encode()
        )
        second = b.descriptor(at[1], 0, k).encode()
        majors = ("k" if isinstance(a, np.ndarray) else a.major, b.major)
        d = semantics.multiply_shared(row, memory, first, second, d, majors=majors)
    return semantics.to_tile(row.c, d)


CASES = [
    (dtype, a_major, b_major, mode)
    for dtype, majors in (
        ("f16", ("k", "mn")),
        ("bf16", ("k", "mn")),
        ("tf32", ("k",)),
        ("e4m3", ("k",)),
        ("u8", ("k",)),
        ("i8", ("k",)),
    )
    for a_major in majors
    for b_major in majors
    for mode in MODES
]


@pytest.mark.parametrize(("dtype", "a_major", "b_major", "mode"), CASES)
def test_wgmma_through_descriptors_multiplies(
    dtype: str, a_major: str, b_major: str, mode: str
) -> None:
    """The tile is stored by an independent writer, k spans two atoms of the swizzle."""
    rng = np.random.default_rng(11)
    step = 256 // bits(dtype)
    depth = max(2 * SPAN[mode] * 8 // bits(dtype), 2 * step)
    n = {"none": 24, "32B": 96, "64B": 96, "128B": 192}[mode]
    short = {"i8": "s8"}.get(dtype, dtype)
    row = find_matrix(f"wgmma.m64n{n}k{step}.{short}.ss")
    a, b = (whole_numbers(rng, (rows, depth), dtype) for rows in (64, n))
    forms = (canonical(a_major, mode, 64, depth, dtype), canonical(b_major, mode, n, depth, dtype))
    memory = rng.integers(0, 256, 1 << 18).astype(np.uint8)
    at = (2048, 1 << 17)
    for form, tile, start in zip(forms, (a, b), at, strict=True):
        lines = tile if form.major == "k" else tile.T
        place(memory, start, stored_in_panels(lines, dtype, mode))
    assert np.array_equal(product(row, memory, forms, at, depth), a @ b.T)
    registers = find_matrix(row.name.removesuffix("ss") + "rs")
    assert np.array_equal(product(registers, memory, (a, forms[1]), at, depth), a @ b.T)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_wgmma_of_every_n(n: int) -> None:
    rng = np.random.default_rng(n)
    row = find_matrix(f"wgmma.m64n{n}k16.bf16.ss")
    a, b = whole_numbers(rng, (64, 16), "bf16"), whole_numbers(rng, (n, 16), "bf16")
    forms = (canonical("mn", "128B", 64, 16, "bf16"), canonical("mn", "none", n, 16, "bf16"))
    memory = np.zeros(1 << 14, np.uint8)
    place(memory, 0, stored_in_panels(a.T, "bf16", "128B"))
    place(memory, 4096, stored_in_panels(b.T, "bf16", "none"))
    assert np.array_equal(product(row, memory, forms, (0, 4096), 16), a @ b.T)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("packed", ["mn", "k"])
def test_both_packings_of_atoms_are_read_back(mode: str, major: str, packed: str) -> None:
    """Stored through layout and swizzle in elements, read through descriptors in bytes."""
    rng = np.random.default_rng(13)
    rows, depth = 128, 128
    form = canonical(major, mode, rows, depth, "f16", packed)
    tile = whole_numbers(rng, (rows, depth), "f16")
    offsets = np.array([form.swizzle(int(offset)) for offset in form.layout.offsets()])
    assert sorted(offsets.tolist()) == list(range(rows * depth))
    memory = np.zeros(2 * form.bytes, np.uint8)
    semantics.write(memory, 4096 + 2 * offsets, tile.T.reshape(-1), "f16")
    for row in range(0, rows, max(64, form.atom[0])):
        for k in range(0, depth, 16):
            addresses = operand_addresses(form.descriptor(4096, row, k), major, 64, 16, "f16")
            got = semantics.read(memory, addresses, "f16")
            assert np.array_equal(got, tile[row : row + 64, k : k + 16])


def test_descriptor_fields_of_the_usual_tiles() -> None:
    """Strides in bytes as hand-written kernels have them."""
    assert canonical("k", "128B", 128, 64, "f16").descriptor(0) == Descriptor(0, 16, 1024, "128B")
    assert canonical("k", "64B", 128, 32, "f16").stride == 512
    assert canonical("k", "32B", 128, 32, "e4m3").stride == 256
    none = canonical("k", "none", 64, 16, "bf16", "k")
    assert (none.leading, none.stride) == (128, 256)
    columns = canonical("mn", "128B", 256, 64, "bf16")
    assert (columns.leading, columns.stride) == (64 * 128, 1024)
    plain = canonical("mn", "none", 64, 16, "f16")
    assert (plain.leading, plain.stride) == (128, 256)
    steps = [canonical("k", "128B", 64, 128, "f16").start(0, k) for k in range(0, 128, 16)]
    assert steps == [0, 32, 64, 96, 8192, 8224, 8256, 8288]
    assert [columns.start(0, k) for k in (0, 16, 32)] == [0, 2048, 4096]


def test_a_tma_box_is_what_wgmma_reads() -> None:
    rng = np.random.default_rng(17)
    row = find_matrix("wgmma.m64n128k16.bf16.ss")
    a, b = whole_numbers(rng, (64, 64), "bf16"), whole_numbers(rng, (64, 128), "bf16")
    memory = np.zeros(1 << 16, np.uint8)
    for tile, start in ((a, 0), (b, 16384)):
        stored = patterns_of(tile, "bf16").view(np.uint8).reshape(-1)
        extents = tile.shape[::-1]
        box, counts = (64, 64), (extents[0] // 64, 1)
        tensor = tma.TensorMap("bf16", extents, (2 * extents[0],), box, "128B")
        for panel in range(counts[0]):
            at = start + panel * box_bytes(tensor)
            semantics.tma_load(tensor, stored, 0, memory, at, (panel * box[0], 0))
    forms = (canonical("k", "128B", 64, 64, "bf16"), canonical("mn", "128B", 128, 64, "bf16"))
    assert np.array_equal(product(row, memory, forms, (0, 16384), 64), a @ b)


def test_mixed_types_are_read_as_they_are() -> None:
    rng = np.random.default_rng(23)
    row = find_matrix("wgmma.m64n16k32.e4m3.ss")
    a, b = rng.integers(-4, 5, (64, 32)), rng.integers(-4, 5, (16, 32))
    memory = np.concatenate(
        [stored_in_panels(a, "e4m3", "32B"), stored_in_panels(b, "e5m2", "32B")]
    )
    first, second = (
        canonical("k", "32B", rows, 32, "e4m3").descriptor(at).encode()
        for rows, at in ((64, 0), (16, 2048))
    )
    zero = np.zeros((128, 8))
    d = semantics.multiply_shared(row, memory, first, second, zero, dtypes=("e4m3", "e5m2"))
    rounded = values_of(patterns_of(b, "e5m2"), "e5m2")
    assert np.array_equal(semantics.to_tile(row.c, d), a @ rounded.T)
    with pytest.raises(LayoutError, match="f16: legal are e4m3, e5m2"):
        semantics.multiply_shared(row, memory, first, second, zero, dtypes=("e4m3", "f16"))


@given(
    start=st.integers(0, 0x3FFF),
    leading=st.integers(0, 0x3FFF),
    stride=st.integers(0, 0x3FFF),
    mode=st.sampled_from(MODES),
)
def test_encoding_round_trips(start: int, leading: int, stride: int, mode: str) -> None:
    descriptor = Descriptor(16 * start, 16 * leading, 16 * stride, mode)
    word = descriptor.encode()
    assert 0 <= word < 1 << 64
    assert decode(word) == descriptor
    assert (word & 0x3FFF, word >> 16 & 0x3FFF, word >> 32 & 0x3FFF) == (start, leading, stride)
    assert word >> 62 == {"none": 0, "128B": 1, "64B": 2, "32B": 3}[mode]


@given(st.integers(-(1 << 70), 1 << 70))
def test_any_word_decodes_or_is_refused(word: int) -> None:
    with contextlib.suppress(LayoutError):
        assert decode(word).encode() == word


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ((8, 16, 16, "none"), "start of 8 bytes is no multiple of 16"),
        ((0, 24, 16, "none"), "leading of 24 bytes"),
        ((0, 16, 1 << 18, "128B"), "stride of 262144 bytes: its field ends at 262144"),
        ((-16, 16, 16, "128B"), "start of -16 bytes"),
        ((0, 16, 16, "256B"), "'256B': known are none, 32B, 64B, 128B"),
    ],
)
def test_refused_fields(fields: tuple[Any, ...], numbers: str) -> None:
    with pytest.raises(LayoutError, match=numbers):
        Descriptor(*fields)


@pytest.mark.parametrize("bit", [14, 15, 30, 46, 52, 61, 64])
def test_reserved_bits_are_refused(bit: int) -> None:
    with pytest.raises(LayoutError) as caught:
        decode(1 << bit)
    assert caught.value.code == "descriptor-reserved"


@pytest.mark.parametrize(
    ("arguments", "code", "numbers"),
    [
        (("mn", "128B", 64, 64, "tf32"), "illegal-major", "32 bits"),
        (("mn", "none", 64, 64, "e4m3"), "illegal-major", "8 bits"),
        (("k", "128B", 64, 32, "f16"), "atom-does-not-divide", "k extent 32: .* spans 64"),
        (("mn", "128B", 96, 64, "f16"), "atom-does-not-divide", "mn extent 96: .* spans 64"),
        (("k", "none", 60, 64, "f16"), "atom-does-not-divide", "mn extent 60: .* spans 8"),
        (("k", "none", 64, 0, "f16"), "atom-does-not-divide", "k extent 0"),
        (("k", "16B", 64, 64, "f16"), "unknown-swizzle-mode", "16B"),
    ],
)
def test_refused_forms(arguments: tuple[Any, ...], code: str, numbers: str) -> None:
    with pytest.raises(LayoutError, match=numbers) as caught:
        canonical(*arguments)
    assert caught.value.code == code


def test_all_forms_of_a_tile() -> None:
    """A form is one function of the tile, so both packings of a single atom are one form."""

    def kinds(*arguments: Any) -> list[tuple[str, str]]:
        return [(form.major, form.mode) for form in canonical_forms(*arguments)]

    assert kinds(64, 32, "tf32")[0] == ("k", "128B")
    assert {major for major, _ in kinds(64, 32, "tf32")} == {"k"}
    assert set(kinds(24, 16, "f16")) == {("k", "32B"), ("k", "none"), ("mn", "none")}
    assert (
        kinds(8, 64, "f16").count(("k", "128B")) == kinds(64, 64, "f16").count(("k", "128B")) == 1
    )
    assert kinds(16, 128, "f16").count(("k", "128B")) == 2
    assert kinds(60, 64, "f16") == []
    for form in canonical_forms(128, 128, "bf16"):
        assert sorted(form.layout.offsets().tolist()) == list(range(128 * 128))


def test_refused_starts() -> None:
    form = canonical("k", "128B", 128, 128, "f16")
    for row, k, numbers in ((4, 0, "row 4: .* 8 below 128"), (0, 8, "k 8: .* 16 below 128"),
                            (128, 0, "row 128"), (0, -16, "k -16")):  # fmt: skip
        with pytest.raises(LayoutError, match=numbers):
            form.start(row, k)
    with pytest.raises(LayoutError, match="tile at 512: mode 128B is aligned to 1024"):
        form.descriptor(512)
    columns = canonical("mn", "64B", 128, 64, "f16")
    with pytest.raises(LayoutError, match=r"row 8: .* 32 below 128"):
        columns.start(8, 0)


@pytest.mark.parametrize("mode", MODES)
def test_byte_and_element_swizzles_agree_and_repeat(mode: str) -> None:
    addresses = np.arange(4096)
    swizzled = swizzle_addresses(addresses, mode)
    assert sorted(swizzled.tolist()) == addresses.tolist()
    span = SPAN[mode]
    for address in range(0, 4096, 16):
        line, chunk = divmod(address, span)
        assert swizzled[address] == line * span + 16 * (chunk // 16 ^ turn(mode, line))
    repeat = 8 * span
    assert np.array_equal(swizzled[repeat : 2 * repeat], swizzled[:repeat] + repeat)
    for dtype in ("tf32", "f16", "e4m3"):
        width = bits(dtype) // 8
        swizzle = element_swizzle(mode, dtype)
        inside = [swizzle(int(offset)) * width for offset in range(4096 // width)]
        assert inside == swizzled[::width].tolist()


def test_a_descriptor_for_a_register_operand_is_refused() -> None:
    row = find_matrix("wgmma.m64n16k16.f16.rs")
    with pytest.raises(LayoutError, match="descriptor for a register operand"):
        semantics.multiply_shared(row, np.zeros(1, np.uint8), 0, 0, np.zeros((128, 8)))
    with pytest.raises(LayoutError, match="B is in shared memory"):
        semantics.multiply(row, np.zeros((128, 8)), np.zeros((128, 8)), np.zeros((128, 8)))
