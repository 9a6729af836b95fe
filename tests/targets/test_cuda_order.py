"""Orders of the loop of chained products: all mean the program, and overlap what they say."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, silu
from ir.inputs import random_inputs
from ir.kernel.body import Body
from ir.kernel.modulo import orders
from ir.kernel.turns import DONE, ISSUED
from ir.program import Program
from ir.rewrite.walking import walked
from ir.schedule import Schedule
from ir.space import Space
from ir.targets.cuda.bodies.tensor_bodies import body_of
from ir.targets.cuda.bodies.tensor_order import is_compiled, order_choices
from ir.targets.cuda.build.roles import find_roles
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


def _gated() -> Program:
    """Two layers whose hidden rows never leave the registers."""
    g = Graph("gated")
    m, n, k, o = g.axes(m=136, n=200, k=64, o=48)
    x = g.input("X", (m, k), "bf16")
    one, two = (contract(x, g.input(name, (n, k), "bf16"), over=k) for name in ("V", "W"))
    hidden = cast(silu(one) * two, "bf16")
    g.output("Y", cast(contract(hidden, g.input("U", (o, n), "bf16"), over=n), "bf16"))
    return g.program()


def _plain() -> Program:
    """(A B) C, what is between as it is."""
    g = Graph("plain")
    m, n, k, o = g.axes(m=136, n=200, k=64, o=48)
    x, v = g.input("X", (m, k), "bf16"), g.input("V", (n, k), "bf16")
    hidden = cast(contract(x, v, over=k), "bf16")
    g.output("Y", contract(hidden, g.input("U", (o, n), "bf16"), over=n))
    return g.program()


def _normalised() -> Program:
    """Weights that are divided before they are rounded: a pass for their sums comes first."""
    g = Graph("normalised")
    h, q, k, e, v = g.axes(h=2, q=70, k=200, e=80, v=80)
    scores = contract(g.input("Q", (h, q, e), "f16"), g.input("K", (h, k, e), "f16"), over=e)
    p = exp((scores - reduce("max", scores, over=k)) * 0.1)
    p = cast(p / reduce("sum", p, over=k), "f16")
    g.output("O", contract(p, g.input("V", (h, k, v), "f16"), over=k), "f16", (h, q, v))
    return g.program()


ORDERS = ("straight", "outer:1")
PROGRAMS = {
    "attention": built(
        "attention", {"b": 1, "heads": 2, "sq": 200, "sk": 264, "d": 64, "dtype": "bf16"}
    ),
    "causal": built(
        "attention", {"b": 1, "heads": 2, "sq": 328, "d": 64, "dtype": "f16", "causal": True}
    ),
    "window": built(
        "attention",
        {"b": 1, "heads": 1, "sq": 456, "d": 64, "dtype": "bf16", "causal": True, "window": 200},
    ),
    "gated": _gated(),
    "plain": _plain(),
    "normalised": _normalised(),
}


def _pinned(program: Program, order: str) -> Space:
    space = BACKEND.space(program, HARDWARE)
    names = [name for name in space.names if name.split(".")[0] == "order"]
    engine = {"engine": "wgmma"} if "engine" in space.names else {}
    return space.pin({names[0]: order, **engine})


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", PROGRAMS)
@draws(1, 2)
@pytest.mark.alike(2)
def test_every_order_means_the_program(name: str, order: str, count: int) -> None:
    program = PROGRAMS[name]
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = _pinned(program, order)
    for turn, row in enumerate(space.sample(np.random.default_rng(5), count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        for mode in ((0, 15), (6, 9))[turn]:
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("turns", [ISSUED, DONE])
@pytest.mark.parametrize("name", ["attention", "window", "gated"])
@draws(1, 2)
@pytest.mark.alike(2)
def test_groups_that_take_turns_mean_the_program(name: str, turns: str, count: int) -> None:
    program = PROGRAMS[name]
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = _pinned(program, "outer:1")
    space = space.pin({next(n for n in space.names if n.split(".")[0] == "turns"): turns})
    for number, row in enumerate(space.sample(np.random.default_rng(7), count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        for mode in ((0, 15), (6, 9))[number]:
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


def test_a_turn_is_taken_and_passed_once_a_step() -> None:
    """Also in the steps ahead of the loop and behind it; the last group lets the first begin."""
    space = _pinned(PROGRAMS["attention"], "outer:1").pin({"turns": ISSUED, "consumers": 2})
    row = space.sample(np.random.default_rng(0), 1)[0]
    text = BACKEND.lower(PROGRAMS["attention"], space.schedule(row), HARDWARE).text("cuda")
    consumer = text[text.index("const i32 member") :]
    assert consumer.count("tw_group_sync(9 + member, 256)") >= 3
    taken, passed = (consumer.count(f"tw_group_{what}(9") for what in ("sync", "arrive"))
    assert passed == taken + 1


def test_turns_need_groups_that_share_a_tile() -> None:
    space = _pinned(PROGRAMS["attention"], "outer:1")
    row = space.sample(np.random.default_rng(0), 1)[0]
    values = {**dict(space.schedule(row).values), "consumers": 1, "turns": ISSUED}
    broken = space.violations(space.encode(Schedule.of("cuda", values))[None])[0]
    refused = [rule.name for rule, bad in zip(space.constraints, broken, strict=True) if bad]
    assert "turns" in refused


def test_masks_touch_only_blocks_that_straddle() -> None:
    """A causal mask leaves the blocks before the diagonal alone, a window those between."""
    loops = {}
    for name in ("attention", "causal", "window"):
        space = _pinned(PROGRAMS[name], "outer:1").pin({"tile.sk": 64, "tile.sq": 64})
        row = space.sample(np.random.default_rng(0), 1)[0]
        text = BACKEND.lower(PROGRAMS[name], space.schedule(row), HARDWARE).text("cuda")
        parts = text[text.index("const i32 member") :].split("for (i32 block")[1:]
        loops[name] = ["? " in part for part in parts]
    assert loops["causal"] == [False, True]
    assert loops["window"] == [True, False, True]
    assert loops["attention"] == [False, True]  # 264 keys end inside a block


def test_waits_leave_running_what_overlaps() -> None:
    waits = {}
    for order in ORDERS:
        space = _pinned(PROGRAMS["attention"], order)
        row = space.sample(np.random.default_rng(0), 1)[0]
        text = BACKEND.lower(PROGRAMS["attention"], space.schedule(row), HARDWARE).text("cuda")
        loop = text[text.index("for (i32 block", text.index("const i32 member")) :]
        waits[order] = re.findall(r"tw_wgmma_wait<(\d)>", loop)[:2]
    assert waits == {"straight": ["0", "0"], "outer:1": ["1", "0"]}


def _body(program: Program) -> Body:
    once = find_roles(program, False)
    body = body_of(find_roles(walked(program, frozenset(once.walked)), False))
    return replace(body, operations=tuple(replace(one, parts=()) for one in body.operations))


def test_bodies_are_derived_from_their_programs() -> None:
    """What is carried, what is corrected, and what is between: nothing is, or one value."""
    assert _body(PROGRAMS["attention"]) == Body.parse(
        "inner: tensor(Q, K) -> contract_2 takes inner\n"
        "between: threads(contract_2, max_5, sum_17) -> max_5, sum_17, exp_12, exp_10\n"
        "fold: threads(exp_12, exp_10, sum_16) -> sum_16, cast_13_words\n"
        "outer: tensor(cast_13_words, V, sum_16) -> sum_16 takes late\n"
        "local exp_10, exp_12"
    )
    assert _body(PROGRAMS["gated"]) == Body.parse(
        "inner: tensor(X, V, W) -> contract_2, contract_4 takes inner\n"
        "between: threads(contract_2, contract_4) -> mul_7\n"
        "fold: threads(mul_7) -> cast_8_words\n"
        "outer: tensor(cast_8_words, U, contract_10) -> contract_10 takes late\n"
        "local mul_7"
    )
    assert _body(PROGRAMS["plain"]) == Body.parse(
        "inner: tensor(X, V) -> contract_2 takes inner\n"
        "fold: threads(contract_2) -> cast_3_words\n"
        "outer: tensor(cast_3_words, U, contract_5) -> contract_5 takes late"
    )


def test_orders_that_the_compiler_undoes_are_left_out() -> None:
    every = {str(order): is_compiled(order) for order in orders(_body(PROGRAMS["attention"]))}
    assert every == {"straight": True, "outer:1": True, "between:1,fold:1,outer:1": False}
    for program in PROGRAMS.values():
        once = find_roles(program, False)
        roles = find_roles(walked(program, frozenset(once.walked)), False)
        assert tuple(order_choices(roles)) == ORDERS
