"""Operands that are formed in shared memory: which are, and kernels that form them, emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce
from ir.inputs import drawn_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.targets.cuda.build.cut import FORMED, WGMMA, cut_program
from ir.targets.cuda.build.formed import absorbed
from ir.targets.cuda.build.kernels import engines_of, kernels_of
from ir.targets.cuda.space.tensor import FormedKernel
from ir.values import uniform
from tests.emulator.emulate import compiler
from tests.few import draws, few_rows
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_cuda_emulated import problems

QUANTISED = "experiments/corpus/quantised.py"
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("kv8_decode", {"b": 2, "h": 8, "kv": 2, "n": 100, "d": 64}),
    ("fp8_cache", {"b": 1, "h": 2, "s": 100, "d": 64}),
    ("channel_cache", {"b": 2, "h": 8, "kv": 1, "n": 130, "d": 128}),
    ("mlp8", {"m": 130, "n": 64, "k": 96, "hidden": 64}),
    ("from_f32", {"b": 1, "h": 2, "s": 100, "d": 96}),
    ("tensor_scaled", {"t": 20, "s": 40, "h": 8, "d": 64}),
    ("window_e5m2", {"b": 1, "kv": 2, "n": 150, "d": 64, "window": 70}),
    ("group_keys", {"b": 1, "kv": 2, "n": 150, "d": 128}),
)


def built(name: str, arguments: dict[str, Any]) -> Program:
    return load_operator(f"{QUANTISED}:{name}").build(**arguments)


def chain(stored: bool = False, again: bool = False, summed: bool = False) -> Program:
    """Scores of keys of i8 and their sums, with what keeps an operand from being formed."""
    g = Graph("chain")
    m, j, d, e = g.axes(m=64, j=64, d=64, e=64)
    q, k = g.input("Q", (m, d), "bf16"), g.input("K", (j, d), "i8")
    v = g.input("V", (j, e), "bf16")
    wide = cast(k, "bf16")
    if summed:
        wide = cast(cast(k, "f32") * reduce("max", cast(k, "f32"), over=d), "bf16")
    p = exp(contract(q, wide, over=d) * 0.01)
    g.output("O", contract(cast(p, "bf16"), v, over=j), "f32")
    if stored:
        g.output("wide", wide)
    if again:
        g.output("total", reduce("sum", cast(wide, "f32") * 2.0, over=(j, d)))
    return g.program()


def formed_in(program: Program) -> list[str]:
    parts = cut_program(program, engine=WGMMA, joined=True, chained=True)
    outputs = frozenset(spec.name for spec in program.outputs)
    return [former.tensor for _, formers in absorbed(parts, outputs) for former in formers]


def test_an_operand_that_products_alone_read_is_formed() -> None:
    assert len(formed_in(chain())) == 1
    assert [type(k).__name__ for k in kernels_of(chain(), HARDWARE, FORMED)] == ["FormedKernel"]


@pytest.mark.parametrize("other", ["stored", "again", "summed"])
def test_what_others_read_or_reductions_make_is_not(other: str) -> None:
    assert formed_in(chain(**{other: True})) == []


def test_an_operand_outside_of_whose_tensor_something_is_read_is_not() -> None:
    g = Graph("shifted")
    m, j, d = g.axes(m=64, j=64, d=64)
    q, k = g.input("Q", (m, d), "bf16"), g.tensor("K", (60, 64), "i8", fill=0)
    g.output("O", contract(q, cast(k[j, d], "bf16"), over=d), "f32")
    assert formed_in(g.program()) == []


def test_the_engine_is_there_where_it_saves_a_kernel() -> None:
    assert FORMED in engines_of(chain(), HARDWARE)
    g = Graph("widened")
    m, n, k = g.axes(m=64, n=64, k=64)
    a, w = g.input("A", (m, k), "bf16"), g.input("W", (n, k), "i8")
    g.output("C", contract(a, cast(w, "bf16"), over=k), "bf16")
    assert FORMED not in engines_of(g.program(), HARDWARE)  # wgmma_rs has one kernel too
    plain = load_operator("matmul").build(m=64, n=64, k=64, dtype="bf16")
    assert FORMED not in engines_of(plain, HARDWARE)


def test_operands_have_their_axes_as_the_source_has() -> None:
    (kernel,) = kernels_of(built(*CASES[0]), HARDWARE, FORMED)
    assert isinstance(kernel, FormedKernel)
    for former in kernel.formed:
        ((_, store),) = former.program.stores()
        assert store.axes == former.program.nodes[former.load].axes
        assert kernel.program.scope.tensors[former.tensor].dtype == former.dtype
    assert kernel.moved < kernel.program.bytes


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    ("name", "arguments"), few_rows(CASES, (0, 2, 3, 4, 5, 6), [name for name, _ in CASES])
)
@draws(1, 3)
@pytest.mark.alike(2)
def test_drawn_kernels_that_form_operands_mean_their_program(
    name: str, arguments: dict[str, Any], count: int
) -> None:
    program = built(name, arguments)
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    for number, schedule in enumerate(drawn(program, 3, 1, count, FORMED)):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "former" in kernel.text("cuda")
        assert problems(program, kernel, inputs, wanted, 3 * number) == [], schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_points_outside_are_0_however_they_would_be_made() -> None:
    """Of a source of 0 the operands would be infinite: in no sum may such a point be."""
    g = Graph("beyond")
    m, j, d, e = g.axes(m=40, j=72, d=80, e=64)
    q = g.input("Q", (m, d), "bf16")
    k, v = (g.input(n, (j, a), "f32", values=uniform(1, 2)) for n, a in (("K", d), ("V", e)))
    p = exp(contract(q, cast(1.0 / k, "bf16"), over=d) * 0.1)
    g.output("O", contract(cast(p, "bf16"), cast(1.0 / v, "bf16"), over=j), "f32")
    program = g.program()
    inputs = drawn_inputs(program, 2)
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 5, 1, 2, FORMED):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "former" in kernel.text("cuda")
        assert problems(program, kernel, inputs, wanted, 5) == [], schedule.to_json()


def test_instructions_have_the_registers_that_a_block_begins_with() -> None:
    """With four warp groups a thread begins with 128: too few for sums of 256 columns."""
    program = built("tensor_scaled", {"t": 2048, "s": 16384, "h": 64, "d": 128})
    space = BACKEND.space(program, HARDWARE).pin(engine=FORMED)
    matrix = space.sample(np.random.default_rng(0), 60)
    for row in matrix:
        values = space.schedule(row).as_dict()
        own = {key.removeprefix(f"{FORMED}."): value for key, value in values.items()}
        consumers, formers = int(own["consumers"]), int(own["formers"])
        parts = consumers if own["partition"] == "columns" else 1
        registers = 65536 // (128 * (1 + consumers + formers)) // 8 * 8
        columns = int(own["tile.t" if own["swap"] else "tile.s"])
        assert columns // parts // 2 + 26 <= registers


def test_parts_of_a_sum_are_left_in_memory_where_a_kernel_of_the_kind_does_so() -> None:
    """An operand of f32 that registers round is read across the sum: of parts of it there is no
    such kernel, so their blocks add them."""
    g = Graph("rounded")
    m, n, k = g.axes(m=256, n=256, k=4096)
    a, b = g.input("A", (m, k), "f16"), g.input("B", (k, n), "f32")
    g.output("C", contract(a, cast(b, "f16"), over=k), "f16")
    program = g.program()
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma_rs")
    assert len(space.decision("wgmma_rs.split").domain) > 1
    for row in space.seed_rows(np.random.default_rng(0))[:40]:
        BACKEND.lower(program, space.schedule(row), HARDWARE)


@pytest.mark.parametrize("number", [0, 5], ids=["chain", "asked ahead"])
def test_what_is_formed_has_no_place_in_memory(number: int) -> None:
    """Neither in the workspace nor under a tensor map, where the L2 cache is asked for it too."""
    program = built(*CASES[number])
    space = BACKEND.space(program, HARDWARE)
    pins: dict[str, Any] = {"engine": FORMED}
    if f"{FORMED}.prefetch" in space.names:
        pins |= {f"{FORMED}.prefetch": 2}
    schedule = space.pin(pins).sample(np.random.default_rng(0), 1)[0]
    kernel = BACKEND.lower(program, space.pin(pins).schedule(schedule), HARDWARE)
    assert [a.name for a in kernel.arguments if a.role == "workspace"] == []
    (formed,) = kernels_of(program, HARDWARE, FORMED)
    assert isinstance(formed, FormedKernel)
    assert all(f"{former.tensor}_map" not in kernel.text("cuda") for former in formed.formed)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_a_tensor_may_be_an_operand_and_what_another_one_is_formed_of() -> None:
    g = Graph("twice")
    m, j, d, e = g.axes(m=64, j=96, d=64, e=64)
    q, cache = g.input("Q", (m, d), "i8"), g.tensor("cache", (96, 64), "i8")
    p = exp(cast(contract(q, cache[j, d], over=d), "f32") * 1e-5)
    g.output("O", contract(cast(p, "bf16"), cast(cache[j, e], "bf16"), over=j), "f32")
    program = g.program()
    assert FORMED in engines_of(program, HARDWARE)
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 7, 1, 2, FORMED):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert problems(program, kernel, inputs, wanted, 3) == [], schedule.to_json()
