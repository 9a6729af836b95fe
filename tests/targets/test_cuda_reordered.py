"""Chains of 8-bit operands: words of four take columns in another order, in which keys are copied.

The order comes from the layout synthesis; what copies the keys is a tensor map of more dimensions.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract, where
from ir.errors import MissingTarget, Refusal
from ir.inputs import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.inhabited import inhabited
from ir.schedule import Schedule
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.layouts.reordered import Count, Way, reordered, reordering_problem
from ir.targets.cuda.layouts.words import word_order
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
GROUPS = ((2, 1), (4, 4), (2, 2), (8, 16))


def attention(**arguments: object) -> Program:
    sizes = {"dtype": "e4m3", "heads": 2, **arguments}
    return inhabited(load_operator("attention").build(**sizes))


def gated(kv: int = 96) -> Program:
    """Rows of i8 weighed by what a product of two others lets through, without a softmax."""
    g = Graph("gated")
    batch, rows, keys, depth, columns = g.axes(b=3, i=70, j=kv, d=64, v=64)
    q, k = g.input("Q", (batch, rows, depth), "i8"), g.input("K", (batch, keys, depth), "i8")
    v = g.input("V", (batch, columns, keys), "i8")
    scores = contract(q, k, over=depth)
    weights = cast(where(scores > 0, 3, -1), "i8")
    g.output("O", contract(weights, v, over=keys), "i32", (batch, rows, columns))
    return inhabited(g.program())


def schedules(program: Program, count: int) -> list[Schedule]:
    space = BACKEND.space(program, HARDWARE)
    rng, pinned = np.random.default_rng(3), space.pin({"engine": "wgmma"})
    rows = [*pinned.seed_rows(rng)[: count // 2], *pinned.sample(rng, count - count // 2)]
    return [space.schedule(row) for row in rows]


@needs_compiler
@pytest.mark.parametrize("program", [
    attention(b=1, sq=70, sk=160, d=128, causal=False),
    attention(b=2, sq=96, sk=96, d=64, causal=True, kv_heads=1),
    attention(b=1, sq=64, sk=224, d=256, dv=64, causal=True, window=50),
    attention(b=1, sq=40, sk=176, d=64, causal=False),
    gated(),
], ids=["heads", "causal, shared keys", "two panels", "odd sixteens", "i8"])  # fmt: skip
@draws(2, 6)
@pytest.mark.alike(2)
def test_weights_of_eight_bits_stay_in_registers(program: Program, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    for number, schedule in enumerate(schedules(program, count)):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert "_rs(" in kernel.text("cuda")
        assert not problems(program, kernel, inputs, bounds, 3 * number), schedule.to_json()


def test_keys_are_copied_by_maps_of_their_order() -> None:
    program = attention(b=1, sq=128, sk=256, d=128)
    pins = {"engine": "wgmma", "tile.sk.1": 128, "cluster.1": "1x1"}
    space = BACKEND.space(program, HARDWARE).pin(pins)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    launches = json.loads(kernel.text("launch"))["kernels"]
    maps = [p for launch in launches for p in launch["parameters"] if p["kind"] == "map"]
    (keys,) = (p for p in maps if p["argument"] == "K")
    assert keys["box"] == [128, 2, 4, 2, 8]
    assert keys["strides"] == [128, 512, 256, 2048]
    assert keys["dims"] == [128, 2, 4, 2, 2 * 256 // 16]


def test_the_order_is_that_of_the_instructions() -> None:
    assert word_order("e4m3") == word_order("i8") == (*GROUPS[:3], (4, 16))
    assert word_order("bf16") == word_order("f16") == ()  # each column is its own point
    with pytest.raises(Refusal, match="of 8 or 16 bits, not tf32"):
        word_order("tf32")


def test_ways_are_joined_until_a_map_has_room() -> None:
    ways = [Way(128, 1, 128, (Count(0),)), Way(256, 128, 128, (Count(1),)),
            Way(4, 1 << 15, 1, (Count(2),)), Way(3, 1 << 17, 1, (Count(3),))]  # fmt: skip
    assert not reordering_problem(ways, 1, GROUPS, True)
    found = reordered(ways, 1, GROUPS)
    assert [way.box for way in found] == [128, 2, 4, 2, 8]
    assert found[-1] == Way(16 * 4 * 3, 2048, 8, (Count(1, 1, 16), Count(2, 16), Count(3, 64)))
    assert found[-1].coordinate(["0", "k0", "2", "b"]) == "(k0) / 16 + (2) * 16 + (b) * 64"
    assert "divide" in reordering_problem(ways, 1, GROUPS, False)
    assert "furthest" in reordering_problem(ways, 1, GROUPS[::-1], True)
    wide = [ways[0], *ways[1:3], Way(3, 1 << 17, 2, (Count(3),))]
    assert "boxes of their own" in reordering_problem(wide, 1, GROUPS, True)
    assert "up to 5" in reordering_problem(ways, 2, GROUPS, True)


def test_what_no_order_of_keys_serves_says_why() -> None:
    """Keys whose number is no multiple of what changes places would be read beyond their end."""
    program = attention(b=1, sq=64, sk=200, d=64)
    with pytest.raises(Refusal, match="exchanged within 16"):
        find_roles(program, False)


@draws(2, 4)
def test_text_compiles(count: int) -> None:
    program = attention(b=1, sq=128, sk=256, d=128)
    try:
        nvrtc.version()
    except MissingTarget as problem:
        pytest.skip(str(problem))
    for schedule in schedules(program, count):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        plan = json.loads(kernel.text("launch"))
        nvrtc.compile_text(kernel.text("cuda"), plan["arch"], tuple(plan["options"]))
