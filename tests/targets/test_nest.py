"""The nest: what its builder folds and shares, and the LLVM text that it is printed as."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime.once import run_once
from ir.dtypes import from_float, numpy_dtype
from ir.kernel import Argument, Kernel
from ir.targets.cpu.c_values import scalar_literal
from ir.targets.cpu.instructions import DOTS, FRACTION, SCALE
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.llvm_words import conversion, literal
from ir.targets.cpu.nest import BIT, I64, PTR, Builder, Loop, Type, Value
from tests.few import by_turns
from tests.targets.test_c_printer import tiny

F32, V16 = Type("f32"), Type("f32", 16)


@pytest.fixture
def b() -> Builder:
    return Builder("body")


def thread_of(b: Builder) -> Value:
    return b.function.parameters[0]


def address(b: Builder) -> Value:
    return b.load(PTR, b.function.parameters[2])


def assemble(text: str) -> None:
    """LLVM itself accepts the text."""
    binding: Any = import_module("llvmlite.binding")
    binding.parse_assembly(text).verify()


# -- the builder


def test_known_integers_stay_python_integers(b: Builder) -> None:
    assert b.add(2, 3) == 5
    assert b.sub(2, 3) == -1
    assert b.mul(4, 5) == 20
    assert b.minimum(4, 5) == 4
    assert b.maximum(4, 5) == 5
    assert b.index("idiv", 17, 5) == 3
    assert b.index("irem", 17, 5) == 2
    assert b.function.block.body == []


def test_identities_emit_nothing(b: Builder) -> None:
    x = thread_of(b)
    assert b.add(x, 0) is x
    assert b.add(0, x) is x
    assert b.sub(x, 0) is x
    assert b.mul(x, 1) is x
    assert b.mul(1, x) is x
    assert b.mul(x, 0) == 0
    assert b.index("idiv", x, 1) is x
    assert b.minimum(x, x) is x
    assert b.function.block.body == []


def test_comparisons_of_known_integers_are_known(b: Builder) -> None:
    assert b.compare("lt", 3, 4) is True
    assert b.compare("ge", 3, 4) is False
    found = b.compare("ne", thread_of(b), 4)
    assert isinstance(found, Value)
    assert found.type == BIT


def test_no_offset_is_the_pointer_itself(b: Builder) -> None:
    pointer = address(b)
    assert b.offset(pointer, 0) is pointer
    assert b.offset(pointer, 8) is b.offset(pointer, 8)


def test_pure_values_are_shared_inwards_only(b: Builder) -> None:
    x = thread_of(b)
    outer = b.add(x, 7)
    with b.loop("n", 0, 8, 1) as loop:
        assert b.add(x, 7) is outer
        inner = b.mul(loop.variable, 3)
        assert b.mul(loop.variable, 3) is inner
        unseen = b.add(x, 9)
    assert b.add(x, 9) is not unseen


def test_branches_share_nothing_with_each_other(b: Builder) -> None:
    x = thread_of(b)
    test = b.compare("eq", x, 0)
    assert isinstance(test, Value)
    with b.branch(test) as branch:
        left = b.add(x, 5)
        b.otherwise(branch)
        right = b.add(x, 5)
    assert left is not right


def test_a_loop_has_carried_values_and_results(b: Builder) -> None:
    start = b.constant(0.0, V16)
    with b.loop("k", 0, 8, 2, [start, 3]) as loop:
        assert b.block is loop.block
        loop.block.yields = loop.carried
    assert [value.type for value in loop.results] == [V16, I64]
    assert isinstance(b.function.block.body[-1], Loop)


def test_a_whole_mask_is_no_mask(b: Builder) -> None:
    b.load(V16, address(b), mask=16)
    item: Any = b.function.block.body[-1]
    assert item.attrs["mask"] == 0


def test_types_know_their_size() -> None:
    assert V16.bytes == 64
    assert Type("bf16", 32).bytes == 64
    assert V16.of("i1") == Type("i1", 16)
    assert str(V16) == "f32x16"


# -- literals


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, 0.1, 1e-30, -3.4028234663852886e38])
def test_float_literals_are_exact(value: float) -> None:
    single = np.float32(value)
    assert int(literal(value, "f32"), 16) == np.float64(single).view(np.uint64)
    text = scalar_literal(value, "f32")
    assert np.float32(text.removesuffix("f")).view(np.uint32) == single.view(np.uint32)
    assert float(scalar_literal(value, "f64")) == value


def test_narrow_literals() -> None:
    assert literal(1.0, "bf16") == str(0x3F80)
    assert literal(1.0, "f16") == str(0x3C00)
    assert literal(1.01, "bf16") == str(0x3F81)  # the nearest
    assert literal(-3.0, "i32") == "-3"
    assert scalar_literal(1.0, "bf16") == "0x3F80"
    assert scalar_literal(float("-inf"), "f32") == "-__builtin_inff()"


@pytest.mark.parametrize(
    ("source", "target", "unsigned", "word"),
    [
        ("f32", "f64", False, "fpext"), ("f64", "f32", False, "fptrunc"),
        ("f32", "i32", False, "fptosi"), ("f32", "i8", True, "fptoui"),
        ("i8", "i32", False, "sext"), ("i8", "i32", True, "zext"), ("i64", "i32", False, "trunc"),
        ("i1", "f32", False, "uitofp"), ("i1", "i8", False, "zext"), ("i32", "f32", True, "uitofp"),
    ],
)  # fmt: skip
def test_conversions(source: str, target: str, unsigned: bool, word: str) -> None:
    assert conversion(source, target, unsigned) == word


# -- the LLVM text


def test_loops_that_run_test_at_the_bottom(b: Builder) -> None:
    pointer = address(b)
    with b.loop("n", 0, 8, 1) as loop:
        b.store(b.constant(0, F32), b.offset(pointer, b.mul(loop.variable, 4)))
    text = print_llvm(b.function)
    assert text.count("br i1") == 1
    assert "label %body" not in text
    assemble(text)


def test_loops_that_may_not_run_give_what_they_were_given(b: Builder) -> None:
    pointer = address(b)
    with b.loop("n", thread_of(b), 8, 1, [b.constant(1.0, F32)], runs=False) as loop:
        loop.block.yields = (b.op("fadd", loop.carried[0], loop.carried[0]),)
    b.store(loop.results[0], pointer)
    text = print_llvm(b.function)
    assert f"store float %v{loop.carried[0].id}," in text
    assemble(text)


def test_products_and_sums_may_contract(b: Builder) -> None:
    pointer = address(b)
    x = b.load(F32, pointer)
    b.store(b.op("fadd", b.op("fmul", x, x), x), pointer)
    text = print_llvm(b.function)
    assert "fmul contract float" in text
    assert "fadd contract float" in text
    assemble(text)


def test_masks_alignment_and_streaming(b: Builder) -> None:
    pointer = address(b)
    x = b.load(V16, pointer, 64, mask=3)
    b.store(x, pointer, 0, mask=3)
    b.store(x, pointer, stream=True)
    b.store(x, pointer)
    text = print_llvm(b.function)
    mask = "<16 x i1> <" + ", ".join(["i1 1"] * 3 + ["i1 0"] * 13) + ">"
    assert text.count(mask) == 2
    assert "align 64, !nontemporal !0" in text
    assert text.count("align 4\n") == 2  # the plain store, and what streams to other addresses
    assert text.count("!nontemporal !0") == 1
    assemble(text)


def test_every_vector_operation_assembles(b: Builder) -> None:
    pointer = address(b)
    x = b.load(V16, pointer)
    for op in ("fneg", "fabs", "fsqrt", "floor", "round"):
        x = b.op(op, x)
    for op in ("fadd", "fsub", "fmul", "fdiv", "fmax", "fmin"):
        x = b.op(op, x, x)
    whole = b.convert(x, "i32")
    for op in ("iadd", "isub", "imul", "imin", "imax", "and", "or", "xor", "shl", "lshr", "ashr"):
        whole = b.op(op, whole, whole)
    test = b.test("le", x, b.convert(whole, "f32"))
    x = b.select(test, x, b.bitcast(whole, V16))
    x = b.op("fadd", x, b.gather(V16, pointer, 12, mask=5))
    far = b.convert(b.lanes(Type("i32", 16)), "i64")
    x = b.op("fma", x, b.gather_at(V16, pointer, far), b.splat(b.fold("max", x), 16))
    b.scatter(x, pointer, 12, mask=5)
    halves = b.convert(x, "bf16")
    b.store(b.interleave([halves, halves]), pointer, 256)
    b.store(b.fold("sum", whole), pointer)
    b.prefetch(pointer, 512)
    assemble(print_llvm(b.function))


PICKED = [(step, active) for step in (2, 3, 4, 5) for active in (16, 9, 5, 1)]


@pytest.mark.parametrize(
    ("scalar", "isa"), by_turns(["f32", "bf16", "i8", "f64"], [("avx2", "avx512f"), ("avx2",), ()])
)
def test_near_lanes_are_picked_out_of_vectors(
    scalar: str, isa: tuple[str, ...], b: Builder, code_cache: Path
) -> None:
    """Nothing behind the last lane is read, and nothing between two is written."""
    kind, size = Type(scalar, 16), Type(scalar).bytes
    source, found, goal = (b.load(PTR, b.function.parameters[2], 8 * n) for n in range(3))
    for number, (step, active) in enumerate(PICKED):
        start = (96 - (active - 1) * step - 1) * size
        x = b.gather(kind, source, step * size, start, active)
        b.store(x, found, number * 16 * size)
        b.scatter(x, goal, step * size, number * 96 * size + start, active)
    text = print_llvm(b.function, isa)
    assert "shufflevector" in text
    assert text.count("call void @llvm.masked.scatter") == 4  # those of lanes five elements apart
    count, stored = len(PICKED), {"bf16": np.uint16, "i8": np.int8, "f64": np.float64}
    dtype = stored.get(scalar, np.float32)
    shapes = {"A": (96,), "B": (count, 16), "C": (count, 96)}
    arguments = tuple(
        Argument(name, shape, scalar, "input" if name == "A" else "output")
        for name, shape in shapes.items()
    )
    kernel = Kernel("body", "cpu", arguments, (("llvm", text),), "body", 1)
    a = np.arange(1, 97).astype(dtype)
    blank = np.full((count, 96), 99, dtype)
    _, (picked, spread) = run_once(
        kernel, [a, np.zeros((count, 16), dtype), blank], cache_dir=code_cache
    )
    for number, (step, active) in enumerate(PICKED):
        places = np.arange(96 - (active - 1) * step - 1, 96, step)
        wanted = np.zeros(16, dtype)
        wanted[:active] = a[places]
        assert picked[number].tolist() == wanted.tolist()
        row = np.full(96, 99, dtype)
        row[places] = a[places]
        assert spread[number].tolist() == row.tolist()


@pytest.mark.parametrize(
    ("scalar", "isa"), by_turns(["i8", "bf16", "e4m3"], [("avx2", "avx512f"), ("avx2",), ()])
)
def test_lanes_that_were_made_narrow_are_spread(
    scalar: str, isa: tuple[str, ...], b: Builder, code_cache: Path
) -> None:
    """LLVM 22 stores too many bytes where what is masked was truncated."""
    wide, size = "i32" if scalar == "i8" else "f32", Type(scalar).bytes
    source, goal = (b.load(PTR, b.function.parameters[2], 8 * n) for n in range(2))
    x = b.convert(b.load(Type(wide, 16), source), scalar)
    for number, (step, active) in enumerate(PICKED):
        start = (96 - (active - 1) * step - 1) * size
        b.scatter(x, goal, step * size, number * 96 * size + start, active)
    count, dtype = len(PICKED), numpy_dtype(scalar)
    arguments = (
        Argument("A", (16,), wide, "input"), Argument("C", (count, 96), scalar, "output")
    )  # fmt: skip
    text = print_llvm(b.function, isa)
    kernel = Kernel("body", "cpu", arguments, (("llvm", text),), "body", 1)
    a, blank = np.arange(1, 17).astype(numpy_dtype(wide)), np.full((count, 96), 99).astype(dtype)
    _, (spread,) = run_once(kernel, [a, blank], cache_dir=code_cache)
    for number, (step, active) in enumerate(PICKED):
        row = blank[0].copy()
        row[96 - (active - 1) * step - 1 :: step] = from_float(a.astype(float), scalar)[:active]
        assert spread[number].tolist() == row.tolist()


def test_instruction_rows_spell_their_calls(b: Builder) -> None:
    pointer = address(b)
    x = b.load(V16, pointer)
    operand = b.load(Type("bf16", 32), pointer)
    row = next(row for row in DOTS if row.name == "vdpbf16ps")
    x = b.intrinsic(row, V16, x, operand, operand)
    x = b.intrinsic(SCALE, V16, b.intrinsic(FRACTION, V16, x), x)
    b.store(x, pointer)
    text = print_llvm(b.function)
    assert text.count("declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512") == 1
    assert f"@{FRACTION.llvm}(<16 x float> " in text
    assemble(text)


def test_a_printed_nest_runs(code_cache: Path) -> None:
    """The tiny nest of the C printer's golden text, through LLVM."""
    arguments = (Argument("A", (3, 11), "f32", "input"), Argument("C", (8,), "f32", "output"))
    kernel = Kernel("tiny", "cpu", arguments, (("llvm", print_llvm(tiny().function)),), "tiny", 2)
    a = np.arange(33, dtype=np.float32).reshape(3, 11)
    _, (c,) = run_once(kernel, [a, np.zeros(8, np.float32)], cache_dir=code_cache)
    squares = (a[:, :8] ** 2).sum(1) + 0.5 * (a[:, 8:] ** 2).sum(1)
    np.testing.assert_allclose(c[:3], squares * [1, 1, -1], rtol=1e-6)
    np.testing.assert_array_equal(c[3:], [1, 0, 1, 0, 0])
