"""What is kept of kernels that differ in names alone is what each of them would say by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ir import Graph, cast, contract, exp, reduce
from ir.program import Program
from ir.space import Columns, Space
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.products import product_of
from ir.targets.cuda.build.tried import AnyKernel, seeds_alone, space_alone
from ir.targets.cuda.cost.features import TIMES, EngineFeatures, Features, KernelCosts, costs_of
from ir.targets.cuda.cost.known import ByRow
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.probing import alike
from ir.targets.cuda.space.residences import PRODUCTS, USUAL
from tests.targets.cuda_cases import HARDWARE


def chained(first: str = "X", name: str = "chained") -> Program:
    """Products of products, cut into several kernels."""
    g = Graph(name)
    i, j, k, n = g.axes(i=256, j=512, k=512, n=256)
    x, w = g.input(first, (i, k), "bf16"), g.input("W", (k, j), "bf16")
    h = cast(exp(contract(x, w, over=k) * 0.01), "bf16")
    total = reduce("sum", h, over=j)
    g.output("Y", contract(h, g.input("V", (j, n), "bf16"), over=j) / total, "bf16", (i, n))
    g.output("S", total, "f32", (i,))
    return g.program()


def spaces() -> list[Space]:
    return [residence_space(chained(), HARDWARE, None, one) for one in (USUAL, PRODUCTS)]


@pytest.mark.parametrize("space", spaces(), ids=("usual", "stored"))
def test_estimates_are_those_of_the_features(space: Space) -> None:
    assert space.features is not None
    assert space.estimate is not None
    rng = np.random.default_rng(0)
    seeds = space.seed_rows(rng)
    rows = np.concatenate([seeds, space.shape.draw(rng, 40), seeds[:7]])
    names, table = space.features(space.columns(rows))
    expected = table[:, names.index("total.estimate")]
    for order in (np.arange(len(rows)), rng.permutation(len(rows)), np.arange(9)):
        assert (space.estimate(space.columns(rows[order])) == expected[order]).all()


@pytest.mark.parametrize("space", spaces(), ids=("usual", "stored"))
def test_times_and_rules_of_a_kernel_are_kept_as_they_are(space: Space) -> None:
    features = space.features
    assert isinstance(features, Features | EngineFeatures)
    rng = np.random.default_rng(1)
    matrix = np.repeat(space.shape.draw(rng, 60), 2, axis=0)
    routes = features.engines if isinstance(features, EngineFeatures) else [("", "", features)]
    for _, prefix, own in routes:
        for kernel in own.kernels:
            columns = space.columns(matrix).part(prefix)
            costs, fresh = costs_of(kernel), KernelCosts(kernel)
            table = fresh.table(columns)
            legal = np.ones(len(matrix), bool)
            for rule in kernel.constraints():
                legal &= rule.check(columns)
            for _ in range(2):
                assert all((costs.times(columns)[n] == table[n]).all() for n in TIMES)
                assert (costs.legal(columns) == legal).all()


def test_rows_that_are_known_are_not_asked_about_again() -> None:
    (space, *_) = spaces()
    name, asked = space.names[-1], list[int]()

    def ask(columns: Columns) -> NDArray[np.int64]:
        asked.append(columns.rows)
        return columns[name][:, None]

    known = ByRow(ask, [name], {})
    matrix = np.repeat(space.blank, 6, axis=0)
    matrix[3:, space.place(name)] = len(space.decisions[-1].domain) - 1
    columns = space.columns(matrix)
    assert (known(columns)[:, 0] == columns[name]).all()
    assert (known(columns)[:, 0] == columns[name]).all()
    assert asked == [2]
    known(space.columns(matrix[:1]))  # one alone adds up in another order
    assert asked == [2, 1]


def made(program: Program, mark: str) -> list[AnyKernel]:
    found = kernels_of(program, HARDWARE, "wgmma", PRODUCTS)
    return [type(one)(one.program, mark, HARDWARE) for one in found]


def test_kernels_are_alike_whatever_their_tensors_are_called() -> None:
    first, other = made(chained(), ".0"), made(chained("A", "otherwise"), ".7")
    assert len(first) > 1
    for one, another in zip(first, other, strict=True):
        assert alike(one) == alike(another)
        seeds, renamed = seeds_alone(one), seeds_alone(another)
        assert list(renamed) == list(another.seeds())
        assert list(seeds) == list(one.seeds())
        assert [list(seed) for seed in renamed] == [list(seed) for seed in another.seeds()]
        assert len(space_alone(another).seeds) == len(seeds)
    assert len({alike(one) for one in first}) == len(first)


def test_a_renamed_program_is_the_program_by_that_name() -> None:
    program = chained()
    renamed = program.named("another")
    assert renamed == replace(program, name="another")
    assert renamed != program
    assert hash(renamed) == hash(replace(program, name="another"))
    assert str(renamed) == str(replace(program, name="another"))
    assert renamed.named(program.name) == program


def test_users_and_products_are_those_of_the_graph() -> None:
    program = chained()
    for position, node in enumerate(program.nodes):
        assert program.users(position) == tuple(program.graph.successors(position))
        product = product_of(program, position)
        assert (product is not None) == (node.op.name == "contract")
        assert product is None or product.position == position


def test_what_a_graph_infers_is_what_a_program_checks() -> None:
    program = chained()
    again = Program(program.name, program.extents, program.tensors, program.nodes, program.pins)
    assert again == program
