"""NaN, infinities, zeros: kernels of drawn schedules have them where the oracle has them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from explorer.exporter import find_linker, source_text
from explorer.runtime.base import get_runtime
from explorer.runtime.cpu import request_tile_permission
from ir.dtypes import numpy_dtype
from ir.kernel import Kernel
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.target import Hardware, get_backend
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.emulator.emulate import MODES, compiler, emulate
from tests.judging import strictly
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.hostile import (
    KINDS,
    OPERATORS,
    SPECIAL,
    differences,
    every_function,
    hostile_inputs,
    special_inputs,
    wrong_functions,
)
from tests.targets.test_cuda_emulated import arrays_of

HOST = get_backend("cpu").hardware(1)
RUNTIME = get_runtime("cpu")
needs_emulator = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
Inputs = dict[str, Array]
NAMES = [f"{name.rpartition(':')[2]}-{i}" for i, (name, _, _) in enumerate(OPERATORS)]


@pytest.fixture(scope="module")
def cache_dir(code_cache: Path) -> Path:
    request_tile_permission()
    return code_cache


def cpu_kernels(program: Program, count: int, hardware: Hardware = HOST) -> list[Kernel]:
    backend = get_backend("cpu")
    space, rng = backend.space(program, hardware), np.random.default_rng(count)
    rows = [space.seed_rows(rng)[0], *space.sample(rng, count)]
    return [backend.lower(program, space.schedule(row), hardware, full=True) for row in rows]


def run_cpu(kernel: Kernel, cases: Sequence[Inputs], folder: Path) -> list[Inputs]:
    """What a kernel makes of several inputs, in this process."""
    loaded = RUNTIME.load(RUNTIME.compile(kernel, folder))
    found = []
    for inputs in cases:
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        outputs = {a.name: RUNTIME.empty(a.shape, a.dtype) for a in operands if a.role == "output"}
        given = [
            outputs[a.name] if a.role == "output" else RUNTIME.place(inputs[a.name])
            for a in operands
        ]
        loaded.bind(given)()
        found.append(outputs)
    return found


def run_emulated(kernel: Kernel, inputs: Inputs) -> Inputs:
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[0], limit=30)
    assert run.faults == ()
    return arrays


@cache
def functions(dtype: str) -> tuple[Program, Inputs, Inputs]:
    program = every_function.build(m=len(SPECIAL), n=len(SPECIAL), dtype=dtype)
    inputs = special_inputs(program)
    return program, inputs, evaluate(program, inputs)


@pytest.mark.parametrize("isa", [HOST.isa, ("avx2",), ()], ids=["all", "avx2", "none"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.alike(2)
def test_functions_of_special_numbers(dtype: str, isa: tuple[str, ...], cache_dir: Path) -> None:
    program, inputs, wanted = functions(dtype)
    if not set(isa) <= set(HOST.isa):
        pytest.skip("no avx2 here")
    for kernel in cpu_kernels(program, 1, replace(HOST, isa=isa)):
        (found,) = run_cpu(kernel, [inputs], cache_dir)
        assert wrong_functions(program, wanted, found) == []


@needs_emulator
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_of_special_numbers_on_cuda(dtype: str) -> None:
    program, inputs, wanted = functions(dtype)
    kernel = BACKEND.lower(program, drawn(program, 0, 1, 0)[0], HARDWARE)
    assert wrong_functions(program, wanted, run_emulated(kernel, inputs)) == []


_RUN_C = """\
import ctypes, sys
import numpy as np
library, entry, folder, *names = sys.argv[1:]
arrays = [np.load(f"{folder}/{name}.npy") for name in names]
function = getattr(ctypes.CDLL(library), entry)
function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
for name, array in zip(names, arrays):
    np.save(f"{folder}/{name}.npy", array)
"""


@pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
@pytest.mark.parametrize("machine", ["native", "x86-64"])
def test_functions_of_special_numbers_in_c(machine: str, tmp_path: Path) -> None:
    import sys

    program, inputs, wanted = functions("f32")
    hardware = HOST if machine == "native" else replace(HOST, isa=())
    kernel = cpu_kernels(program, 0, hardware)[0]
    source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(source_text(kernel, standalone(kernel), {}))
    flags = C_FLAGS.replace("native", machine).replace("-O3", "-O1").split()
    subprocess.run([find_linker() or "cc", *flags, "-o", library, source], check=True)
    operands = [a for a in kernel.arguments if a.role != "workspace"]
    for a in operands:
        np.save(
            tmp_path / f"{a.name}.npy", inputs.get(a.name, np.zeros(a.shape, numpy_dtype(a.dtype)))
        )
    names = [a.name for a in operands]
    subprocess.run(
        [sys.executable, "-c", _RUN_C, library, standalone(kernel).symbol, tmp_path, *names],
        check=True,
    )
    found = {spec.name: np.load(tmp_path / f"{spec.name}.npy") for spec in program.outputs}
    assert wrong_functions(program, wanted, found) == []


@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=NAMES)
@pytest.mark.alike(2)
def test_operators_on_the_cpu(number: int, cache_dir: Path) -> None:
    name, arguments, keep = OPERATORS[number]
    program = load_operator(name).build(**arguments)
    cases = [hostile_inputs(program, kind, number, keep) for kind in KINDS]
    wanted = [strictly(program, inputs) for inputs in cases]
    for kernel in cpu_kernels(program, 1):
        for kind, want, found in zip(KINDS, wanted, run_cpu(kernel, cases, cache_dir), strict=True):
            assert differences(want, found, alike=alike(name, kind)) == [], kind


ON_CUDA = (
    "row_max-12", "column_max-13", "softmax-8", "layernorm-9", "attention-17", "matmul_bias_act-3",
    "logsumexp-21",
)  # fmt: skip


@needs_emulator
@pytest.mark.parametrize("label", ON_CUDA)
def test_operators_on_cuda(label: str) -> None:
    name, arguments, keep = OPERATORS[NAMES.index(label)]
    program = load_operator(name).build(**arguments)
    cases = {kind: hostile_inputs(program, kind, 7, keep) for kind in KINDS}
    kernel = BACKEND.lower(program, drawn(program, 7, 0, 1)[0], HARDWARE)
    for kind, inputs in cases.items():
        found, want = run_emulated(kernel, inputs), strictly(program, inputs)
        assert differences(want, found, alike=alike(name, kind)) == [], kind


def alike(name: str, kind: str) -> bool:
    """Whether infinite and NaN results are told apart: not where a sum is relative to a maximum of
    -inf, which is NaN as written and 0 in one pass (see docs/numerics.md)."""
    return not (kind == "row of -inf" and name.endswith(("logsumexp", "divergence")))


def test_kernels_do_not_drop_a_nan_for_want_of_order(cache_dir: Path) -> None:
    """Wherever it is in its row or column, whatever lane and register it falls to."""
    for name in ("row_max", "column_max"):
        program = load_operator(name).build(m=40, n=40)
        x = np.full((40, 40, 40), -1.0, np.float32)
        x[np.arange(40), np.arange(40), np.arange(40)] = np.nan
        for kernel in cpu_kernels(program, 4):
            for place, found in enumerate(run_cpu(kernel, [{"X": one} for one in x], cache_dir)):
                assert np.flatnonzero(np.isnan(found["Y"])).tolist() == [place]
