"""Folds of what is dear to compute, a stretch of the axis at a time: the same, in vectors."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from explorer.exporter import find_linker, source_text
from ir import (
    Axis,
    Graph,
    Tile,
    cast,
    cumulative,
    exp,
    fold,
    philox_uniform,
    scan,
    sigmoid,
    sin,
    where,
)
from ir.dtypes import numpy_dtype
from ir.inputs import drawn_inputs
from ir.kernel import Kernel
from ir.merges import NAMED, merge_of
from ir.ops.base import TensorSpec
from ir.plain.build import plain_kernel
from ir.plain.code import (
    Accumulate,
    Array,
    Call,
    Convert,
    Let,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Write,
)
from ir.plain.meaning import meaning
from ir.program import Program
from ir.target import Hardware, get_backend
from ir.targets.cpu import plain_stretches
from ir.targets.cpu.plain_stretches import LONGEST, stretch_arrays
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.judging import bounds_of
from tests.targets.test_c_printer import needs_compiler
from tests.targets.test_cpu_plain import STORED, Drawn, inputs_of, lowered
from tests.targets.test_meaning_of_numbers import run_cpu

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(2)
Made = Callable[[Graph, Axis, Axis, Tile], None]


def program_of(make: Made, rows: int, steps: int, dtype: str = "f32") -> Program:
    g = Graph("stretches")
    m, t = g.axes(m=rows, t=steps)
    make(g, m, t, g.input("x", (m, t), dtype))
    return g.program()


def forward(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    g.output("sums", cumulative("sum", sin(x) * exp(x), t), x.dtype, (m, t))


def backward(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    g.output("sums", cumulative("sum", sin(x) * exp(x), t, backward=True), x.dtype, (m, t))


def exclusive(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    """What comes before a point: read there, and by what is taken off again."""
    made = sin(x) * exp(x)
    g.output("read", cumulative("sum", sin(x.at(t=t - 1, fill=0)), t), "f32", (m, t))
    g.output("less", cumulative("sum", made, t) - made, "f32", (m, t))
    g.output(
        "after", cumulative("sum", exp(x.at(t=t + 2, fill=0)), t, backward=True), "f32", (m, t)
    )


def several(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    """Two states, kept and made into more; a fold of which the end is stored alone."""
    a, b = scan("affine", (sigmoid(x), sin(x)), t)
    g.output("a", a, "bf16", (m, t))
    g.output("b", exp(b), "f32", (m, t))
    (most,) = fold("max", sin(x) * sin(x), t)
    g.output("most", most, "f32", (m,))
    _, last = fold("affine", (sigmoid(x), sin(x)), t, backward=True)
    g.output("last", last, "f32", (m,))


def drawn(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    """Numbers in 64 bits on the way, and truth values as states and as outputs."""
    u = philox_uniform(g.coordinate(m * 5003 + t), seed=3)
    g.output("walk", cumulative("sum", u - 0.5, t), "f32", (m, t))
    g.output("any", cumulative("max", u > 0.9, t), "bool", (m, t))


def turned(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    """Along the axis that is not the last one in memory; rows of another tensor that lie apart."""
    y = g.input("y", (t, m), "f32")
    g.output("rows", cumulative("sum", sin(y), t), "f32", (t, m))
    g.output("mixed", cumulative("sum", sin(y) * exp(cast(x, "f32")), t), "f32", (m, t))


def counted(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
    """Whole numbers, quotients, shifts and masks that rows choose."""
    i = g.coordinate(m + t * 3)
    inside = where(g.iota(m) < 2, (i * 7919 % 31) // 3 + (i >> 1), cast(x > 0, "i32"))
    g.output("counts", cumulative("sum", inside, t), "i32", (m, t))
    g.output("bytes", cumulative("max", i * 7919 % 31 // 3, t, backward=True), "u8", (m, t))


WAYS: tuple[Made, ...] = (forward, backward, exclusive, several, drawn, turned, counted)


def kernels(program: Program, hardware: Hardware, every: bool) -> list[Kernel]:
    space = BACKEND.space(program, hardware)
    rows = space.seed_rows(np.random.default_rng(0))
    chosen = [space.schedule(row) for row in (rows if every else rows[:2])]
    return [BACKEND.lower(program, one, hardware, full=True) for one in dict.fromkeys(chosen)]


def check(program: Program, folder: Path, hardware: Hardware = HOST, every: bool = True) -> None:
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    for kernel in kernels(program, hardware, every):
        (found,) = run_cpu(kernel, [inputs], folder)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


@pytest.mark.parametrize("steps", [4, 5, 17, 33, LONGEST, LONGEST + 1, 2 * LONGEST + 37])
@pytest.mark.parametrize("make", WAYS)
@pytest.mark.alike(2)
def test_any_extent(make: Made, steps: int, code_cache: Path) -> None:
    check(program_of(make, 3, steps), code_cache)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "f64", "i8", "u8", "i32", "i64", "bool"])
@pytest.mark.parametrize("make", [forward, several])
@pytest.mark.alike(2)
def test_any_type(make: Made, dtype: str, code_cache: Path) -> None:
    def converted(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
        make(g, m, t, cast(x, "f32") if x.dtype not in ("f16", "f64") else x)

    check(program_of(converted, 3, 37, dtype), code_cache)


@pytest.mark.parametrize("isa", [("avx2",), ()], ids=["avx2", "none"])
@pytest.mark.parametrize("make", WAYS)
@pytest.mark.alike(2)
def test_any_machine(make: Made, isa: tuple[str, ...], code_cache: Path) -> None:
    if not set(isa) <= set(HOST.isa):
        pytest.skip("no avx2 here")
    check(program_of(make, 3, 45), code_cache, replace(HOST, isa=isa), every=False)


@needs_compiler
@pytest.mark.parametrize("make", WAYS)
@pytest.mark.alike(2)
def test_c_does_the_same(make: Made, tmp_path: Path) -> None:
    program = program_of(make, 3, LONGEST + 21)
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    (kernel, *_) = kernels(program, HOST, False)
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


class Near(Drawn):
    """Statements of which all reads are of a point's own row, at evenly growing places."""

    row, variable, extent = Name("p"), Name("n"), 0

    def place(self, scope: list[Name]) -> Scalar:
        back = Call("sub", (Number(self.extent - 1, "i64"), self.variable), "i64")
        column = self.pick((self.variable, back, Number(1, "i64")))
        start = Call("mul", (self.row, Number(self.extent, "i64")), "i64")
        return Call("add", (start, column), "i64")

    def lets(self, scope: list[Name], count: int) -> tuple[Let, ...]:
        found: list[Let] = []
        for _ in range(count):
            name = self.fresh(self.pick(("f32", "i32", "i64", "bool")))
            found.append(Let(name, self.scalar(name.dtype, [*scope, *(one.name for one in found)])))
        return tuple(found)


def drawn_fold(seed: int, extent: int) -> PlainKernel:
    """A fold of what is drawn, at three points, with what is drawn made of its states."""
    draws, size = Near(seed), 3 * extent
    draws.extent = extent
    specs = [TensorSpec("H", (size,), "f16", "input"), TensorSpec("B", (size,), "u8", "input")]
    specs += [TensorSpec(f"Y{dtype}", (size,), dtype, "output") for dtype in STORED]
    arrays = tuple(Array(spec.name, spec.dtype, size) for spec in specs)
    scope = [draws.row, draws.variable]
    body = draws.lets(scope, 6)
    states = tuple(Name(f"s{number}", draws.pick(("i32", "i64"))) for number in range(2))
    states = (states[0], Name(states[1].name, states[0].dtype))
    values = tuple(draws.scalar(s.dtype, [*scope, *(one.name for one in body)]) for s in states)
    kept = draws.lets([*scope, *states], 4)
    known = [*scope, *states, *(one.name for one in kept)]
    here = Call("mul", (draws.row, Number(extent, "i64")), "i64")
    here = Call("add", (here, draws.variable), "i64")
    writes = tuple(Write(f"Y{d}", here, _stored(draws, d, known)) for d in STORED)
    merge = merge_of(draws.pick((NAMED["affine"], NAMED["argmax"])))
    backward = bool(draws.rng.random() < 0.5)
    statement = Accumulate(
        draws.variable, extent, backward, body, values, states, merge, (*kept, *writes)
    )
    return PlainKernel("drawn", tuple(specs), arrays, ((draws.row, 3),), (statement,))


def _stored(draws: Drawn, dtype: str, scope: list[Name]) -> Scalar:
    if dtype in ("i64", "bool"):
        return draws.scalar(dtype, scope)
    value = draws.scalar("i32" if dtype[0] in "iu" else "f32", scope)
    return Convert(value, "f64", "f64") if dtype == "f64" else value


@pytest.mark.parametrize(("extent", "longest"), [(5, LONGEST), (50, LONGEST), (33, 32), (77, 32)])
def test_folds_of_what_is_drawn(
    extent: int, longest: int, monkeypatch: pytest.MonkeyPatch, code_cache: Path
) -> None:
    monkeypatch.setattr(plain_stretches, "LONGEST", longest)
    folds = (drawn_fold(seed, extent) for seed in range(40))
    for plain in islice((one for one in folds if stretch_arrays(one)), 12):
        inputs = inputs_of(plain, extent)
        wanted = meaning(plain, inputs)
        (found,) = run_cpu(lowered(plain), [inputs], code_cache)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, name)


def texts_of(make: Made, steps: int = 64) -> list[str]:
    program = program_of(make, 3, steps)
    return [kernel.text("llvm") for kernel in kernels(program, BACKEND.hardware(1), False)]


def test_what_is_folded_is_computed_in_vectors() -> None:
    """The product of a sine and an exponential, in each of the ways to run it; the multiplications
    of numbers in 64 bits."""
    assert all(re.search(r"fmul [a-z ]*<\d+ x float>", text) for text in texts_of(forward))
    assert all(re.search(r"mul [a-z ]*<\d+ x i64>", text) for text in texts_of(drawn))


def test_what_is_made_of_states_is_computed_in_vectors() -> None:
    def made(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
        g.output("y", exp(cumulative("sum", x, t)), "f32", (m, t))

    assert all(re.search(r"fmul [a-z ]*<\d+ x float>", text) for text in texts_of(made))


def test_neighbours_along_another_axis_are_vectors() -> None:
    g = Graph("columns")
    t, m = g.axes(t=9, m=64)
    u = philox_uniform(g.coordinate(t * 64 + m), seed=3)
    g.output("y", cumulative("sum", u, t), "f32", (t, m))
    program, one = g.program(), BACKEND.hardware(1)
    space = BACKEND.space(program, one)
    rows = [space.schedule(row) for row in space.seed_rows(np.random.default_rng(0))]
    (inner,) = {row for row in rows if row["inner"]}
    assert re.search(r"mul [a-z ]*<\d+ x i64>", BACKEND.lower(program, inner, one).text("llvm"))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "u8", "i64", "bool"])
@pytest.mark.alike(2)
def test_columns_of_any_type(dtype: str, code_cache: Path) -> None:
    """Neighbours along the last axis, one fold of each: vectors, few lanes, and one by one."""
    g = Graph("columns")
    t, m = g.axes(t=6, m=39)
    x = g.input("x", (t, m), dtype)
    made = sin(x if dtype == "f64" else cast(x, "f32")) * 3
    g.output("sums", cumulative("sum", made, t), "f32", (t, m))
    g.output("own", cumulative("max", x, t, backward=True), dtype, (t, m))
    a, b = scan("affine", (sigmoid(made), cast(g.iota(m) // 5, "f32")), t)
    g.output("b", exp(a) + b, "bf16", (t, m))
    check(g.program(), code_cache)


def test_what_is_read_and_hardly_changed_is_folded_as_it_is_read() -> None:
    def loaded(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
        g.output("y", cumulative("sum", x * x, t) * 2, "f32", (m, t))

    def apart(g: Graph, m: Axis, t: Axis, x: Tile) -> None:
        y = g.input("y", (t, m), "f32")
        g.output("z", cumulative("sum", sin(y), t), "f32", (m, t))

    assert stretch_arrays(plain_kernel(program_of(forward, 32, 64)))
    assert not stretch_arrays(plain_kernel(program_of(forward, 32, 3)))
    assert not stretch_arrays(plain_kernel(program_of(loaded, 32, 64)))
    assert not stretch_arrays(plain_kernel(program_of(apart, 32, 64)))


def test_of_several_ways_the_one_in_vectors_comes_first() -> None:
    program = program_of(forward, 4096, 64)
    space = BACKEND.space(program, HOST)
    assert space.schedule(space.seed_rows(np.random.default_rng(0))[0])["beside"] == 0
    assert stretch_arrays(plain_kernel(program))
