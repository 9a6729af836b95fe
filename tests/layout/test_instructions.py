"""Instruction rows: against PTX's index formulas, and what they compute against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ir.layout.errors import LayoutError
from ir.layout.instructions import (
    CopyRow,
    MatrixRow,
    find,
    matrix_rows,
)
from ir.layout.instructions.rows import Operand, copies
from ir.layout.layout import Layout
from ir.layout.widths import bits
from tests.layout import semantics
from tests.layout.patterns import decode, encode, unpack
from tests.layout.rows import copying, find_copy, find_matrix, multiplying

Index = Callable[[int, int, int], tuple[int, int]]
"""(group, q, i) -> (row, column) as the PTX ISA writes it: group = lane / 4, q = lane % 4."""

A_INDEX: dict[tuple[int, int], Index] = {
    (16, 8): lambda g, q, i: (g if i < 2 else g + 8, 2 * q + (i & 1)),
    (16, 16): lambda g, q, i: (
        g if i < 2 or 4 <= i < 6 else g + 8,
        2 * q + (i & 1) + (8 if i >= 4 else 0),
    ),
    (32, 4): lambda g, q, i: (g if i == 0 else g + 8, q),
    (32, 8): lambda g, q, i: (g if i in (0, 2) else g + 8, q if i in (0, 1) else q + 4),
    (8, 16): lambda g, q, i: (g if i < 4 else g + 8, 4 * q + (i & 3)),
    (8, 32): lambda g, q, i: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        4 * q + (i & 3) + (16 if i >= 8 else 0),
    ),
    (4, 32): lambda g, q, i: (g if i < 8 else g + 8, 8 * q + (i & 7)),
    (4, 64): lambda g, q, i: (
        g if i < 8 or 16 <= i < 24 else g + 8,
        8 * q + (i & 7) + (32 if i >= 16 else 0),
    ),
}
B_INDEX: dict[tuple[int, int], Index] = {
    # PTX writes (row = k, column = n)
    (16, 8): lambda g, q, i: (2 * q + i, g),
    (16, 16): lambda g, q, i: (2 * q + (i & 1) + (8 if i >= 2 else 0), g),
    (32, 4): lambda g, q, i: (q, g),
    (32, 8): lambda g, q, i: (q if i == 0 else q + 4, g),
    (8, 16): lambda g, q, i: (4 * q + i, g),
    (8, 32): lambda g, q, i: (4 * q + (i & 3) + (16 if i >= 4 else 0), g),
    (4, 32): lambda g, q, i: (8 * q + i, g),
    (4, 64): lambda g, q, i: (8 * q + (i & 7) + (32 if i >= 8 else 0), g),
}
A_VALUES = {(16, 8): 4, (16, 16): 8, (32, 4): 2, (32, 8): 4, (8, 16): 8, (8, 32): 16, (4, 32): 16,
            (4, 64): 32}  # fmt: skip

MMA, WGMMA = (multiplying(kind) for kind in ("mma", "wgmma"))
MATRIX_COPIES = (*copying("ldmatrix"), *copying("stmatrix"))


def names(found: tuple[Any, ...]) -> list[str]:
    return [row.name for row in found]


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Whole numbers that every type holds exactly, so that sums are exact in any order."""
    low = 0 if dtype in ("u8", "u4") else -4
    values = rng.integers(low, 5, shape)
    return decode(encode(values, dtype), dtype)


def expect_index(
    layout: Layout, threads: int, values: int, want: Callable[[int, int], int]
) -> None:
    for thread in range(threads):
        for value in range(values):
            assert layout((thread, value)) == want(thread, value), (thread, value)


@pytest.mark.parametrize("row", MMA, ids=lambda row: row.name)
def test_mma_fragments_are_those_of_the_ptx_formulas(row: MatrixRow) -> None:
    key = (bits(row.a.dtype), row.k)

    def at_a(lane: int, i: int) -> int:
        m, k = A_INDEX[key](lane // 4, lane % 4, i)
        return m + 16 * k

    def at_b(lane: int, i: int) -> int:
        k, n = B_INDEX[key](lane // 4, lane % 4, i)
        return n + 8 * k

    def at_c(lane: int, i: int) -> int:
        m = lane // 4 if i < 2 else lane // 4 + 8
        return m + 16 * (2 * (lane % 4) + (i & 1))

    assert (row.m, row.n) == (16, 8)
    expect_index(row.a.layout, 32, A_VALUES[key], at_a)
    expect_index(row.b.layout, 32, A_VALUES[key] // 2, at_b)
    expect_index(row.c.layout, 32, 4, at_c)
    assert row.a.layout.size == 32 * A_VALUES[key]


def test_every_mma_that_the_issue_of_a_kernel_may_name_is_there() -> None:
    due = {
        f"mma.m16n8k{k}.{dtype}"
        for dtypes, depths in (
            (("f16", "bf16"), (8, 16)),
            (("tf32",), (4, 8)),
            (("s8", "u8", "e4m3", "e5m2"), (16, 32)),
            (("s4", "u4"), (32, 64)),
        )
        for dtype in dtypes
        for k in depths
    }
    assert due == set(names(MMA))


@pytest.mark.parametrize("n", [8, 24, 80, 168, 216, 256])
def test_wgmma_accumulator_is_that_of_the_ptx_formula(n: int) -> None:
    row = find_matrix(f"wgmma.m64n{n}k16.bf16.ss")
    t, i = np.arange(128)[:, None], np.arange(n // 2)[None, :]
    m = 16 * (t // 32) + t % 32 // 4 + 8 * (i // 2 % 2)
    column = 8 * (i // 4) + 2 * (t % 4) + i % 2
    assert np.array_equal(semantics.table(row.c.layout), m + 64 * column)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("wgmma.m64n64k16.f16.rs", (16, 16)),
        ("wgmma.m64n64k8.tf32.rs", (32, 8)),
        ("wgmma.m64n64k32.e4m3.rs", (8, 32)),
    ],
)
def test_wgmma_register_operand_is_one_mma_fragment_a_warp(name: str, key: tuple[int, int]) -> None:
    row = find_matrix(name)

    def at(thread: int, i: int) -> int:
        lane = thread % 32
        m, k = A_INDEX[key](lane // 4, lane % 4, i)
        return 16 * (thread // 32) + m + 64 * k

    expect_index(row.a.layout, 128, A_VALUES[key], at)


def test_wgmma_has_every_legal_n_and_no_other() -> None:
    def extents(dtype: str) -> list[int]:
        return [row.n for row in WGMMA if row.a.dtype == dtype and row.name.endswith(".ss")]

    for dtype in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
        assert extents(dtype) == list(range(8, 257, 8))
    for dtype in ("i8", "u8"):
        assert len(extents(dtype)) == 18
        assert not {40, 56, 72, 248} & set(extents(dtype))
    assert len(WGMMA) == 2 * (5 * 32 + 2 * 18)


def test_only_sixteen_bit_operands_may_be_mn_major() -> None:
    for row in WGMMA:
        legal = ("k", "mn") if row.a.dtype in ("f16", "bf16") else ("k",)
        assert row.b.majors == legal
        assert row.a.majors == (legal if row.name.endswith(".ss") else ())


@pytest.mark.parametrize("row", MMA, ids=lambda row: row.name)
def test_register_rows_multiply(row: MatrixRow) -> None:
    rng = np.random.default_rng(1)
    for a_type in row.a.dtypes:
        for b_type in row.b.dtypes:
            a = small(rng, (row.m, row.k), a_type)
            b = small(rng, (row.n, row.k), b_type)
            c = small(rng, (row.m, row.n), row.c.dtype)
            d = semantics.multiply(
                row,
                semantics.from_tile(row.a, a),
                semantics.from_tile(row.b, b),
                semantics.from_tile(row.c, c),
            )
            assert np.array_equal(semantics.to_tile(row.c, d), a @ b.T + c)


def test_accumulators_round_once_and_integers_wrap() -> None:
    row = find_matrix("mma.m16n8k16.f16")
    a, b = np.ones((32, 8)), np.ones((32, 4))
    c = np.full((32, 4), 2048.0)
    assert semantics.multiply(row, a, b, c, "f16").max() == 2064.0
    assert semantics.multiply(row, a, b, c + 1.0, "f32").max() == 2065.0
    assert semantics.multiply(row, a, b, c + 1.0, "f16").max() == 2064.0
    integers = find_matrix("mma.m16n8k32.s8")
    top = np.full((32, 4), 2**31 - 1)
    wrapped = semantics.multiply(integers, np.ones((32, 16)), np.ones((32, 8)), top)
    assert wrapped.max() == -(2**31) + 31
    with pytest.raises(LayoutError, match=r"bf16.* into f16"):
        semantics.multiply(find_matrix("mma.m16n8k16.bf16"), a, b, c, "f16")


def test_two_accumulators_are_the_next_a_fragment_in_sixteen_bits_but_not_in_eight() -> None:
    mma = find_matrix("mma.m16n8k16.bf16")
    accumulators = np.concatenate(
        [semantics.table(mma.c.layout), semantics.table(mma.c.layout) + 128], axis=1
    )
    assert np.array_equal(accumulators, semantics.table(mma.a.layout))
    narrow = find_matrix("mma.m16n8k32.e4m3")
    four = np.concatenate(
        [semantics.table(narrow.c.layout) + 128 * tile for tile in range(4)], axis=1
    )
    own = semantics.table(narrow.a.layout)
    assert {*four[1].tolist()} != {*own[1].tolist()}


def test_every_row_covers_its_tile_by_brute_force() -> None:
    for row in (*MMA, *WGMMA[:: max(1, len(WGMMA) // 24)]):
        for operand in (row.a, row.b, row.c):
            hits = np.bincount(operand.layout.offsets())
            held = operand.layout.size // (operand.extents[0] * operand.extents[1])
            assert hits.tolist() == [held] * (operand.extents[0] * operand.extents[1])


@pytest.mark.parametrize(
    ("layout", "size", "reason"),
    [
        (Layout((4, 8), (1, 5)), 32, "4 of 32 indices by 32"),
        (Layout((4, 8), (1, 4)), 64, "32 of 64 indices by 32"),
        (Layout((4, 8), (1, 2)), 32, "16 of 32 indices by 32"),
        (Layout((4, 8), (2, 8)), 32, "1 of 32 indices by 32"),
        (Layout((4, 16), (1, 2)), 32, "32 of 32 indices by 64"),
    ],
)
def test_the_proof_refuses_what_is_no_bijection(layout: Layout, size: int, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        copies(layout, size)


def test_a_row_with_a_wrong_fragment_cannot_be_made() -> None:
    good = find_matrix("mma.m16n8k16.f16")
    short = find_matrix("mma.m16n8k8.f16")
    holes = Layout(((4, 8), (2, 2)), ((32, 1), (16, 9)))
    for a, b, c in (
        (short.a, good.b, good.c),
        (good.a, Operand((8, 16), short.b.layout, ("f16",)), good.c),
        (good.a, good.b, Operand((16, 8), holes, ("f32",))),
        (good.a, good.b, Operand((16, 8), Layout((64, 2)), ("f32",))),
    ):
        with pytest.raises(LayoutError):
            MatrixRow("bad", "mma", 32, a, b, c, "sm_80", good.cost)


@pytest.mark.parametrize("row", MATRIX_COPIES, ids=lambda row: row.name)
def test_matrix_copies_move_what_ptx_says(row: CopyRow) -> None:
    rng = np.random.default_rng(2)
    count = row.matrices
    memory = rng.integers(0, 256, 4096).astype(np.uint8)
    slots = rng.permutation(256)[:32]
    addresses = slots * 16
    matrices = np.stack([memory[a : a + 16].view(np.uint16) for a in addresses[: 8 * count]])
    matrices = matrices.reshape(count, 8, 8)
    lane = np.arange(32)
    at = (lane // 4, 2 * (lane % 4))
    following = (lane // 4, 2 * (lane % 4) + 1)
    if row.transposed:
        at, following = at[::-1], following[::-1]
    halves = [(tile[at], tile[following]) for tile in matrices]
    want = np.stack([a.astype(np.uint32) | b.astype(np.uint32) << 16 for a, b in halves], axis=1)
    if row.kind == "ldmatrix":
        assert np.array_equal(semantics.ldmatrix(row, memory, addresses), want)
        return
    empty = np.zeros_like(memory)
    semantics.stmatrix(row, empty, addresses, want)
    written = np.zeros_like(memory)
    for address in addresses[: 8 * count]:
        written[address : address + 16] = memory[address : address + 16]
    assert np.array_equal(empty, written)


def test_matrix_copies_have_the_twelve_forms_and_twins_mirror_each_other() -> None:
    assert len(MATRIX_COPIES) == 12
    for count in (1, 2, 4):
        for tail in ("", ".trans"):
            load, store = (
                find_copy(f"ldmatrix.x{count}{tail}"),
                find_copy(f"stmatrix.x{count}{tail}"),
            )
            assert (load.source, load.destination) == (store.destination, store.source)
            assert (load.requires, store.requires) == ("sm_75", "sm_90")


def test_ldmatrix_x4_feeds_an_mma() -> None:
    """A row-major 16 x 16 tile, lane t giving row t mod 16, half t div 16: the A fragment."""
    rng = np.random.default_rng(3)
    row = find_matrix("mma.m16n8k16.f16")
    a = small(rng, (16, 16), "f16")
    memory = encode(a, "f16").view(np.uint8).reshape(-1)
    lane = np.arange(32)
    registers = semantics.ldmatrix(
        find_copy("ldmatrix.x4"), memory, lane % 16 * 32 + lane // 16 * 16
    )
    fragment = decode(unpack(registers, "f16"), "f16")
    assert np.array_equal(fragment, semantics.from_tile(row.a, a))


@pytest.mark.parametrize("width", [8, 16, 32, 64, 128])
def test_vector_copies(width: int) -> None:
    rng = np.random.default_rng(width)
    memory = rng.integers(0, 256, 1024).astype(np.uint8)
    size = width // 8
    addresses = rng.permutation(1024 // size)[:32] * size
    data = semantics.load(find_copy(f"ld.{width}"), memory, addresses)
    assert np.array_equal(data[7], memory[addresses[7] : addresses[7] + size])
    target = np.zeros_like(memory)
    semantics.store(find_copy(f"st.{width}"), target, addresses, data)
    assert np.array_equal(semantics.load(find_copy(f"ld.{width}"), target, addresses), data)
    assert np.count_nonzero(target) <= 32 * size
    if size > 1:
        with pytest.raises(LayoutError, match=f"address {size // 2}, no multiple of {size}"):
            semantics.load(find_copy(f"ld.{width}"), memory, np.array([size // 2]))


@pytest.mark.parametrize("size", [4, 8, 16])
def test_cp_async_copies_and_fills_with_zeros(size: int) -> None:
    rng = np.random.default_rng(size)
    memory = rng.integers(1, 256, 64 * size).astype(np.uint8)
    shared = np.full(64 * size, 77, np.uint8)
    valid = np.array([size, 0, size // 2])
    row = find_copy(f"cp.async.{size}")
    semantics.cp_async(row, shared, np.array([0, 2, 4]) * size, memory, np.array([9, 63, 1]) * size,
                       valid)  # fmt: skip
    assert np.array_equal(shared[:size], memory[9 * size : 10 * size])
    assert not shared[2 * size : 3 * size].any()
    half = memory[size : size + size // 2]
    assert np.array_equal(shared[4 * size : 5 * size], np.pad(half, (0, size - size // 2)))
    assert (shared[size : 2 * size] == 77).all()
    with pytest.raises(LayoutError, match=f"{size + 1} bytes of {size}"):
        semantics.cp_async(row, shared, np.array([0]), memory, np.array([0]), np.array([size + 1]))


def test_memory_has_an_end() -> None:
    with pytest.raises(LayoutError, match="bytes 16 to 31 of a memory of 24"):
        semantics.load(find_copy("ld.128"), np.zeros(24, np.uint8), np.array([16]))


def test_find_names_the_nearest() -> None:
    with pytest.raises(LayoutError, match=r"mma\.m16n8k16\.f61.*mma\.m16n8k16\.f16") as caught:
        find("mma.m16n8k16.f61")
    assert caught.value.code == "unknown-instruction"
    for name in ("", "ldmatrix.x4.swap", "wgmma.m64n40k32.s8.ss", "\x00"):
        with pytest.raises(LayoutError):
            find(name)


def test_costs_follow_the_hardware_rates() -> None:
    for row in WGMMA:
        reading = row.n / 4 + (16 if row.a.scope == "shared" else 0)
        assert row.cost.issue == max(row.n / 2, reading)
    widest = find_matrix("wgmma.m64n256k16.bf16.ss")
    assert 2 * widest.m * widest.n * widest.k / widest.cost.issue == 4096
    for row in MMA:
        assert row.cost.issue == row.k * bits(row.a.dtype) / 32 <= row.cost.latency


def test_rows_are_chosen_by_type_and_target() -> None:
    assert names(matrix_rows("bf16", 80)) == ["mma.m16n8k8.bf16", "mma.m16n8k16.bf16"]
    assert {row.kind for row in matrix_rows("bf16", 90)} == {"mma", "wgmma"}
    assert matrix_rows("e4m3", 80) == ()
    assert matrix_rows("f64", 90) == ()
