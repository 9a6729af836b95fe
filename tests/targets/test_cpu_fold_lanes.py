"""Folds in lanes: runs of neighbours beside each other, merged in their order."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from explorer.exporter import find_linker, source_text
from ir import Graph, argmax, cast, cumulative, exp, fold, maximum, scan, sin, where
from ir.dtypes import from_float, numpy_dtype
from ir.inputs import drawn_inputs
from ir.kernel import Kernel
from ir.merges import merge_of
from ir.ops.base import TensorSpec
from ir.oracle import evaluate
from ir.plain.build import plain_kernel
from ir.plain.code import (
    Accumulate,
    Array,
    Assign,
    Call,
    Element,
    If,
    Let,
    Name,
    Number,
    PlainKernel,
    Write,
)
from ir.plain.meaning import meaning
from ir.program import Program
from ir.target import Hardware, get_backend
from ir.targets.cpu.plain_fold_lanes import FEWEST, lane_arrays
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.judging import bounds_of
from tests.targets.test_c_printer import needs_compiler
from tests.targets.test_cpu_plain import lowered
from tests.targets.test_meaning_of_numbers import run_cpu

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(2)
States = Sequence[Any]


def _matrices(a: States, b: States) -> tuple[Any, ...]:
    """The product of two matrices of two rows, which does not commute."""
    return tuple(b[2 * i] * a[j] + b[2 * i + 1] * a[2 + j] for i in range(2) for j in range(2))


def _maps(a: States, b: States) -> tuple[Any, ...]:
    """An affine map behind another one."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def _latest(a: States, b: States) -> tuple[Any, ...]:
    """The last that is not zero."""
    return (where(b[0] == 0, a[0], b[0]),)


def _moments(a: States, b: States) -> tuple[Any, ...]:
    count, apart = a[0] + b[0], b[1] - a[1]
    mean = a[1] + apart * (b[0] / count)
    return count, mean, a[2] + b[2] + apart * apart * (a[0] * b[0] / count)


def _exponentials(a: States, b: States) -> tuple[Any, ...]:
    most = maximum(a[0], b[0])
    return most, a[1] * exp(a[0] - most) + b[1] * exp(b[0] - most)


MERGES: dict[str, tuple[Callable[[States, States], tuple[Any, ...]], int]] = {
    "matrices": (_matrices, 4), "maps": (_maps, 2), "latest": (_latest, 1),
}  # fmt: skip


def _program(
    name: str, n: int, dtype: str, rows: int = 1, backward: bool = False, kept: bool = False
) -> Program:
    merge, count = MERGES[name]
    g = Graph("ordered")
    m, i = g.axes(m=rows, n=n)
    states = tuple(g.input(f"X{number}", (m, i), dtype) for number in range(count))
    how, axes = (scan, (m, i)) if kept else (fold, (m,))
    for number, tile in enumerate(how(merge, states, i, backward=backward)):
        g.output(f"Y{number}", tile, dtype, axes)
    return g.program()


def _exact_inputs(name: str, program: Program, seed: int) -> dict[str, np.ndarray]:
    """Numbers that no merge makes large: signed permutations, signs, zeros."""
    rng, shape = np.random.default_rng(seed), program.inputs[0].shape
    sign = rng.choice([-1.0, 1.0], (4, *shape))
    found = {
        "matrices": np.stack([np.eye(2).ravel(), np.eye(2)[::-1].ravel()]).T[
            :, (rng.random(shape) < 0.5).astype(int)
        ] * sign[[0, 0, 1, 1]],
        "maps": np.stack([sign[0], rng.integers(-1, 2, shape)]),
        "latest": np.where(rng.random((1, *shape)) < 3 / shape[1], sign[:1], 0.0),
    }[name]  # fmt: skip
    return {
        spec.name: from_float(array, spec.dtype)
        for spec, array in zip(program.inputs, found, strict=True)
    }


def _kernels(program: Program, hardware: Hardware = HOST) -> list[Kernel]:
    space = BACKEND.space(program, hardware)
    rows = space.seed_rows(np.random.default_rng(0))
    chosen = dict.fromkeys(space.schedule(row) for row in rows)
    return [BACKEND.lower(program, one, hardware, full=True) for one in chosen]


def _agree(program: Program, inputs: dict[str, np.ndarray], folder: Path) -> None:
    """Kernels give the exact states, to the bit."""
    wanted = evaluate(program, inputs)
    for kernel in _kernels(program):
        (found,) = run_cpu(kernel, [inputs], folder)
        for spec in program.outputs:
            expected = from_float(np.asarray(wanted[spec.name], np.float64), spec.dtype)
            np.testing.assert_array_equal(found[spec.name], expected, spec.name)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example("matrices", FEWEST, "f32", False, 1, False)
@example("matrices", 1 << 13, "f32", True, 1, False)
@example("matrices", 1 << 13, "f32", True, 1, True)
@example("matrices", 5000, "i32", False, 1, True)
@example("maps", 4096, "i32", False, 2, False)
@given(
    st.sampled_from(sorted(MERGES)),
    st.integers(FEWEST - 20, 14_000),
    st.sampled_from(["f32", "f64", "i32", "i64", "bf16", "f16", "i8"]),
    st.booleans(),
    st.integers(1, 2),
    st.booleans(),
)
def test_what_does_not_commute_is_merged_in_order(
    code_cache: Path, name: str, n: int, dtype: str, backward: bool, rows: int, kept: bool
) -> None:
    program = _program(name, n, dtype, rows, backward, kept)
    _agree(program, _exact_inputs(name, program, n), code_cache)


def _everything(n: int) -> Program:
    """States that are constant, counted, truth values, computed, of several types; neighbours that
    conditions leave out; places of extremes."""
    g = Graph("everything")
    (i,) = g.axes(n=n)
    x, y = g.input("X", (i,), "f32"), g.input("Y", (i,), "bf16")
    count, mean, squares = fold(
        _moments, (g.constant(1.0, "f32"), x + sin(cast(y, "f32")), g.constant(0.0, "f32")), i
    )
    g.output("variance", squares / count)
    g.output("mean", mean)
    most, total = fold(_exponentials, (x, g.constant(1.0, "f32")), i, backward=True)
    g.output("most", most)
    g.output("total", total)
    g.output("place", argmax(x, i))
    seen, last = fold(lambda a, b: (a[0] | b[0], where(b[0], b[1], a[1])), (x > 2.5, g.iota(i)), i)
    g.output("seen", cast(seen, "i32"))
    g.output("last", last)
    counts, means, _ = scan(
        _moments, (g.constant(1.0, "f32"), x, g.constant(0.0, "f32")), i, backward=True
    )
    g.output("means", means)
    g.output("counts", counts, "bf16")
    ends, _ = scan(
        lambda a, b: (where(b[1], b[0], a[0] | b[0]), a[1] | b[1]), (x > 2.0, x < -2.0), i
    )
    g.output("ends", ends, "bool")
    (top,) = fold(lambda a, b: (maximum(a[0] * 1.0, b[0]),), (x.at(n=i - 3, fill=-9.0),), i)
    g.output("top", top)
    for turn in (False, True):  # conditions that hold between both ends
        inside = where(x.at(n=i + 5, fill=0.0) > 2.0, x.at(n=i - 3, fill=0.0), 0.0)
        g.output(f"edge{turn:d}", fold(_latest, (inside,), i, backward=turn)[0])
    return g.program()


def _check(program: Program, folder: Path, hardware: Hardware = HOST) -> None:
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    for kernel in _kernels(program, hardware)[:3]:
        (found,) = run_cpu(kernel, [inputs], folder)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


@pytest.mark.parametrize("n", [FEWEST, FEWEST + 1, 4095, 5000])
def test_any_states(n: int, code_cache: Path) -> None:
    _check(_everything(n), code_cache)


@pytest.mark.parametrize("isa", [("avx2",), ()], ids=["avx2", "none"])
def test_any_machine(isa: tuple[str, ...], code_cache: Path) -> None:
    if not set(isa) <= set(HOST.isa):
        pytest.skip("no avx2 here")
    _check(_everything(4500), code_cache, replace(HOST, isa=isa))


@needs_compiler
def test_c_does_the_same(tmp_path: Path) -> None:
    program = _everything(4500)
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    kernel = _kernels(program)[0]
    source, library = tmp_path / "kernel.c", tmp_path / "kernel.so"
    source.write_text(source_text(kernel, standalone(kernel), {}))
    flags = C_FLAGS.replace("-O3", "-O1").split()
    subprocess.run([find_linker() or "cc", *flags, "-o", library, source], check=True)
    found = {s.name: np.empty(s.shape, numpy_dtype(s.dtype)) for s in program.outputs}
    operands = [a.name for a in kernel.arguments if a.role != "workspace"]
    function = getattr(ctypes.CDLL(str(library)), standalone(kernel).symbol)
    arrays = [{**inputs, **found}[name] for name in operands]
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


def _welford(n: int, kept: bool = False) -> Program:
    g = Graph("welford")
    (i,) = g.axes(n=n)
    x = g.input("X", (i,), "f32")
    how = scan if kept else fold
    _, mean, _ = how(_moments, (g.constant(1.0, "f32"), x, g.constant(0.0, "f32")), i)
    g.output("mean", mean)
    return g.program()


@pytest.mark.parametrize("kept", [False, True])
def test_merges_are_of_vectors(kept: bool) -> None:
    kernel = _kernels(_welford(5000, kept), BACKEND.hardware(1))[0]
    divided = re.findall(r"fdiv [a-z ]*<(\d+) x float>", kernel.text("llvm"))
    assert len(divided) >= 2
    assert set(divided) <= {"4", "8"}


def test_running_sums_of_floats_are_found_in_vectors() -> None:
    g = Graph("sums")
    (i,) = g.axes(n=5000)
    g.output("Y", cumulative("sum", g.input("X", (i,), "f32"), i))
    kernel = _kernels(g.program(), BACKEND.hardware(1))[0]
    assert re.search(r"fadd [a-z ]*<[48] x float>", kernel.text("llvm"))


def test_between_ends_merges_are_of_vectors() -> None:
    """Where nothing is read beyond a tensor's edges."""
    g = Graph("edges")
    (i,) = g.axes(n=3000)
    x = g.input("X", (i,), "f32")
    states = (x.at(n=i - 3, fill=0.5), x.at(n=i + 70, fill=-0.5))
    g.output("Y", fold(_exponentials, states, i)[1])
    kernel = _kernels(g.program(), BACKEND.hardware(1))[0]
    assert re.search(r"fmul [a-z ]*<8 x float>|fmul [a-z ]*<4 x float>", kernel.text("llvm"))


def test_edges_that_each_point_has_its_own_of(code_cache: Path) -> None:
    """What is read from some coordinate on, which depends on the point."""
    p, n, v, state = Name("p"), Name("n"), Name("v", "f32"), Name("s", "f32")
    begins = Call("mul", (p, Number(200, "i64")), "i64")
    where_read = If(Call("le", (begins, n), "bool"), (Assign(v, Element("X", n, "f32")),))
    merge = merge_of("add(mul(a0, 0.0), b0)")  # the last one
    body = (Let(v, Number(0.0, "f32")), where_read)
    for backward in (False, True):
        folded = Accumulate(n, 700, backward, body, (v,), (state,), merge)
        tensors = (TensorSpec("X", (700,), "f32"), TensorSpec("Y", (4,), "f32", "output"))
        arrays = tuple(Array(spec.name, "f32", spec.shape[0]) for spec in tensors)
        kernel = PlainKernel("edges", tensors, arrays, ((p, 4),), (folded, Write("Y", p, state)))
        x = np.arange(1, 701, dtype=np.float32)
        wanted = meaning(kernel, {"X": x})
        (found,) = run_cpu(lowered(kernel), [{"X": x}], code_cache)
        assert lane_arrays(kernel)
        np.testing.assert_array_equal(found["Y"], wanted["Y"])


def test_what_is_short_far_apart_or_simple_is_folded_one_by_one() -> None:
    g = Graph("columns")
    i, m = g.axes(n=1000, m=100)
    g.output("Y", fold(_latest, (g.input("X", (i, m), "f32"),), i)[0])
    h = Graph("or")
    (k,) = h.axes(n=1000)
    h.output("Y", fold("max", (h.input("X", (k,), "i32"),), k)[0])
    assert lane_arrays(plain_kernel(_welford(FEWEST)))
    assert not lane_arrays(plain_kernel(_welford(FEWEST - 1)))
    assert not lane_arrays(plain_kernel(g.program()))
    assert not lane_arrays(plain_kernel(h.program()))
