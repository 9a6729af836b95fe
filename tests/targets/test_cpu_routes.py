"""Every form and every residence of a program on the CPU: one kernel each, all of them right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.features import traits
from explorer.runtime.process import Answer, Worker, process_server
from ir import Graph, cast, contract, exp, recur, reduce, rsqrt, where
from ir.dtypes import numpy_dtype
from ir.errors import UsageError
from ir.oracle import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.residence import residences, staged
from ir.space import Space
from ir.target import get_backend
from ir.values import decay
from tests.few import draws
from tests.judging import bounds_of
from tests.rewrite.chains import chains

BACKEND = get_backend("cpu")
MACHINE = replace(BACKEND.hardware(2), isa=("avx2",))  # the same choices on every machine


def matrices(g: Graph) -> None:
    m, k, n, p = g.axes(m=37, k=53, n=41, p=2)
    ab = contract(g.input("A", (m, k), "f32"), g.input("B", (k, n), "f32"), over=k)
    g.output("D", contract(ab, g.input("C", (n, p), "f32"), over=n), "f32", (m, p))


def normal_linear(g: Graph) -> None:
    m, n, k = g.axes(m=19, n=33, k=65)
    x, w = g.input("X", (m, k), "f32"), g.input("W", (k, n), "f32")
    root = rsqrt(reduce("sum", x * x, over=k) * (1.0 / 65) + 1e-6)
    g.output("Y", contract(x * root * g.input("g", (k,), "f32"), w, over=k), "f32", (m, n))


def unmasked(g: Graph) -> None:
    b, i, j, d, e = g.axes(b=2, i=70, j=70, d=8, e=8)
    q, k, v = (
        g.input(n, a, "bf16") for n, a in (("Q", (b, i, d)), ("K", (b, j, d)), ("V", (b, j, e)))
    )
    g.output("O", contract(contract(q, k, over=d), v, over=j), "f32", (b, i, e))


def shared_factor(g: Graph) -> None:
    m, n, k = g.axes(m=21, n=34, k=40)
    x = g.input("X", (m, k), "f32")
    v, w = g.input("V", (k, n), "f32"), g.input("W", (k, n), "f32")
    g.output("Y", contract(x, v, over=k) + contract(x, w, over=k), "f32", (m, n))


def weighted_rows(g: Graph) -> None:
    m, n, k = g.axes(m=30, n=35, k=24)
    a, b = g.input("A", (m, k), "e4m3"), g.input("B", (n, k), "e4m3")
    weights = exp(g.input("w", (k,), "f32"))
    g.output("Y", contract(cast(a, "f32") * weights, b, over=k), "f32", (m, n))


def pooled(g: Graph) -> None:
    """A product whose rows are summed up behind it."""
    b, t, d, n = g.axes(b=3, t=40, d=24, n=17)
    x, w = g.input("X", (b, t, d), "f32"), g.input("W", (d, n), "f32")
    g.output("Y", reduce("sum", contract(x, w, over=d), over=t) * (1 / 40), "f32", (b, n))


def moving_average(g: Graph) -> None:
    """Of what came before, the older the less, and a product behind it."""
    b, i, j, e, o = g.axes(b=2, i=128, j=128, e=12, o=9)
    x, w = g.input("X", (b, j, e), "f32"), g.input("W", (e, o), "f32")
    rate = g.input("rate", (e,), "f32", values=decay(0.2))
    weights = exp(where(g.iota(j) <= i, rate * cast(g.iota(i) - j, "f32"), float("-inf")))
    g.output("Y", contract(contract(weights, x, over=j), w, over=e), "f32", (b, i, o))


def memory(g: Graph) -> None:
    """A memory that decays, read and normed at each step."""
    t, d, e = g.axes(t=96, d=7, e=10)
    q, k = g.input("q", (t, d), "f32"), g.input("k", (t, d), "f32")
    state = g.state(t, (d, e))
    after = state * exp(g.input("f", (t,), "f32", values=decay(0.3)))
    after = after + k * g.input("v", (t, e), "f32")
    read = contract(q, after, over=d)
    norm = rsqrt(reduce("sum", read * read, over=e) * (1 / 10) + 1e-3)
    g.output("o", read * norm, "f32", (t, e))
    g.output("S", recur(state, after), "f32", (d, e))


def first_and_near(g: Graph) -> None:
    """Rows meet the first columns and those just before them."""
    i, j, e = g.axes(i=90, j=90, e=9)
    kept = (g.iota(j) < 5) | (g.iota(i) - g.iota(j) < 20)
    weight = where(kept & (g.iota(j) <= i), g.input("W", (i, j), "f32"), 0.0)
    g.output("O", contract(weight, g.input("V", (j, e), "f32"), over=j), "f32", (i, e))


OWN: tuple[Callable[[Graph], None], ...] = (
    matrices, normal_linear, unmasked, shared_factor, weighted_rows, pooled, moving_average, memory,
    first_and_near,
)  # fmt: skip
KNOWN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("softmax", {"m": 7, "n": 65}),
    ("layernorm", {"m": 7, "n": 65}),
    ("block_scaled_matmul", {"m": 33, "n": 48, "k": 64, "block": 16}),
    ("w4a16_matmul", {"m": 9, "n": 33, "k": 80, "group": 16}),
    ("cross_entropy", {"m": 9, "n": 65}),
)


def own(function: Callable[[Graph], None]) -> Program:
    graph = Graph(function.__name__)
    function(graph)
    return graph.program()


PROGRAMS = {
    **{function.__name__: own(function) for function in OWN},
    **{name: load_operator(name).build(**words) for name, words in KNOWN},
}


def routes(space: Space) -> Iterator[Mapping[str, object]]:
    """Every value of the decisions about the graph, each with what it needs."""
    for decision in space.decisions:
        if decision.name.split(".")[-1] in ("form", "residence"):
            yield from ({decision.name: value} for value in decision.domain)


@pytest.fixture(scope="module")
def worker(code_cache: Path) -> Iterator[Worker]:
    """A process that runs kernels."""
    found = Worker(
        process_server("cpu", code_cache), "explorer.runtime.workers:Runner", "cpu", code_cache
    )
    yield found
    found.close()


def right(program: Program, space: Space, count: int, worker: Worker) -> None:
    """A seed's kernel and `count` drawn ones leave what the program as written means."""
    rng = np.random.default_rng(0)
    inputs = random_inputs(program, rng)
    bounds = bounds_of(program, inputs)
    for row in (space.any_legal(rng), *space.sample(rng, count)):
        kernel = BACKEND.lower(program, space.schedule(row), MACHINE)
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        arrays = [
            inputs[a.name] if a.role == "input" else np.full(a.shape, 0x5A, numpy_dtype(a.dtype))
            for a in operands
        ]
        reply = worker.ask(60.0, "run", kernel, arrays)
        assert isinstance(reply, Answer), reply
        outputs = [a.name for a in operands if a.role == "output"]
        for output, have in zip(outputs, reply.value[1], strict=True):
            assert bounds[output].judge(have).detail == "", (space.pinned, output)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.alike(2)
def test_every_route_is_right(name: str, worker: Worker) -> None:
    program = PROGRAMS[name]
    space = BACKEND.space(program, MACHINE)
    found = list(routes(space))
    assert len(found) > 1
    for pins in found:
        right(program, space.pin(pins), 1, worker)


def centred_linear(g: Graph) -> None:
    """Nothing is rounded between the mean, the deviation and the product."""
    m, n, k = g.axes(m=64, n=96, k=160)
    x, w = g.input("X", (m, k), "bf16"), g.input("W", (k, n), "bf16")
    apart = x - reduce("sum", x, over=k) * (1 / 160)
    root = rsqrt(reduce("sum", apart * apart, over=k) * (1 / 160) + 1e-5)
    scaled = apart * root * g.input("g", (k,), "bf16")
    g.output("Y", contract(scaled, w, over=k), "bf16", (m, n))


def test_what_was_before_a_block_is_there_for_all_of_its_readers(worker: Worker) -> None:
    """Statistics that move from block to block, read in loops of their own."""
    program = own(centred_linear)
    space = BACKEND.space(program, MACHINE)
    stored = [pins for pins in routes(space) if "keep" in str(pins)]
    assert stored
    for pins in stored:
        pinned = space.pin(pins)
        for row in pinned.sample(np.random.default_rng(3), 24):
            BACKEND.lower(program, pinned.schedule(row), MACHINE)
        right(program, pinned, 3, worker)


@pytest.mark.parametrize(("sq", "documents"), [(200, 6), (133, 3)])
@draws(4, 12)
def test_masks_of_data_end_loops(sq: int, documents: int, worker: Worker, count: int) -> None:
    words = {"b": 2, "heads": 2, "kv_heads": 1, "sq": sq, "d": 24, "documents": documents}
    program = load_operator("document_attention").build(**words)
    space = BACKEND.space(program, MACHINE)
    forms = [str(v) for v in space.decision("form").domain if str(v).startswith("block-masks")]
    assert forms
    right(program, space.pin({"form": forms[0]}), count, worker)


@settings(max_examples=12, deadline=None)
@given(program=chains(keep=False))
def test_drawn_chains_live_anywhere(program: Program) -> None:
    """Whatever is stored, stages read what others leave before."""
    for residence in residences(program):
        found = staged(program, residence)
        known: set[int] = set()
        for stage in found.stages:
            for leaf in found.leaves(stage, found.body_roots(stage)):
                assert leaf not in found.materialised or leaf in known or stage.reduce
            known |= {result.node for result in stage.written}


def test_a_schedule_from_before_there_were_routes_is_one_of_the_program_as_written() -> None:
    program = PROGRAMS["matrices"]
    hardware = MACHINE
    space = BACKEND.space(program, hardware)
    plain = space.pin({"form": "written"})
    row = plain.any_legal(np.random.default_rng(0))
    values = {
        name: value for name, value in plain.schedule(row).as_dict().items()
        if name != "form" and not name.startswith("regroup")
    }  # fmt: skip
    old = type(plain.schedule(row)).of("cpu", values)
    assert (space.encode(old) == row).all()
    assert (
        BACKEND.lower(program, old, hardware).texts
        == BACKEND.lower(program, plain.schedule(row), hardware).texts
    )


def test_costs_of_routes_are_relative_to_the_same_and_the_best_form_comes_first() -> None:
    from explorer.strategies.opening import first_rows

    space = BACKEND.space(PROGRAMS["unmasked"], MACHINE)
    rows = first_rows(space, space.seed_rows(np.random.default_rng(0)))
    first = space.schedule(rows[0])
    assert str(first["form"]).startswith("regroup")
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    ideals = table[:, names.index("seconds.ideal")]
    assert (ideals == ideals[0]).all()
    assert np.isfinite(traits(space, rows)[:, 0]).all()


def test_a_form_that_is_none() -> None:
    program = PROGRAMS["matrices"]
    schedule = BACKEND.space(program, MACHINE).schedule
    space = BACKEND.space(program, MACHINE)
    row = space.any_legal(np.random.default_rng(0))
    values = {**schedule(row).as_dict(), "form": "regroup-ffffff"}
    wrong = type(schedule(row)).of("cpu", values)
    with pytest.raises(UsageError, match="form: 'regroup-ffffff' is not in its domain: written"):
        BACKEND.lower(program, wrong, MACHINE)
