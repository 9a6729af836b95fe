"""Chains of products on mma.sync: which cards and programs have them, what they mean."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract, exp, reduce
from ir.errors import MissingTarget, Refusal
from ir.inputs import random_inputs
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.rules import verify
from ir.kernel.tile_kernel import AWAIT, COMMIT, FENCE, Sync, TileKernel
from ir.kernel.tiling import Tiling
from ir.oracle import evaluate
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import engines_of, kernels_of, scheduled_kernels
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.engines import route_of
from ir.targets.cuda.space.warp import WarpKernel
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import draws, few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, UNSEEN, built
from tests.targets.test_cuda_emulated import QUICK, arrays_of, problems

A100, ADA = known_hardware("a100"), known_hardware("rtx4090")
HEADS: dict[str, Any] = {"b": 1, "heads": 2, "dtype": "bf16"}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("attention", {**HEADS, "sq": 130, "sk": 250, "d": 128, "causal": True}),
    ("attention", {**HEADS, "sq": 100, "sk": 100, "d": 72, "window": 40, "causal": True}),
    ("attention", {"b": 2, "heads": 4, "kv_heads": 2, "sq": 70, "sk": 131, "d": 96, "dv": 64,
                   "dtype": "f16"}),
    ("attention", {"b": 1, "heads": 1, "sq": 70, "sk": 100, "d": 192, "dv": 512, "dtype": "bf16"}),
    ("attention_lse", {**HEADS, "sq": 130, "d": 64}),
    ("attention_backward", {**HEADS, "sq": 70, "d": 64}),
    ("lora_matmul", {"m": 70, "n": 96, "k": 128, "rank": 16, "dtype": "bf16"}),
    ("mlp", {"m": 70, "k": 64, "hidden": 128, "n": 72, "dtype": "bf16"}),
    (f"{UNSEEN}:softcap_attention", {"h": 2, "q": 96, "k": 160, "d": 64}),
    (f"{UNSEEN}:two_layers", {"m": 64, "f": 300, "d": 300, "o": 40}),
)  # fmt: skip
IDS = [f"{number}-{name.rpartition(':')[2]}" for number, (name, _) in enumerate(CASES)]
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


def drawn(program: Program, seed: int, count: int) -> list[Schedule]:
    """Schedules whose products are chained by mma.sync."""
    space = BACKEND.space(program, A100)
    wanted = {"residence": "usual", "engine": "mma_chained"}
    space = space.pin(**{name: value for name, value in wanted.items() if name in space.names})
    rows = space.sample(np.random.default_rng(seed), count)
    return [space.schedule(row) for row in rows]


@needs_compiler
@pytest.mark.parametrize("number", few(range(len(CASES)), (0, 1, 2, 3, 6, 7), IDS))
@draws(1, 2)
@pytest.mark.alike(2)
def test_drawn_kernels_mean_their_program(number: int, count: int) -> None:
    program = built(*CASES[number])
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate(drawn(program, number, count)):
        kernel = BACKEND.lower(program, schedule, A100)
        assert "wgmma" not in kernel.text("cuda")
        assert "tw_tma" not in kernel.text("cuda")
        for mode in (QUICK[turn % 4], QUICK[(turn + 3) % 4]):
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


def shifted(by: int) -> Program:
    """Keys and features that begin before their tensor does: zeros."""
    g = Graph("shifted")
    h, i, j, d, e = g.axes(h=2, i=50, j=75, d=64, e=64)
    q, k = g.input("Q", (h, i, d), "bf16"), g.tensor("K", (2, 75, 64), "bf16", fill=0)
    score = contract(q, k[h, j - 1, d - by], over=d) * 0.125
    p = exp(score - reduce("max", score, over=j))
    o = contract(cast(p, "bf16"), g.input("V", (h, j, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", p, over=j), "bf16", (h, i, e))
    return g.program()


@needs_compiler
@pytest.mark.parametrize(("by", "kinds"), [(16, ["warp"]), (3, ["block", "warp"])])
def test_what_lies_outside_is_zero(by: int, kinds: list[str]) -> None:
    """Whole chunks of 16 bytes are left out; what begins inside one is copied ahead."""
    program = shifted(by)
    assert [one.kind for one in kernels_of(program, A100, "mma_chained")] == kinds
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 0, 2):
        kernel = BACKEND.lower(program, schedule, A100)
        for mode in QUICK[::3]:
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@needs_compiler
def test_copies_are_waited_for() -> None:
    """Threads that copy say that their copies are there: a kernel in which they say so at once is
    caught. Each warp that has read a slot says it for itself."""
    program = built("attention", {**HEADS, "heads": 1, "sq": 64, "sk": 256, "d": 64})
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, A100).pin({"tile.sk": 32, "stages": 2})
    schedule = space.schedule(space.sample(np.random.default_rng(0), 1)[0])
    kernel = BACKEND.lower(program, schedule, A100)
    text, launch = kernel.text("cuda"), kernel.text("launch")
    assert "if (lane % 32 == 0) tw_barrier_arrive(" in text
    broken = text.replace("tw_copy_async_arrive", "tw_barrier_arrive")
    assert broken != text
    caught = []
    for mode in MODES:
        for some in (text, broken):
            arrays = arrays_of(kernel, inputs)
            run = emulate(some, launch, arrays, mode=mode, limit=30)
            wrongs = [name for name, one in wanted.items() if not one.judge(arrays[name]).right]
            caught.append((some is broken, bool(run.faults or wrongs)))
    assert (False, True) not in caught
    assert (True, True) in caught


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
@pytest.mark.parametrize("number", few(range(len(CASES)), (0, 6), IDS))
@pytest.mark.alike(2)
def test_machine_code_of_older_cards(number: int, arch: str) -> None:
    """What sm_90 alone has is in no text."""
    try:
        nvrtc.version()
    except MissingTarget as problem:
        pytest.skip(str(problem))
    program = built(*CASES[number])
    kernel = BACKEND.lower(program, drawn(program, 5, 1)[0], A100)
    _, resources = nvrtc.compile_text(kernel.text("cuda"), arch)
    assert 0 < resources.registers <= 255


def test_operands_of_gigabytes_are_addressed_in_64_bits() -> None:
    """Neighbouring keys of 400,000 heads lie 25.6 million elements apart."""
    g = Graph("far")
    h, i, j, d, e = g.axes(h=400_000, i=64, j=256, d=64, e=64)
    q, k = g.input("Q", (i, h, d), "bf16"), g.input("K", (j, h, d), "bf16")
    p = exp(contract(q, k, over=d) * 0.125)
    o = contract(cast(p, "bf16"), g.input("V", (j, h, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", p, over=j), "bf16", (i, h, e))
    program = g.program()
    (schedule,) = drawn(program, 0, 1)
    text = BACKEND.lower(program, schedule, A100).text("cuda")
    assert re.search(r"const i64 K_of = .*\(i64\)K_line \* 25600000;", text)
    assert re.search(r"K_from = K \+ K_of \+ \(i64\)\(h_first\) \* 64 \+ \(i64\)\(j_at\)", text)


def test_nothing_of_a_product_is_in_flight() -> None:
    program = built(*CASES[0])
    (kernel,) = kernels_of(program, A100)
    assert isinstance(kernel, WarpKernel)
    plan = kernel.plan(drawn(program, 0, 1)[0].as_dict())
    (*_, (_, found)) = after_each(build(plan, "a"), passes_of(plan))
    kinds = {one.kind for one in found.statements() if isinstance(one, Sync)}
    assert kinds
    assert not kinds & {AWAIT, COMMIT, FENCE}
    words = str(found)
    assert "by mma.sync" in words
    assert "by cp.async" in words
    assert "by wgmma" not in words


@pytest.mark.parametrize("number", [0, 2, 7], ids=[IDS[number] for number in (0, 2, 7)])
@draws(1, 2)
def test_every_pass_keeps_the_meaning(number: int, count: int) -> None:
    program = built(*CASES[number])
    for schedule in drawn(program, number, count):
        route, values = route_of(program, schedule, A100)
        kernels, own = scheduled_kernels(program, values, A100, route.engine, route.residence)
        for one in kernels:
            assert isinstance(one, WarpKernel)
            plan = one.plan(own)
            inputs = random_inputs(plan.program, np.random.default_rng(number))
            wanted = evaluate(plan.program, inputs)
            tiling = Tiling(plan.tiles, tuple(plan.roles.walked))
            for name, kernel in after_each(build(plan, "k"), passes_of(plan)):
                verify(kernel)
                assert TileKernel.parse(str(kernel)) == kernel
                synchronised = any(isinstance(one, Sync) for one in kernel.statements())
                for late, last in ((True, False), (False, True))[: 1 + synchronised]:
                    found = run(kernel, plan.program, inputs, tiling, late, last)
                    assert all(
                        np.allclose(found[output], right, 1e-6, 1e-6)
                        for output, right in wanted.items()
                    ), (name, late, last)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [CASES[0], ("mla_prefill", {"b": 1, "heads": 4, "sq": 256, "dtype": "bf16"})],
)
def test_one_kernel_as_on_hopper(name: str, arguments: dict[str, Any]) -> None:
    program = built(name, arguments)
    for card in (A100, ADA):
        assert engines_of(program, card)[0] == "mma_chained"
        assert len(kernels_of(program, card)) == len(kernels_of(program, HARDWARE)) == 1


def test_products_by_themselves_have_their_own_kernels() -> None:
    """Offered only where it saves a kernel, and only on cards without wgmma."""
    product = built("matmul", {"m": 512, "n": 512, "k": 512, "dtype": "bf16"})
    assert "mma_chained" not in engines_of(product, A100)
    assert "mma_chained" not in engines_of(built(*CASES[0]), HARDWARE)
    with pytest.raises(Refusal, match="has wgmma"):
        WarpKernel(built(*CASES[0]), "", HARDWARE)


def test_types_that_a_card_lacks_are_refused() -> None:
    arguments = {**HEADS, "sq": 64, "d": 64, "dtype": "e4m3", "out": "bf16"}
    with pytest.raises(Refusal, match=r"no mma\.sync of e4m3"):
        WarpKernel(built("attention", arguments), "", A100)


def test_a_launch_asks_for_nothing_of_hopper() -> None:
    program = built(*CASES[0])
    kernel = BACKEND.lower(program, drawn(program, 1, 1)[0], A100)
    (plan,) = json.loads(kernel.text("launch"))["kernels"]
    assert {one["kind"] for one in plan["parameters"]} == {"pointer"}
    assert plan["cluster"] == [1, 1, 1]
    assert plan["shared"] <= A100["shared_bytes"]
