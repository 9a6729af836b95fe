"""Plain kernels as nests: statements drawn at random leave what they mean, by both printers."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import find_linker, source_text
from explorer.runtime.process import Answer, Worker, process_server
from ir.dtypes import from_float, numpy_dtype
from ir.kernel import Kernel
from ir.merges import NAMED, merge_of
from ir.ops.base import TensorSpec
from ir.plain.code import (
    GROUP,
    THREAD,
    Accumulate,
    Array,
    Assign,
    Between,
    Call,
    Claim,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.meaning import meaning
from ir.target import get_backend
from ir.targets.cpu.c import print_c
from ir.targets.cpu.frame import Frame
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.plain import PlainLowering, plain_room
from ir.targets.cpu.plain_points import LaneAxis, PointLanes, lane_axis
from ir.targets.cpu.standalone import C_FLAGS, standalone
from tests.few import draws
from tests.targets.test_c_printer import needs_compiler

TYPES = ("f32", "f64", "i32", "i64", "bool")
FLOATS = ("f32", "f64")
STORED = ("f32", "bf16", "f16", "e4m3", "i8", "u8", "i32", "i64", "f64", "bool")
HOST = get_backend("cpu").hardware(2)
WIDTH = 6  # elements of each array that a point has for itself


class Drawn:
    """Statements over variables in scope; whole numbers of few bits, so that all is exact."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def fresh(self, dtype: str) -> Name:
        self.count += 1
        return Name(f"x{self.count}", dtype)

    def scalar(self, dtype: str, scope: list[Name], depth: int = 3) -> Scalar:
        """A scalar of a type, made of the variables of a scope."""
        alike = [name for name in scope if name.dtype == dtype]
        way = self.pick(("leaf", "leaf", "call", "call", "where", "convert", "read"))
        if depth == 0 or way == "leaf":
            if alike and self.rng.random() < 0.8:
                found: Name = self.pick(alike)
                return found
            value = int(self.rng.integers(-3, 4))
            return Number(bool(value > 0) if dtype == "bool" else value, dtype)
        if way == "read" and dtype in ("f32", "i32"):
            array = {"f32": "H", "i32": "B"}[dtype]
            return Element(array, self.place(scope), dtype)
        if way == "where":
            condition = self.scalar("bool", scope, depth - 1)
            sides = tuple(self.scalar(dtype, scope, depth - 1) for _ in range(2))
            return Call("where", (condition, *sides), dtype)
        if way == "convert":
            return self.converted(dtype, scope, depth)
        return self.call(dtype, scope, depth)

    def call(self, dtype: str, scope: list[Name], depth: int) -> Scalar:
        if dtype == "bool":
            function = self.pick(("lt", "le", "eq", "and", "or", "not"))
            of = self.pick(TYPES[:4]) if function in ("lt", "le", "eq") else "bool"
            args = tuple(self.scalar(of, scope, depth - 1) for _ in range(1 + (function != "not")))
            return Call(function, args, "bool")
        function = self.pick(("add", "sub", "mul", "max", "min", "neg", "abs"))
        count = 1 if function in ("neg", "abs") else 2
        made = Call(
            function, tuple(self.scalar(dtype, scope, depth - 1) for _ in range(count)), dtype
        )
        if dtype not in FLOATS:
            return made  # whole numbers wrap
        low = Call("max", (made, Number(-64.0, dtype)), dtype)
        return Call("min", (low, Number(64.0, dtype)), dtype)

    def converted(self, dtype: str, scope: list[Name], depth: int) -> Scalar:
        source = self.scalar(self.pick(TYPES), scope, depth - 1)
        narrow = {"f32": ("f32", "bf16", "f16", "e4m3"), "i32": ("i32", "i8", "u8")}
        if dtype in FLOATS and source.dtype in ("i32", "i64"):  # others are not exact
            source = Convert(source, "i8", "i32")
        return Convert(source, self.pick(narrow.get(dtype, (dtype,))), dtype)

    def place(self, scope: list[Name]) -> Scalar:
        """An index within the point's own elements: clamped."""
        free = self.scalar("i64", scope, 1)
        clamped = Call("min", (Call("max", (free, Number(0, "i64")), "i64"), Number(5, "i64")),
                       "i64")  # fmt: skip
        return Call("add", (Call("mul", (Name("p"), Number(WIDTH, "i64")), "i64"), clamped), "i64")

    def block(self, scope: list[Name], depth: int, quiet: bool = False) -> tuple[Statement, ...]:
        """Some statements; `quiet` ones write nothing."""
        here, found = list(scope), []
        for _ in range(int(self.rng.integers(1, 5))):
            kinds = ["let", "assign", "assign"] + ([] if quiet else ["write"])
            kinds += ["if", "loop", "accumulate"] if depth else []
            statement = self.statement(self.pick(kinds), here, depth, quiet)
            found.append(statement)
            if isinstance(statement, Let):
                here.append(statement.name)
            elif isinstance(statement, Accumulate):
                here += statement.states
        return tuple(found)

    def statement(self, kind: str, scope: list[Name], depth: int, quiet: bool) -> Statement:
        own = [name for name in scope if name.name.startswith("x")]
        if kind == "let" or (kind == "assign" and not own):
            name = self.fresh(self.pick(TYPES))
            return Let(name, self.scalar(name.dtype, scope))
        if kind == "assign":
            name = self.pick(own)
            return Assign(name, self.scalar(name.dtype, scope))
        if kind == "write":
            array = self.pick(("T", *(f"Y{dtype}" for dtype in STORED)))
            dtype = "f32" if array == "T" else array[1:]
            kind = {"f32": "f32", "f64": "f64", "i64": "i64", "bool": "bool"}.get(dtype, "")
            kind = kind or ("f32" if dtype in ("bf16", "f16", "e4m3") else "i32")
            value = self.scalar(kind, scope)
            value = Convert(value, "f64", "f64") if dtype == "f64" else value
            place = Number(2, "i64") if array == "T" else self.place(scope)
            return Write(array, place, value)
        if kind == "if":
            condition = self.scalar("bool", scope)
            other = self.block(scope, depth - 1, quiet) if self.rng.random() < 0.5 else ()
            return If(condition, self.block(scope, depth - 1, quiet), other)
        return self.loop(kind, scope, depth, quiet)

    def loop(self, kind: str, scope: list[Name], depth: int, quiet: bool) -> Statement:
        variable, extent = self.fresh("i64"), int(self.rng.integers(1, 5))
        variable = Name(variable.name.replace("x", "n"))
        backward = bool(self.rng.random() < 0.5)
        if kind == "loop":
            body = self.block([*scope, variable], depth - 1, quiet)
            return Loop(variable, extent, body, backward)
        states = (self.fresh("i32"), self.fresh("i32"))
        inside = [*scope, variable]
        body = self.block(inside, depth - 1, quiet=True)
        inside += [s.name for s in body if isinstance(s, Let)]
        values = tuple(self.scalar("i32", inside) for _ in states)
        keep = () if quiet else self.block([*scope, variable, *states], 0)
        merge = merge_of(self.pick((NAMED["affine"], NAMED["argmax"])))
        return Accumulate(variable, extent, backward, body, values, states, merge, keep)


def drawn_kernel(seed: int) -> PlainKernel:
    """Three points; each fills its elements of all arrays, then does what is drawn."""
    draws, size = Drawn(seed), 3 * WIDTH
    specs = [TensorSpec("H", (size,), "f16", "input"), TensorSpec("B", (size,), "u8", "input")]
    specs += [TensorSpec(f"Y{dtype}", (size,), dtype, "output") for dtype in STORED]
    arrays = [Array(spec.name, spec.dtype, size) for spec in specs]
    arrays += [Array("T", "bf16", 3, THREAD), Array("G", "i32", 5, GROUP)]
    column = Name("c")
    place = Call("add", (Call("mul", (Name("p"), Number(WIDTH, "i64")), "i64"), column), "i64")
    clear = tuple(
        Write(spec.name, place, Number(_zero(spec.dtype), _kind(spec.dtype))) for spec in specs[2:]
    )
    start: tuple[Statement, ...] = (
        Write("T", Number(2, "i64"), Number(0.0, "f32")),
        Loop(column, WIDTH, clear),
        Spread(((Name("g"), 5),), (Write("G", Name("g"), Convert(Name("g"), "i32", "i32")),)),
    )
    first = [Let(draws.fresh(dtype), Number(_zero(dtype), dtype)) for dtype in TYPES]
    scope = [Name("p"), *(let.name for let in first)]
    body = draws.block(scope, 3)
    last = [
        Write("Yf32", _own(0), Element("T", Number(2, "i64"), "f32")),
        Write("Yi32", _own(1), Element("G", Number(4, "i64"), "i32")),
        *(Write(f"Y{let.name.dtype}", _own(2), let.name) for let in first),
    ]
    return PlainKernel(
        "drawn", tuple(specs), tuple(arrays), ((Name("p"), 3),), (*start, *first, *body, *last)
    )


def _own(column: int) -> Scalar:
    return Call("add", (Call("mul", (Name("p"), Number(WIDTH, "i64")), "i64"),
                        Number(column, "i64")), "i64")  # fmt: skip


def _kind(dtype: str) -> str:
    return {"bool": "bool", "i64": "i64", "f64": "f64"}.get(
        dtype, "i32" if dtype[0] in "iu" else "f32"
    )


def _zero(dtype: str) -> float | int | bool:
    return {"bool": False}.get(_kind(dtype), 0 if dtype[0] in "iu" else 0.0)


def lowered(plain: PlainKernel, axis: LaneAxis | None = None) -> Kernel:
    room = plain_room(plain, beside=[axis.lanes if axis else 1])
    frame = Frame("drawn_body", plain.tensors, (), [room], HOST.threads)
    if axis is None:
        PlainLowering(plain, frame, vector_row(HOST.isa)).run("block")
    else:
        PointLanes(plain, frame, vector_row(HOST.isa), axis).run("block")
    texts = ("llvm", print_llvm(frame.b.function, HOST.isa)), ("c", print_c(frame.b.function))
    return Kernel("drawn", "cpu", frame.arguments, texts, "drawn_body", HOST.threads)


def inputs_of(plain: PlainKernel, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.integers(0, 9, spec.shape).astype(numpy_dtype(spec.dtype))
        for spec in plain.tensors
        if spec.role == "input"
    }


@pytest.fixture(scope="module")
def worker(code_cache: Path) -> Iterator[Worker]:
    """A process that runs kernels."""
    found = Worker(
        process_server("cpu", code_cache), "explorer.runtime.workers:Runner", "cpu", code_cache
    )
    yield found
    found.close()


def check(seed: int, worker: Worker, lanes: int = 0) -> None:
    plain = drawn_kernel(seed)
    inputs = inputs_of(plain, seed)
    want = meaning(plain, inputs)
    kernel = lowered(plain, lane_axis(plain, lanes) if lanes else None)
    outputs = [np.empty(s.shape, numpy_dtype(s.dtype)) for s in plain.tensors if s.role == "output"]
    reply = worker.ask(60.0, "run", kernel, [*inputs.values(), *outputs])
    assert isinstance(reply, Answer), reply
    for (name, array), have in zip(want.items(), reply.value[1], strict=True):
        np.testing.assert_array_equal(have, array, f"{seed} {name}")


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.alike(2)
def test_statements_do_what_they_mean(seed: int, worker: Worker) -> None:
    check(seed, worker)


def together(lanes: int, count: int) -> list[int]:
    """The first drawn kernels whose points can run beside each other."""
    seeds = (seed for seed in range(400) if lane_axis(drawn_kernel(seed), lanes))
    return list(islice(seeds, count))


@pytest.mark.parametrize("lanes", [2, 3])
def test_points_beside_each_other_do_what_they_mean(lanes: int, worker: Worker) -> None:
    """Three points: of two lanes the last vector runs one point again."""
    for seed in together(lanes, 24):
        check(seed, worker, lanes)


def ranges_and_numbers() -> PlainKernel:
    """For each of three points the sum of elements between two that are read, and the numbers that
    iterations of a group got: whoever gets which, all of them."""
    specs = (
        TensorSpec("x", (8,), "f32", "input"),
        TensorSpec("ends", (4,), "i32", "input"),
        TensorSpec("sums", (3,), "f32", "output"),
        TensorSpec("left", (3,), "i32", "output"),
    )
    arrays = tuple(Array(spec.name, spec.dtype, spec.shape[0]) for spec in specs)
    arrays += (Array("count", "i32", 1, GROUP), Array("seen", "i32", 4, GROUP))
    p, at, zero = Name("p"), Name("at"), Number(0, "i64")
    first, end = (
        Convert(Element("ends", Call("add", (p, Number(n, "i64")), "i64"), "i32"), "i64", "i64")
        for n in (0, 1)
    )
    total, number, sum_of = Name("total", "f32"), Name("number", "i32"), Name("sum", "i32")
    more = Call("add", (total, Element("x", at, "f32")), "f32")
    there = Convert(number, "i64", "i64")
    found = Call("add", (sum_of, Element("seen", at, "i32")), "i32")
    body: tuple[Statement, ...] = (
        Let(total, Number(0.0, "f32")),
        Between(at, first, end, (Assign(total, more),), 2),
        Spread((), (Write("sums", p, total), Write("count", zero, Number(0, "i32")))),
        Spread(((at, 4),), (Claim(number, "count", zero), Write("seen", there, number))),
        Let(sum_of, Element("count", zero, "i32")),
        Loop(at, 4, (Assign(sum_of, found),)),
        Spread((), (Write("left", p, sum_of),)),
    )
    return PlainKernel("ranges", specs, arrays, ((p, 3),), body, cooperative=True)


def test_ranges_and_numbers(worker: Worker) -> None:
    plain = ranges_and_numbers()
    inputs = {"x": np.arange(8, dtype=np.float32), "ends": np.array([1, 5, 5, 2], np.int32)}
    want = meaning(plain, inputs)
    assert list(want["sums"]) == [1 + 2 + 3 + 4, 0, 0]
    assert list(want["left"]) == [4 + 0 + 1 + 2 + 3] * 3
    outputs = [np.empty(3, np.float32), np.empty(3, np.int32)]
    reply = worker.ask(60.0, "run", lowered(plain), [*inputs.values(), *outputs])
    assert isinstance(reply, Answer), reply
    for array, have in zip(want.values(), reply.value[1], strict=True):
        np.testing.assert_array_equal(have, array)


def chosen_rows(count: int, inside: bool) -> PlainKernel:
    """Rows that are a vector or its opposite, as a truth value says that all of a row share."""
    specs = TensorSpec("x", (count,), "f32", "input"), TensorSpec("y", (3, count), "f32", "output")
    arrays = tuple(Array(s.name, s.dtype, int(np.prod(s.shape))) for s in specs)
    p, i, first = Name("p"), Name("i"), Name("first_1", "bool")
    place = Call("add", (Call("mul", (p, Number(count, "i64")), "i64"), i), "i64")
    x = Element("x", i, "f32")
    told = Let(first, Call("lt", (Convert(p, "i32", "i32"), Number(1, "i32")), "bool"))
    chosen = Call("where", (first, x, Call("neg", (x,), "f32")), "f32")
    wrote = Write("y", place, chosen)
    loop = Spread(((i, count),), (told, wrote) if inside else (wrote,))
    body = (loop,) if inside else (told, loop)
    return PlainKernel("chosen", specs, arrays, ((p, 3),), body, cooperative=True)


@pytest.mark.parametrize("inside", [True, False])
def test_truth_values_that_all_lanes_have_have_names(inside: bool, worker: Worker) -> None:
    plain, lanes = chosen_rows(67, inside), vector_row(HOST.isa).lanes
    assert f"<{lanes} x float>" in lowered(plain).text("llvm")
    inputs = {"x": np.arange(67, dtype=np.float32)}
    want = meaning(plain, inputs)["y"]
    reply = worker.ask(60.0, "run", lowered(plain), [inputs["x"], np.empty((3, 67), np.float32)])
    assert isinstance(reply, Answer), reply
    np.testing.assert_array_equal(reply.value[1][0], want)


def stored_truths(count: int) -> PlainKernel:
    """What a row and a column both hold, and numbers of f64 that change signs by columns."""
    specs = (
        TensorSpec("row", (3,), "bool", "input"),
        TensorSpec("column", (count,), "bool", "input"),
        TensorSpec("d", (count,), "f64", "input"),
        TensorSpec("both", (3, count), "bool", "output"),
        TensorSpec("z", (3, count), "f64", "output"),
    )
    arrays = tuple(Array(s.name, s.dtype, int(np.prod(s.shape))) for s in specs)
    p, i = Name("p"), Name("i")
    place = Call("add", (Call("mul", (p, Number(count, "i64")), "i64"), i), "i64")
    own, column, d = Element("row", p, "bool"), Element("column", i, "bool"), Element("d", i, "f64")
    signed = Call("where", (column, d, Call("neg", (d,), "f64")), "f64")
    wrote = Write("both", place, Call("and", (own, column), "bool")), Write("z", place, signed)
    body = (Spread(((i, count),), wrote),)
    return PlainKernel("truths", specs, arrays, ((p, 3),), body, cooperative=True)


TRUTHS = {
    "row": np.array([True, False, True]),
    "column": np.arange(67) % 3 == 0,
    "d": np.arange(67, dtype=np.float64),
}


def test_truth_values_in_memory_and_f64_are_vectors(worker: Worker) -> None:
    plain, lanes = stored_truths(67), vector_row(HOST.isa).lanes
    kernel = lowered(plain)
    assert f"<{lanes} x i8>" in kernel.text("llvm")
    assert f"<{lanes} x double>" in kernel.text("llvm")
    outputs = [np.empty((3, 67), bool), np.empty((3, 67))]
    reply = worker.ask(60.0, "run", kernel, [*TRUTHS.values(), *outputs])
    assert isinstance(reply, Answer), reply
    for wanted, found in zip(meaning(plain, TRUTHS).values(), reply.value[1], strict=True):
        np.testing.assert_array_equal(found, wanted)


def rows_summed(count: int) -> PlainKernel:
    """Of each row two sums that go on from what is there: of products with a number of the row, in
    bf16, and of squares of differences from a vector."""
    specs = (
        TensorSpec("x", (3, count), "bf16", "input"),
        TensorSpec("v", (count,), "f32", "input"),
        TensorSpec("a", (3,), "f32", "output"),
        TensorSpec("b", (3,), "f32", "output"),
    )
    arrays = tuple(Array(s.name, s.dtype, int(np.prod(s.shape))) for s in specs)
    p, i = Name("p"), Name("i")
    a, b, apart = Name("a_1", "f32"), Name("b_1", "f32"), Name("apart_1", "f32")
    place = Call("add", (Call("mul", (p, Number(count, "i64")), "i64"), i), "i64")
    x, v = Element("x", place, "f32"), Element("v", i, "f32")
    twice = Call("mul", (Convert(p, "f32", "f32"), x), "f32")
    loop = Loop(i, count, (
        Let(apart, Call("sub", (x, v), "f32")),
        Assign(a, Call("add", (a, twice), "f32")),
        Assign(b, Call("add", (b, Call("mul", (apart, apart), "f32")), "f32")),
    ))  # fmt: skip
    start = (Let(a, Number(3.0, "f32")), Let(b, Number(-1.0, "f32")))
    body = (*start, loop, Write("a", p, a), Write("b", p, b))
    return PlainKernel("summed", specs, arrays, ((p, 3),), body)


@pytest.mark.parametrize("count", [31, 64, 128, 203])
def test_sums_are_added_up_in_vectors(count: int, worker: Worker) -> None:
    """Long ones, and what is left of them one by one; those of small numbers are exact."""
    plain = rows_summed(count)
    lanes = vector_row(HOST.isa).lanes
    vectors = f"<{lanes} x float>" in lowered(plain).text("llvm")
    assert vectors == (count >= 4 * lanes)
    rng = np.random.default_rng(count)
    inputs = {
        "x": from_float(rng.integers(-8, 8, (3, count)), "bf16"),
        "v": rng.integers(-8, 8, count).astype(np.float32),
    }
    want = meaning(plain, inputs)
    outputs = [np.empty(3, np.float32), np.empty(3, np.float32)]
    reply = worker.ask(60.0, "run", lowered(plain), [*inputs.values(), *outputs])
    assert isinstance(reply, Answer), reply
    for array, have in zip(want.values(), reply.value[1], strict=True):
        np.testing.assert_array_equal(have, array)


def run_in_c(
    plain: PlainKernel, kernel: Kernel, inputs: dict[str, np.ndarray[Any, Any]], stem: Path
) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a library of its C text."""
    source, library = stem.with_suffix(".c"), stem.with_suffix(".so")
    source.write_text(source_text(kernel, standalone(kernel), {}))
    command = [find_linker() or "cc", *C_FLAGS.replace("-O3", "-O1").split()]
    done = subprocess.run(
        [*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]
    found = {
        s.name: np.empty(s.shape, numpy_dtype(s.dtype)) for s in plain.tensors if s.role == "output"
    }
    function = getattr(ctypes.CDLL(str(library)), standalone(kernel).symbol)
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (*inputs.values(), *found.values())))
    return found


@needs_compiler
def test_truth_values_of_all_lanes_in_c(tmp_path: Path) -> None:
    plain, inputs = chosen_rows(67, inside=False), {"x": np.arange(67, dtype=np.float32)}
    found = run_in_c(plain, lowered(plain), inputs, tmp_path / "chosen")
    np.testing.assert_array_equal(found["y"], meaning(plain, inputs)["y"])
    plain = stored_truths(67)
    found = run_in_c(plain, lowered(plain), TRUTHS, tmp_path / "truths")
    for name, wanted in meaning(plain, TRUTHS).items():
        np.testing.assert_array_equal(found[name], wanted)


@needs_compiler
@draws(2, 5)
def test_c_does_the_same(tmp_path: Path, count: int) -> None:
    """Many kernels in one library."""
    for seed, lanes in [
        *((seed, 0) for seed in range(count)),
        *((s, 2) for s in together(2, count)),
    ]:
        plain = drawn_kernel(seed)
        inputs = inputs_of(plain, seed)
        want = meaning(plain, inputs)
        kernel = lowered(plain, lane_axis(plain, lanes) if lanes else None)
        outputs = run_in_c(plain, kernel, inputs, tmp_path / str(seed))
        for name, array in want.items():
            np.testing.assert_array_equal(outputs[name], array, f"{seed} {name}")
