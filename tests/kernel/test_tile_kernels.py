"""Kernels between a schedule and text: what they mean, print and keep to, behind every pass."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir.kernel
import ir.kernel.passes
from ir.inputs import random_inputs
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.rules import verify
from ir.kernel.tile_kernel import (
    ADVANCE,
    AWAIT,
    BLOCK,
    COMMIT,
    FREE,
    FULL,
    RELEASE,
    At,
    Do,
    KernelError,
    Loop,
    Statement,
    Sync,
    TileKernel,
    When,
    rewritten,
    walk,
)
from ir.kernel.tiling import Tiling
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.program import Program
from ir.targets.cuda.build.kernels import scheduled_kernels
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.space.engines import route_of
from ir.targets.cuda.space.tensor import TensorKernel
from tests.few import draws
from tests.targets.cuda_cases import HARDWARE, NAMES, SMALL, built, drawn

MODULES = [
    importlib.import_module(f"ir.kernel.{one.name}")
    for one in pkgutil.walk_packages(ir.kernel.__path__) if not one.ispkg
] + [
    importlib.import_module(f"ir.kernel.passes.{one.name}")
    for one in pkgutil.iter_modules(ir.kernel.passes.__path__)
]  # fmt: skip
CHOSEN = (0, 2, 6, 7, 8, 9, 10, 18, 20, 21, 22)  # what wgmma computes
ATTENTION = {"b": 1, "heads": 3, "sq": 128, "sk": 640, "d": 64, "dtype": "bf16"}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_examples(module: object) -> None:
    assert not doctest.testmod(module).failed  # type: ignore[arg-type]


def plans_of(program: Program, seed: int, count: int) -> Iterator[Plan]:
    """The plans on wgmma of drawn schedules; those whose blocks have whole sums."""
    for schedule in drawn(program, seed, 1, count, "wgmma"):
        route, values = route_of(program, schedule, HARDWARE)
        kernels, own = scheduled_kernels(program, values, HARDWARE, route.engine, route.residence)
        for kernel in kernels:
            if isinstance(kernel, TensorKernel):
                plan = kernel.plan(own)
                if not plan.shared_sums:
                    yield plan


def close(found: dict[str, Array], wanted: dict[str, Array]) -> bool:
    return all(np.allclose(found[name], one, 1e-6, 1e-6) for name, one in wanted.items())


def tiling(plan: Plan) -> Tiling:
    return Tiling(plan.tiles, tuple(plan.roles.walked))


@pytest.mark.parametrize("number", CHOSEN, ids=[NAMES[number] for number in CHOSEN])
@draws(1, 2)
@pytest.mark.alike(2)
def test_every_pass_keeps_the_meaning(number: int, count: int) -> None:
    program = built(*SMALL[number])
    for plan in plans_of(program, number, count):
        inputs = random_inputs(plan.program, np.random.default_rng(number))
        wanted = evaluate(plan.program, inputs)
        for name, kernel in after_each(build(plan, "k"), passes_of(plan)):
            verify(kernel)
            assert TileKernel.parse(str(kernel)) == kernel
            assert hash(TileKernel.parse(str(kernel))) == hash(kernel)
            synchronised = any(isinstance(one, Sync) for one in kernel.statements())
            for late, last in ((True, False), (False, True))[: 1 + synchronised]:
                found = run(kernel, plan.program, inputs, tiling(plan), late, last)
                assert close(found, wanted), (name, late, last)


@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(1, 200), n=st.integers(8, 200), k=st.integers(8, 200), seed=st.integers(0, 99),
    act=st.sampled_from(("relu", "gelu", "silu")),
)  # fmt: skip
def test_drawn_kernels_mean_their_program(m: int, n: int, k: int, seed: int, act: str) -> None:
    arguments = {"m": m, "n": -(-n // 8) * 8, "k": -(-k // 8) * 8, "dtype": "bf16"}
    program = built("matmul_bias_act", {**arguments, "activation": act})
    inputs = random_inputs(program, np.random.default_rng(seed))
    for plan in plans_of(program, seed, 1):
        *_, (_, kernel) = after_each(build(plan, "k"), passes_of(plan))
        found = run(kernel, plan.program, inputs, tiling(plan), seed % 2 == 0, seed % 3 == 0)
        assert close(found, evaluate(plan.program, inputs))


def scheduled(order: str) -> tuple[Plan, TileKernel]:
    """Attention of five blocks in two slots, in an order."""
    program = built("attention", ATTENTION)
    for schedule in drawn(program, 1, 30, 0, "wgmma"):
        route, values = route_of(program, schedule, HARDWARE)
        kernels, own = scheduled_kernels(program, values, HARDWARE, route.engine, route.residence)
        if len(kernels) > 1:  # in parts
            continue
        (kernel,) = kernels
        assert isinstance(kernel, TensorKernel)
        chosen = {**own, kernel.name("order"): order, kernel.name("tile.sk"): 128}
        chosen |= {one: 0 for one in own if ".".join(one.split(".")[:1]) == "extra"}
        chosen[kernel.name("stages")] = 2
        plan = replace(kernel.plan(chosen), extras={}, stages=2)
        *_, (_, found) = after_each(build(plan, "k"), passes_of(plan))
        return plan, found
    raise AssertionError("no schedule")


def without(kernel: TileKernel, number: int) -> TileKernel:
    """Without its synchronising statement of that number."""
    seen = -1

    def change(one: Statement) -> tuple[Statement, ...]:
        nonlocal seen
        seen += isinstance(one, Sync)
        return () if isinstance(one, Sync) and seen == number else (one,)

    return kernel.with_body(rewritten(kernel.body, change))


@pytest.mark.parametrize("order", ["straight", "outer:1"])
def test_what_is_not_synchronised_is_found(order: str) -> None:
    """Each statement that synchronises a loop is needed; in the steps around it, some only make
    waits count alike."""
    plan, kernel = scheduled(order)
    inputs = random_inputs(plan.program, np.random.default_rng(0))
    wanted = evaluate(plan.program, inputs)
    syncs = [one for one in walk(kernel.body) if isinstance(one, Sync)]
    needed = (FULL, FREE, RELEASE, ADVANCE, AWAIT, COMMIT)
    loops = [one for one in walk(kernel.body) if isinstance(one, Loop) and one.over == BLOCK]
    inside = {id(one) for loop in loops for one in walk(loop.body)}
    missed = []
    for number, one in enumerate(syncs):
        if one.kind not in needed or (id(one) not in inside and one.of != "held"):
            continue
        if not any(
            _differs(without(kernel, number), plan, inputs, wanted, late, last)
            for late in (True, False) for last in (True, False)
        ):  # fmt: skip
            missed.append(f"{number}: {one}")
    assert not missed


def _differs(
    kernel: TileKernel, plan: Plan, inputs: dict[str, Array], wanted: dict[str, Array], late: bool,
    last: bool,
) -> bool:  # fmt: skip
    try:
        with np.errstate(all="ignore"):
            return not close(run(kernel, plan.program, inputs, tiling(plan), late, last), wanted)
    except KernelError:
        return True


@pytest.mark.parametrize(("text", "said"), [
    ("kernel k\nop a: tensor() -> s takes r\n  mma 3\ndo a", "a takes r, no ring"),
    ("kernel k\ndo a", "no operation 'a'"),
    ("kernel k\nsync full r", "neither ring nor operation"),
    ("kernel k\nop a: tensor() -> s\n  mma 3\nsync fence\ndo a", "no `sync commit` behind it"),
    ("kernel k\nring r: 2 of x\nop f: copy() -> x takes r\n  copy 0 by tma\nsync free r\ndo f",
     "no `sync expect r` ahead of it"),
    ("kernel k\nregisters s", "registers s: nothing uses them"),
])  # fmt: skip
def test_rules_name_what_breaks_them(text: str, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        verify(TileKernel.parse(text))


@pytest.mark.parametrize(("text", "said"), [
    ("for tile", "the first line"),
    ("kernel k\nwhile tile", "no statement"),
    ("kernel k\nfor block from 0", "no loop"),
    ("kernel k\nsync now", "nothing synchronises by 'now'"),
    ("kernel k\ndo a of x", "no block"),
    ("kernel k\ndo a later on", "no condition"),
    ("kernel k\nring r of x", "no ring"),
    ("kernel k\n    do a", "indented too far"),
])  # fmt: skip
def test_what_is_no_kernel_is_refused(text: str, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        TileKernel.parse(text)


def test_places_and_conditions_count_blocks() -> None:
    assert [At(of, 2).value(3, 7) for of in ("", BLOCK, "blocks")] == [2, 5, 9]
    assert [When("every", 4).holds(n, 9) for n in range(5)] == [False, False, False, True, False]
    assert [When("within", 2).holds(n, 9) for n in range(3)] == [False, True, False]
    assert Loop(BLOCK, (Do("a"),)) != Loop(BLOCK, (Do("a"),), step=2)


def test_a_kernel_that_waits_for_ever_is_told() -> None:
    text = (
        "kernel k\nring r: 1 of x\nop f: copy() -> x takes r\n  copy 0 by tma\nrole producer\n"
        "  for tile\n    sync free r\n    do f\n    sync advance r\nrole consumers\n  for tile\n"
        "    sync full r\n    sync advance r\n"
    )
    program = built("matmul", {"m": 128, "n": 8, "k": 16, "dtype": "bf16"})
    inputs = random_inputs(program, np.random.default_rng(0))
    tiles = Tiling({"m": 64, "n": 8, "k": 16}, ("k",))
    with pytest.raises(KernelError, match="nobody goes on: sync free r of slot 1"):
        run(TileKernel.parse(text), program, inputs, tiles)
