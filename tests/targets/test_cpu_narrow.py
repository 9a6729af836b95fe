"""Narrow floats are widened and rounded as `ir.dtypes` says, by every machine's way, in C too."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer.exporter import find_linker, source_text
from explorer.runtime.once import run_once
from ir import Graph, Operator, cast, operator, reduce, where
from ir.dtypes import dtype_of, from_float, numpy_dtype, to_float
from ir.kernel import Kernel
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cpu.narrow import FORMATS
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.few import by_turns

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(1)
MACHINES = {"sse": (), "avx2": ("avx2",), "host": HOST.isa}
_BY_TURNS = [
    pytest.param(dtype, machine, marks=[] if (place + turn) % 3 == 0 else [pytest.mark.long])
    for place, dtype in enumerate(FORMATS)
    for turn, machine in enumerate(MACHINES)
]
needs_compiler = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")


@operator
def by_lanes(g: Graph, count: int, source: str, target: str, way: str = "f32") -> None:
    """Whole vectors and a tail."""
    place = g.axis("place", count)
    g.output("Y", cast(cast(g.input("X", (place,), source), way), target), target)


@operator
def one_by_one(g: Graph, count: int, source: str, target: str, way: str = "f32") -> None:
    """Scalars: each is the sum of itself and zeros in the other lanes."""
    place, lane = g.axis("place", count), g.axis("lane", 16)
    x = cast(cast(g.input("X", (place,), source), way), "f32")
    g.output("Y", reduce("sum", where(g.iota(lane) < 1, x, 0.0), lane), target)


Types = tuple[str, str, str]  # of what is given, of what is made of it on the way, of the result
FORMS = {by_lanes: "place", one_by_one: "lane"}


def kernel_of(form: Operator, types: Types, count: int, machine: str) -> Kernel:
    program = form.build(count=count, source=types[0], way=types[1], target=types[2])
    schedule = Schedule.of("cpu", {"lane.s0": FORMS[form]})
    return BACKEND.lower(program, schedule, replace(HOST, isa=MACHINES[machine]), full=True)


def every_pattern(dtype: str) -> np.ndarray:
    storage = numpy_dtype(dtype)
    row = dtype_of(dtype)
    return np.arange(1 << row.bits, dtype=f"u{row.bytes}").view(storage)


def awkward_numbers(dtype: str) -> np.ndarray:
    """Numbers of the format, what lies between neighbours and beside them, and the rest.

    No subnormal f32: instructions that round to bf16 take them for zero.
    """
    with np.errstate(invalid="ignore"):
        numbers = np.unique(to_float(every_pattern(dtype), dtype))
    numbers = numbers[np.isfinite(numbers)]
    numbers = numbers[:: len(numbers) // 3000 or 1] if dtype != "f16" else numbers
    between = numbers[1:] / 2 + numbers[:-1] / 2
    beside = [np.nextafter(between, np.float32(side)) for side in (-np.inf, np.inf)]
    largest = min(float(numbers[-1]) * (1 + 2.0 ** -FORMATS[dtype].mantissa), 3e38)
    rest = [0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 1e-30, 3e38, -3e38]
    found = np.concatenate([numbers, between, *beside, rest]).astype(np.float32)
    kept = (np.abs(found) >= 2.0**-126) | (found == 0) | np.isnan(found)
    return np.asarray(found[kept])


def same(have: np.ndarray, want: np.ndarray, dtype: str, form: Operator) -> None:
    """Equal numbers, and zeros of equal signs but where they were added to others."""
    with np.errstate(invalid="ignore"):
        have, want = to_float(have, dtype), to_float(want, dtype)
    assert np.array_equal(have, want, equal_nan=True)
    signed = ~np.isnan(want) & ((want != 0) | (form is by_lanes))
    assert np.array_equal(np.signbit(have[signed]), np.signbit(want[signed]))


def cases(dtype: str) -> list[tuple[np.ndarray, Types, np.ndarray]]:
    """(given, the types, what is right). Narrower than a byte, numbers are only on their way."""
    patterns, numbers = every_pattern(dtype), awkward_numbers(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = from_float(numbers, dtype)
        widened = to_float(patterns, dtype).astype(np.float32)
    if dtype_of(dtype).per_byte > 1:
        rounded = to_float(narrowed, dtype).astype(np.float32)
        return [(numbers, ("f32", dtype, "f32"), rounded)]
    narrow, wide = ("f32", "f32", dtype), (dtype, "f32", "f32")
    return [(patterns, wide, widened), (numbers, narrow, narrowed)]


def run_llvm(kernel: Kernel, given: np.ndarray, target: str, folder: Path) -> np.ndarray:
    output = np.zeros(given.shape, numpy_dtype(target))
    _, (output,) = run_once(kernel, [given, output], cache_dir=folder, timeout=30)
    return np.asarray(output)


def run_c(kernel: Kernel, given: np.ndarray, target: str, machine: str, folder: Path) -> np.ndarray:
    source, library = folder / f"{kernel.key}.c", folder / f"{kernel.key}.so"
    source.write_text(source_text(kernel, standalone(kernel), {}))
    native = {"sse": "x86-64", "avx2": "x86-64-v3", "host": "native"}[machine]
    flags = C_FLAGS.replace("native", native).replace("-O3", "-O0").split()
    command = [find_linker() or "cc", *flags, "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    output = np.zeros(given.shape, numpy_dtype(target))
    function = getattr(ctypes.CDLL(str(library)), standalone(kernel).symbol)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in (given, output)))
    return output


@pytest.mark.parametrize(("dtype", "machine"), by_turns(FORMATS, MACHINES))
def test_conversions_are_exact(dtype: str, machine: str, code_cache: Path) -> None:
    for given, types, want in cases(dtype):
        for form in FORMS:
            kernel = kernel_of(form, types, len(given), machine)
            same(run_llvm(kernel, given, types[2], code_cache), want, types[2], form)


@needs_compiler
@pytest.mark.parametrize(("dtype", "machine"), _BY_TURNS)
@pytest.mark.alike(2)
def test_c_converts_alike(dtype: str, machine: str, tmp_path: Path) -> None:
    for given, types, want in cases(dtype):
        for form in FORMS:
            kernel = kernel_of(form, types, len(given), machine)
            same(run_c(kernel, given, types[2], machine, tmp_path), want, types[2], form)
