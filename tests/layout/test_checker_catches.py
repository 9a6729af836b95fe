"""The checker finds nothing in solutions written by hand, and every fault seeded into them."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from ir.layout.synthesis.problem import Tile
from tests.layout.checker import Kind, check
from tests.layout.checker.banks import every_swizzle, rounds, sectors, total_rounds
from tests.layout.checker.bounds import conflicts, too_narrow, widest_by_strides
from tests.layout.checker.boxes import TensorMap, load
from tests.layout.checker.fragments import accumulator, instruction, operand_a, operand_b
from tests.layout.checker.handmade import HANDMADE
from tests.layout.checker.shared import matrix_lanes
from tests.layout.checker.tables import TextError, grid, offsets, read, swizzled
from tests.layout.checker.values import rounded

Plain = dict[str, Any]
Fault = Callable[[Plain], None]


@pytest.mark.parametrize("name", HANDMADE)
def test_nothing_is_found_in_solutions_written_by_hand(name: str) -> None:
    program, plain = HANDMADE[name]()
    assert not check(program, plain), str(check(program, plain))


def tile(name: str, **facts: Any) -> Fault:
    """Change facts of a tile's plan."""

    def change(plain: Plain) -> None:
        next(plan for plan in plain["tiles"] if plan["name"] == name).update(facts)

    return change


def step(at: int, **facts: Any) -> Fault:
    """Change facts of a step."""
    return lambda plain: plain["steps"][at].update(facts)


def inside(at: int, part: str, **facts: Any) -> Fault:
    """Change facts of a step's TMA plan or descriptor."""
    return lambda plain: plain["steps"][at][part].update(facts)


def together(*faults: Fault) -> Fault:
    def change(plain: Plain) -> None:
        for fault in faults:
            fault(plain)

    return change


def drop(at: int) -> Fault:
    return lambda plain: plain["steps"].pop(at)


WARP: dict[str, tuple[Fault, Kind]] = {
    "no swizzle": (tile("a_s", layout="(16,16):(16,1)"), Kind.CONFLICTS),
    "wrong shared stride": (
        together(
            tile("a_s", layout="(16,16):(17,1)", bytes=1024),
            lambda plain: plain.update(shared_bytes=1536),
        ),
        Kind.MISALIGNED,
    ),
    "rows on top of each other": (tile("a_s", layout="(16,16):(8,1)"), Kind.DOUBLE_OWNERSHIP),
    "too few bytes": (tile("b_s", bytes=256), Kind.OUT_OF_RANGE),
    "wrong global stride": (tile("a_g", layout="(16,16):(32,1)"), Kind.NOT_CONTIGUOUS),
    "more alignment than promised": (tile("a_g", alignment=64), Kind.MISALIGNED),
    "swapped lanes": (step(2, source_addresses="((2,16),1):((128,1),0)"), Kind.WRONG_VALUE),
    "swapped matrices": (step(3, source_addresses="((8,2,2),1):((1,8,128),0)"), Kind.WRONG_VALUE),
    "transposed by mistake": (step(2, instructions=["ldmatrix.x4.trans"]), Kind.WRONG_VALUE),
    "half the matrices": (step(2, instructions=["ldmatrix.x2"]), Kind.UNKNOWN),
    "lanes and groups swapped": (
        tile("a_r", layout="((4,8),(2,2,2)):((1,4),(64,32,128))"),
        Kind.WRONG_VALUE,
    ),
    "accumulators overlap": (step(5, c_values="(4,1,2):(1,0,2)"), Kind.WRONG_VALUE),
    "halves of a register swapped": (
        step(5, a_values="((2,4),1,1):((4,1),0,0)"),
        Kind.WRONG_FRAGMENT,
    ),
    "unstated K permutation": (step(5, k_order="((8,2),1):((2,1),0)"), Kind.WRONG_FRAGMENT),
    "repeats of B exchanged": (step(5, b_values="((2,2),2,1):((1,4),2,0)"), Kind.WRONG_VALUE),
    "no such shape": (step(5, instruction="mma.m16n8k12.f16"), Kind.UNKNOWN),
    "other type": (step(5, instruction="mma.m16n8k16.bf16"), Kind.WRONG_FRAGMENT),
    "too many warps": (step(5, warps=[2, 1]), Kind.OUT_OF_RANGE),
    "vector across rows": (step(6, values="(2,4):(2,1)"), Kind.NOT_CONTIGUOUS),
    "one column further": (
        step(6, target_addresses="16 o ((4,8),(2,2)):((32,1),(8,128))"),
        Kind.MISALIGNED,
    ),
    "half is stored": (
        step(6, issues=2, values="(2,2):(1,2)", target_addresses="((4,8),2):((32,1),8)"),
        Kind.UNCOVERED,
    ),
    "lanes silenced": (step(6, guards=[[1, 4]]), Kind.UNCOVERED),
    "nobody owns": (
        tile("c", layout="((4,8),(2,2,2)):((0,1),(16,8,128))"),
        Kind.UNCOVERED,
    ),
    "registers miscounted": (tile("c", registers=4), Kind.OUT_OF_RANGE),
    "ways misstated": (step(2, ways=2), Kind.CONFLICTS),
    "sectors misstated": (step(0, sectors=8), Kind.CONFLICTS),
    "width misstated": (step(0, instructions=["cp.async.8"]), Kind.UNKNOWN),
    "no such width": (step(0, instructions=["cp.async.2"]), Kind.UNKNOWN),
    "asynchronous into registers": (step(2, instructions=["cp.async.16"]), Kind.NO_SUCH_PATH),
    "loaded, never stored": (step(0, instructions=["ld.128"]), Kind.NO_SUCH_PATH),
    "a copy forgotten": (drop(3), Kind.UNKNOWN),
    "the product forgotten": (drop(5), Kind.WRONG_VALUE),
    "the store forgotten": (drop(6), Kind.UNCOVERED),
    "not a layout": (tile("a_s", layout="(16,16):(16"), Kind.UNKNOWN),
}

_SBO_512 = (1 << 62) | (32 << 32) | (1 << 16)
_NO_SWIZZLE = (64 << 32) | (1 << 16)
GROUP: dict[str, tuple[Fault, Kind]] = {
    "wrong SBO": (inside(3, "b_descriptor", sbo=512, word=_SBO_512), Kind.WRONG_DESCRIPTOR),
    "word and SBO disagree": (inside(3, "a_descriptor", word=_SBO_512), Kind.WRONG_DESCRIPTOR),
    "wrong LBO": (
        inside(3, "a_descriptor", swizzle=0, lbo=16, word=_NO_SWIZZLE),
        Kind.WRONG_DESCRIPTOR,
    ),
    "type of another swizzle": (
        inside(3, "a_descriptor", swizzle=2, word=(2 << 62) | (64 << 32) | (1 << 16)),
        Kind.WRONG_DESCRIPTOR,
    ),
    "other major": (inside(3, "b_descriptor", major="mn"), Kind.WRONG_DESCRIPTOR),
    "K steps too far": (
        inside(3, "a_descriptor", starts="(1,1,4):(0,0,64)"),
        Kind.WRONG_DESCRIPTOR,
    ),
    "K steps in another order for one": (
        inside(3, "a_descriptor", starts="(1,1,(2,2)):(0,0,(64,32))"),
        Kind.WRONG_VALUE,
    ),
    "a start between chunks": (
        inside(3, "a_descriptor", starts="(1,1,4):(0,0,8)"),
        Kind.WRONG_DESCRIPTOR,
    ),
    "registers wanted": (
        step(3, instruction="wgmma.m64n16k16.bf16.rs"),
        Kind.WRONG_FRAGMENT,
    ),
    "no such width": (step(3, instruction="wgmma.m64n20k16.bf16.ss"), Kind.UNKNOWN),
    "shared layout of another swizzle": (
        tile("a_s", layout="S(2,3,3) o 0 o (64,64):(64,1)"),
        Kind.ILLEGAL_BOX,
    ),
    "box of another swizzle": (inside(0, "tma", swizzle=2), Kind.ILLEGAL_BOX),
    "short box": (
        inside(0, "tma", extents=[64, 32], box="(64,32):(64,1)", bytes=4096),
        Kind.UNCOVERED,
    ),
    "box bytes misstated": (inside(1, "tma", bytes=1024), Kind.ILLEGAL_BOX),
    "box beyond 256": (
        inside(0, "tma", extents=[64, 512], bytes=65536),
        Kind.ILLEGAL_BOX,
    ),
    "box stride not of 16 bytes": (inside(0, "tma", strides=[1, 500]), Kind.ILLEGAL_BOX),
    "box starts off the line": (inside(1, "tma", shared_starts=[64]), Kind.MISALIGNED),
    "box with its axes exchanged": (inside(1, "tma", box="(16,64):(1,16)"), Kind.ILLEGAL_BOX),
    "tile at any line": (tile("a_s", alignment=128), Kind.ILLEGAL_BOX),
    "stmatrix transposed": (step(5, instructions=["stmatrix.x4.trans"]), Kind.WRONG_VALUE),
    "stmatrix rows exchanged": (
        step(5, target_addresses="((8,2,2,4),1):((1,512,8,16),0)"),
        Kind.WRONG_VALUE,
    ),
    "stmatrix off its rows": (
        step(5, target_addresses="64 o ((8,2,2,4),1):((1,8,512,16),0)"),
        Kind.MISALIGNED,
    ),
    "stmatrix onto one row": (
        step(5, target_addresses="((8,2,2,4),1):((0,8,512,16),0)"),
        Kind.DOUBLE_OWNERSHIP,
    ),
    "cast reads another register": (step(4, values=["(2,4):(4,1)"]), Kind.WRONG_VALUE),
    "cast reads beyond": (step(4, values=["8:2"]), Kind.OUT_OF_RANGE),
    "shared memory miscounted": (lambda plain: plain.update(shared_bytes=4096), Kind.OUT_OF_RANGE),
}

REDUCE: dict[str, tuple[Fault, Kind]] = {
    "a shuffle forgotten": (step(1, lanes=[1, 2, 4, 8]), Kind.FALSE_REPLICATION),
    "a shuffle twice": (step(1, lanes=[1, 1, 2, 4, 8, 16]), Kind.WRONG_VALUE),
    "a shuffle between warps": (step(1, lanes=[1, 2, 4, 8, 32]), Kind.OUT_OF_RANGE),
    "warps forgotten": (step(1, digits=[]), Kind.FALSE_REPLICATION),
    "no scratch": (step(1, scratch_bytes=0), Kind.OUT_OF_RANGE),
    "rows and columns exchanged": (step(1, values="(2,2):(1,2)"), Kind.WRONG_VALUE),
    "replication missing": (tile("y", replicated=[[1, 32]]), Kind.DOUBLE_OWNERSHIP),
    "replication that isn't": (tile("x", replicated=[[1, 2]]), Kind.FALSE_REPLICATION),
}

CONVERT: dict[str, tuple[Fault, Kind]] = {
    "no exchange": (step(1, moves=[], price_class="rename"), Kind.WRONG_VALUE),
    "other lane bit": (
        step(1, moves=[{"kind": "exchange", "values": "", "lane": 2, "value": 1}]),
        Kind.WRONG_VALUE,
    ),
    "priced too low": (step(1, price_class="rename"), Kind.UNKNOWN),
    "old tile read": (step(2, source="x"), Kind.NOT_CONTIGUOUS),
}

FAULTS = {"warp_product": WARP, "group_product": GROUP, "block_sum": REDUCE, "exchanged": CONVERT}


@pytest.mark.parametrize(
    ("solution", "fault"), [(name, fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_seeded_fault_is_caught(solution: str, fault: str) -> None:
    program, plain = HANDMADE[solution]()
    change, kind = FAULTS[solution][fault]
    broken = deepcopy(plain)
    change(broken)
    assert broken != plain, "the fault changes nothing"
    found = check(program, broken)
    assert kind in found.kinds, f"{kind.name} expected; found: {found}"


def test_a_swizzle_with_fewer_conflicts_is_named() -> None:
    _, plain = HANDMADE["warp_product"]()
    assert conflicts(plain) == {}
    tile("a_s", layout="(16,16):(16,1)")(plain)
    assert conflicts(plain) == {"a_s": (12, 8, (1, 4, 3))}


def test_a_vector_narrower_than_possible_is_named() -> None:
    program, plain = HANDMADE["warp_product"]()
    assert too_narrow(program, plain) == {}
    step(6, bits=32, elements=1)(plain)
    step(0, bits=64, elements=4)(plain)
    assert too_narrow(program, plain) == {6: (32, 64), 0: (64, 128)}


@pytest.mark.parametrize(
    ("strides", "alignment", "bits"),
    [
        ((64, 1), 16, 128),
        ((1, 64), 8, 64),
        ((68, 1), 16, 64),
        ((66, 1), 16, 32),
        ((65, 1), 16, 16),
        ((0, 1), 16, 128),
        ((2, 128), 16, 16),
        ((1, 24), 4, 32),
    ],
)
def test_the_widest_vector_follows_from_strides_and_alignment(
    strides: tuple[int, int], alignment: int, bits: int
) -> None:
    axes = (("m", 64), ("k", 64))
    assert widest_by_strides(Tile("x", "f16", axes, "global", strides, alignment)) == bits


FRAGMENTS = {
    "mma.m16n8k16.f16": ("((4,8),(2,2,2)):((32,1),(16,8,128))", "((4,8),(2,2)):((16,1),(8,64))"),
    "mma.m16n8k8.bf16": ("((4,8),(2,2)):((32,1),(16,8))", "((4,8),2):((16,1),8)"),
    "mma.m16n8k8.tf32": ("((4,8),(2,2)):((16,1),(8,64))", "((4,8),2):((8,1),32)"),
    "mma.m16n8k4.tf32": ("((4,8),2):((16,1),8)", "((4,8),1):((8,1),0)"),
    "mma.m16n8k32.s8": ("((4,8),(4,2,2)):((64,1),(16,8,256))", "((4,8),(4,2)):((32,1),(8,128))"),
    "mma.m16n8k64.s4": ("((4,8),(8,2,2)):((128,1),(16,8,512))", "((4,8),(8,2)):((64,1),(8,256))"),
    "wgmma.m64n8k16.f16.rs": ("((4,8,4),(2,2,2)):((128,1,16),(64,8,512))", ""),
    "wgmma.m64n8k32.e4m3.rs": ("((4,8,4),(4,2,2)):((256,1,16),(64,8,1024))", ""),
    "wgmma.m64n8k8.tf32.rs": ("((4,8,4),(2,2)):((64,1,16),(8,256))", ""),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments_are_those_published_as_layouts(name: str) -> None:
    row, (a, b) = instruction(name), FRAGMENTS[name]
    m, k = operand_a(row)
    assert np.array_equal(m + row.m * k, grid(a, 2))
    if b:
        n, k = operand_b(row)
        assert np.array_equal(n + row.n * k, grid(b, 2))


@pytest.mark.parametrize("n", [8, 24, 216, 256])
def test_accumulators_are_those_published_as_layouts(n: int) -> None:
    m, column = accumulator(instruction(f"wgmma.m64n{n}k16.bf16.ss"))
    published = grid(f"((4,8,4),(2,2,{n // 8})):((128,1,16),(64,8,512))", 2)
    assert np.array_equal(m + 64 * column, published)


def test_matrix_copies_are_those_published_as_layouts() -> None:
    """Row r, bit b of matrix j lies at 1024 j + 128 r + b; lanes hold 32 bits of each matrix."""
    for count, text, transposed in (
        (4, "(32,(32,4)):(32,(1,1024))", False),
        (2, "((4,8),(16,2,2)):((256,16),(1,128,1024))", True),
    ):
        row, element = matrix_lanes(count, transposed, 16)
        bits = (row * 128 + element * 16)[:, :, None] + np.arange(16)
        assert np.array_equal(bits.reshape(32, -1), grid(text, 2))
    with pytest.raises(ValueError, match="32 bits"):
        matrix_lanes(1, True, 32)


def test_a_box_that_leaves_the_tensor_is_filled_with_zeroes() -> None:
    memory = np.arange(1.0, 65.0)
    tensor = TensorMap(0, (8, 8), (2, 16), (8, 4), 16, 0)
    assert tensor.violations() == []
    box = load(memory, tensor, (4, 6)).reshape(4, 8)
    assert np.array_equal(box[:2, :4], memory.reshape(8, 8)[6:, 4:])
    assert box[2:].sum() == 0 == box[:, 4:].sum()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": 8}, "8 mod 16"),
        ({"strides": (2, 24)}, r"\(2, 24\)"),
        ({"box": (8, 257)}, "257"),
        ({"box": (4, 4)}, "8 bytes"),
        ({"swizzle": 1, "box": (32, 4)}, "64 bytes"),
        ({"extents": (8,) * 6, "strides": (2,) + (16,) * 5, "box": (8,) + (1,) * 5}, "rank 6"),
    ],
)
def test_limits_of_a_tensor_map_are_named_with_numbers(change: Plain, words: str) -> None:
    facts = {"base": 0, "extents": (64, 64), "strides": (2, 128), "box": (8, 4), "bits": 16}
    violations = TensorMap(**{**facts, "swizzle": 0, **change}).violations()
    assert len(violations) == 1
    assert re.search(words, violations[0])


def test_bank_rounds_of_known_accesses() -> None:
    lane = np.arange(32)
    assert rounds(lane * 4, 4) == 1
    assert rounds(lane * 8, 4) == 2
    assert rounds(lane * 128, 4) == 32
    assert rounds(lane * 0, 4) == 1
    assert rounds(lane * 16, 16) == 4
    assert rounds(lane * 128, 16) == 32
    assert rounds(lane * 2, 2) == 1
    assert sectors(lane * 4, 4) == 4
    assert sectors(lane * 4 + 16, 4) == 5


def test_the_only_swizzle_without_conflicts_is_found_by_trying_all() -> None:
    """64x64 f16, K-major: 16-byte writes by rows and ldmatrix reads by columns of chunks."""
    row, chunk = np.arange(64), np.arange(8)
    writes = (row[:, None] * 128 + chunk * 16).reshape(-1)
    reads = (chunk[:, None] * 16 + row * 128).reshape(-1)
    accesses = [(writes, 16), (reads, 16)]
    free = [
        swizzle
        for swizzle in every_swizzle(4, 13)
        if total_rounds([(swizzled(at, *swizzle), size) for at, size in accesses]) == 2 * 64
    ]
    assert free == [(3, 4, 3)]


def test_layout_text_is_read_or_refused() -> None:
    assert offsets("(2,(1,6)):(1,(6,2))").tolist() == list(range(12))
    assert offsets("S(1,0,1) o 0 o 4:1").tolist() == [0, 1, 3, 2]
    assert read("2 o 4:3").offset == 2
    assert grid("(4,2):(1,0)", 2).shape == (4, 2)
    for text in ("4", "(4,2):3", "(4,2):(1", "4:1)", "4:x", "(4,(2)):(1,2,3)"):
        with pytest.raises(TextError):
            read(text)
    with pytest.raises(TextError, match="3 are wanted"):
        grid("(4,2):(1,0)", 3)


def test_rounding_of_narrow_types() -> None:
    values = np.array([1.0625, 1.1875, 500.0, -1000.0, 2.0**-10, 0.0])
    assert rounded(values, "e4m3").tolist() == [1.0, 1.25, 448.0, -448.0, 0.0, 0.0]
    assert rounded(np.array([1.125, 1.375]), "e5m2").tolist() == [1.0, 1.5]
    assert rounded(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bf16").tolist() == [1.0, 1 + 2.0**-6]
    assert rounded(np.array([65519.0, 65520.0]), "f16").tolist() == [65504.0, np.inf]
    assert rounded(np.array([-3.7, 300.0]), "i8").tolist() == [-3.0, 127.0]
