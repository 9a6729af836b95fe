"""States that products of matrices are added to: one kernel has both, and hands the state on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, uniform
from ir.errors import UsageError
from ir.folding import cumulative, recurrence
from ir.handed import all_handed
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.rules import verify
from ir.kernel.tile_kernel import AGAIN, If, Statement, TileKernel, When, rewritten
from ir.kernel.tiling import Tiling
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.program import Program
from ir.schedule import Schedule, Value
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.residences import AND, HANDED, LAID, REPEATED, USUAL, residences
from ir.targets.cuda.space.tensor import TensorKernel
from tests.cuda.run import needs_compiler
from tests.few import draws, few_rows
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems

MAMBA = built("mamba2_chunked", {
    "b": 1, "t": 192, "heads": 4, "p": 64, "n": 32, "groups": 1, "chunk": 64, "dtype": "f16",
})  # fmt: skip


def states(
    kind: str = "scaled", chunk: int = 32, rows: int = 64, columns: int = 48, chunks: int = 5
) -> Program:
    """Each chunk adds a product to a state, of which there is one a head; it is read before and
    after every chunk, and in the end."""
    g = Graph("states")
    b, c, h, j, d, e = g.axes(b=2, c=chunks, h=2, j=chunk, d=rows, e=columns)
    k, v = g.input("K", (b, c, h, j, d), "bf16"), g.input("V", (b, c, h, j, e), "bf16")
    rate = g.input("rate", (b, c, h), "f32", uniform(-1, 0))
    fade = g.input("fade", (b, c, h, j), "f32", uniform(-1, 0))
    added = contract(k if kind == "sum" else cast(k * exp(fade), "bf16"), v, over=j)
    if kind == "parts":
        added = added + contract(cast(k * fade, "bf16"), v, over=j)
    if kind == "sum":
        state = cumulative("sum", added, c)
    elif kind == "rows":
        state = recurrence(exp(g.input("each", (b, c, h, d), "f32", uniform(-1, 0))), added, c)
    else:
        state = recurrence(exp(rate), added, c)
    g.output("before", cast(state.at(c=c - 1, fill=0), "bf16"), "bf16", (b, c, h, d, e))
    g.output("last", state.at(c=chunks - 1), "f32", (b, h, d, e))
    if kind == "here":
        g.output("here", state, "f32", (b, c, h, d, e))
    return g.program()


def lowered(program: Program, residence: str, values: Mapping[str, Value]) -> Kernel:
    """The kernel of a schedule in a residence's own space."""
    named = {f"{residence}.{name}": value for name, value in values.items()}
    return BACKEND.lower(program, Schedule.of("cuda", {"residence": residence, **named}), HARDWARE)


def handing(program: Program) -> Iterator[TensorKernel]:
    """The kernels that hand a state on, by the engines that have any."""
    for engine in ("wgmma", "wgmma_rs"):
        try:
            kernels = kernels_of(program, HARDWARE, engine, HANDED)
        except UsageError:
            continue
        yield from (k for k in kernels if isinstance(k, TensorKernel) and k.roles.handed)


def test_what_only_a_state_reads_is_added_where_the_state_is() -> None:
    (one,) = all_handed(states())
    assert (one.axis, one.factor is None) == ("c", False)
    (plain,) = all_handed(states("sum"))
    assert plain.factor is None
    first, second, *rest = phases_of(states(), handing=True)
    assert not rest
    assert {node.op.name for node in first.program.nodes} >= {"contract", "fold"}
    assert not any(phase.plain for phase in (first, second))
    assert [phase.plain for phase in phases_of(states())] == [False, True, False]


def alone(change: Callable[[Graph], None]) -> Program:
    g = Graph("alone")
    change(g)
    return g.program()


def two_readers(g: Graph) -> None:
    c, j, d, e = g.axes(c=4, j=16, d=64, e=64)
    added = contract(g.input("K", (c, j, d), "bf16"), g.input("V", (c, j, e), "bf16"), over=j)
    g.output("S", cumulative("sum", added, c) + added, "f32", (c, d, e))


def from_the_end(g: Graph) -> None:
    c, j, d, e = g.axes(c=4, j=16, d=64, e=64)
    added = contract(g.input("K", (c, j, d), "bf16"), g.input("V", (c, j, e), "bf16"), over=j)
    g.output("S", cumulative("sum", added, c, backward=True), "f32", (c, d, e))


def no_product(g: Graph) -> None:
    c, d = g.axes(c=4, d=64)
    g.output("S", cumulative("sum", g.input("X", (c, d), "f32"), c), "f32", (c, d))


def largest(g: Graph) -> None:
    c, j, d, e = g.axes(c=4, j=16, d=64, e=64)
    added = contract(g.input("K", (c, j, d), "bf16"), g.input("V", (c, j, e), "bf16"), over=j)
    g.output("S", cumulative("max", added, c), "f32", (c, d, e))


@pytest.mark.parametrize("change", [two_readers, from_the_end, no_product, largest])
def test_other_states_are_phases_of_their_own(change: Callable[[Graph], None]) -> None:
    program = alone(change)
    assert not all_handed(program)
    assert phases_of(program, handing=True) == phases_of(program)
    assert HANDED not in residences(program, 132)


def test_it_is_offered_with_what_else_is_stored() -> None:
    found = residences(MAMBA, 132)
    assert {HANDED, f"{HANDED}{AND}{LAID}", f"{HANDED}{AND}{REPEATED}{AND}{LAID}"} <= {*found}
    kernels = kernels_of(MAMBA, HARDWARE, "wgmma_rs", f"{HANDED}{AND}{REPEATED}{AND}{LAID}")
    kinds = [kernel.kind for kernel in kernels]
    assert kinds == ["plain", "block", "block", "tensor", "tensor", "tensor"]  # two copies, three
    assert kernels_of(MAMBA, HARDWARE, "wgmma_rs", USUAL) != kernels


def test_other_units_and_cards_hand_nothing_on() -> None:
    for engine in ("mma", "fma"):
        with pytest.raises(UsageError, match="hand a state on"):
            kernels_of(MAMBA, HARDWARE, engine, HANDED)
    with pytest.raises(UsageError):
        residence_space(MAMBA, known_hardware("a100"), None, HANDED)


def test_a_state_is_scaled_ahead_of_every_product_but_the_first() -> None:
    assert [When(AGAIN, 2).holds(n, 9) for n in range(5)] == [False, False, True, False, True]
    assert When.parse("again 3") == When(AGAIN, 3)
    assert When.parse(str(When(AGAIN, 1))) == When(AGAIN, 1)


@pytest.mark.parametrize("kind", ["scaled", "rows", "sum", "here", "parts"])
def test_every_pass_keeps_the_meaning(kind: str) -> None:
    program, seen = states(kind), 0
    for kernel in handing(program):
        space = kernel.alone
        for row in space.sample(np.random.default_rng(2), 3):
            plan = kernel.plan(space.schedule(row).as_dict())
            inputs = random_inputs(plan.program, np.random.default_rng(0))
            wanted = evaluate(plan.program, inputs)
            tiling = Tiling(plan.tiles, tuple(plan.roles.walked))
            for _, made in after_each(build(plan, "k"), passes_of(plan)):
                verify(made)
                assert TileKernel.parse(str(made)) == made
                found = run(made, plan.program, inputs, tiling)
                assert all(np.allclose(found[n], one, 1e-6, 1e-6) for n, one in wanted.items())
            seen += 1
            forgets = made.with_body(rewritten(made.body, _unscaled))
            others = run(forgets, plan.program, inputs, tiling)
            same = all(np.allclose(others[n], one, 1e-3) for n, one in wanted.items())
            assert same == (kind == "sum")
    assert seen >= 3


def _unscaled(one: Statement) -> tuple[Statement, ...]:
    return () if isinstance(one, If) and one.when.of == AGAIN else (one,)


CASES = [
    (states(), HANDED), (states("rows", 24, 128, 64), HANDED), (states("sum"), HANDED),
    (states("here", 64, 192, 32, 3), HANDED), (states(chunk=8, chunks=9), HANDED),
    (states("parts"), HANDED), (states("parts", 64, 64, 64, 3), HANDED),
    (MAMBA, HANDED), (MAMBA, f"{HANDED}{AND}{LAID}"),
    (MAMBA, f"{HANDED}{AND}{REPEATED}{AND}{LAID}"), (MAMBA, f"{REPEATED}{AND}{LAID}"),
    (built("gla_chunked", {"b": 1, "t": 96, "heads": 2, "d": 64, "chunk": 32, "dtype": "bf16"}),
     HANDED),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("program", "residence"), few_rows(CASES, (0, 1, 2, 3, 4, 7)))
@draws(1, 6)
def test_emulated_kernels_mean_their_program(program: Program, residence: str, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space, tried = residence_space(program, HARDWARE, None, residence), 0
    for row in space.sample(np.random.default_rng(count), 2 * count):
        values = space.schedule(row).as_dict()
        kernel = lowered(program, residence, values)
        assert not problems(program, kernel, inputs, wanted, 0), values
        tried += 1
    assert tried
