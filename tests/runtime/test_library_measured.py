"""The baseline measured for real: in worker processes, with as many threads as kernels have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from explorer.busy import ForeignLoad
from explorer.disturbance import crowd_of
from explorer.measure import Measurer
from explorer.runtime.blas import _switches, can_be_told, shared_among
from explorer.runtime.eager import Inexpressible
from explorer.runtime.process import Answer, Worker, process_server
from explorer.runtime.workers import Examiner, Timing
from ir.registry import load_operator
from tests.runtime.fake_backend import HARDWARE, PROGRAM, schedule

PLACE = "tests.runtime.fake_backend:FakeBackend"


def measurer(program: Any, cache: Path, threads: int = 1) -> Measurer:
    hardware = replace(HARDWARE, threads=threads)
    return Measurer(
        program, PLACE, hardware, cache_dir=cache, runtime="cpu", compilers=1, library=True,
        timing=Timing(budget=0.005),
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_measured_behind_the_first_candidate_and_in_turns(
    threads: int, tmp_path: Path
) -> None:
    """Whatever became of the candidates: here they are kernels of another program, and wrong."""
    program = load_operator("matmul").build(m=96, n=80, k=64)
    with measurer(program, tmp_path, threads) as one:
        assert one.baseline is None
        list(one.measure([schedule("good")]))
        assert one.baseline is None
        list(one.measure([schedule("good", 1)]))
        first = one.baseline
        assert first is not None
        assert first.seconds
        assert first.outcome is not None
        assert (first.outcome.error or 0.0) < 1e-4
        list(one.measure([schedule("good", 2)]))
        assert one.baseline is first
        one.compete([schedule("good")], 3)
        assert one.baseline is first
        one.compete([schedule("good")], 3, library=True)
        assert one.baseline is not first
        assert one.baseline.outcome is not None
        assert dict(one.baseline.outcome.notes)["turns"] == 3
        processes = {worker.pid for worker in one.workers}
        assert len(processes) == len(one.workers) == 3 + (threads > 1)


def test_the_library_has_as_many_threads_as_the_kernels(tmp_path: Path) -> None:
    for threads in (1, 2):
        server = process_server("cpu", tmp_path, threads)
        worker = Worker(server, "os:getenv", "OPENBLAS_NUM_THREADS")
        try:
            assert worker.ask(30.0, "strip") == Answer(str(threads))
        finally:
            worker.close()


@pytest.mark.skipif(not can_be_told(), reason="this BLAS heeds only what it is started with")
def test_its_worker_has_them_from_a_server_that_has_one(tmp_path: Path) -> None:
    place = "tests.runtime.test_library_measured:Sharing"
    worker = Worker(process_server("cpu", tmp_path), place, 2)
    try:
        assert worker.ask(30.0, "threads") == Answer([2])
    finally:
        worker.close()


class Sharing:
    """Lives in a worker, as the one that examines a library does."""

    def __init__(self, threads: int) -> None:
        shared_among(threads)

    def threads(self) -> list[int]:
        return [tell() for _, tell in _switches(Path("/proc/self/maps"))]


@pytest.mark.parametrize("told", [True, False])
def test_it_is_beside_the_other_workers_where_blas_can_be_told(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.measure.can_be_told", lambda: told)
    with measurer(PROGRAM, tmp_path, 2) as one:
        assert (one._library_server() is one._server) == told


def test_a_program_that_it_cannot_say_has_a_reason(tmp_path: Path) -> None:
    program = load_operator("matmul").build(m=1024, n=1024, k=1024, dtype="i8")
    with measurer(program, tmp_path) as one:
        list(one.measure([schedule("good"), schedule("good", 1)]))
        assert one.baseline is not None
        assert (one.baseline.seconds, one.baseline.library) == (None, "")
        assert "plain loops" in one.baseline.why


def test_a_runtime_without_a_library_has_a_reason() -> None:
    examiner: Any = object.__new__(Examiner)
    examiner._runtime = SimpleNamespace(name="toy")
    with pytest.raises(Inexpressible, match="toy has no array library"):
        examiner.library(None, Timing())


def test_it_has_the_processors_and_notes_who_else_had_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that wait for kernels are told to rest before its turns; its load is its own."""
    asked: list[str] = []
    post = Worker.post

    def spy(worker: Worker, timeout: float, method: str, *values: object) -> None:
        asked.append(method)
        post(worker, timeout, method, *values)

    monkeypatch.setattr(Worker, "post", spy)
    monkeypatch.setattr(ForeignLoad, "share", lambda *_: 0.85)
    monkeypatch.setattr("explorer.busy.SHORTEST", 0.0)  # all of this takes long enough to tell
    with measurer(PROGRAM, tmp_path, 2) as one:
        list(one.measure([schedule("good"), schedule("good", 1)]))
        assert one.baseline is not None
        first = one.baseline.crowd
        (found,) = one.compete([schedule("good")], 2, library=True)
        assert first == one.baseline.crowd == crowd_of(found) is not None
        assert (one.baseline.outcome or found).notes.count(("crowded", True)) == 1
    turn = ["examine", "rest", "library"]
    assert asked == ["make", "compile", "compile", *turn, "examine", "compile", *turn, *turn]
