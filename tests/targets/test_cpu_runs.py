"""Long sums in f32 are added up in bounded runs, whatever emits their loops; short ones are not
touched."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime.once import run_once
from ir import Graph, contract, evaluate, exp, fold, maximum, operator, reduce
from ir.program import Program
from ir.schedule import Value as Choice
from ir.target import Hardware, get_backend
from ir.targets.cpu import micro, plain_folds, runs, tile_unit
from ir.targets.cpu.hardware import host_hardware
from ir.targets.cpu.instructions import DOTS
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.nest import PTR, Builder, Loop, Type, Value
from ir.targets.cpu.runs import RUN, in_runs
from tests.judging import bounds_of
from tests.targets.test_cpu_space import WIDE

F32, V16 = Type("f32"), Type("f32", 16)
MODULES = (runs, micro, tile_unit, plain_folds)


@operator
def column_squares(g: Graph, m: int, n: int) -> None:
    """Sums of squares of columns."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f32")
    g.output("S", reduce("sum", x * x, over=rows))


@operator
def squares(g: Graph, a: int, b: int, c: int) -> None:
    """Sums of squares over the first and the last axis."""
    first, kept_axis, last = g.axes(a=a, b=b, c=c)
    x = g.input("X", (first, kept_axis, last), "f32")
    g.output("S", reduce("sum", x * x, over=(first, last)))


@operator
def product(g: Graph, m: int, n: int, k: int, dtype: str = "f32") -> None:
    """A matrix product."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, y = g.input("X", (rows, depth), dtype), g.input("Y", (depth, columns), dtype)
    g.output("S", contract(x, y, over=depth), "f32")


@operator
def folded(g: Graph, n: int) -> None:
    """How many terms as large as the largest an exponential sum has, by a merge of its own."""
    (axis,) = g.axes(n=n)
    x = g.input("X", (axis,), "f32")

    def merge(a: Any, b: Any) -> Any:
        top = maximum(a[0], b[0])
        return top, a[1] * exp(a[0] - top) + b[1] * exp(b[0] - top)

    g.output("S", fold(merge, (x, x * 0.0 + 1.0), axis)[1], "f32", ())


def lowered(program: Program, pins: dict[str, Choice], hardware: Hardware | None = None) -> Any:
    backend, machine = get_backend("cpu"), hardware or host_hardware(1)
    space = backend.space(program, machine).pin(pins)
    schedule = space.schedule(space.any_legal(np.random.default_rng(0)))
    return backend.lower(program, schedule, machine)


def inputs_of(program: Program) -> dict[str, Any]:
    """Positive numbers, of whose sums nothing cancels."""
    rng = np.random.default_rng(0)
    return {t.name: rng.random(t.shape, np.float32) + 0.5 for t in program.inputs}


def result(program: Program, kernel: Any, given: dict[str, Any], cache: Path) -> Any:
    room = np.zeros(program.outputs[0].shape, np.float32)
    return run_once(kernel, [*given.values(), room], cache_dir=cache)[1][0]


M = 2_000_003
CASES: dict[str, tuple[Program, dict[str, Choice]]] = {
    "columns": (column_squares.build(m=M, n=3), {"tile.m.0": M, "tile.m.1": M, "lane.s0": "n"}),
    "columns in blocks": (column_squares.build(m=M, n=3), {"tile.m.0": 64, "lane.s0": "n"}),
    "one row": (squares.build(a=1, b=1, c=M * 16), {"lane.s0": "c", "tile.c.0": M * 16}),
    "two axes": (squares.build(a=1000, b=2, c=M // 1000), {"lane.s0": "b"}),
    "product": (product.build(m=1, n=16, k=M), {"tile.k.0": M, "tile.k.1": M}),
    "product in blocks": (product.build(m=2, n=16, k=M), {"tile.k.0": 512}),
    "fold": (folded.build(n=M), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_long_sums_are_right(name: str, code_cache: Path) -> None:
    program, pins = CASES[name]
    given = inputs_of(program)
    found = result(program, lowered(program, pins), given, code_cache)
    assert bounds_of(program, given)["S"].judge(found).right
    np.testing.assert_allclose(found, evaluate(program, given)["S"], rtol=1e-5)


def _plain(patch: pytest.MonkeyPatch) -> None:
    for module in MODULES:
        patch.setattr(module, "RUN", 1 << 40)


@pytest.mark.parametrize("name", ["columns", "columns in blocks"])
def test_one_chain_over_a_long_sum_is_refused(
    name: str, code_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pins = CASES[name]
    given = inputs_of(program)
    _plain(monkeypatch)
    found = result(program, lowered(program, pins), given, code_cache)
    assert not bounds_of(program, given)["S"].judge(found).right


@pytest.mark.parametrize("program", [
    column_squares.build(m=RUN, n=48), squares.build(a=RUN // 16, b=5, c=16),
    product.build(m=64, n=64, k=RUN), folded.build(n=RUN),
], ids=lambda p: p.name)  # fmt: skip
def test_short_sums_keep_their_texts(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, hardware = get_backend("cpu"), host_hardware(2)
    space = backend.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(0), 6)]
    texts = [backend.lower(program, schedule, hardware).texts for schedule in schedules]
    _plain(monkeypatch)
    assert texts == [backend.lower(program, schedule, hardware).texts for schedule in schedules]


def test_blocks_that_are_added_up_are_not_too_many() -> None:
    space = get_backend("cpu").space(squares.build(a=1, b=1, c=1 << 27), host_hardware(1))
    rule = next(rule for rule in space.constraints if rule.name == "blocks-added.s0")
    assert rule.explain({"tile.c.0": 8}) == "16,777,216 blocks"
    rows = space.sample(np.random.default_rng(0), 50)
    assert min(int(space.schedule(row)["tile.c.0"]) for row in rows) >= 1 << 11
    small = get_backend("cpu").space(squares.build(a=1, b=1, c=1 << 18), host_hardware(1))
    assert not [rule for rule in small.constraints if rule.name.startswith("blocks-added")]


# -- the rewrite


@pytest.fixture
def b() -> Builder:
    return Builder("body")


def pointer(b: Builder) -> Value:
    return b.load(PTR, b.function.parameters[2])


def loops_of(b: Builder) -> list[Loop]:
    return [item for item in b.function.block.body if isinstance(item, Loop)]


def verified(text: str) -> None:
    """LLVM itself accepts the text."""
    binding: Any = import_module("llvmlite.binding")
    binding.parse_assembly(text).verify()


def summed(
    b: Builder, extent: int, step: Callable[[Value, Value], Value], kind: Type = F32
) -> Loop:
    """A loop that carries one value, which becomes what `step` makes of it and of a term."""
    base = pointer(b)
    with b.loop("i", 0, extent, 1, [b.constant(1, kind)]) as loop:
        term = b.load(kind, b.offset(base, b.mul(loop.variable, kind.bytes)))
        loop.block.yields = (step(loop.carried[0], term),)
    b.store(loop.results[0], base)
    in_runs(b)
    verified(print_llvm(b.function))
    return loops_of(b)[0]


def test_a_long_sum_has_totals_of_runs(b: Builder) -> None:
    outer = summed(b, 3 * RUN + 5, lambda held, term: b.op("fadd", held, term))
    (inner,) = (item for item in outer.block.body if isinstance(item, Loop))
    assert (outer.step, inner.step) == (RUN, 1)
    assert inner.low is outer.variable
    assert outer.block.yields != inner.block.yields


SUMS: dict[str, Callable[[Builder], Callable[[Value, Value], Value]]] = {
    "fma": lambda b: lambda held, term: b.op("fma", term, term, held),
    "two terms": lambda b: lambda held, term: b.op("fadd", term, b.op("fadd", held, term)),
    "term first": lambda b: lambda held, term: b.op("fadd", term, held),
}
OTHERS: dict[str, Callable[[Builder], Callable[[Value, Value], Value]]] = {
    "largest": lambda b: lambda held, term: b.op("fmaximum", held, term),
    "decay": lambda b: lambda held, term: b.op("fma", held, term, term),
    "read beside": lambda b: lambda held, term: b.op("fadd", held, b.op("fmul", held, term)),
    "doubled": lambda b: lambda held, term: b.op("fadd", held, held),
}


@pytest.mark.parametrize("name", SUMS)
def test_what_is_a_sum(b: Builder, name: str) -> None:
    assert summed(b, 4 * RUN, SUMS[name](b)).step > 1


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_none(b: Builder, name: str) -> None:
    assert summed(b, 4 * RUN, OTHERS[name](b)).step == 1


def test_dot_instructions_add(b: Builder) -> None:
    row = next(row for row in DOTS if row.name == "vdpbf16ps")

    def step(held: Value, term: Value) -> Value:
        wide = b.bitcast(term, Type("bf16", 32))
        return b.intrinsic(row, V16, held, wide, wide)

    assert summed(b, 2 * RUN, step, V16).step == RUN


def test_branches_and_loops_within_are_followed(b: Builder) -> None:
    """Terms count over a whole nest; what one iteration of it has stays together."""
    base = pointer(b)
    odd = b.compare("eq", b.function.parameters[0], 1)
    assert isinstance(odd, Value)
    with b.loop("i", 0, RUN, 1, [b.constant(0, F32)]) as outer:
        with b.loop("j", 0, 16, 1, outer.carried) as inner:
            term = b.load(F32, base)
            inner.block.yields = (b.op("fadd", inner.carried[0], term),)
        with b.branch(odd) as branch:
            branch.then.yields = (b.op("fadd", inner.results[0], b.load(F32, base)),)
            b.otherwise(branch)
            branch.other.yields = (inner.results[0],)
        outer.block.yields = branch.results
    b.store(outer.results[0], base)
    in_runs(b)
    assert loops_of(b)[0].step == RUN // 17


def test_a_loop_whose_end_is_not_known_stays(b: Builder) -> None:
    base = pointer(b)
    end = b.load(Type("i64"), base)
    with b.loop("i", 0, end, 1, [b.constant(0, F32)], runs=False) as loop:
        loop.block.yields = (b.op("fadd", loop.carried[0], b.load(F32, base)),)
    b.store(loop.results[0], base)
    in_runs(b)
    assert loops_of(b) == [loop]


def test_tile_units_add_runs_in_memory() -> None:
    """An instruction adds 32 products as one; beyond a run of such, totals are in memory."""
    pins: dict[str, Choice] = {"instruction.s0": "tdpbf16ps"}
    added = []
    for k in (RUN * 32, RUN * 32 + 32):
        program = product.build(m=64, n=64, k=k, dtype="bf16")
        text = lowered(program, pins, WIDE).text("llvm")
        verified(text)
        added.append(text.count("fadd"))
    assert added[0] == 0 < added[1]
