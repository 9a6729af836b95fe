"""Programs of several phases on the CPU: one kernel, right by both printers, one space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.afforded import output_axes
from explorer.runtime.process import Answer, Worker, process_server
from ir import Graph, cumulative, operator
from ir.dtypes import numpy_dtype
from ir.kernel import Kernel
from ir.oracle import random_inputs
from ir.phases import phases_of
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import get_backend
from ir.targets.cpu.candidates import places
from ir.targets.cpu.frame import bytes_of
from tests.few import by_turns, few
from tests.judging import bounds_of
from tests.targets.test_c_printer import check, needs_compiler

PROGRAMS = Path(__file__).with_name("phased.py")
BACKEND = get_backend("cpu")
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sums", {"m": 5, "n": 37}),
    ("sums", {"m": 1, "n": 1, "dtype": "f64"}),
    ("sums", {"m": 7, "n": 13, "dtype": "bf16", "backward": True}),
    ("sums", {"m": 3, "n": 11, "dtype": "i32"}),
    ("wholes", {"m": 3, "n": 23}),
    ("decayed", {"m": 5, "n": 11, "dtype": "f16"}),
    ("moments", {"m": 3, "n": 17}),
    ("largest", {"m": 3, "n": 17, "k": 5}),
    ("largest", {"m": 2, "n": 7, "k": 7, "dtype": "i8", "least": True}),
    ("largest", {"m": 1, "n": 1, "k": 1, "dtype": "e4m3"}),
    ("sent", {"m": 4, "n": 13}),
    ("sent", {"m": 3, "n": 7, "kind": "max", "dtype": "bf16"}),
    ("sent", {"m": 3, "n": 7, "kind": "or"}),
    ("counted", {"n": 101, "bins": 7}),
    ("counted", {"n": 601, "bins": 7}),
    ("segments", {"m": 301, "d": 21, "rows": 4}),
    ("segments", {"m": 300, "d": 2, "rows": 5, "kind": "max", "dtype": "bf16"}),
    ("columns", {"m": 13, "n": 37, "dtype": "f16"}),
    ("rows", {"m": 1, "n": 300}),
    ("segments", {"m": 257, "d": 3, "rows": 1, "kind": "or"}),
    ("outer_states", {"t": 7, "d": 5, "e": 3}),
    ("outer_states", {"t": 1, "d": 1, "e": 1}),
    ("shifted", {"m": 17, "n": 19, "k": 23}),
    ("looked_up", {"m": 5, "n": 19, "k": 3}),
    ("mixture", {"m": 7, "n": 29, "k": 13}),
)


def built(name: str, arguments: Mapping[str, Any]) -> Program:
    return load_operator(f"{PROGRAMS}:{name}").build(**arguments)


def space_of(program: Program, threads: int = 2) -> Space:
    return BACKEND.space(program, BACKEND.hardware(threads))


def kernels(program: Program, threads: int, count: int, full: bool = False) -> list[Kernel]:
    """Of the first seed and of drawn schedules."""
    space, rng = space_of(program, threads), np.random.default_rng(threads)
    rows = [*space.seed_rows(rng)[:1], *space.sample(rng, count)]
    hardware = BACKEND.hardware(threads)
    return [BACKEND.lower(program, space.schedule(row), hardware, full) for row in rows]


@pytest.fixture(scope="module")
def worker(code_cache: Path) -> Iterator[Worker]:
    """A process that runs kernels."""
    found = Worker(
        process_server("cpu", code_cache), "explorer.runtime.workers:Runner", "cpu", code_cache
    )
    yield found
    found.close()


@pytest.mark.parametrize(("number", "threads"), by_turns(range(len(CASES)), [1, 2]))
@pytest.mark.alike(2)
def test_drawn_schedules_are_right(number: int, threads: int, worker: Worker) -> None:
    program = built(*CASES[number])
    inputs = random_inputs(program, np.random.default_rng(0))
    bounds = bounds_of(program, inputs)
    for kernel in kernels(program, threads, threads):
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        arrays = [
            inputs[a.name] if a.role == "input" else np.full(a.shape, 0x5A, numpy_dtype(a.dtype))
            for a in operands
        ]
        reply = worker.ask(60.0, "run", kernel, arrays)
        assert isinstance(reply, Answer), reply
        _, found = reply.value
        outputs = [a.name for a in operands if a.role == "output"]
        for output, have in zip(outputs, found, strict=True):
            assert bounds[output].judge(have).detail == "", output


WAYS: tuple[tuple[str, dict[str, Any], set[str], int], ...] = (
    ("segments", {"m": 301, "d": 19, "rows": 4}, {"owners", "pieces", "inner"}, 8),
    ("columns", {"m": 9, "n": 1061}, {"inner", "beside"}, 8),
    ("columns", {"m": 1, "n": 7, "dtype": "bf16", "backward": True}, {"owners", "inner"}, 4),
    ("rows", {"m": 1, "n": 333}, {"pieces"}, 2),
    ("ranked", {"m": 2, "n": 301, "k": 9}, {"pieces"}, 2),
    ("rows", {"m": 2, "n": 260, "backward": True}, {"pieces", "rows"}, 3),
)


@pytest.mark.parametrize(("name", "arguments", "names", "count"), WAYS)
def test_every_way_to_cut_is_right(
    name: str, arguments: dict[str, Any], names: set[str], count: int, worker: Worker
) -> None:
    program = built(name, arguments)
    space, rng = space_of(program), np.random.default_rng(0)
    inputs = random_inputs(program, rng)
    bounds = bounds_of(program, inputs)
    schedules = {space.schedule(row) for row in space.seed_rows(rng)}
    assert {name.rpartition(".")[2] for name in space.names} - {"chunk"} == names
    assert len(schedules) == count
    for schedule in schedules:
        kernel = BACKEND.lower(program, schedule, BACKEND.hardware(2))
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        arrays = [
            inputs[a.name] if a.role == "input" else np.full(a.shape, 7, numpy_dtype(a.dtype))
            for a in operands
        ]
        reply = worker.ask(60.0, "run", kernel, arrays)
        assert isinstance(reply, Answer), reply
        outputs = [a.name for a in operands if a.role == "output"]
        for output, have in zip(outputs, reply.value[1], strict=True):
            assert bounds[output].judge(have).detail == "", (output, schedule)


def test_parts_that_have_no_room() -> None:
    """A part of 4 GB for each of two pieces is refused with its numbers."""
    space = space_of(built("segments", {"m": 1000, "d": 1024, "rows": 1 << 20}))
    rows = space.sample(np.random.default_rng(0), 20)
    assert set(space.columns(rows)["pieces"]) == {1}
    (rule,) = (rule for rule in space.constraints if rule.name == "pieces")
    assert "8,589,934,592 bytes" in rule.explain({"pieces": 2})


@needs_compiler
@pytest.mark.parametrize(
    "case", few(CASES, range(0, len(CASES), 2), [f"{name}-{given}"[:60] for name, given in CASES])
)
@pytest.mark.alike(2)
def test_c_is_right(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    name, arguments = case
    program = built(name, arguments)
    check(program, kernels(program, 2, 1, full=True)[-1], tmp_path)


def test_one_phase_keeps_its_names() -> None:
    matmul = load_operator("matmul").build(m=64, n=64, k=64)
    assert "tile.m.1" in space_of(matmul).names
    assert space_of(built("sent", {"m": 3, "n": 5})).names == ("chunk",)


def test_names_tell_phases_apart() -> None:
    program = built("mixture", {"m": 7, "n": 29, "k": 13})
    assert not phases_of(program)[0].plain
    forms = space_of(program).alternatives
    assert forms is not None
    space = forms.spaces["written"]
    assert {name.partition(".")[0] for name in space.names} == {
        f"p{n}" for n in range(len(phases_of(program)))
    }
    alone = space_of(phases_of(program)[0].program)
    own = [name.removeprefix("p0.") for name in space.names if name.startswith("p0.")]
    assert own == list(alone.names)


def test_a_refusal_names_the_phase_and_its_numbers() -> None:
    space = space_of(built("shifted", {"m": 64, "n": 64, "k": 64})).pin({"p1.residence": "usual"})
    rng = np.random.default_rng(0)
    values = space.schedule(space.any_legal(rng)).as_dict()
    broken = {**values, "p1.row.s0": "", "p1.rows.s0": 8}
    refusal = space.refusal(Schedule.of("cpu", broken))
    assert refusal is not None
    assert refusal.constraint.startswith("p1.")


def test_what_is_told_apart_is_all_that_matters() -> None:
    """Rows of one meaning lower to one kernel, and how each phase is dealt out is told apart."""
    program = built("mixture", {"m": 37, "n": 29, "k": 13})
    space, hardware = space_of(program), BACKEND.hardware(2)
    matrix = space.sample(np.random.default_rng(0), 300)
    meanings = space.meanings(matrix)
    seen: dict[bytes, np.ndarray[Any, Any]] = {}
    twins = 0
    for row, numbers in zip(matrix, meanings, strict=True):
        other = seen.setdefault(numbers.tobytes(), row)
        if (other != row).any() and twins < 3:
            twins += 1
            texts = [
                BACKEND.lower(program, space.schedule(r), hardware).texts for r in (row, other)
            ]
            assert texts[0] == texts[1]
    place, form = (space.names.index(name) for name in ("p1.chunk", "form"))
    here = next(n for n, row in enumerate(matrix) if row[form] == 0)  # as written: phases
    row = matrix[here].copy()
    row[place] = (row[place] + 1) % 3
    assert (space.meanings(row[None]) != meanings[here : here + 1]).any()


@pytest.mark.parametrize(("name", "arguments"), CASES[::3], ids=lambda value: str(value)[:60])
def test_features_are_those_of_every_program(name: str, arguments: dict[str, Any]) -> None:
    """The columns of a program of one phase; what is not of a stage is a number."""
    space = space_of(built(name, arguments))
    one = space_of(load_operator("softmax").build(m=16, n=64))
    assert space.features is not None
    assert one.features is not None
    rng = np.random.default_rng(0)
    names, found = space.features(space.columns(space.sample(rng, 20)))
    assert names == one.features(one.columns(one.sample(rng, 1)))[0]
    stages = np.array([name.startswith("stage") for name in names])
    assert np.isfinite(found[:, ~stages]).all()


def test_times_of_phases_add_up() -> None:
    program = built("shifted", {"m": 64, "n": 64, "k": 64})
    space = space_of(program)
    matrix = space.sample(np.random.default_rng(0), 5)
    assert space.features is not None
    columns = space.columns(matrix)
    names, found = space.features(columns)
    parts = []
    for number, phase in enumerate(phases_of(program)):
        alone = space_of(phase.program)
        assert alone.features is not None
        parts.append(alone.features(columns.part(f"p{number}."))[1])
    for name in ("seconds.ideal", "program.flops"):
        column = names.index(name)
        total = sum(np.exp2(part[:, column]) for part in parts)
        np.testing.assert_allclose(np.exp2(found[:, column]), total, rtol=1e-5)
    ideal, estimate = names.index("seconds.ideal"), names.index("joint.estimate")
    seconds = [np.exp2(part[:, ideal] + part[:, estimate]) for part in (found, *parts)]
    np.testing.assert_allclose(seconds[0], sum(seconds[1:]), rtol=1e-4)


def test_tensors_between_phases_share_room_when_one_is_done() -> None:
    """Those that are needed at a time lie apart; a long chain needs no more than two."""

    @operator
    def chain(g: Graph, n: int, steps: int) -> None:
        (i,) = g.axes(i=n)
        x = g.input("X", (i,), "f32")
        for _ in range(steps):
            x = cumulative("sum", x * 0.5, i)
        g.output("Y", x)

    program = chain.build(n=5000, steps=6)
    phases = phases_of(program)
    found = places(program, phases)
    last = {spec.name: n for n, phase in enumerate(phases) for spec in phase.program.inputs}
    first = {spec.name: n for n, phase in enumerate(phases) for spec in phase.program.outputs}
    for one, at in found:
        for other, there in found:
            together = first[one.name] <= first[other.name] <= last[one.name]
            if one.name != other.name and together:
                apart = at + bytes_of(one) <= there or there + bytes_of(other) <= at
                assert apart, (one.name, other.name)
    assert len(found) == 5
    assert len({at for _, at in found}) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "free"),
    [
        ("counted", {"n": 9, "bins": 4}, set()),
        ("sent", {"m": 3, "n": 5}, {"i"}),
        ("largest", {"m": 3, "n": 5, "k": 2}, {"i"}),
    ],
)
def test_only_points_that_stand_alone_are_sampled(
    name: str, arguments: dict[str, Any], free: set[str]
) -> None:
    assert set(output_axes(built(name, arguments))) == free
