"""Products that threads fold along an axis: scaled partial sums, functions of scores of heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, Program, contract, exp, reduce, where
from ir.inputs import random_inputs
from ir.targets.cuda.build.cut import WGMMA, cut_program
from ir.targets.cuda.build.folds import folded_axes
from ir.targets.cuda.build.listings import listings_of
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.plans.tensor_rings import HELD, rings_of
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


def blocks(size: int = 128, count: int = 3, kind: str = "e4m3") -> Program:
    """Blocks of a sum, scaled on both sides and added."""
    graph = Graph("blocks")
    m, n, b, k = graph.axes(m=72, n=136, b=count, k=size)
    left, right = graph.input("x", (m, b, k), kind), graph.input("y", (n, b, k), kind)
    scale, other = graph.input("s", (m, b), "f32"), graph.input("t", (n, b), "f32")
    found = contract(left, right, over=k) * scale * other
    graph.output("z", reduce("sum", found, over=b), "bf16", (m, n))
    return graph.program()


def heads(count: int = 5, size: int = 64) -> Program:
    """Scores of heads behind a gate, weighed and added: heads lie beside the rows."""
    graph = Graph("heads")
    i, j, h, d = graph.axes(i=70, j=130, h=count, d=size)
    query, key = graph.input("q", (i, h, d), "bf16"), graph.input("k", (j, d), "bf16")
    weight = graph.input("w", (i, h), "f32")
    scores = contract(query, key, over=d)
    gated = where(scores > 0, scores, 0.0) * weight
    graph.output("s", reduce("sum", gated, over=h), "f32", (i, j))
    return graph.program()


def pairs() -> Program:
    """Two products of a batch, one the other's weight."""
    graph = Graph("pairs")
    b, i, j, d = graph.axes(b=3, i=64, j=72, d=40)
    tiles = [graph.input(name, (b, i if name in "qu" else j, d), "bf16") for name in "qkuv"]
    first, second = (contract(tiles[n], tiles[n + 1], over=d) for n in (0, 2))
    graph.output("s", reduce("sum", first * second, over=b), "f32", (i, j))
    return graph.program()


def extremes() -> Program:
    graph = Graph("extremes")
    b, i, j, d = graph.axes(b=4, i=64, j=72, d=128)
    left, right = graph.input("q", (b, i, d), "f16"), graph.input("k", (b, j, d), "f16")
    best = reduce("max", exp(contract(left, right, over=d) * 0.1), over=b)
    graph.output("s", best, "f16", (i, j))
    return graph.program()


PROGRAMS: dict[str, Callable[[], Program]] = {
    "blocks": blocks, "long blocks": lambda: blocks(384, 4, "bf16"), "heads": heads,
    "long heads": lambda: heads(4, 320), "pairs": pairs, "extremes": extremes,
}  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", PROGRAMS)
@draws(1, 3)
@pytest.mark.alike(2)
def test_one_kernel_folds_its_products(name: str, count: int) -> None:
    program = PROGRAMS[name]()
    space = BACKEND.space(program, HARDWARE)
    if "engine" in space.names:
        space = space.pin({"engine": "wgmma"})
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    rng = np.random.default_rng(len(name))
    for turn, row in enumerate((*space.seed_rows(rng)[:1], *space.sample(rng, count))):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert problems(program, kernel, inputs, bounds, (0, 15, 6, 9)[turn]) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_axis_is_walked_around_the_sum(name: str) -> None:
    program = PROGRAMS[name]()
    assert len(cut_program(program, engine=WGMMA)) == 1
    roles = find_roles(program, False)
    assert roles.walked == (*roles.folded, roles.main_walk)
    assert not {*roles.folded} & {*roles.rows, *roles.columns, *roles.batch}


def test_an_operand_that_does_not_vary_is_there_for_the_whole_walk() -> None:
    program = heads()
    assert [rings_of(program, find_roles(program, False))[HELD].keys()] == [{1}]
    assert HELD not in rings_of(program, find_roles(heads(4, 320), False))  # lines are too long
    assert HELD not in rings_of(blocks(), find_roles(blocks(), False))


def test_what_is_read_elsewhere_is_not_folded() -> None:
    graph = Graph("read")
    b, i, j, d = graph.axes(b=3, i=64, j=64, d=64)
    left, right = graph.input("q", (b, i, d), "bf16"), graph.input("k", (b, j, d), "bf16")
    scores = contract(left, right, over=d)
    graph.output("s", reduce("sum", exp(scores), over=b), "f32", (i, j))
    graph.output("all", scores, "bf16", (b, i, j))
    program = graph.program()
    (position,) = (n for n, node in enumerate(program.nodes) if node.op.name == "contract")
    assert folded_axes(program, position) == ()


def test_scales_of_blocks_go_through_no_memory() -> None:
    program = built("block_scaled_matmul", {"m": 96, "n": 256, "k": 384})
    space = BACKEND.space(program, HARDWARE)
    kernel = BACKEND.lower(
        program, space.schedule(space.seed_rows(np.random.default_rng(0))[0]), HARDWARE
    )
    assert not [one for one in kernel.arguments if one.role == "workspace"]
    assert "block % " not in kernel.text("cuda")  # a block of k is one of the loop: all are whole


def test_people_read_which_products_run_while_others_are_folded() -> None:
    program = blocks()
    space = BACKEND.space(program, HARDWARE)
    pins = {"order": "pairs", "tile.m": 128, "consumers": 2, "partition": "rows", "swap": False}
    if "engine" in space.names:
        pins["engine"] = "wgmma"
    row = space.pin(pins).any_legal(np.random.default_rng(0))
    (listing,) = listings_of(program, space.schedule(row), HARDWARE)
    assert listing.order == "pairs"
    _, loop = dict(listing.passes)["place"].split("for block from 0 to blocks by 2 order pairs\n")
    scope = loop.partition("scope products\n")[2].partition("for block")[0]
    assert [line.strip() for line in scope.strip().splitlines()] == [
        "sync full outer", "sync fence", "do multiply piece 0", "sync commit",
        "sync advance outer", "sync full outer",
        "sync fence", "do multiply of block+1 piece 0", "sync commit",
        "sync await 1", "sync release outer 1", "do fold piece 0",
        "sync await", "sync release outer", "do fold of block+1 piece 0", "sync advance outer",
    ]  # fmt: skip
