"""Partition into stages: what is stored in between, and which stage computes it."""

from __future__ import annotations

import pytest

from ir import Graph, contract, operator, reduce
from ir.partition import stage_program
from ir.registry import load_operator
from ir.rewrite.split import split
from ir.rewrite.streaming import stream
from ir.stages import Stage, StagedProgram


def staged(name: str, **arguments: object) -> StagedProgram:
    return stage_program(stream(load_operator(name).build(**arguments)))


def attention(**options: object) -> StagedProgram:
    return staged("attention", b=1, heads=2, sq=64, d=32, **options)


def stored(program: StagedProgram, stage: Stage) -> list[str]:
    """The op or function of what a stage leaves in buffers."""
    nodes = program.program.nodes
    found = [nodes[r.node] for r in stage.written if r.tensor is None]
    return [getattr(node.op, "function", node.op.name) for node in found]


@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_stored_as_the_product_leaves_them(causal: bool) -> None:
    """Scale and mask are cheap: the maximum and the exponentials repeat them."""
    program = attention(causal=causal)
    assert stored(program, program.stages[0]) == ["contract"]


def test_rescaling_factors_run_their_vectors_along_rows() -> None:
    program = attention()
    (factor,) = [s for s in program.stages if "exp" in stored(program, s) and not s.reduce]
    assert factor.domain == ("b", "hk", "sq")
    assert program.carried(factor.body_results[0].node) == {"sk"}


def test_a_factor_of_a_wider_product_is_stored_whole() -> None:
    """The scaled product is an operand of the next one: no reader over its own points."""

    @operator
    def chained(g: Graph, m: int, k: int, n: int, p: int) -> None:
        mm, kk, nn, pp = g.axes(m=m, k=k, n=n, p=p)
        a, b = g.input("A", (mm, kk), "f32"), g.input("B", (kk, nn), "f32")
        c = g.input("C", (nn, pp), "f32")
        g.output("O", contract(contract(a, b, over=kk) * 0.5, c, over=nn), "f32", (mm, pp))

    program = stage_program(chained.build(m=8, k=8, n=8, p=8))
    assert stored(program, program.stages[0]) == ["mul"]


def test_an_epilogue_stays_with_its_product() -> None:
    program = staged("matmul_bias_act", m=32, n=32, k=32)
    assert len(program.stages) == 1


def test_merges_do_not_take_running_maps_in() -> None:
    """After a split the factor and the merge have the same points, but not the same time."""
    parted = split(load_operator("attention").build(b=1, heads=2, sq=64, d=32), "sk", 2)
    program = stage_program(stream(parted))
    bodies = [(s, program.carried(r.node)) for s in program.stages for r in s.body_results]
    assert any(carried and not stage.accumulators for stage, carried in bodies)
    assert all(carried <= set(s.domain) or not s.accumulators for s, carried in bodies)


def test_a_sum_is_stored_at_points_that_it_lacks() -> None:
    """The stage that spreads a value over an output reads it, and does not compute it."""

    @operator
    def spread(g: Graph, m: int, n: int, k: int) -> None:
        i, j, d = g.axes(m=m, n=n, k=k)
        largest = reduce("max", g.input("X", (i, j), "f32"), j)
        g.output("Y", largest + 1.0, dims=(i, d))

    program = stage_program(spread.build(m=3, n=4, k=5))
    first, second = program.stages
    (made,) = [result.node for result in first.written]
    assert program.producer[made] == 0
    assert program.leaves(second, program.body_roots(second)) == (made,)
