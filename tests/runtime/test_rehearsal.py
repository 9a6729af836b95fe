"""The parts of a rehearsal do on few numbers what a search does on all; here with numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer import rehearsal
from explorer.afforded import HOST
from explorer.check import Bounds
from explorer.expectation import Recipe, error_model
from explorer.rehearsal import PARTS, Rehearsal, rehearse
from explorer.runtime import workers
from explorer.runtime.process import Answer, process_server
from explorer.runtime.workers import Examiner
from ir.dtypes import from_float, is_float
from ir.evaluation import Evaluation
from ir.inputs import drawn_inputs
from ir.oracle import answers, sampled
from ir.registry import load_operator

PROGRAMS = (
    ("softmax", {"m": 256, "n": 300}),
    ("attention", {"b": 1, "heads": 2, "sq": 128, "d": 64, "dtype": "bf16"}),
    ("matmul", {"m": 64, "n": 32, "k": 48, "dtype": "i8"}),
)


@pytest.fixture(autouse=True)
def processors() -> Iterator[None]:
    """A rehearsal keeps to one processor; this process, which is no worker, has its own back."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    yield
    if before:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("name", "arguments"), PROGRAMS)
def test_every_part_runs(
    name: str, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_MANY", 1 << 10)
    recipe = Recipe(load_operator(name).build(**arguments), 0)
    for part in ("evaluate", *PARTS):
        getattr(Rehearsal(recipe, "cpu"), part)()


@pytest.mark.parametrize(("name", "arguments"), [
    *PROGRAMS, ("moe", {"tokens": 12, "experts": 3, "chosen": 2, "d": 8, "n": 6, "block": 4}),
    ("delta_rule", {"b": 1, "t": 3, "heads": 2, "d": 4}),
])  # fmt: skip
def test_shares_of_nodes_run(name: str, arguments: dict[str, object]) -> None:
    """All together come to every node that does not go in a stream."""
    program = load_operator(name).build(**arguments)
    for share in (1, 2, 3):
        Rehearsal(Recipe(program, 0), "cpu").evaluate(0, share, 3)


@pytest.mark.parametrize(("name", "arguments"), [
    ("waves", {"n": 40, "steps": 6}), ("welford", {"m": 5, "n": 30}),
])  # fmt: skip
def test_shares_come_to_what_steps_and_folds_do_with_roundings_drawn_and_without(
    name: str, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever operation the oracle does at a step, or a trial, some share has done before."""
    met: set[object] = set()
    meant = Evaluation._meant

    def noting(self: Evaluation, op: Any, positions: Any, *model: Any) -> Any:
        met.add((op, tuple(positions), self.noise is not None))
        return meant(self, op, positions, *model)

    monkeypatch.setattr(Evaluation, "_meant", noting)
    program = load_operator(name).build(**arguments)
    for share in (1, 2, 3):
        Rehearsal(Recipe(program, 0), "cpu").evaluate(0, share, 3)
    known, model = set(met), error_model(program)
    met.clear()
    inputs = drawn_inputs(program, 0)
    exact = {key: one.value for key, one in answers(program, inputs, model).items()}
    sampled(program, inputs, model, exact)
    assert met <= known


def begun(folder: Path, recipe: Recipe, cores: int = 1) -> int:
    """How many workers a rehearsal takes; each has answered."""
    workers = rehearse(process_server("cpu", folder.parent), "cpu", recipe, folder, cores)
    try:
        assert all(isinstance(worker.collect(), Answer) for worker in workers)
    finally:
        for worker in workers:
            worker.close()
    return len(workers)


def test_a_kind_of_program_is_rehearsed_once(tmp_path: Path) -> None:
    """Whatever its extents are, and whatever others left in the folder; their forms with them."""
    folder = tmp_path / "kernels"
    softmax = load_operator("softmax").build
    recipe = Recipe(softmax(m=32, n=32), 0)
    assert begun(folder, recipe) == 1 + len(PARTS)
    folder.mkdir()
    (folder / "kernel").touch()
    assert begun(folder, Recipe(softmax(m=64, n=48), 0)) == 0
    other = Recipe(load_operator("matmul").build(m=8, n=8, k=8), 0, forms=(softmax(m=8, n=8),))
    assert begun(folder, other) == 2 + len(PARTS)
    assert begun(folder, other) == begun(folder, recipe) == 0
    (folder / "kernel").unlink()
    assert begun(folder, recipe, 12) == 6
    many = Recipe(softmax(m=8, n=9), 0, forms=(softmax(m=8, n=9),) * rehearsal.MOST)
    assert begun(folder, many) == rehearsal.MOST


def test_a_folder_that_cannot_be_written_is_not_rehearsed_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    recipe = Recipe(load_operator("softmax").build(m=32, n=32), 0)
    assert rehearse(process_server("cpu", tmp_path), "cpu", recipe, tmp_path / "file" / "x") == ()


def noted(done: list[tuple[str, object]], real: Callable[..., Any]) -> Callable[..., Any]:
    """A method that says when it is called, and whether of a sample."""

    def noting(bounds: Bounds, *given: Any) -> Any:
        done.append((real.__name__, bounds.picks is not None))
        return real(bounds, *given)

    return noting


@pytest.mark.parametrize(("name", "arguments"), [*PROGRAMS, ("gaussian", {"n": 20_000, "d": 3})])
def test_an_examiner_that_asks_the_oracle_itself_has_judged_once_before_a_candidate(
    name: str, arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, object]] = []
    for method in ("_parts", "_strangers", "_error", "_lean"):
        monkeypatch.setattr(Bounds, method, noted(done, getattr(Bounds, method)))
    monkeypatch.setattr(workers, "DEVICE", HOST)
    recipe = Recipe(load_operator(name).build(**arguments), 0)
    examiner = Examiner(recipe, "cpu")
    before, done[:] = set(done), []
    for spec in recipe.outputs:  # a right output takes nothing that was not done before
        bounds, output = examiner._set(0).bounds[spec.name], examiner._outputs[spec.name]
        output[...] = 0
        middle = (bounds.low + bounds.high) / 2
        right = from_float(middle, spec.dtype) if is_float(spec.dtype) else bounds.low
        output[bounds.picks or ...] = right
        assert bounds.judge(output).right
    assert set(done) <= before
