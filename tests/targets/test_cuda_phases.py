"""Programs of several phases on CUDA: they mean the same when emulated, and compile."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import ir
from explorer.runtime import nvrtc
from ir import Graph, Tile, argmax, contract, fold, recur, reduce, scan, scatter, top
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.few import by_turns, draws, few, few_rows
from tests.judging import bounds_of, strictly
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def folded(
    merge: Any, shape: tuple[int, int], dtypes: tuple[str, ...], keep: bool, backward: bool = False
) -> Program:
    """A fold of one input for each state along the second axis; every state is an output."""
    g = Graph("folded")
    i, j = g.axes(i=shape[0], j=shape[1])
    values = tuple(g.input(f"x{n}", (i, j), dtype) for n, dtype in enumerate(dtypes))
    made = (scan if keep else fold)(merge, values, j, backward=backward)
    for n, state in enumerate(made):
        g.output(f"y{n}", state, state.dtype, (i, j) if keep else (i,))
    return g.program()


def log_sum(a: tuple[Tile, ...], b: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """Log-sum-exp as (maximum, sum of what is relative to it)."""
    most = ir.maximum(a[0], b[0])
    return most, a[1] * ir.exp(a[0] - most) + b[1] * ir.exp(b[0] - most)


def check(program: Program, schedules: list[Schedule], inputs: Any = None, exact: bool = False,
          modes: tuple[int, ...] = (0, 15)) -> None:  # fmt: skip
    inputs = random_inputs(program, np.random.default_rng(1)) if inputs is None else inputs
    wanted = (strictly if exact else bounds_of)(program, inputs)
    for number, schedule in enumerate(schedules):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        mode = modes[number % len(modes)]
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


def ways(program: Program, *wanted: dict[str, Any]) -> list[Schedule]:
    """Schedules of a program of one plain kernel, by what is said of each."""
    space = BACKEND.space(program, HARDWARE)
    found = []
    for pins in wanted:
        row = space.pin(pins).sample(np.random.default_rng(0), 1)[0]
        found.append(space.schedule(row))
    return found


THREAD: dict[str, Any] = {"fold": "thread", "threads": 64}
BLOCKS: tuple[dict[str, Any], ...] = (
    {"fold": "block", "threads": 32, "run": 1}, {"fold": "block", "threads": 64, "run": 4},
    {"fold": "block", "threads": 128, "run": 2}, {"fold": "block", "threads": 256, "run": 1},
)  # fmt: skip
FOLDS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    ("sum", ("f32",)), ("max", ("i32",)), ("affine", ("f32", "f32")), ("argmax", ("f16", "i32")),
    (log_sum, ("f32", "bf16")), ("or", ("bool",)), ("(b0, add(a1, b1))", ("u8", "i64")),
    ("sum", ("f64",)),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    ("number", "keep"),
    few_rows(product(range(len(FOLDS)), (False, True)), (0, 2, 5, 7, 8, 10, 13, 15)),
)
@pytest.mark.alike(2)
def test_folds_of_threads_and_of_blocks(number: int, keep: bool) -> None:
    merge, dtypes = FOLDS[number]
    shape = [(3, 1009), (2, 131), (5, 600)][number % 3]
    program = folded(merge, shape, dtypes, keep, backward=number % 2 == 1)
    check(program, ways(program, THREAD, BLOCKS[number % 4], BLOCKS[(number + 1) % 4]))


@needs_compiler
@pytest.mark.parametrize(("extent", "run"), by_turns([65, 512, 1023, 1025], [1, 8]))
def test_chunks_of_every_length(extent: int, run: int) -> None:
    """What does not commute tells every order but that of the axis."""
    program = folded("(b0, sub(add(a1, b1), mul(0, a0)))", (1, extent), ("i32", "i32"), True)
    kept = folded("(a0, b1)", (2, extent), ("i32", "i32"), False)
    for one in (program, kept):
        check(one, ways(one, *({"fold": "block", "threads": n, "run": run} for n in (32, 128))))


@needs_compiler
@pytest.mark.parametrize("place", [0, 70, 511])
def test_the_first_nan_is_the_largest(place: int) -> None:
    g = Graph("where")
    i, j = g.axes(i=2, j=512)
    value = g.input("x", (i, j), "f32")
    g.output("y", argmax(value, j), "i32", (i,))
    program = g.program()
    inputs = dict(random_inputs(program, np.random.default_rng(0)))
    inputs["x"] = np.round(inputs["x"])  # many equals, of which the first counts
    inputs["x"][0, place:] = np.where(np.arange(512 - place) % 5 == 0, np.nan, 1.0)
    check(program, ways(program, THREAD, *BLOCKS[:3]), inputs)


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (7, 1), (1, 97)])
@pytest.mark.parametrize("keep", [False, True])
def test_tiny_extents(shape: tuple[int, int], keep: bool) -> None:
    program = folded("affine", shape, ("f32", "f32"), keep)
    check(program, drawn(program, 0, 1, 1))


NARROW = ("bf16", "f16", "e4m3", "i8", "u8", "bool", "i32", "i64", "f64")


@needs_compiler
@pytest.mark.parametrize("dtype", NARROW)
def test_elements_are_widened_and_rounded(dtype: str) -> None:
    """Each type is read and written by a thread and by a block."""
    g = Graph("scanned")
    i, j = g.axes(i=2, j=150)
    value = g.input("x", (i, j), dtype)
    g.output("y", scan("or" if dtype == "bool" else "max", value, j)[0], dtype, (i, j))
    program = g.program()
    check(program, ways(program, THREAD, BLOCKS[1]))


def gathered(i: int, j: int, k: int, ranks: int, e: int) -> Program:
    """Scores on tensor cores, the best of each row, and a weighted sum of rows looked up there."""
    g = Graph("gathered")
    m, n, d, r, c = g.axes(m=i, n=j, d=k, r=ranks, c=e)
    scores = contract(g.input("q", (m, d), "bf16"), g.input("k", (n, d), "bf16"), over=d)
    best, places = top(scores, n, r)
    table = g.tensor("v", (j, e), "bf16")
    g.output("best", best, "f32", (m, r))
    g.output("total", reduce("sum", best * table[places, c], over=r), "f32", (m, c))
    return g.program()


def shifted() -> Program:
    """A computed tile read one step back and turned, then summed along, beside itself."""
    g = Graph("shifted")
    i, j = g.axes(i=33, j=40)
    value = g.input("x", (i, j), "f32") * 2.0
    before = value.at(j=j - 1, fill=0)
    g.output("y", scan("sum", value - before, j)[0], "f32", (i, j))
    g.output("z", fold("sum", value.at(i=i - 1, fill=0), i)[0], "f32", (j,))
    return g.program()


def sent(kind: str, dtype: str) -> Program:
    """Elements of rows sent where an input says, some of them outside."""
    g = Graph("sent")
    i, j, c = g.axes(i=5, j=211, c=37)
    value = g.input("x", (i, j), dtype)
    place = g.input("p", (i, j), "i32", values=ir.uniform(-3, 41))
    g.output("y", scatter(kind, value, {i: i, c: place}), None, (i, c))
    return g.program()


def normalised() -> Program:
    """A product whose rows are scanned, then scaled by what is left at the end of them."""
    g = Graph("normalised")
    m, n, d = g.axes(m=72, n=136, d=64)
    a, b = g.input("a", (m, d), "f16"), g.input("b", (n, d), "f16")
    product = ir.exp(contract(a, b, over=d) * 0.125)
    running = scan("sum", product, n)[0]
    total = fold("sum", product, n)[0]
    g.output("y", running / total, "f16", (m, n))
    return g.program()


def decayed() -> Program:
    """A state of rows and columns that decays, of which every step's rows are read."""
    g = Graph("decayed")
    t, i, j = g.axes(t=9, i=5, j=7)
    key, value = g.input("k", (t, i), "f32"), g.input("v", (t, j), "f32")
    state = g.state(t, (i, j))
    after = state * 0.5 + key * value
    g.output("y", reduce("sum", after * key, over=i), "f32", (t, j))
    g.output("last", recur(state, after), "f32", (i, j))
    return g.program()


def least() -> Program:
    g = Graph("least")
    i, j, r = g.axes(i=41, j=53, r=4)
    value, places = top(g.input("x", (i, j), "f32"), j, r, least=True)
    g.output("y", value, "f16", (i, r))
    g.output("p", places, "i32", (i, r))
    return g.program()


MIXED: dict[str, Callable[[], Program]] = {
    "gathered": lambda: gathered(70, 130, 64, 5, 40),
    "gathered small": lambda: gathered(5, 41, 7, 3, 37),
    "shifted": shifted, "normalised": normalised, "least": least, "decayed": decayed,
    "sum": lambda: sent("sum", "f32"), "max": lambda: sent("max", "i32"),
    "min": lambda: sent("min", "bf16"), "or": lambda: sent("or", "bool"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", MIXED)
@draws(1, 2)
@pytest.mark.alike(2)
def test_programs_of_several_phases(name: str, count: int) -> None:
    program = MIXED[name]()
    check(program, drawn(program, 3, 1, count), modes=(0, 9, 15))


def test_kernels_of_all_phases_are_numbered_as_one_list() -> None:
    program = MIXED["gathered"]()
    for engine, kinds in (
        ("wgmma", ["tensor", "plain", "block"]), ("mma", ["mma", "plain", "block"]),
        ("fma", ["block", "plain", "block"]),
    ):  # fmt: skip
        kernels = kernels_of(program, HARDWARE, engine)
        assert [kernel.kind for kernel in kernels] == kinds
        assert [kernel.mark for kernel in kernels] == [".0", ".1", ".2"]
    names = BACKEND.space(program, HARDWARE).names
    assert len(set(names)) == len(names)


def test_every_schedule_has_features() -> None:
    """The same names, whichever engine; those of plain kernels are numbers."""
    program = MIXED["gathered"]()
    space = BACKEND.space(program, HARDWARE)
    assert space.features is not None
    names, matrix = space.features(space.columns(space.sample(np.random.default_rng(0), 6)))
    assert matrix.shape == (6, len(names))
    assert np.isfinite(matrix[:, names.index("total.estimate")]).all()


def test_what_is_cut_in_two_phases_has_two_places() -> None:
    """Each of two phases is cut at the same node; both tensors are in the workspace."""
    g = Graph("twice")
    m, n = g.axes(m=300, n=300)
    value = g.input("x", (m, n), "f32")
    for _ in range(2):
        scaled = value / reduce("sum", value * value, over=(m, n))
        value = scan("sum", scaled - reduce("max", scaled, over=n), n)[0]
    g.output("y", value, "f32", (m, n))
    program = g.program()
    kernels = kernels_of(program, HARDWARE)
    writers = [spec.name for k in kernels for spec in k.program.outputs]
    assert len(set(writers)) == len(writers)
    assert len({k.program.name for k in kernels}) == len(kernels)


@pytest.mark.parametrize("name", few(["gathered", "shifted", "sum", "least", "decayed"], (0, 3, 4)))
@pytest.mark.alike(2)
def test_texts_compile(name: str) -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = MIXED[name]()
    for schedule in drawn(program, 1, 1, 1):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        plan = json.loads(kernel.text("launch"))
        code, resources = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], ())
        assert code
        assert resources.registers <= 255


@pytest.mark.parametrize("number", range(len(FOLDS)))
@pytest.mark.alike(2)
def test_folds_of_blocks_compile(number: int) -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = folded(*FOLDS[number][:1], (300, 5000), FOLDS[number][1], True)
    (schedule,) = ways(program, {"fold": "block", "threads": 256, "run": 4})
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    code, resources = nvrtc.compile_text(kernel.text("cuda"), "sm_90a", ())
    assert code
    assert resources.stack == 0


def test_an_engine_alone_has_estimates_under_its_own_names() -> None:
    """Where one engine is left whose decisions have its name before theirs."""
    g = Graph("scored")
    m, n, k, r = g.axes(m=1024, n=1024, k=1024, r=4)
    scores = contract(g.input("A", (m, k), "bf16"), g.input("B", (n, k), "bf16"), over=k)
    g.output("V", top(scores, n, r)[0])
    space = BACKEND.space(g.program(), known_hardware("rtx4090"))
    rows = space.seed_rows(np.random.default_rng(0))[:3]
    assert space.features is not None
    names, values = space.features(space.columns(rows))
    assert values.shape == (len(rows), len(names))
