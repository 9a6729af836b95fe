"""The parts of a rehearsal do on few numbers what a search does on all; here with numpy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer import rehearsal
from explorer.expectation import Recipe
from explorer.rehearsal import PARTS, Rehearsal, rehearse
from explorer.runtime.process import Answer, process_server
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
