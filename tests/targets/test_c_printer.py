"""Kernels printed as C compute what the oracle says, on this machine's compiler and without it."""

from __future__ import annotations

import ctypes
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import export, find_linker, source_text
from ir import (
    Graph,
    apply,
    cast,
    exp,
    operator,
    reduce,
    where,
)
from ir.dtypes import numpy_dtype
from ir.kernel import Kernel
from ir.oracle import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.target import get_backend
from ir.targets.cpu.c import print_c
from ir.targets.cpu.candidates import staged_program
from ir.targets.cpu.nest import I64, PTR, Builder, Type, Value
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.judging import bounds_of
from tests.targets.mixed_types import any_and_all, bytes_product, many_results

GOLDEN = Path(__file__).parent / "golden"
BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(2)
needs_compiler = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")

PROCESSES = multiprocessing.get_context("fork")


def call(library: Path, entry: str, folder: Path, shift: int, names: Sequence[str]) -> None:
    """Run a kernel on the arrays of a folder, and write back what it left there."""
    rooms, arrays = [], []
    for name in names:
        array = np.load(folder / f"{name}.npy")
        room = np.full(array.nbytes + 192, 0xA5, np.uint8)
        first = -room.ctypes.data % 64 + shift
        arrays.append(room[first : first + array.nbytes].view(array.dtype).reshape(array.shape))
        arrays[-1][...] = array
        rooms.append((room, first, first + array.nbytes))
    function = getattr(ctypes.CDLL(str(library)), entry)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    for name, array, (room, first, last) in zip(names, arrays, rooms, strict=True):
        assert (room[:first] == 0xA5).all(), name
        assert (room[last:] == 0xA5).all(), name
        np.save(folder / f"{name}.npy", array)


@operator
def scalar_functions(g: Graph, m: int, n: int) -> None:
    """Every scalar function, comparisons and masks."""
    mm, nn = g.axes(m=m, n=n)
    x, y = g.input("X", (mm, nn), "f32"), g.input("Y", (nn,), "f32")
    positive = apply("abs", x) + 0.5
    total = exp(x) + apply("erf", x) + apply("tanh", y) + apply("sigmoid", x)
    total = total + apply("log", positive) + apply("sqrt", positive) + apply("rsqrt", positive)
    total = total + apply("floor", x * 3.0) + apply("max", x, y) - apply("min", x, y) / positive
    g.output("O", where(g.iota(nn) <= mm * 2, total, where(x < y, -total, 7.0)))


@operator
def small_types(g: Graph, m: int, n: int) -> None:
    """Bytes, booleans, doubles and bf16 in and out."""
    mm, nn = g.axes(m=m, n=n)
    a, b = g.input("A", (mm, nn), "u8"), g.input("B", (mm, nn), "i8")
    flag, wide = g.input("F", (nn,), "bool"), g.input("W", (mm, nn), "f64")
    narrow = g.input("H", (mm, nn), "bf16")
    g.output("I", a * b + 3)
    g.output("D", exp(wide) + a)
    g.output("P", where(flag, narrow, b), "bf16")
    g.output("T", a < b)
    g.output("S", reduce("sum", cast(narrow, "f32") * 0.5, nn), "bf16")


@operator
def lookup(g: Graph, t: int, v: int, d: int) -> None:
    """Rows of a table, chosen by an index tensor, times a weight."""
    tokens, width = g.axes(t=t, d=d)
    index = g.input("I", (tokens,), "i32")
    row = g.tensor("T", (v, d), "f32")[index, width]
    g.output("O", row * g.input("W", (width,), "f32"))


@operator
def permuted(g: Graph, m: int, n: int) -> None:
    """Columns of each row in an order of its own: lanes that gather."""
    mm, nn = g.axes(m=m, n=n)
    index = g.input("I", (mm, nn), "i32")
    g.output("O", g.tensor("T", (m, n), "f32")[mm, index] + 1.0)


@operator
def turned(g: Graph, m: int, n: int) -> None:
    """A transposed copy: strided lanes on one side, whichever axis they run over."""
    mm, nn = g.axes(m=m, n=n)
    g.output("O", exp(g.input("X", (mm, nn), "f32") * 0.1), None, (nn, mm))


BLOCKED = {
    "order.1": "n k m", "order.0": "n m", "tile.m.1": 197, "tile.m.0": 48, "tile.n.1": 200,
    "tile.n.0": 96, "tile.k.1": 64, "tile.k.0": 64, "parallel": "n", "lane.s0": "n",
    "row.s0": "m", "rows.s0": 6, "vectors.s0": 2, "pack.s0.A": "no", "pack.s0.B": "1",
}  # fmt: skip
ROWS = {"parallel": "m", "tile.m.1": 16, "tile.m.0": 16, "lane.s0": "n", "vectors.s0": 2}
# name, operator, arguments, schedule, instruction sets that the schedule needs
CASES: tuple[tuple[str, Any, dict[str, Any], dict[str, Any], tuple[str, ...]], ...] = (
    ("f32", "matmul", {"m": 197, "n": 200, "k": 101}, BLOCKED, ()),
    ("unrolled", "matmul", {"m": 24, "n": 64, "k": 96}, BLOCKED | {"unroll.s0": 2,
     "prefetch.s0": 4, "pack.s0.A": "0", "stream": True, "chunk": "dynamic"}, ()),
    ("k-lanes", "matmul", {"m": 20, "n": 24, "k": 101, "tb": True}, {"parallel": "m",
     "tile.m.1": 8, "tile.m.0": 8, "lane.s0": "k", "row.s0": "n", "rows.s0": 3,
     "vectors.s0": 2}, ()),
    ("bf16-dot", "matmul", {"m": 50, "n": 75, "k": 131, "dtype": "bf16"},
     BLOCKED | {"instruction.s0": "vdpbf16ps", "pack.s0.A": "1"}, ("avx512f", "avx512_bf16")),
    ("i8-dot", "matmul", {"m": 50, "n": 75, "k": 130, "dtype": "i8"},
     BLOCKED | {"instruction.s0": "vpdpwssd", "pack.s0.A": "1"}, ("avx512f", "avx512_vnni")),
    ("i8-moved", "matmul", {"m": 50, "n": 75, "k": 130, "dtype": "i8"},
     BLOCKED | {"instruction.s0": "vpdpbusd.moved", "pack.s0.A": "1"},
     ("avx512f", "avx512_vnni")),
    ("bf16-tile", "matmul", {"m": 50, "n": 75, "k": 131, "dtype": "bf16"},
     BLOCKED | {"instruction.s0": "tdpbf16ps", "rows.s0": 2, "pack.s0.A": "1"},
     ("avx512f", "amx_bf16")),
    ("i8-tile", "matmul", {"m": 50, "n": 75, "k": 200, "dtype": "i8"},
     BLOCKED | {"instruction.s0": "tdpbssd", "rows.s0": 2, "pack.s0.A": "1"},
     ("avx512f", "amx_int8")),
    ("u8-dot", bytes_product, {"m": 50, "n": 75, "k": 130, "left": "u8", "right": "i8"},
     BLOCKED | {"instruction.s0": "vpdpbusd", "pack.s0.A": "1"}, ("avx512f", "avx512_vnni")),
    ("u8-tile", bytes_product, {"m": 50, "n": 75, "k": 200, "left": "u8", "right": "i8"},
     BLOCKED | {"instruction.s0": "tdpbusd", "rows.s0": 2, "pack.s0.A": "1"},
     ("avx512f", "amx_int8")),
    ("f16", "matmul", {"m": 50, "n": 75, "k": 101, "dtype": "f16"}, BLOCKED, ()),
    ("narrow-results", many_results, {"m": 9, "n": 53}, ROWS, ()),
    ("truth", any_and_all, {"m": 9, "n": 53}, ROWS, ()),
    ("row-max", "row_max", {"m": 30, "n": 77}, ROWS | {"lane.s0": "n", "row.s0": "m"}, ()),
    ("column-sum", "column_sum", {"m": 30, "n": 77}, {"lane.s0": "n", "vectors.s0": 2}, ()),
    ("softmax", "softmax", {"m": 20, "n": 77}, ROWS, ()),
    ("attention", "attention", {"b": 1, "heads": 2, "sq": 33, "d": 16, "causal": True}, {}, ()),
    ("convolution", "conv2d", {"n": 1, "h": 9, "w": 8, "c": 5, "f": 20, "padding": 1},
     {"lane.s0": "f", "row.s0": "q", "rows.s0": 4, "vectors.s0": 2}, ()),
    ("functions", scalar_functions, {"m": 9, "n": 53}, ROWS, ()),
    ("types", small_types, {"m": 9, "n": 53}, ROWS, ()),
    ("lookup", lookup, {"t": 11, "v": 7, "d": 37}, {"lane.s0": "d"}, ()),
    ("gather", permuted, {"m": 6, "n": 37}, {"lane.s0": "n"}, ()),
    ("scatter", turned, {"m": 20, "n": 37}, {"lane.s0": "n"}, ()),
    ("strided", turned, {"m": 20, "n": 37}, {"lane.s0": "m"}, ()),
)  # fmt: skip


def program_of(spec: Any, arguments: Mapping[str, Any]) -> Program:
    return (load_operator(spec) if isinstance(spec, str) else spec).build(**arguments)


def lowered(program: Program, values: Mapping[str, Any], isa: tuple[str, ...]) -> Kernel:
    """The kernel of a hand-made schedule; what it leaves open takes defaults."""
    stages = {stage.name for stage in staged_program(program).stages}
    kept = {k: v for k, v in values.items() if k.count(".s") == 0 or k.split(".")[1] in stages}
    schedule = Schedule.of("cpu", kept)
    return BACKEND.lower(program, schedule, replace(HOST, isa=isa), full=True)


def check(
    program: Program, kernel: Kernel, folder: Path, machine: str = "native", shift: int = 0
) -> None:
    """Compile the exported C, run it in a process of its own, compare with the oracle.

    Arrays lie `shift` bytes past a cache line, and the bytes around them must stay as they are.
    """
    source, library = folder / "kernel.c", folder / "kernel.so"
    source.write_text(source_text(kernel, standalone(kernel), {}))
    flags = C_FLAGS.replace("native", machine).replace("-O3", "-O2").split()
    command = [find_linker() or "cc", *flags, "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr[:2000]) == (0, "")  # no note either
    inputs = random_inputs(program, np.random.default_rng(0))
    operands = [a for a in kernel.arguments if a.role != "workspace"]
    for argument in operands:
        poison = np.full(argument.shape, 0x5A, numpy_dtype(argument.dtype))
        np.save(folder / f"{argument.name}.npy", inputs.get(argument.name, poison))
    names = [argument.name for argument in operands]
    run = PROCESSES.Process(
        target=call, args=(library, standalone(kernel).symbol, folder, shift, names)
    )
    run.start()
    run.join(60)
    hangs = run.is_alive()
    run.kill()
    assert not hangs
    assert run.exitcode == 0
    for name, bounds in bounds_of(program, inputs).items():
        assert bounds.judge(np.load(folder / f"{name}.npy")).detail == ""


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
@pytest.mark.alike(2)
def test_c_is_right(case: Any, tmp_path: Path) -> None:
    _, spec, arguments, values, needs = case
    if not set(needs) <= set(HOST.isa):
        pytest.skip(f"no {', '.join(needs)} here")
    program = program_of(spec, arguments)
    check(program, lowered(program, values, HOST.isa), tmp_path)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "machine", "isa"),
    [
        pytest.param(name, machine, isa, marks=[pytest.mark.long] if (place + turn) % 3 else [])
        for turn, (machine, isa) in enumerate(
            (("x86-64", ()), ("x86-64-v3", ("avx2",)), ("x86-64-v3", ("avx512f",)))
        )
        for place, name in enumerate(("f32", "row-max", "gather", "types", "narrow-results"))
    ],
)
@pytest.mark.alike(2)
def test_c_needs_no_wide_vectors(
    name: str, machine: str, isa: tuple[str, ...], tmp_path: Path
) -> None:
    if "avx2" not in HOST.isa and machine != "x86-64":
        pytest.skip("no avx2 here")
    _, spec, arguments, values, _ = next(case for case in CASES if case[0] == name)
    program = program_of(spec, arguments)
    check(program, lowered(program, values, isa), tmp_path, machine)


@needs_compiler
@pytest.mark.parametrize("shift", [0, 4])
def test_streaming_suits_any_address(shift: int, tmp_path: Path) -> None:
    """Whole vectors of whole rows stream; where the address forbids it, ordinary stores do."""
    program = program_of("softmax", {"m": 24, "n": 256})
    kernel = lowered(program, ROWS | {"stream": True}, HOST.isa)
    assert "stream_v" in kernel.text("c")
    assert "!nontemporal" in kernel.text("llvm").split("!0 =")[0]
    check(program, kernel, tmp_path, shift=shift)


_USE_EXPORT = """\
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, softmax
def shifted(array):
    room = np.zeros(array.nbytes + 128, np.uint8)
    first = -room.ctypes.data % 64 + 4
    view = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view
x = shifted(np.random.default_rng(0).standard_normal((24, 256), np.float32))
y = shifted(np.zeros_like(x))
assert y.ctypes.data % 64 == 4
e = np.exp(x - x.max(1, keepdims=True))
want = e / e.sum(1, keepdims=True)
assert softmax.softmax(x, **{sys.argv[2]: y}) is y
np.testing.assert_allclose(y, want, rtol=1e-5)
np.testing.assert_allclose(softmax.softmax(x), want, rtol=1e-5)
assert not any(name.split(".")[0] in ("ir", "explorer") for name in sys.modules)
"""


@needs_compiler
def test_an_exported_kernel_works_alone(tmp_path: Path) -> None:
    """All files are there; the module runs without Tilewright, on arrays at any address."""
    program = program_of("softmax", {"m": 24, "n": 256})
    kernel = lowered(program, ROWS | {"stream": True}, HOST.isa)
    folder = tmp_path / "out"
    files = export(kernel, {"operator": "softmax"}, folder, cache_dir=tmp_path / "cache")
    assert {path.name for path in files} == {
        "softmax.ll", "softmax.o", "softmax.c", "softmax.h", "softmax.json", "softmax.py",
        "libsoftmax.so",
    }  # fmt: skip
    run = [sys.executable, "-I", "-c", _USE_EXPORT, str(folder), program.outputs[0].name]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("names", "signature"),
    [
        (("args", "scratch"), "(const float *p_args, float *p_scratch)"),
        (("int", "twice"), "(const float *p_int, float *p_twice)"),
        (("A.b", "A_b"), "(const float *A_b, float *p_A_b)"),
        (("NULL", "class"), "(const float *NULL_, float *p_class)"),
        (("v16f32", "load_v16f32"), "(const float *v16f32_, float *load_v16f32_)"),
    ],
)
@pytest.mark.alike(2)
def test_operands_of_any_name_have_an_entry(
    names: tuple[str, str], signature: str, tmp_path: Path
) -> None:
    @operator
    def twice(g: Graph, m: int) -> None:
        g.output(names[1], g.input(names[0], g.axes(m=m), "f32") * 2.0)

    program = twice.build(m=37)
    kernel = lowered(program, {}, HOST.isa)
    assert standalone(kernel, "twice").signature == f"void twice{signature}"
    binding: Any = import_module("llvmlite.binding")
    binding.parse_assembly(standalone(kernel).texts[1]).verify()
    if find_linker():
        check(program, kernel, tmp_path)


def test_a_loop_inside_a_branch_starts_from_its_initial_value() -> None:
    """The loop runs in the variable of the branch's result, which nothing has set before."""
    b = Builder("branched")
    thread, _, args, _ = b.function.parameters
    vector = Type("f32", 4)
    pointer = b.load(PTR, args)
    start = b.load(vector, pointer)
    first = b.compare("eq", thread, 0)
    assert isinstance(first, Value)
    with b.branch(first) as branch:
        with b.loop("k", 0, 4, 1, [start]) as loop:
            loop.block.yields = (b.op("fadd", loop.carried[0], loop.carried[0]),)
        branch.then.yields = loop.results
        b.otherwise(branch)
        branch.other.yields = (b.constant(0.0, vector),)
    b.store(branch.results[0], pointer)
    text = print_c(b.function)
    assert text.index("v4f32 acc;") < text.index("acc = x;") < text.index("for (int64_t k")


def test_text_is_deterministic() -> None:
    program = program_of("softmax", {"m": 20, "n": 77})
    texts = {lowered(program, ROWS, ("avx2",)).text("c") for _ in range(2)}
    assert len(texts) == 1


def tiny() -> Builder:
    """One of everything: loops of three kinds, carried values, a branch, masks, a fold."""
    b = Builder("tiny")
    vector = Type("f32", 4)
    thread, _, args, team = b.function.parameters
    pointers = [b.load(Type("ptr"), args, 8 * i) for i in range(2)]
    for pointer, name in zip(pointers, ("A", "C"), strict=True):
        pointer.name = name
    source, target = pointers
    with b.loop("m", thread, 3, 2, runs=False) as rows:
        b.comment("squares of one row")
        row = b.offset(source, b.mul(rows.variable, 44))
        with b.loop("n", 0, 8, 4, [b.constant(0.0, vector)]) as columns:
            x = b.load(vector, b.offset(row, b.mul(columns.variable, 4)))
            columns.block.yields = (b.op("fma", x, x, columns.carried[0]),)
        tail = b.load(vector, row, 32, mask=3)
        squares = b.op("fma", tail, b.op("fmul", tail, b.constant(0.5, vector)), columns.results[0])
        last = b.compare("eq", rows.variable, 2)
        assert not isinstance(last, bool)
        with b.branch(last) as branch:
            branch.then.yields = (b.op("fneg", squares),)
            b.otherwise(branch)
            branch.other.yields = (squares,)
        b.store(b.fold("sum", branch.results[0]), b.offset(target, b.mul(rows.variable, 4)))
    b.call("tilewright_barrier", None, team)
    with b.loop("m", thread, b.minimum(b.add(thread, 5), 3), 1, [1, 0]) as swap:
        swap.block.yields = (swap.carried[1], swap.carried[0])
    where = b.offset(target, b.mul(swap.results[0], 8))
    total = b.add(swap.results[1], swap.results[0])
    assert isinstance(total, Value)
    b.store(b.convert(total, "f32"), where, 12)
    assert swap.variable.type == I64
    return b


def test_golden_text() -> None:
    """Change the golden file when the text is meant to change."""
    golden = GOLDEN / "tiny.c"
    assert print_c(tiny().function) == golden.read_text()
