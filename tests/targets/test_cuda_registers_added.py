"""Parts of an operand that registers hold: one product for each, whose sums are one, which a state
may be; what such kernels read along a sum, and how they store what has many dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, uniform
from ir.errors import UsageError
from ir.folding import cumulative, recurrence
from ir.handed import addends_of
from ir.inputs import random_inputs
from ir.narrow_parts import STEPWISE
from ir.ops.base import TensorSpec
from ir.program import Program
from ir.rewrite.narrowing import narrowed
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.laid import laid_anew
from ir.targets.cuda.build.products import mapped
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.plans.tensor_plan import RESIDENT
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import HANDED, USUAL
from ir.targets.cuda.space.tensor import TensorKernel
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import HARDWARE
from tests.targets.test_cuda_emulated import QUICK, problems


def mixed(kind: str = "loaded") -> Program:
    """A wide factor, loaded or made of what is, times a narrow one."""
    g = Graph("mixed")
    m, n, k = g.axes(m=72, n=40, k=96)
    a = g.input("A", (m, k), "f32" if kind == "loaded" else "bf16")
    if kind == "made":
        a = exp(a * g.input("s", (k,), "f32", uniform(-1, 0)))
    found = contract(a, cast(g.input("B", (k, n), "bf16"), "f32"), over=k)
    g.output("O", exp(found * 0.01), "bf16", (m, n))
    return g.program()


def in_parts(program: Program) -> Program:
    found = narrowed(program, apart=True)
    assert found is not None
    return found.program


@pytest.mark.parametrize("kind", ["loaded", "made"])
def test_parts_of_one_factor_are_products_beside_each_other(kind: str) -> None:
    own = in_parts(mixed(kind))
    products = [n for n in own.nodes if n.op.name == "contract"]
    assert [n.axes for n in products] == [("m", "n")] * 3
    (axis,) = (name for name in narrowed_axes(mixed(kind)) if name not in own.axes)
    assert axis.startswith("parts")  # without that they lie along an axis


def narrowed_axes(program: Program) -> dict[str, int]:
    found = narrowed(program)
    assert found is not None
    return dict(found.program.axes)


@needs_compiler
@pytest.mark.parametrize("kind", ["loaded", "made"])
def test_their_sums_share_registers(kind: str) -> None:
    program = mixed(kind)
    own = in_parts(program)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted, tried = bounds_of(program, inputs), 0
    for route in routes_of(own, HARDWARE):
        if route.engine not in ("wgmma", "wgmma_rs"):
            continue
        tensor = [one for one in route.kernels if isinstance(one, TensorKernel)][-1]
        assert len(tensor.roles.outer) == 3
        assert tensor.roles.added is not None
        assert bool(tensor.roles.computed) == (route.engine == "wgmma_rs")
        space = residence_space(own, HARDWARE, None, USUAL)
        space = space if route.alone else space.pin({"engine": route.engine})
        for turn, row in enumerate(space.sample(np.random.default_rng(1), 2)):
            values = route.own(space.schedule(row).as_dict())
            made = lower_all(own, values, HARDWARE, route.engine, USUAL)
            assert made.text("cuda").count("f32 acc_") == 1
            assert not problems(program, made, inputs, wanted, QUICK[turn]), values
            tried += 1
    assert tried >= 4


@needs_compiler
def test_sums_of_two_loaded_products_share_registers() -> None:
    g = Graph("two")
    m, n, k = g.axes(m=72, n=40, k=96)
    a, b = (g.input(name, (m, k), "bf16") for name in "AB")
    c, d = (g.input(name, (k, n), "bf16") for name in "CD")
    g.output("O", (contract(a, c, over=k) + contract(b, d, over=k)) * 0.5, "bf16", (m, n))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = residence_space(program, HARDWARE, None, USUAL).pin({"engine": "wgmma"})
    (route,) = (one for one in routes_of(program, HARDWARE) if one.engine == "wgmma")
    for turn, row in enumerate(space.sample(np.random.default_rng(1), 3)):
        values = route.own(space.schedule(row).as_dict())
        made = lower_all(program, values, HARDWARE, "wgmma", USUAL)
        assert made.text("cuda").count("f32 acc_") == 1
        assert not problems(program, made, inputs, wanted, QUICK[turn % len(QUICK)]), values


def test_each_product_has_columns_in_its_own_lines() -> None:
    """Groups that share columns begin at whole parts of the lines of every operand."""
    g = Graph("lines")
    m, n, k = g.axes(m=64, n=192, k=96)
    a, b = (g.input(name, (m, k), "bf16") for name in "AB")
    c, d = g.input("C", (n, k), "bf16"), g.input("D", (k, n), "bf16")
    g.output("O", contract(a, c, over=k) + contract(b, d, over=k), "f32", (m, n))
    program = g.program()
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    assert kernel.roles.contiguous_columns
    space = residence_space(program, HARDWARE, None, USUAL).pin({"engine": "wgmma"})
    (route,) = (one for one in routes_of(program, HARDWARE) if one.engine == "wgmma")
    space = space.pin({f"{route.prefix}partition": "columns"})
    for row in space.sample(np.random.default_rng(0), 24):
        kernel.lower(route.own(space.schedule(row).as_dict()), "lines")


@pytest.mark.parametrize(("chunk", "factor"), [(32, True), (32, False), (2048, False)])
def test_states_without_a_factor_and_long_sums_are_in_registers_of_their_own(
    chunk: int, factor: bool
) -> None:
    """What adds up along all steps loses bits at each of them; what a factor scales forgets."""
    g = Graph("long")
    c, j, d, e = g.axes(c=2 * STEPWISE // chunk, j=chunk, d=64, e=64)
    k, v = g.input("K", (c, j, d), "bf16"), g.input("V", (c, j, e), "bf16")
    fade = g.input("fade", (c, j), "f32", uniform(-1, 0))
    added = contract(cast(k * exp(fade), "bf16"), v, over=j)
    added = added + contract(cast(k * fade, "bf16"), v, over=j)
    rate = g.input("rate", (c,), "f32", uniform(-1, 0))
    state = recurrence(exp(rate), added, c) if factor else cumulative("sum", added, c)
    g.output("S", state, "f32", (c, d, e))
    if factor:
        kernels = kernels_of(g.program(), HARDWARE, "wgmma_rs", HANDED)
        (one,) = (k for k in kernels if isinstance(k, TensorKernel))
        assert one.roles.added is not None
        return
    with pytest.raises(UsageError, match=r"registers of one sum|hand a state on"):
        kernels_of(g.program(), HARDWARE, "wgmma_rs", HANDED)


def test_what_is_more_than_a_sum_of_products_is_none() -> None:
    g = Graph("sums")
    m, n, k = g.axes(m=8, n=8, k=16)
    a, b = g.input("A", (m, k), "bf16"), g.input("B", (k, n), "bf16")
    one, two = contract(a, b, over=k), contract(a * 2.0, b, over=k)
    g.output("sum", one + two, "f32", (m, n))
    program = g.program()
    place = {node.op.name: n for n, node in enumerate(program.nodes)}
    whole = program.nodes[place["store"]].args[0]
    assert len(addends_of(program, whole)) == 2
    assert addends_of(program, addends_of(program, whole)[0])
    assert not addends_of(program, program.nodes[place["contract"]].args[0])
    both = Graph("both")
    m, n, k = both.axes(m=8, n=8, k=16)
    product = contract(both.input("A", (m, k), "bf16"), both.input("B", (k, n), "bf16"), over=k)
    both.output("sum", product + product, "f32", (m, n))
    program = both.program()
    whole = next(n for n, node in enumerate(program.nodes) if node.op.name == "map")
    assert not addends_of(program, whole)


def weighed(chunks: int = 3, heads: int = 4) -> Program:
    """Scores that are weighed by a number of each key and head, whose heads lie side by side."""
    g = Graph("weighed")
    c, h, i, j, d, e = g.axes(c=chunks, h=heads, i=64, j=64, d=32, e=16)
    q, k = g.input("Q", (c, i, d), "bf16"), g.input("K", (c, j, d), "bf16")
    weight = g.input("w", (c, j, h), "f32")
    made = cast(contract(q, k, over=d) * weight, "bf16")
    g.output("O", contract(made, g.input("V", (c, h, j, e), "bf16"), over=j), "f32", (c, h, i, e))
    return g.program()


def test_what_scores_are_weighed_with_is_laid_along_the_keys() -> None:
    copy, own = laid_anew(weighed(), frozenset(), {})
    assert [spec.shape for spec in copy.outputs] == [(3, 4, 64)]
    assert {"laid_w"} <= {spec.name for spec in own.inputs}


@needs_compiler
def test_what_is_laid_anew_is_read_by_chains() -> None:
    program = weighed()
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    kernels = kernels_of(program, HARDWARE, "wgmma", "inputs-laid")
    assert [kernel.kind for kernel in kernels] == ["block", "tensor"]
    space = residence_space(program, HARDWARE, None, "inputs-laid").pin({"engine": "wgmma"})
    (route,) = (r for r in routes_of(program, HARDWARE, "inputs-laid") if r.engine == "wgmma")
    for row in space.sample(np.random.default_rng(1), 2):
        values = route.own(space.schedule(row).as_dict())
        made = lower_all(program, values, HARDWARE, "wgmma", "inputs-laid")
        assert not problems(program, made, inputs, wanted, 0), values


# -- outputs of more dimensions than a tensor map has


def many() -> Program:
    g = Graph("many")
    a, b, c, d, m, n, k = g.axes(a=2, b=2, c=1, d=2, m=64, n=64, k=32)
    x, y = g.input("X", (a, b, c, d, m, k), "bf16"), g.input("Y", (k, n), "bf16")
    g.output("O", contract(x, y, over=k), "f32", (b, d, a, m, c, n))
    return g.program()


def test_dimensions_of_one_point_are_none_of_a_map() -> None:
    spec = TensorSpec("O", (2, 2, 2, 64, 1, 64), "f32", "output")
    assert mapped(spec) == (0, 1, 2, 3, 5)
    assert mapped(TensorSpec("O", (2, 1, 64), "f32", "output")) == (0, 1, 2)
    assert len(mapped(TensorSpec("O", (2,) * 6, "f32", "output"))) == 6


@needs_compiler
def test_they_are_stored_by_bulk_copies() -> None:
    program = many()
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    assert kernel.store_by_tma()
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = residence_space(program, HARDWARE, None, USUAL).pin({"engine": "wgmma"})
    (route,) = (one for one in routes_of(program, HARDWARE) if one.engine == "wgmma")
    space = space.pin({f"{route.prefix}epilogue": "tma"})
    for row in space.sample(np.random.default_rng(1), 2):
        values = route.own(space.schedule(row).as_dict())
        made = lower_all(program, values, HARDWARE, "wgmma", USUAL)
        assert "tw_tma_store_5d" in made.text("cuda")
        assert not problems(program, made, inputs, wanted, 0), values


def test_blocks_that_share_a_processor_store_directly_too() -> None:
    (kernel,) = (
        one for one in kernels_of(in_parts(mixed()), HARDWARE, "wgmma_rs")
        if isinstance(one, TensorKernel)
    )  # fmt: skip
    shared = [seed for seed in kernel.seeds() if int(seed.get(kernel.name(RESIDENT), 1)) > 1]
    stored = {(s[kernel.name("epilogue")], s[kernel.name("registers")]) for s in shared}
    assert {("tma", "24/232"), ("direct", "24/232"), ("direct", "none")} <= stored
