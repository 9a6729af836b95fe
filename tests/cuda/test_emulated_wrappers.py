"""Wrappers on the host against the instruction rows' meaning, on random data."""

from __future__ import annotations

import re
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ir.layout.instructions.rows import suffix
from ir.layout.instructions.tma import TensorMap
from ir.layout.widths import bits
from ir.targets.cuda.prelude import sections
from ir.targets.cuda.prelude.families import MMA_KINDS, WGMMA_KINDS
from tests.cuda import kernels
from tests.cuda.run import Arrays, needs_compiler, small
from tests.emulator.emulate import emulate
from tests.emulator.host import host_prelude, host_wrapper
from tests.layout import semantics
from tests.layout.descriptors import canonical
from tests.layout.patterns import carrier, decode, encode, pack, unpack
from tests.layout.rows import find_copy, find_matrix
from tests.layout.tensors import footprint as box_footprint

WINDOW = 1024
"""Shared addresses of a block begin here."""
SWIZZLES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}


def families() -> list[str]:
    ranks = range(1, 6)
    names = [f"tw_tma_load_{r}d{form}" for r in ranks for form in ("", "_multicast", "_hint")]
    names += [f"tw_tma_{verb}_{r}d" for r in ranks for verb in ("store", "add", "prefetch")]
    for dtype, kind in WGMMA_KINDS.items():
        names += [f"tw_wgmma_m64n64k{kind.k}_{dtype}_{form}" for form in ("ss", "rs")]
    names += [f"tw_wgmma_m64n64k16_bf16_ss{turns}" for turns in ("_ta", "_tb", "_ta_tb")]
    return names + [f"tw_mma_m16n8k{kind.k}_{dtype}" for dtype, kind in MMA_KINDS.items()]


@pytest.mark.parametrize("name", [*(n for n in sections() if n != "types"), *families()])
def test_every_wrapper_has_a_host_text_of_the_same_signature(name: str) -> None:
    text = host_wrapper(name)
    assert text is not None
    assert re.search(rf"\b{name}\(|struct {name}\b", text)


def test_a_wrapper_without_host_text_is_named() -> None:
    with pytest.raises(ValueError, match="tw_wgmma_m64n64k4_bf16_ss has no host text"):
        host_prelude("tw_wgmma_m64n64k4_bf16_ss(d, a, b, 1);")


def run(source: str, plan: kernels.Plan, arrays: Arrays) -> Arrays:
    result = emulate(source, plan, arrays)
    assert result.faults == ()
    return dict(result.outputs)


def noise(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, count, dtype=np.uint8)


WGMMAS = [
    # dtype, n, form, majors, swizzle modes of A and B
    ("bf16", 256, "ss", ("k", "k"), ("128B", "128B")),
    ("bf16", 8, "ss", ("k", "k"), ("none", "32B")),
    ("bf16", 64, "ss", ("mn", "mn"), ("128B", "64B")),
    ("f16", 72, "ss", ("k", "mn"), ("64B", "none")),
    ("f16", 128, "ss", ("mn", "k"), ("none", "32B")),
    ("f16", 96, "ss", ("mn", "mn"), ("32B", "32B")),
    ("bf16", 128, "rs", ("k", "mn"), ("none", "128B")),
    ("f16", 16, "rs", ("k", "k"), ("none", "64B")),
    ("tf32", 40, "ss", ("k", "k"), ("128B", "none")),
    ("tf32", 64, "rs", ("k", "k"), ("none", "32B")),
    ("e4m3", 128, "ss", ("k", "k"), ("64B", "128B")),
    ("e4m3", 24, "rs", ("k", "k"), ("none", "none")),
    ("e5m2", 64, "ss", ("k", "k"), ("128B", "128B")),
    ("i8", 48, "ss", ("k", "k"), ("128B", "32B")),
    ("i8", 8, "rs", ("k", "k"), ("none", "64B")),
    ("u8", 240, "ss", ("k", "k"), ("none", "64B")),
]


def operand(
    rng: np.random.Generator, memory: NDArray[np.uint8], at: int, spec: tuple[str, str, str, int]
) -> tuple[int, int]:
    """Write a random tile of two k steps at byte `at`; the second step's descriptor, the end."""
    dtype, major, mode, rows = spec
    span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[mode] * 8 // bits(dtype)
    depth = 2 * 256 // bits(dtype)
    whole = -(-rows // span) * span if major == "mn" else rows
    k = max(depth, span) if major == "k" else depth
    form = canonical(major, mode, whole, k, dtype)
    values = small(rng, (form.bytes * 8 // bits(dtype),), dtype)
    memory[at : at + form.bytes] = values.view(np.uint8)
    return form.descriptor(at, 0, depth // 2).encode(), at + -(-form.bytes // 1024) * 1024


@needs_compiler
@pytest.mark.parametrize(("dtype", "n", "form", "majors", "modes"), WGMMAS)
def test_wgmma(
    dtype: str, n: int, form: str, majors: tuple[str, str], modes: tuple[str, str]
) -> None:
    rng = np.random.default_rng(n)
    kind = WGMMA_KINDS[dtype]
    row = find_matrix(f"wgmma.m64n{n}k{kind.k}.{suffix(dtype)}.{form}")
    memory = np.zeros(160 * 1024, np.uint8)
    a, end = operand(rng, memory, WINDOW, (dtype, majors[0], modes[0], 64))
    b, end = operand(rng, memory, end, (dtype, majors[1], modes[1], n))
    fragment = small(rng, (128, 4 * 32 // bits(dtype)), dtype)
    integer = kind.accumulator != "f32"
    c = np.tile(np.arange(n // 2), (128, 1))
    left = decode(fragment, dtype) if form == "rs" else a
    wanted = semantics.multiply_shared(row, memory, left, b, c, majors=majors)
    turns = "_ta" * (majors[0] == "mn" and form == "ss") + "_tb" * (majors[1] == "mn")
    name = f"tw_wgmma_m64n{n}k{kind.k}_{dtype}_{form}{turns}"
    footprint = end - WINDOW
    arrays: Arrays = {
        "memory": memory[WINDOW:end].copy(),
        "words": np.array([a, b], np.uint64),
        "fragment": pack(fragment, dtype),
        "out": np.zeros((128, n // 2), np.int32 if integer else np.float32),
    }
    source = kernels.one_wgmma(name, n, integer, form == "ss", footprint)
    out = run(source, kernels.one_wgmma_plan(footprint), arrays)["out"]
    np.testing.assert_array_equal(out, wanted)


@needs_compiler
@pytest.mark.parametrize("name", MMA_KINDS)
def test_mma(name: str) -> None:
    rng = np.random.default_rng(3)
    kind = MMA_KINDS[name]
    pairs = {a + b: (a, b) for a, b in permutations(("e4m3", "e5m2", "i8", "u8"), 2)}
    left, right = pairs.get(name, (name, name))
    row = find_matrix(f"mma.m16n8k{kind.k}.{suffix(left)}")
    a, b = (
        small(rng, (32, count * 32 // bits(dtype)), dtype)
        for count, dtype in ((4, left), (2, right))
    )
    c = np.tile(np.arange(4), (32, 1))
    wanted = semantics.multiply(row, decode(a, left), decode(b, right), c)
    integer = kind.accumulator != "f32"
    out = np.zeros((32, 4), np.int32 if integer else np.float32)
    call = f"tw_mma_m16n8k{kind.k}_{name}"
    arrays: Arrays = {"a": pack(a, left), "b": pack(b, right), "out": out}
    result = run(kernels.one_mma(call, integer), kernels.one_mma_plan(), arrays)["out"]
    np.testing.assert_array_equal(result, wanted)


@needs_compiler
@pytest.mark.parametrize("stem", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_matrix_copies(stem: str, count: int, turned: bool) -> None:
    rng = np.random.default_rng(count)
    row = find_copy(f"{stem}.x{count}" + ".trans" * turned)
    memory = noise(rng, 2048)
    places = 16 * rng.permutation(128)[:32]
    registers = rng.integers(0, 1 << 32, (32, count), dtype=np.uint32)
    wanted, after = registers, memory.copy()
    if stem == "ldmatrix":
        wanted = semantics.ldmatrix(row, memory, places)
    else:
        semantics.stmatrix(row, after, places, registers)
    name = f"tw_{stem}_x{count}" + "_trans" * turned
    arrays: Arrays = {
        "memory": memory,
        "places": places.astype(np.uint32),
        "registers": registers.copy(),
        "after": np.zeros_like(memory),
    }
    result = run(kernels.tiles(name, count, 2048), kernels.tiles_plan(2048), arrays)
    np.testing.assert_array_equal(result["registers"], wanted)
    np.testing.assert_array_equal(result["after"], after)


BOXES = [
    # dtype, dims, box, swizzle, coordinates
    ("u8", (200,), (48,), 0, (160,)),
    ("bf16", (72, 20), (64, 8), 128, (-8, 15)),
    ("bf16", (72, 20), (16, 8), 128, (8, -3)),
    ("f32", (20, 10, 6), (8, 4, 3), 32, (16, 8, -1)),
    ("i8", (64, 6, 5, 4), (32, 2, 3, 2), 64, (32, 5, -2, 3)),
    ("f16", (40, 3, 3, 4, 5), (16, 2, 2, 2, 2), 0, (-8, 2, 1, 3, 4)),
    ("u8", (64, 4), (32, 2), 0, (-32, 1)),
    ("i64", (10, 30), (2, 16), 0, (8, 20)),
    ("i32", (16, 16), (4, 8), 64, (12, 12)),
]


def dense(dtype: str, dims: tuple[int, ...], box: tuple[int, ...], swizzle: int) -> TensorMap:
    """A map with a little room after each line."""
    strides, pitch = [], -(-dims[0] * bits(dtype) // 8 // 16) * 16 + 16
    for extent in dims[1:]:
        strides.append(pitch)
        pitch *= extent
    return TensorMap(dtype, dims, tuple(strides), box, SWIZZLES[swizzle])


def size_of(tensor: TensorMap) -> int:
    steps = zip(tensor.extents[1:], tensor.strides, strict=True)
    return max([stride * extent for extent, stride in steps], default=tensor.extents[0] * 8)


@needs_compiler
@pytest.mark.parametrize(("dtype", "dims", "box", "swizzle", "at"), BOXES)
def test_tma_load(
    dtype: str, dims: tuple[int, ...], box: tuple[int, ...], swizzle: int, at: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(len(dims))
    tensor = dense(dtype, dims, box, swizzle)
    source = noise(rng, size_of(tensor))
    wanted = np.zeros(box_footprint(tensor), np.uint8)
    room = np.zeros(WINDOW + box_footprint(tensor), np.uint8)
    counted = semantics.tma_load(tensor, source, 0, room, WINDOW, at)
    wanted[:] = room[WINDOW:]
    record = kernels.tensor_map("source", dtype, dims, tensor.strides, box, swizzle)
    text = kernels.box_copy(len(dims), counted, box_footprint(tensor))
    arrays: Arrays = {
        "source": source,
        "at": np.array(at, np.int32),
        "to": np.zeros(box_footprint(tensor), np.uint8),
    }
    result = run(text, kernels.box_copy_plan(record, box_footprint(tensor)), arrays)["to"]
    np.testing.assert_array_equal(result, wanted)


@needs_compiler
@pytest.mark.parametrize(
    ("add", "dtype", "dims", "box", "swizzle", "at"),
    [
        (add, *box)
        for add in (False, True)
        for box in BOXES
        if not add or box[0] in semantics.REDUCIBLE
    ],
)
def test_tma_store(
    add: bool,
    dtype: str,
    dims: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    at: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(len(dims))
    tensor = dense(dtype, dims, box, swizzle)
    width = bits(dtype) // 8
    target = small(rng, (size_of(tensor) // width,), dtype).view(np.uint8)
    data = small(rng, (box_footprint(tensor) // width,), dtype).view(np.uint8)
    wanted = target.copy()
    room = np.concatenate([np.zeros(WINDOW, np.uint8), data])
    semantics.tma_store(tensor, wanted, 0, room, WINDOW, at, add=add)
    record = kernels.tensor_map("target", dtype, dims, tensor.strides, box, swizzle)
    text = kernels.box_store(len(dims), box_footprint(tensor), add)
    arrays: Arrays = {"from": data, "at": np.array(at, np.int32), "target": target.copy()}
    result = run(text, kernels.box_store_plan(record, box_footprint(tensor)), arrays)["target"]
    np.testing.assert_array_equal(result, wanted)


def converted(expression: str, source: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """`expression` of the word or float `x` for every element of `source` (256 at a time)."""
    take = "tw_float(tw_load_4(in + i))" if source.dtype == np.float32 else "tw_load_4(in + i)"
    text = (
        "TW_KERNEL convert(const u32* in, u32* out) {\n"
        "  const i32 i = tw_block_x() * 128 + tw_thread();\n"
        f"  const auto x = {take};\n  tw_store_4(out + i, {expression});\n}}\n"
    )
    parameters = [kernels.pointer("in"), kernels.pointer("out")]
    plan = kernels.plan("convert", parameters, grid=(source.size // 128, 1, 1))
    return run(text, plan, {"in": source, "out": out})["out"]


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "expression"),
    [
        ("bf16", "tw_pack_bf16(x, 0) & 0xffffu"),
        ("f16", "tw_pack_f16(0, x) >> 16"),
        ("e4m3", "tw_to_e4m3(x)"),
        ("e5m2", "tw_to_e5m2(x)"),
        ("e2m1", "tw_to_e2m1(x)"),
        ("e8m0", "tw_to_e8m0(x)"),
        ("tf32", "tw_to_tf32(x)"),
    ],
)
def test_conversions_round_as_the_types_do(dtype: str, expression: str) -> None:
    rng = np.random.default_rng(5)
    limit = {"f16": 65504.0, "e4m3": 448.0, "e5m2": 57344.0}.get(dtype, 1e30)
    wide = rng.standard_normal(4096) * 2.0 ** rng.integers(-26, 18, 4096)
    small_type = dtype if bits(dtype) <= 8 else "e4m3"
    exact = decode(np.arange(1 << bits(small_type), dtype=np.uint8), small_type)
    finite = np.where(np.isfinite(exact), exact, 0)
    ties = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2, [0.0]])
    values = np.clip(np.concatenate([wide, ties]), -limit, limit)
    source = np.resize(values, 4096 + 640).astype(np.float32)
    out = converted(expression, source, np.zeros(source.size, np.uint32))
    np.testing.assert_array_equal(out, encode(source, dtype).astype(np.uint32))


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "expression"),
    [
        ("bf16", "tw_bits(tw_from_bf16(x))"),
        ("f16", "tw_bits(tw_from_f16(x))"),
        ("e4m3", "tw_bits(tw_from_e4m3(x))"),
        ("e5m2", "tw_bits(tw_from_e5m2(x))"),
        ("e2m1", "tw_bits(tw_from_e2m1(x))"),
        ("e8m0", "tw_bits(tw_from_e8m0(x))"),
    ],
)
def test_conversions_back_are_exact(dtype: str, expression: str) -> None:
    patterns = np.resize(np.arange(1 << bits(dtype), dtype=np.uint32), max(256, 1 << bits(dtype)))
    out = converted(expression, patterns, np.zeros(patterns.size, np.float32))
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        wanted = decode(patterns.astype(carrier(dtype)), dtype).astype(np.float32)
    np.testing.assert_array_equal(out, wanted)


def test_packing_helpers_agree() -> None:
    values = small(np.random.default_rng(0), (4, 8))
    np.testing.assert_array_equal(unpack(pack(values, "bf16"), "bf16"), values)
