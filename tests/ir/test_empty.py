"""Axes without a point: what is evaluated, what is refused, and results without an element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import explorer
from explorer.errors import NothingValid
from explorer.measure import Measurer
from ir import (
    Graph,
    Hardware,
    Program,
    ProgramError,
    UsageError,
    argmax,
    carry,
    contract,
    cumulative,
    evaluate,
    get_backend,
    load_operator,
    operator,
    parse,
    random_inputs,
    recur,
    reduce,
    scatter,
)
from ir.oracle import answers
from ir.rewrite.inhabited import inhabited
from ir.roundoff import ErrorModel
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import emulated

SIZES = st.sampled_from((0, 1, 2, 3, 5))


@operator
def mixture(g: Graph, m: int, n: int, k: int) -> None:
    """A product, sums along each axis, a carried sum, and what neither has."""
    i, j, d = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (i, d), "f32"), g.input("B", (d, j), "f32")
    product = contract(a, b, over=d)
    g.output("C", product + 1.0, dims=(i, j))
    g.output("rows", reduce("sum", a * 2.0, d))
    g.output("carried", carry("sum", a, over=d))
    g.output("all", reduce("sum", reduce("sum", product, i), j))
    g.output("factors", reduce("prod", b, j))


@settings(deadline=None, max_examples=20)
@given(SIZES, SIZES, SIZES)
def test_sums_of_nothing_are_numpys(m: int, n: int, k: int) -> None:
    program = mixture.build(m=m, n=n, k=k)
    assert parse(str(program)) == program
    inputs = random_inputs(program, np.random.default_rng(0))
    a, b = (inputs[name].astype(np.float64) for name in "AB")
    wanted = {"C": a @ b + 1, "rows": 2 * a.sum(1), "carried": a.sum(1), "all": (a @ b).sum(),
              "factors": b.prod(1)}  # fmt: skip
    found = answers(program, inputs, ErrorModel())
    for name, value in evaluate(program, inputs).items():
        assert value.shape == wanted[name].shape
        assert np.allclose(value, wanted[name])
        assert np.array_equal(found[name].value, value)
        assert np.isfinite(found[name].reach).all()


def _graph() -> tuple[Graph, Program]:
    g = Graph("e")
    i, j = g.axes(i=3, j=0)
    g.output("Y", g.input("X", (i, j), "f32"))
    return g, g.program()


@pytest.mark.parametrize("kind", ["max", "min"])
def test_there_is_no_extreme_of_nothing(kind: str) -> None:
    for function in (reduce, carry):
        g = Graph("e")
        i, j = g.axes(i=3, j=0)
        x = g.input("X", (i, j), "f32")
        with pytest.raises(ProgramError) as caught:
            function(kind, x, j)
        name = function.__name__
        assert str(caught.value) == f"e: {name} {kind}: axis j has extent 0, which has no {kind}"


def test_what_reads_nothing_may_read_anywhere() -> None:
    g = Graph("e")
    i, j = g.axes(i=3, j=0)
    x = g.tensor("X", (2,), "f32")
    assert x[i + j * 0 + j].dtype == "f32"
    empty, index = g.tensor("E", (0, 3), "f32"), g.input("I", (i,), "i32")
    with pytest.raises(ProgramError, match="load E: dimension 0 has extent 0: no index is"):
        empty[index, i]
    with pytest.raises(ProgramError, match=r"dimension 0 spans 0..2, the extent is 0"):
        empty[i, i]


@operator
def others(g: Graph, n: int, z: int) -> None:
    """What combines nothing: scatters, states, reads outside, running values beside them."""
    i, j = g.axes(i=n, j=z)
    x, y = g.input("X", (i, j), "f32"), g.input("Y", (i,), "f32")
    g.output("twice", x * 2.0)
    g.output("running", cumulative("sum", x, j))
    g.output("sent", scatter("max", x, {i: i}))
    before = g.state(j, (i,), first=y)
    g.output("last", recur(before, before + x))
    g.output("outside", x.at(j=i, fill=3))
    g.output("along", cumulative("sum", y, i) + carry("sum", x, over=j))


PARTLY = (mixture.build(m=2, n=3, k=0), mixture.build(m=0, n=3, k=4), others.build(n=5, z=0))


def test_what_kernels_are_generated_of_means_the_same() -> None:
    for program in PARTLY:
        inputs = random_inputs(program, np.random.default_rng(3))
        made = inhabited(program)
        assert all(extent for _, extent in made.extents)
        assert made.tensors == program.tensors
        assert parse(str(made)) == made
        found, wanted = evaluate(made, inputs), evaluate(program, inputs)
        for name, value in found.items():
            assert np.array_equal(value, wanted[name])
        assert all(wanted[name].size == 0 for name in wanted.keys() - found.keys())
    full = mixture.build(m=2, n=3, k=4)
    assert inhabited(full) is full


@pytest.mark.parametrize("number", range(len(PARTLY)))
def test_kernels_leave_empty_outputs_alone(number: int, code_cache: Path) -> None:
    program, backend = PARTLY[number], get_backend("cpu")
    hardware = backend.hardware(2)
    space = backend.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(1), 2)]
    with Measurer(program, "cpu", hardware, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize("number", range(len(PARTLY)))
def test_emulated_kernels_leave_empty_outputs_alone(number: int) -> None:
    program, hardware = PARTLY[number], _hardware("cuda")
    space = get_backend("cuda").space(program, hardware)
    (row,) = space.sample(np.random.default_rng(1), 1)
    assert emulated(program, space.schedule(row), hardware) == []


def test_nothing_is_left_of_a_fold_of_nothing() -> None:
    g = Graph("e")
    i, j = g.axes(i=3, j=0)
    x = g.input("X", (i, j), "f32")
    with pytest.raises(ProgramError, match="e: fold over j: the axis has extent 0"):
        argmax(x, j)
    with pytest.raises(ProgramError, match="e: read at j: the axis has extent 0: no index is"):
        x.at(j=g.iota(i))
    assert x.at(i=0).axes == ("j",)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_space_needs_points(target: str) -> None:
    backend = get_backend(target)
    with pytest.raises(UsageError, match=r"e: nothing to compute: output Y has shape \(3, 0\)"):
        backend.space(_graph()[1], _hardware(target))


def _hardware(target: str) -> Hardware:
    from ir.targets.cuda.rows.hardware import known_hardware

    return known_hardware("h200") if target == "cuda" else get_backend("cpu").hardware(1)


def test_there_is_nothing_to_search_and_an_empty_result() -> None:
    with pytest.raises(UsageError, match="matmul: nothing to compute: output C has shape"):
        explorer.tune("matmul", m=0, n=4, k=3, trials=2, store=":memory:")
    best = explorer.best("matmul", m=0, n=4, k=3, dtype="bf16", store=":memory:")
    found = best(np.empty((0, 3), np.uint16), np.empty((3, 4), np.uint16))
    assert found.shape == (0, 4)
    assert found.dtype == np.uint16
    assert best.gflops == 0
    out = np.empty((0, 4), np.uint16)
    assert best(np.empty((0, 3), np.uint16), B=np.empty((3, 4), np.uint16), C=out) is out
    with pytest.raises(UsageError, match="matmul takes A, B: 1 arrays are given"):
        best(np.empty((0, 3), np.uint16))


def test_an_empty_result_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to compute"):
        explorer.export("softmax", tmp_path, m=0, n=4, store=":memory:")
    assert list(tmp_path.iterdir()) == []


def test_a_reduction_of_nothing_in_an_operator_says_which() -> None:
    with pytest.raises(UsageError, match="softmax: reduce max: axis n has extent 0"):
        load_operator("softmax").build(m=3, n=0)
    with pytest.raises((NothingValid, UsageError)):
        explorer.best("softmax", m=3, n=0, store=":memory:")
