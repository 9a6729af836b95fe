"""Drawn kernels compile for sm_90a without a GPU, and their machine code is what was meant."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from explorer.runtime.nvdisasm import disassembler
from ir.errors import MissingTarget
from ir.kernel import Kernel
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.tensor import TensorKernel
from tests.few import draws, few_rows
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn, space_of
from tests.targets.disassembly import (
    early_reads,
    early_reads_of,
    opcodes,
    product_loops,
)

try:
    nvrtc.version()
except MissingTarget as missing:
    pytest.skip(str(missing), allow_module_level=True)

needs_disassembler = pytest.mark.skipif(
    disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm"
)
QUANTISED = str(Path(__file__).with_name("quantised.py"))
BIG: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "tb": True}
LONG = pytest.param(10, marks=pytest.mark.long)  # kernels of a program, in the place of a few
DRAWN: tuple[Any, ...] = (  # names and arguments
    ("matmul", BIG),
    ("matmul", BIG | {"m": 16, "k": 8192}),
    ("scaled_matmul", {"m": 1024, "n": 1024, "k": 1024}),
    ("matmul_bias_act", {"m": 512, "n": 512, "k": 512, "dtype": "f16"}),
    ("gated_mlp", {"m": 512, "n": 512, "k": 512, "dtype": "bf16", "tb": True}),
    ("attention", {"b": 2, "heads": 8, "sq": 1024, "d": 128, "dtype": "bf16", "causal": True}),
    ("conv2d", {"n": 8, "h": 28, "w": 28, "c": 64, "f": 64, "padding": 1, "dtype": "bf16"}),
    ("softmax", {"m": 4096, "n": 4096, "dtype": "bf16"}),
    ("layernorm", {"m": 333, "n": 1000, "dtype": "f32"}),
    ("gaussian", {"n": 4096, "d": 64, "expand": True}),
)


def compiled(kernel: Kernel) -> tuple[bytes, nvrtc.Resources]:
    plan = json.loads(kernel.text("launch"))
    return _compiled(kernel.text("cuda"), plan["arch"], tuple(plan["options"]))


@cache
def _compiled(text: str, arch: str, options: tuple[str, ...]) -> tuple[bytes, nvrtc.Resources]:
    """Several tests look at the same seeds."""
    return nvrtc.compile_text(text, arch, options)


@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize(("name", "arguments"), few_rows(DRAWN, (0, 2, 5, 7, 8)))
@pytest.mark.alike(2)
def test_drawn_schedules_compile(name: str, arguments: dict[str, Any], count: int) -> None:
    program = built(name, arguments)
    for schedule in drawn(program, 4, count, count, "wgmma"):
        code, resources = compiled(BACKEND.lower(program, schedule, HARDWARE))
        assert code
        assert 0 < resources.registers <= 255


def seeds(name: str, arguments: dict[str, Any], count: int) -> list[Kernel]:
    """Kernels of a program's first seeds."""
    program = built(name, arguments)
    space = space_of(program, "wgmma")
    rows = space.seed_rows(np.random.default_rng(0))[:count]
    return [BACKEND.lower(program, space.schedule(row), HARDWARE) for row in rows]


@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize(("name", "arguments"), few_rows(DRAWN, range(9)))
@pytest.mark.alike(2)
def test_no_seed_serialises_its_products(name: str, arguments: dict[str, Any], count: int) -> None:
    """Compiled side by side, as workers do."""
    with ThreadPoolExecutor(2) as pool:
        for _, found in pool.map(compiled, seeds(name, arguments, count)):
            assert found.serialised == ()


@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize("changed", [{}, {"ta": True}, {"tb": False}, {"dtype": "f16"},
                                     {"dtype": "i8"}, {"dtype": "tf32"}], ids=str)  # fmt: skip
@pytest.mark.alike(2)
def test_no_seed_of_a_product_spills(changed: dict[str, Any], count: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        for _, found in pool.map(compiled, seeds("matmul", BIG | changed, count)):
            assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("matmul", BIG), ("attention", {"b": 2, "heads": 8, "sq": 1024, "d": 128, "dtype": "bf16"})],
)
def test_the_first_seeds_neither_spill_nor_serialise(name: str, arguments: dict[str, Any]) -> None:
    program = built(name, arguments)
    space = space_of(program, "wgmma")
    for row in space.seed_rows(np.random.default_rng(0))[:3]:
        _, found = compiled(BACKEND.lower(program, space.schedule(row), HARDWARE))
        assert (found.spill_stores, found.spill_loads, found.serialised) == (0, 0, ())


@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize(
    ("merge", "dtype"),
    [("last", "bf16"), ("atomics", "bf16"), ("turnstile", "i8"), ("cluster", "i8"),
     *(pytest.param(*given, marks=pytest.mark.long) for given in (
         ("last", "i8"), ("atomics", "i8"), ("turnstile", "bf16"), ("cluster", "bf16")))],
)  # fmt: skip
@pytest.mark.alike(2)
def test_parts_of_a_sum_neither_spill_nor_serialise(merge: str, dtype: str, count: int) -> None:
    program = built("matmul", {"m": 256, "n": 512, "k": 8192, "dtype": dtype, "tb": True})
    space = space_of(program, "wgmma").pin(merge=merge)
    schedules = [space.schedule(row) for row in space.seed_rows(np.random.default_rng(0))]
    split = [schedule for schedule in schedules if schedule["split"] != "none"]
    assert split
    for schedule in split[:count]:
        _, found = compiled(BACKEND.lower(program, schedule, HARDWARE))
        assert (found.spill_stores, found.spill_loads, found.serialised) == (0, 0, ())


@pytest.mark.parametrize("name", ["matmul", "gated_mlp"])
def test_shared_tiles_neither_spill_nor_serialise(name: str) -> None:
    program = built(name, {"m": 512, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True})
    for way in ("rest", "wave"):
        space = space_of(program, "wgmma").pin(stream_k=way)
        row = space.seed_rows(np.random.default_rng(0))[0]
        _, found = compiled(BACKEND.lower(program, space.schedule(row), HARDWARE))
        assert (found.spill_stores, found.spill_loads, found.serialised) == (0, 0, ())


def _matmul(**changed: Any) -> tuple[Schedule, Kernel]:
    program = built("matmul", BIG)
    (kernel,) = kernels_of(program, HARDWARE)
    assert isinstance(kernel, TensorKernel)
    values = {
        **kernel.complete(kernel.seeds()[0]),
        "split": "none",
        "merge": "kernel",
        "early": True,
        **changed,
    }
    space = BACKEND.space(program, HARDWARE)
    schedule = Schedule.of("cuda", values)
    assert space.refusal(schedule) is None
    return schedule, BACKEND.lower(program, schedule, HARDWARE)


@needs_disassembler
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"cluster": "2x1", "processors": 128, "stream": "columns"},
        {"tile.n": 96, "tile.k": 128, "stages": 3},
        {"partition": "whole", "tile.m": 64},
        {"epilogue": "direct", "epilogue_slots": 1},
        {"raster": "patch8x16"},
    ],
)
@pytest.mark.alike(2)
def test_machine_code_is_what_was_meant(changed: dict[str, Any]) -> None:
    """One wgmma for each 16 summed points and 64 rows; TMA in and out; nothing in local memory."""
    schedule, kernel = _matmul(**changed)
    code, _ = compiled(kernel)
    found = opcodes(code)
    groups = schedule["consumers"] if schedule["partition"] == "rows" else 1
    wanted = int(schedule["tile.k"]) // 16 * (int(schedule["tile.m"]) // 64 // int(groups))
    assert sum(n for op, n in found.items() if op.startswith("HGMMA")) == wanted
    loads = sum(n for op, n in found.items() if op.startswith("UTMALDG"))
    assert loads == 2 * (int(schedule["tile.k"]) // 64)
    multicast = sum(n for op, n in found.items() if "UTMALDG" in op and "MULTICAST" in op)
    assert (multicast > 0) == (schedule["cluster"] != "1x1")
    stores = sum(n for op, n in found.items() if op.startswith("UTMASTG"))
    matrices = sum(n for op, n in found.items() if op.startswith("STSM"))
    assert (stores > 0, matrices > 0) == (schedule["epilogue"] == "tma",) * 2
    assert not [op for op in found if op.startswith(("LDL", "STL"))]


@needs_disassembler
def test_attention_takes_its_second_operand_from_registers() -> None:
    program = built("attention", {"b": 2, "heads": 8, "sq": 1024, "d": 64, "dtype": "bf16"})
    space = BACKEND.space(program, HARDWARE).pin(order="straight")
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    code, _ = compiled(BACKEND.lower(program, schedule, HARDWARE))
    found = opcodes(code)
    products = sum(n for op, n in found.items() if op.startswith("HGMMA"))
    assert products == 64 // 16 + int(schedule["tile.sk"]) // 16
    assert found["MUFU.EX2"] > 0


@needs_disassembler
@pytest.mark.parametrize(
    ("name", "arguments", "opcode"),
    few_rows(
        [
            ("matmul", BIG, "HGMMA"),
            ("matmul", BIG | {"dtype": "f16"}, "HGMMA"),
            ("matmul", BIG | {"dtype": "tf32"}, "HGMMA"),
            ("matmul", BIG | {"dtype": "i8"}, "IGMMA"),
            ("scaled_matmul", {"m": 1024, "n": 1024, "k": 1024}, "QGMMA"),
        ],
        (1, 2, 3, 4),
    ),
)
@pytest.mark.alike(2)
def test_every_type_has_its_tensor_unit(name: str, arguments: dict[str, Any], opcode: str) -> None:
    """And registers move from the producer to the consumers."""
    code, _ = compiled(seeds(name, arguments, 1)[0])
    found = opcodes(code)
    assert {op.partition(".")[0] for op in found if "GMMA" in op} == {opcode}
    assert any(op.startswith("USETMAXREG.TRY_ALLOC") for op in found)
    assert any(op.startswith("USETMAXREG.DEALLOC") for op in found)


@needs_disassembler
@pytest.mark.parametrize(
    ("name", "arguments"),
    few_rows(
        [
            ("softmax", {"m": 4096, "n": 4096, "dtype": "bf16"}),
            ("rmsnorm", {"m": 4096, "n": 4096, "dtype": "bf16"}),
            ("column_sum", {"m": 4096, "n": 4096}),
        ],
        (1, 2),
    ),
)
def test_memory_is_read_and_written_16_bytes_at_a_time(
    name: str, arguments: dict[str, Any]
) -> None:
    for kernel in seeds(name, arguments, 2):
        found = opcodes(compiled(kernel)[0])
        moves = [op for op in found if op.startswith(("LDG", "STG"))]
        assert moves
        assert all(".128" in op for op in moves)
        assert not [op for op in found if op.startswith(("LDL", "STL"))]


@needs_disassembler
def test_softmax_takes_few_instructions_an_element() -> None:
    """One exponential each, no division, and what is written leaves the cache first."""
    program = built("softmax", {"m": 4096, "n": 4096, "dtype": "bf16"})
    space = BACKEND.space(program, HARDWARE)
    rows = [space.schedule(row) for row in space.seed_rows(np.random.default_rng(0))]
    schedule = next(s for s in rows if s["tile.n"] == 4096 and s["own.n"] == 16)
    found = opcodes(compiled(BACKEND.lower(program, schedule, HARDWARE))[0])
    assert found["MUFU.EX2"] == 16
    assert not [op for op in found if op.startswith("FCHK")]
    assert all(".EF" in op for op in found if op.startswith("STG"))
    assert sum(found.values()) < 24 * 16


@draws(3, 14)
@pytest.mark.parametrize("name", ["softmax", "layernorm", "rmsnorm", "row_sum", "column_sum"])
@pytest.mark.alike(2)
def test_no_seed_that_memory_limits_spills(name: str, count: int) -> None:
    """Those of tiles that are walked, rings, and walks that blocks share among them."""
    with ThreadPoolExecutor(2) as pool:
        kernels = seeds(name, {"m": 4096, "n": 4096, "dtype": "bf16"}, count)
        for _, found in pool.map(compiled, kernels):
            assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


def test_errors_of_the_compiler_are_told_in_a_line() -> None:
    from explorer.runtime.base import CompileError

    with pytest.raises(CompileError, match="error") as found:
        nvrtc.compile_text("__global__ void k() { nonsense; }", "sm_90a")
    assert "\n" not in str(found.value)


def test_a_read_before_the_wait_is_found() -> None:
    product = "HGMMA.64x16x16.F32.BF16 R24, R60, gdesc[UR12], R24, gsb0"
    read, later = "F2FP.BF16.F32.PACK_AB R9, R31, R30", "F2FP.BF16.F32.PACK_AB R9, R33, R32"
    one, none = (f"WARPGROUP.DEPBAR.LE gsb0, {n}" for n in ("0x1", "0x0"))
    assert early_reads_of([product, one, product, one, read, none]) == [read]
    assert early_reads_of([product, one, product, one, later, none, read]) == []


def test_loops_with_products_are_found_in_a_listing() -> None:
    """The innermost ones, and what follows them."""
    product = "HGMMA.64x16x16.F32.BF16 R24, R60, gdesc[UR12], R24, gsb0"
    lines = ["", "MOV R1, R2", ".L_x_1:", product, "@!P0 BRA `(.L_x_1)", "EXIT", "BRA `(.L_x_1)"]
    text = "\n".join(
        line if line.startswith(".L") else f"        /*{number:04x}*/    {line};"
        for number, line in enumerate(lines) if line
    )  # fmt: skip
    (found,) = product_loops(text)
    assert found == ([product, lines[4]], lines[5:])


@needs_disassembler
@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize(
    ("name", "arguments", "pins"),
    [
        ("matmul", {"m": 512, "n": 512, "k": 1024, "dtype": "bf16"}, {"source": "registers"}),
        ("matmul", {"m": 512, "n": 512, "k": 128, "dtype": "f16"}, {"source": "registers"}),
        ("matmul", {"m": 512, "n": 512, "k": 128, "dtype": "bf16"}, {"source": "shared"}),
        (f"{QUANTISED}:w8_rows", {"m": 64, "n": 256, "k": 512}, {"engine": "wgmma_rs"}),
        (f"{QUANTISED}:gated_w8", {"m": 40, "n": 256, "k": 256}, {"engine": "wgmma_rs"}),
        (
            f"{QUANTISED}:gated_w8",
            {"m": 40, "n": 256, "k": 256},
            {"engine": "wgmma_rs", "wgmma_rs.order": "multiply:1"},
        ),
    ],
)
@pytest.mark.alike(3)
def test_sums_are_read_behind_the_wait_for_their_products(
    name: str, arguments: dict[str, Any], pins: dict[str, Any], count: int
) -> None:
    """ptxas does not always keep them there."""
    program = built(name, arguments)
    space, rng = BACKEND.space(program, HARDWARE).pin(**pins), np.random.default_rng(7)
    for row in space.sample(rng, count):
        code, _ = compiled(BACKEND.lower(program, space.schedule(row), HARDWARE))
        assert early_reads(code) == []
