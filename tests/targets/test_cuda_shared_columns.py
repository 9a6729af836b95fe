"""Chains whose warp groups share the last product's columns: latent attention, tied operands."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract, exp, reduce
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.rules import verify
from ir.kernel.tile_kernel import MEET, PUBLISH, Do, Sync, walk
from ir.kernel.tiling import Tiling
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.inhabited import inhabited
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.build.tried import space_alone
from ir.targets.cuda.plans.tensor_rings import found_twice
from ir.targets.cuda.space.residences import JOINED, WIDE, residences
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
LATENT = {"b": 2, "heads": 64, "sk": 200, "latent": 512, "rope": 64, "dtype": "bf16"}


def latent(**changed: Any) -> Program:
    return inhabited(load_operator("mla_decode").build(**{**LATENT, **changed}))


def tied() -> Program:
    """Attention whose keys are its values."""
    g = Graph("tied")
    rows, keys, depth, columns = g.axes(i=128, j=200, d=64, v=64)
    q = g.input("Q", (rows, depth), "bf16")
    memory = g.tensor("M", (200, 64), "bf16")
    scores = contract(q, memory[keys, depth], over=depth) * 0.125
    weights = exp(scores - reduce("max", scores, over=keys))
    total = contract(cast(weights, "bf16"), memory[keys, columns], over=keys)
    g.output("O", total * (1.0 / reduce("sum", weights, over=keys)), "bf16", (rows, columns))
    return inhabited(g.program())


def half_tied() -> Program:
    """The same weights of what keys are, and of other values, which have a ring to themselves."""
    g = Graph("half_tied")
    rows, keys, depth, columns = g.axes(i=128, j=200, d=64, v=64)
    q, other = g.input("Q", (rows, depth), "bf16"), g.input("V", (keys, columns), "bf16")
    memory = g.tensor("M", (200, 64), "bf16")
    scores = contract(q, memory[keys, depth], over=depth) * 0.125
    weights = exp(scores - reduce("max", scores, over=keys))
    factor, root = cast(weights, "bf16"), 1.0 / reduce("sum", weights, over=keys)
    for name, values in (("O", memory[keys, columns]), ("P", other)):
        g.output(name, contract(factor, values, over=keys) * root, "bf16", (rows, columns))
    return inhabited(g.program())


def chain(program: Program, residence: str) -> tuple[TensorKernel, Space]:
    """The only kernel of a residence, and its space."""
    (kernel,) = kernels_of(program, HARDWARE, "wgmma", residence)
    assert isinstance(kernel, TensorKernel)
    return kernel, space_alone(kernel)


def rows_of(space: Space, count: int, **pins: object) -> list[dict[str, Value]]:
    rng, pinned = np.random.default_rng(0), space.pin(pins)
    rows = [*pinned.seed_rows(rng)[: count // 2], *pinned.sample(rng, count - count // 2)]
    return [space.schedule(row).as_dict() for row in rows]


def lowered(program: Program, values: dict[str, Value], residence: str) -> Kernel:
    return lower_all(program, values, HARDWARE, "wgmma", residence)


@needs_compiler
@pytest.mark.parametrize("order", ["straight", "outer:1"])
@draws(1, 3)
@pytest.mark.alike(2)
def test_groups_share_the_columns_of_values(order: str, count: int) -> None:
    program = latent(sk=136)  # two whole blocks and a part of one, or of a single one
    kernel, space = chain(program, WIDE)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, bounds = evaluate(program, inputs), bounds_of(program, inputs)
    for number, values in enumerate(rows_of(space, count, partition="columns", order=order)):
        plan = kernel.plan(values)
        for name, made in after_each(build(plan, "k"), passes_of(plan)):
            verify(made)
            last = name in ("synchronise", "place") and number % 2 == 0
            found = run(made, plan.program, inputs, tiling(plan), number % 2 == 1, last)
            assert np.allclose(found["O"], wanted["O"], 1e-6, 1e-6), name
        text = lowered(program, values, WIDE)
        for mode in ((0, 15), (6, 9), (3, 12))[number]:
            assert not problems(program, text, inputs, bounds, mode), values


def tiling(plan: Any) -> Tiling:
    return Tiling(plan.tiles, tuple(plan.roles.walked))


def test_keys_and_values_are_copied_once() -> None:
    """A slot is read by both products, and free behind the second; the operand is published."""
    program = latent()
    kernel, space = chain(program, WIDE)
    (values,) = rows_of(space, 1, partition="columns", order="outer:1")
    plan = kernel.plan(values)
    assert found_twice(plan.program, plan.roles)
    assert [ring.name for ring in plan.rings] == ["held", "inner"]
    *_, (_, made) = after_each(build(plan, "k"), passes_of(plan))
    done = [one for one in walk(made.body) if isinstance(one, Do) and one.operation == "outer"]
    assert [one.back for one in done] == [2, 1]  # in the loop, and behind it
    syncs = [one for one in walk(made.body) if isinstance(one, Sync)]
    freed = [one.number for one in syncs if one.kind == "release" and one.of == "inner"]
    assert freed == [2, 1]
    assert sum(one.kind in (PUBLISH, MEET) for one in syncs) == 4  # ahead of the loop, and in it
    text = lowered(program, values, WIDE).text("cuda")
    body = text[text.index("TW_KERNEL") :]
    loads = body[: body.index("const i32 member")]
    assert loads.count("&cache_map,") == 8  # panels of 64: keys' 8, which are the values'


@needs_compiler
@pytest.mark.parametrize("order", ["straight", "outer:1"])
def test_what_is_key_and_value_is_read_from_one_slot(order: str) -> None:
    program = tied()
    kernel, space = chain(program, "usual")
    inputs = random_inputs(program, np.random.default_rng(2))
    wanted, bounds = evaluate(program, inputs), bounds_of(program, inputs)
    for number, values in enumerate(rows_of(space, 4, order=order)):
        plan = kernel.plan(values)
        assert [ring.name for ring in plan.rings] == ["held", "inner"]
        *_, (_, made) = after_each(build(plan, "k"), passes_of(plan))
        found = run(made, plan.program, inputs, tiling(plan), number % 2 == 0, number > 1)
        assert np.allclose(found["O"], wanted["O"], 1e-6, 1e-6)
        kernels = lowered(program, values, "usual")
        assert not problems(program, kernels, inputs, bounds, (0, 6, 9, 15)[number]), values


@needs_compiler
@pytest.mark.parametrize("order", ["straight", "outer:1"])
def test_a_ring_of_its_own_is_read_where_it_is(order: str) -> None:
    """One product reads a slot that another has left behind, and one of a ring that nobody else
    reads."""
    program = half_tied()
    kernel, space = chain(program, "usual")
    inputs = random_inputs(program, np.random.default_rng(2))
    wanted, bounds = evaluate(program, inputs), bounds_of(program, inputs)
    for number, values in enumerate(rows_of(space, 4, order=order)):
        plan = kernel.plan(values)
        assert [ring.name for ring in plan.rings] == ["held", "inner", "late"]
        *_, (_, made) = after_each(build(plan, "k"), passes_of(plan))
        assert made.shared_rings == {"inner"}
        found = run(made, plan.program, inputs, tiling(plan), number % 2 == 0, number > 1)
        assert all(np.allclose(found[name], wanted[name], 1e-6, 1e-6) for name in wanted)
        kernels = lowered(program, values, "usual")
        assert not problems(program, kernels, inputs, bounds, (0, 6, 9, 15)[number]), values


def test_norms_of_heads_behind_a_projection_have_kernels() -> None:
    """Columns that are summed later are apart in one orientation alone: that one is offered."""
    g = Graph("normed")
    rows, heads, columns, depth = g.axes(m=64, h=32, c=128, k=4096)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (heads, columns, depth), "bf16")
    y = contract(x, w, over=depth)
    norm = reduce("sum", y * y, over=columns)
    g.output("O", y * (1.0 / (norm + 1.0)), "bf16", (rows, heads, columns))
    program = inhabited(g.program())
    space = BACKEND.space(program, HARDWARE)
    for row in [*space.seed_rows(np.random.default_rng(0))[:4], *space.sample(
        np.random.default_rng(0), 12
    )]:  # fmt: skip
        BACKEND.lower(program, space.schedule(row), HARDWARE)


def test_wide_chains_are_a_residence_of_their_own() -> None:
    """Names that were there before name what they named."""
    program = latent(b=128, heads=128, sk=4096)
    assert {JOINED, WIDE} <= {*residences(program, 132)}
    space = BACKEND.space(program, HARDWARE)
    assert WIDE in space.decision("residence").domain
    kernel, _ = chain(program, WIDE)
    narrow, _ = chain(program, JOINED)
    assert kernel.roles.columns == ("dv",)
    assert len(narrow.roles.batch) == len(kernel.roles.batch) + 1
    few = residences(latent(b=4, heads=128, sk=8192), 132)
    assert {"parts-16", f"{WIDE}-parts-16"} <= {*few}


def test_narrow_chains_keep_their_rows() -> None:
    program = load_operator("attention").build(b=1, heads=4, sq=512, d=128, dtype="bf16")
    space = BACKEND.space(program, HARDWARE)
    seed = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    changed: dict[str, Value] = {"partition": "columns", "tile.sk": 64, "consumers": 2}
    values: dict[str, Value] = {
        name: changed.get(name.removeprefix("wgmma."), value) for name, value in seed.items()
    }
    refused = space.refusal(Schedule.of("cuda", values))
    assert refused is not None
    assert str(refused).partition(":")[0].endswith("partition")


@pytest.mark.parametrize("order", ["straight", "outer:1"])
@draws(1, 2)
def test_wide_chains_neither_spill_nor_serialise(order: str, count: int) -> None:
    try:
        nvrtc.version()
    except MissingTarget:
        pytest.skip("no NVRTC")
    program = latent(b=128, heads=128, sk=4096)
    _, space = chain(program, WIDE)
    for values in rows_of(space, 4, partition="columns", order=order)[:count]:
        kernel = lowered(program, values, WIDE)
        plan = json.loads(kernel.text("launch"))
        _, used = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], tuple(plan["options"]))
        assert (used.spill_stores, used.serialised) == (0, ())
