"""Chains whose weights a warp group of its own makes, for groups that share the columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.passes.apart import WEIGHERS
from ir.kernel.passes.roles import CONSUMERS
from ir.kernel.rules import verify
from ir.kernel.tile_kernel import FREE, KernelError, Sync, TileKernel, rewritten, walk
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.inhabited import inhabited
from ir.schedule import Schedule
from ir.target import Hardware
from ir.targets.cuda.bodies.apart import apart_problem, factors_of, states_read
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.build.tried import space_alone
from ir.targets.cuda.space.residences import WIDE, residences
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_cuda_shared_columns import latent, tiling

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
FEW = replace(HARDWARE, facts=tuple((k, 9 if k == "sms" else v) for k, v in HARDWARE.facts))


def wide_attention(**changed: Any) -> Program:
    """Attention of 512 columns that also tells its log-sum-exp: two states are read at the end."""
    sizes = {"b": 1, "heads": 10, "sq": 64, "d": 512, "dtype": "bf16", **changed}
    return inhabited(load_operator("attention_lse").build(**sizes))


def squared_scores() -> Program:
    """Weights without any state, of values that are no keys."""
    g = Graph("squared_scores")
    batch, rows, keys, depth, columns = g.axes(b=10, i=64, j=136, d=64, v=512)
    q, k = g.input("Q", (batch, rows, depth), "bf16"), g.input("K", (batch, keys, depth), "bf16")
    v, scores = g.input("V", (batch, keys, columns), "bf16"), contract(q, k, over=depth)
    total = contract(cast(scores * scores, "bf16"), v, over=keys)
    g.output("O", total, "bf16", (batch, rows, columns))
    return inhabited(g.program())


def chains(program: Program, hardware: Hardware = HARDWARE) -> tuple[TensorKernel, str]:
    """The only kernel of a program, and its residence."""
    for residence in (WIDE, *residences(program, hardware["sms"])):
        kernels = [
            one for one in kernels_of(program, hardware, "wgmma", residence)
            if isinstance(one, TensorKernel) and one.may_weigh
        ]  # fmt: skip
        if len(kernels) == 1:
            return kernels[0], residence
    raise AssertionError(f"{program.name} has no chain of one kernel")


def rows_of(kernel: TensorKernel, count: int, **pins: object) -> list[dict[str, Any]]:
    space = space_alone(kernel)
    rng, pinned = np.random.default_rng(0), space.pin(pins)
    rows = [*pinned.seed_rows(rng)[: count // 2], *pinned.sample(rng, count - count // 2)]
    return [space.schedule(row).as_dict() for row in rows]


def made(kernel: TensorKernel, values: dict[str, Any]) -> TileKernel:
    plan = kernel.plan(values)
    *_, (_, found) = after_each(build(plan, "k"), passes_of(plan))
    return found


@needs_compiler
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("make", [lambda: latent(sk=136, b=10), wide_attention, squared_scores])
@draws(1, 3)
@pytest.mark.alike(2)
def test_weights_are_left_for_those_who_multiply(
    make: Callable[[], Program], slots: int, count: int
) -> None:
    """Every pass keeps what the kernel means, run as hardware would; so does the text, with several
    tiles to a block."""
    program = make()
    kernel, residence = chains(program, FEW)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, bounds = evaluate(program, inputs), bounds_of(program, inputs)
    for number, values in enumerate(rows_of(kernel, count, weights=slots, processors=9)):
        plan = kernel.plan(values)
        assert plan.apart
        assert plan.threads == 128 * (2 + plan.consumers)
        for name, one in after_each(build(plan, "k"), passes_of(plan)):
            verify(one)
            if name == "synchronise":  # which leaves rings that threads fill to the next
                continue
            late = name in ("relay", "place")
            found = run(one, plan.program, inputs, tiling(plan), late and number % 2 == 0, late)
            for output, expected in wanted.items():
                assert np.allclose(found[output], expected, 1e-6, 1e-6), (name, output)
        text = lower_all(program, values, FEW, "wgmma", residence)
        for mode in ((0, 15), (6, 9), (3, 12))[number]:
            assert not problems(program, text, inputs, bounds, mode), values


def test_whoever_fills_a_slot_waits_for_its_readers() -> None:
    """Without that wait the next weights are written over those that are still multiplied."""
    program = latent(sk=200)
    kernel, _ = chains(program)
    (values,) = rows_of(kernel, 1, weights=1)
    plan, whole = kernel.plan(values), made(kernel, values)
    body = rewritten(whole.body, lambda one: () if one == Sync(FREE, "weights") else (one,))
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = evaluate(program, inputs)["O"]
    right = run(whole, plan.program, inputs, tiling(plan), True, False)["O"]
    assert np.allclose(right, wanted, 1e-6, 1e-6)
    try:
        found = run(whole.with_body(body), plan.program, inputs, tiling(plan), True, False)["O"]
    except KernelError:
        return
    assert not np.allclose(found, wanted, 1e-6, 1e-6)


def test_each_role_frees_what_it_reads_last() -> None:
    """Keys and values that are one tensor are freed by those who multiply, the queries by the group
    that makes the weights."""
    kernel, _ = chains(latent())
    (values,) = rows_of(kernel, 1, weights=1)
    whole = made(kernel, values)
    freed = {
        role: {one.of for one in walk(whole.role(role).body)
               if isinstance(one, Sync) and one.kind == "release"}
        for role in (WEIGHERS, CONSUMERS)
    }  # fmt: skip
    assert freed == {WEIGHERS: {"held"}, CONSUMERS: {"inner", "weights"}}


def test_what_is_left_is_what_is_read() -> None:
    roles = chains(wide_attention())[0].walked_roles
    assert len(factors_of(roles)) == 1
    assert len(states_read(roles)) == 2  # the largest and the sum, of the log-sum-exp
    assert len(states_read(chains(latent())[0].walked_roles)) == 1
    assert not states_read(chains(squared_scores())[0].walked_roles)


def test_it_is_offered_where_columns_are_shared() -> None:
    program = load_operator("attention").build(b=1, heads=4, sq=512, d=128, dtype="bf16")
    space = BACKEND.space(program, HARDWARE)
    assert not any("weights" in one.name for one in space.decisions)
    (narrow,) = kernels_of(inhabited(program), HARDWARE, "wgmma", "usual")
    assert isinstance(narrow, TensorKernel)
    assert not apart_problem(narrow.walked_roles)
    kernel, _ = chains(latent())
    space = space_alone(kernel)
    assert space.decision("weights").domain == (0, 1, 2)
    (values,) = rows_of(kernel, 1, weights=1)
    refused = space.refusal(Schedule.of("cuda", {**values, "order": "outer:1"}))
    assert refused is not None
    assert "weights" in str(refused)


def test_inner_products_that_are_added_up_share_registers() -> None:
    kernel, residence = chains(latent())
    assert kernel.walked_roles.scores is not None
    for slots in (0, 1):
        (values,) = rows_of(kernel, 1, weights=slots, partition="columns", order="straight")
        text = lower_all(latent(), values, HARDWARE, "wgmma", residence).text("cuda")
        inner = [product.position for product in kernel.walked_roles.inner]
        assert f"acc_{inner[0]}[" in text
        assert f"acc_{inner[1]}[" not in text


def test_the_estimate_prefers_it_where_scores_are_narrow() -> None:
    program = load_operator("mla_decode").build(b=128, heads=128, sk=4096, dtype="bf16")
    space = BACKEND.space(program, HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    rows = rows[space.legal(rows)]
    assert space.features is not None
    names, matrix = space.features(space.columns(rows))
    best = int(np.argmin(matrix[:, names.index("total.estimate")]))
    assert space.schedule(rows[best]).as_dict()[f"{WIDE}.weights"] in (1, 2)


def test_it_neither_spills_nor_serialises() -> None:
    try:
        nvrtc.version()
    except MissingTarget:
        pytest.skip("no NVRTC")
    program = latent(b=128, heads=128, sk=4096)
    kernel, residence = chains(program)
    (values,) = rows_of(kernel, 1, **{"weights": 1, "tile.sk": 64})
    text = lower_all(program, values, HARDWARE, "wgmma", residence)
    plan = json.loads(text.text("launch"))
    _, used = nvrtc.compile_text(text.text("cuda"), plan["arch"], tuple(plan["options"]))
    assert (used.spill_stores, used.serialised) == (0, ())
