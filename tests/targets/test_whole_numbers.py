"""Functions of whole numbers are exactly numpy's in kernels of every printer; tables and Philox."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import find_linker, source_text
from explorer.runtime import nvrtc
from explorer.runtime.numpy_library import NumpyLaunch
from explorer.runtime.nvdisasm import disassembler
from ir.builder import Operator
from ir.dtypes import from_float, numpy_dtype
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.program import Program
from ir.targets.cpu.standalone import C_FLAGS, standalone
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.disassembly import opcodes
from tests.targets.test_meaning_of_numbers import _RUN_C, HOST, cpu_kernels, run_cpu, run_emulated
from tests.targets.whole_numbers import (
    bits_of_floats,
    draws,
    every_whole_function,
    nf4_product,
    ring,
    scattered,
    shares,
)

Inputs = dict[str, Array]
INTEGERS = ("u8", "i8", "i32", "i64")
needs_emulator = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


def pairs(dtype: str) -> Inputs:
    """All pairs of numbers at and beside the ends, and some drawn ones."""
    kind = np.dtype(numpy_dtype(dtype))
    ends, rng = np.iinfo(kind), np.random.default_rng(0)
    special = [ends.min, ends.min + 1, ends.max, 0, 1, 2, 31, 32, 33, 63, 64, 7]
    special += [-1, -7] if ends.min else [200]
    x, y = (part.ravel() for part in np.meshgrid(special, special))
    more = rng.integers(ends.min, ends.max, (2, 60), dtype=kind, endpoint=True)
    return {
        "X": np.concatenate([x.astype(kind), more[0]]),
        "Y": np.concatenate([y.astype(kind), more[1]]),
    }


def whole(dtype: str) -> tuple[Program, Inputs]:
    inputs = pairs(dtype)
    return every_whole_function.build(n=len(inputs["X"]), dtype=dtype), inputs


def wrong(program: Program, inputs: Inputs, found: Inputs) -> list[str]:
    """Outputs that are not exactly the oracle's, and where first."""
    wanted, problems = evaluate(program, inputs), []
    for spec in program.outputs:
        want = from_float(wanted[spec.name], spec.dtype)
        same = found[spec.name] == want
        if spec.name == "back":  # of NaNs and of what may count as 0, the bits are not promised
            size = wanted["real"]
            same |= (size == 0) | (np.abs(size) < 2.0**-126)
        if spec.name == "real":
            same |= np.abs(want) < 2.0**-126
        if not same.all():
            at = int(np.argmax(~same.ravel()))
            has, wants = found[spec.name].ravel()[at], want.ravel()[at]
            problems.append(f"{spec.name} at {at}: {has} instead of {wants}")
    return problems


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.alike(2)
def test_on_the_cpu(dtype: str, code_cache: Path) -> None:
    program, inputs = whole(dtype)
    older = tuple(one for one in HOST.isa if not one.startswith(("avx512", "amx")))
    for isa in {"u8": (HOST.isa, ()), "i32": (HOST.isa, older)}.get(dtype, (HOST.isa,)):
        hardware = replace(HOST, isa=isa)
        (kernel,) = cpu_kernels(program, 0, hardware)
        (found,) = run_cpu(kernel, [inputs], code_cache)
        assert wrong(program, inputs, found) == []


@pytest.mark.parametrize(
    ("isa", "permutations"),
    [(("avx2", "avx512f"), ("permvar.sf.512", "vpermi2var.ps.512")), (("avx2",), ("avx2.permps",)),
     ((), ())],
)  # fmt: skip
def test_small_tables_lie_in_registers(isa: tuple[str, ...], permutations: tuple[str, ...]) -> None:
    """Where the machine permutes by indices."""
    kernel = cpu_kernels(whole("i32")[0], 0, replace(HOST, isa=isa))[0]
    text = kernel.text("llvm")
    assert ("permvar" in text, "permps" in text) == ("avx512f" in isa, isa == ("avx2",))
    assert all(one in text for one in permutations)
    assert "masked.gather" in text  # of 200 bytes, and of numbers of 64 bits


@pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
@pytest.mark.parametrize("dtype", ["i32", pytest.param("i64", marks=pytest.mark.long)])
def test_in_c(dtype: str, tmp_path: Path) -> None:
    program, inputs = whole(dtype)
    kernel = cpu_kernels(program, 0)[0]
    source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(source_text(kernel, standalone(kernel), {}))
    flags = C_FLAGS.replace("-O3", "-O1").split()
    subprocess.run([find_linker() or "cc", *flags, "-o", library, source], check=True)
    operands = [a for a in kernel.arguments if a.role != "workspace"]
    for a in operands:
        array = inputs.get(a.name, np.zeros(a.shape, numpy_dtype(a.dtype)))
        np.save(tmp_path / f"{a.name}.npy", array)
    command = [sys.executable, "-c", _RUN_C, str(library), standalone(kernel).symbol, str(tmp_path)]
    subprocess.run([*command, *(a.name for a in operands)], check=True)
    found = {spec.name: np.load(tmp_path / f"{spec.name}.npy") for spec in program.outputs}
    assert wrong(program, inputs, found) == []


@needs_emulator
@pytest.mark.parametrize("dtype", INTEGERS)
def test_on_cuda(dtype: str) -> None:
    program, inputs = whole(dtype)
    kernel = BACKEND.lower(program, drawn(program, 0, 1, 0)[0], HARDWARE)
    assert wrong(program, inputs, run_emulated(kernel, inputs)) == []


def test_in_numpy() -> None:
    """The array library beside which kernels are timed."""
    program, inputs = whole("i32")
    outputs = {s.name: np.empty(s.shape, numpy_dtype(s.dtype)) for s in program.outputs}
    NumpyLaunch(program, inputs, outputs)()
    assert wrong(program, inputs, outputs) == []


SMALL: tuple[tuple[Operator, dict[str, Any], str], ...] = (
    (bits_of_floats, {"n": 77}, ""),
    (scattered, {"m": 7, "n": 53}, ""),
    (shares, {"m": 7, "n": 53}, ""),
    (shares, {"m": 9, "n": 1024}, ""),
    (nf4_product, {"m": 40, "n": 48, "k": 40}, "fma"),
    (nf4_product, {"m": 64, "n": 64, "k": 64}, "mma"),
    (ring, {"n": 21, "size": 13}, ""),
)
NAMES = [f"{one.name}-{engine}-{args.get('n')}" for one, args, engine in SMALL]


def judged(program: Program, inputs: Inputs, found: Inputs) -> list[str]:
    wanted = bounds_of(program, inputs)
    return [v.detail for n, b in wanted.items() for v in (b.judge(found[n]),) if not v.right]


@pytest.mark.parametrize(("one", "arguments", "engine"), SMALL, ids=NAMES)
@pytest.mark.alike(2)
def test_programs_on_the_cpu(
    one: Operator, arguments: dict[str, Any], engine: str, code_cache: Path
) -> None:
    if engine not in ("", "fma"):
        pytest.skip("an engine of the CUDA target")
    program = one.build(**arguments)
    inputs = random_inputs(program, np.random.default_rng(1))
    for kernel in cpu_kernels(program, 2):
        (found,) = run_cpu(kernel, [inputs], code_cache)
        assert judged(program, inputs, found) == []


@needs_emulator
@pytest.mark.parametrize(("one", "arguments", "engine"), SMALL, ids=NAMES)
@pytest.mark.alike(2)
def test_programs_on_cuda(one: Operator, arguments: dict[str, Any], engine: str) -> None:
    program = one.build(**arguments)
    inputs = random_inputs(program, np.random.default_rng(1))
    for schedule in drawn(program, 0, 1, 1, engine):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert judged(program, inputs, run_emulated(kernel, inputs)) == []


def test_what_is_wrong_by_one_is_refused() -> None:
    for one, arguments, _ in SMALL[:2]:
        program = one.build(**arguments)
        inputs = random_inputs(program, np.random.default_rng(1))
        found = {
            name: from_float(value, program.scope.tensors[name].dtype)
            for name, value in evaluate(program, inputs).items()
        }
        assert judged(program, inputs, found) == []
        for name in found:
            spoilt = found[name].copy()
            spoilt.ravel()[3:4] = np.where(spoilt.ravel()[3:4] == 1, 3, 1)
            assert judged(program, inputs, {**found, name: spoilt}) != []


@needs_emulator
def test_drawn_numbers_are_compared_as_words() -> None:
    program = draws.build(n=96)
    high = np.array([0, 1, 2, 3, 4, 1677721, 1677722, 1 << 23, (1 << 24) - 1, (1 << 24) - 2])
    words = np.resize(np.concatenate([high << 8, (high << 8) + 255]), 96).astype(np.uint32)
    for schedule in drawn(program, 0, 1, 1):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert " >= 429496832ll)" in kernel.text("cuda")
        assert wrong(program, {"words": words}, run_emulated(kernel, {"words": words})) == []


def test_neighbours_of_a_thread_share_the_rounds_of_one_counter() -> None:
    try:
        nvrtc.version()
    except MissingTarget as error:
        pytest.skip(str(error))
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    program = shares.build(m=64, n=4096)
    space = BACKEND.space(program, HARDWARE)
    space = space.pin({"own.j": 16, "tile.j": 2048, "own.i": 1})
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    cubin, _ = nvrtc.compile_text(BACKEND.lower(program, schedule, HARDWARE).text("cuda"), "sm_90a")
    wide = sum(n for name, n in opcodes(cubin).items() if name.startswith("IMAD.WIDE.U32"))
    assert wide <= 4 * 20 + 8  # two products a round; 16 points are of four counters


@pytest.mark.parametrize("card", ["h200", "rtx4090"])
def test_texts_compile(card: str) -> None:
    try:
        nvrtc.version()
    except MissingTarget as error:
        pytest.skip(str(error))
    hardware = known_hardware(card)
    programs = [every_whole_function.build(n=40, dtype="i64"), bits_of_floats.build(n=9)]
    for program in (*programs, nf4_product.build(m=64, n=64, k=64)):
        schedule = drawn(program, 0, 1, 0, hardware=hardware)[0]
        kernel = BACKEND.lower(program, schedule, hardware)
        nvrtc.compile_text(kernel.text("cuda"), hardware.isa[0])
