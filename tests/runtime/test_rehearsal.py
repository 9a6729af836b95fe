"""The parts of a rehearsal do on few numbers what a search does on all; here with numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer import rehearsal
from explorer.check import Bounds
from explorer.expectation import HOST, Recipe
from explorer.rehearsal import PARTS, Rehearsal, rehearse
from explorer.runtime import workers
from explorer.runtime.process import Answer, process_server
from explorer.runtime.workers import Examiner
from ir.dtypes import from_float, is_float
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
    for part in PARTS:
        getattr(Rehearsal(recipe, "cpu"), part)()


def test_a_filled_folder_needs_none(tmp_path: Path) -> None:
    recipe = Recipe(load_operator("softmax").build(m=32, n=32), 0)
    server = process_server("cpu", tmp_path)
    folder = tmp_path / "kernels"
    workers = rehearse(server, "cpu", recipe, folder)
    try:
        assert all(isinstance(worker.collect(), Answer) for worker in workers)
    finally:
        for worker in workers:
            worker.close()
    assert len(workers) == len(PARTS)
    folder.mkdir()
    for number in range(rehearsal.ENOUGH):
        (folder / str(number)).touch()
    assert rehearse(server, "cpu", recipe, folder) == ()


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
