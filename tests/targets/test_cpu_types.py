"""Every element type in kernels of drawn schedules, checked against the oracle in workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.measure import Measurer
from explorer.runtime.once import run_once
from ir.dtypes import from_float, numpy_dtype, to_float
from ir.kernel import Argument, Kernel
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.nest import PTR, Builder, Function, Type
from tests.few import draws
from tests.targets import mixed_types
from tests.targets.test_cpu_kernels import cache, measure

__all__ = ["cache"]
BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(1)
FILE = Path(mixed_types.__file__)

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gated", {"m": 50, "n": 70, "k": 130}),
    ("masked_attention", {"h": 2, "q": 33, "k": 200, "d": 32, "dtype": "bf16", "low": -1e30}),
    ("masked_attention", {"h": 1, "q": 70, "k": 70, "d": 32, "dtype": "f16", "low": -1e9}),
    ("masked_softmax", {"m": 20, "n": 130, "dtype": "bf16", "low": -3e38}),
    ("masked_softmax", {"m": 20, "n": 130, "dtype": "f16", "low": -1e7}),
    ("paged_decode", {"b": 5, "h": 4, "pages": 6, "page": 16, "d": 32, "dtype": "bf16"}),
    ("narrow_keys", {"h": 2, "q": 40, "k": 130, "d": 32}),
    ("quantised_rows", {"m": 40, "n": 64, "k": 192}),
    ("turned_product", {"m": 33, "n": 70, "k": 66}),
    ("many_results", {"m": 13, "n": 77}),
    ("bytes_product", {"m": 33, "n": 48, "k": 70, "left": "f32", "right": "bool"}),
    ("bytes_product", {"m": 33, "n": 48, "k": 7, "left": "bool", "right": "bool"}),
    ("any_and_all", {"m": 20, "n": 90}),
)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=lambda value: str(value)[:60])
@draws(1, 3)
@pytest.mark.alike(2)
def test_drawn_schedules_are_right(
    name: str, arguments: dict[str, Any], cache: Path, count: int
) -> None:
    assert measure(f"{FILE}:{name}", arguments, cache, count) == []


def test_hidden_rows_of_infinite_scores_are_what_the_oracle_says(cache: Path) -> None:
    """The difference of infinities is no number, whatever it is streamed with."""
    arguments = {"m": 20, "n": 130, "dtype": "bf16", "low": -np.inf}
    assert measure(f"{FILE}:masked_softmax", arguments, cache, 3) == []


@pytest.mark.parametrize("lane", ["m", "n"])
def test_weights_agree_whatever_the_lanes_run_along(lane: str, cache: Path) -> None:
    """The sum and what it divides are made by different stages."""
    pins: dict[str, object] = {"lane.s2": lane, "lane.s3": "n"}
    arguments = {"m": 20, "n": 130, "dtype": "f16", "low": -3.7e6}
    assert measure(f"{FILE}:masked_softmax", arguments, cache, 3, pins) == []


@pytest.mark.parametrize(
    ("left", "right"), [("u8", "i8"), ("i8", "u8"), ("u8", "u8"), ("i8", "i8")]
)
@pytest.mark.alike(2)
def test_bytes_of_any_signs_multiply(left: str, right: str, cache: Path) -> None:
    """By every instruction that the host has for them, with lanes along either side."""
    program = mixed_types.bytes_product.build(m=65, n=80, k=200, left=left, right=right)
    hardware = BACKEND.hardware(2)
    space = BACKEND.space(program, hardware)
    domain = next(d.domain for d in space.decisions if d.name == "instruction.s0")
    rng = np.random.default_rng(0)
    schedules = []
    for instruction in domain:
        pinned = space.pin({"instruction.s0": instruction})
        schedules += [pinned.schedule(row) for row in pinned.sample(rng, 2)]
    with Measurer(program, "cpu", hardware, cache_dir=cache) as measurer:
        outcomes = list(measurer.measure(schedules))
    assert [f"{o.status} {o.detail}" for o in outcomes if not o.ok] == []


@pytest.mark.parametrize("micro", ["rows", "lanes"])
@pytest.mark.parametrize("k", [7, 64, 200])
@pytest.mark.alike(2)
def test_signed_bytes_multiply_where_one_side_is_taken_as_unsigned(
    k: int, micro: str, cache: Path
) -> None:
    """Rows moved by 128 and what that adds taken off again, with the lanes summed once for all rows
    or in every register tile; -128 among the numbers, blocks of the sum, tails of every axis."""
    if "avx512_vnni" not in HOST.isa:
        pytest.skip("this CPU has no AVX-512 VNNI")
    program = mixed_types.bytes_product.build(m=37, n=75, k=k, left="i8", right="i8")
    space = BACKEND.space(program, HOST)
    pinned = space.pin({"instruction.s0": "vpdpbusd.moved", "micro.s0": micro})
    schedules = [pinned.schedule(row) for row in pinned.sample(np.random.default_rng(k), 4)]
    a, b = (np.random.default_rng(s).integers(-128, 128, (37, 75)[s] * k) for s in (0, 1))
    left, right = a.astype(np.int8).reshape(37, k), b.astype(np.int8).reshape(k, 75)
    left[0], right[:, 0] = -128, -128
    wanted = left.astype(np.int32) @ right.astype(np.int32)
    for schedule in schedules:
        kernel = BACKEND.lower(program, schedule, HOST)
        given: list[np.ndarray[Any, Any]] = [left, right, np.zeros((37, 75), np.int32)]
        _, (output,) = run_once(kernel, given, cache_dir=cache, timeout=30)
        assert np.array_equal(output, wanted), schedule


@pytest.mark.parametrize(
    ("left", "right", "isa", "lane", "names"),
    [
        ("u8", "i8", "avx512_vnni", "n", {"vpdpbusd"}),
        ("u8", "i8", "avx512_vnni", "m", {"vpdpbusd.lanes"}),
        ("i8", "i8", "avx512_vnni", "n", {"vpdpbusd.moved"}),
        ("i8", "u8", "amx_int8", "n", {"tdpbsud"}),
        ("u8", "u8", "amx_int8", "n", {"tdpbuud"}),
    ],
)
def test_signs_decide_which_instructions_are_legal(
    left: str, right: str, isa: str, lane: str, names: set[str]
) -> None:
    program = mixed_types.bytes_product.build(m=64, n=64, k=128, left=left, right=right)
    hardware = replace(HOST, isa=("avx2", "avx512f", isa))
    space = BACKEND.space(program, hardware).pin({"lane.s0": lane})
    rows = space.sample(np.random.default_rng(0), 200)
    drawn = {str(space.schedule(row)["instruction.s0"]) for row in rows}
    assert {name for name in drawn if name not in ("fma", "vpdpwssd")} == names


# -- what LLVM 22 gets wrong


def folded_late() -> Function:
    """Narrowing numbers that turn out constant when types are legal already, which aborted."""
    b = Builder("folded_body")
    _, _, args, _ = b.function.parameters
    source, target = (b.load(PTR, args, 8 * n) for n in range(2))
    x, i32 = b.load(Type("f32", 16), source), Type("i32")
    places = b.op("iadd", b.splat(b.constant(0, i32), 16), b.lanes(Type("i32", 16)))
    never = b.test("le", b.splat(b.constant(64, i32), 16), places)
    chosen = b.select(never, x, b.splat(b.constant(2, Type("f32")), 16))
    b.store(b.convert(chosen, "bf16"), target)
    return b.function


@pytest.mark.parametrize("isa", [(), HOST.isa], ids=["any", "host"])
def test_constants_found_late_are_narrowed(isa: tuple[str, ...], cache: Path) -> None:
    arguments = (Argument("X", (16,), "f32", "input"), Argument("Y", (16,), "bf16", "output"))
    text = print_llvm(folded_late(), isa)
    kernel = Kernel("folded", "cpu", arguments, (("llvm", text),), "folded_body", 1)
    given: list[np.ndarray[Any, Any]] = [np.ones(16, np.float32), np.zeros(16, np.uint16)]
    _, (output,) = run_once(kernel, given, cache_dir=cache, timeout=20)
    assert np.array_equal(output, from_float(np.full(16, 2.0), "bf16"))


@pytest.mark.parametrize("dtype", ["e4m3", "f16"])
def test_a_tail_of_one_lane_leaves_its_neighbours(dtype: str, cache: Path) -> None:
    """A masked store of one truncated lane wrote four bytes."""
    program = mixed_types.many_results.build(m=3, n=17)
    schedule = Schedule.of(
        "cpu", {"lane.s0": "n", "vectors.s0": 1, "order.1": "n m", "tile.n.1": 16}
    )
    kernel = BACKEND.lower(program, schedule, HOST)
    x = np.linspace(-2, 2, 51).reshape(3, 17)
    operands = [a for a in kernel.arguments if a.role == "output"]
    outputs = [np.zeros(a.shape, numpy_dtype(a.dtype)) for a in operands]
    _, found = run_once(kernel, [x, *outputs], cache_dir=cache, timeout=20)
    factor, place = (0.5, 1) if dtype == "e4m3" else (1.0, 0)
    want = from_float(to_float(from_float(x, "f16"), "f16") * factor, dtype)
    assert np.array_equal(found[place], want)
