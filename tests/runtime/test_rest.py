"""Who waits for the next kernel, or just multiplied matrices, lets others have the processors."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.exporter import find_linker
from explorer.runtime import cpu
from explorer.runtime.idle import awake, wait_until_alone
from explorer.runtime.process import Answer, Worker, process_server
from explorer.runtime.workers import Examination, Examiner, Timing
from ir.targets.cpu.pool import pool_c

LINUX = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc/self/task here")


class Sleeper:
    """In a worker: runs the pool, or BLAS, and says which threads are awake at once."""

    def after_launches(self, times: int) -> list[int]:
        runtime, pool = cpu.CpuRuntime(), cpu.pool()
        found = []
        for _ in range(times):
            pool.repeat(pool.idle, None, 3, 2)
            runtime.rest()
            found.append(awake())
        pool.rest()
        return found

    def after_products(self, times: int) -> list[int]:
        a = np.ones((128, 128), np.float32)
        found = []
        for _ in range(times):
            a @ a
            cpu.CpuRuntime().rest()
            found.append(awake())
        return found


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    server = process_server("cpu", tmp_path_factory.mktemp("cache"), 2)
    worker = Worker(server, f"{__name__}:Sleeper")
    yield worker
    worker.close()


@LINUX
def test_the_pool_sleeps_when_it_is_told_to(sleeper: Worker) -> None:
    assert sleeper.ask(30.0, "after_launches", 50) == Answer([0] * 50)


@LINUX
def test_blas_sleeps_before_a_kernel_has_its_turn(sleeper: Worker) -> None:
    assert sleeper.ask(30.0, "after_products", 2) == Answer([0] * 2)


def test_the_exported_pool_sleeps_when_it_is_told_to(tmp_path: Path) -> None:
    """Twin of the other: launches after a rest still reach every worker."""
    compiler = find_linker() or "cc"
    source, program = tmp_path / "pool.c", tmp_path / "pool"
    source.write_text(pool_c() + _MAIN)
    subprocess.run([compiler, "-O1", source, "-o", program, "-lpthread"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "12000 0\n"


_MAIN = """
#include <stdio.h>
static int64_t ran;
static void body(int64_t thread, int64_t threads, void **args, void *team) {
  (void)thread; (void)threads; (void)args; (void)team;
  __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
}
int main(void) {
  int64_t awake = 0;
  tilewright_rest();
  for (int i = 0; i < 4000; i++) {
    tilewright_launch(body, NULL, 3);
    tilewright_rest();
    awake += tilewright_started - tilewright_parked;
  }
  printf("%ld %ld\\n", (long)ran, (long)awake);
  return 0;
}
"""


@LINUX
def test_waiting_has_an_end() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    other = threading.Thread(target=spin)
    other.start()
    try:
        assert not wait_until_alone(0.01)
    finally:
        stop.set()
        other.join()
    assert wait_until_alone(5.0)


def test_without_proc_a_while_is_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("explorer.runtime.idle.time.sleep", waited.append)
    assert wait_until_alone(1.0, tmp_path / "gone")
    assert waited == [pytest.approx(0.15)]


def test_the_library_has_the_processors_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours rest before its turn, its own threads after it."""
    done: list[str] = []
    launch = SimpleNamespace(name="lib")
    examiner: Any = object.__new__(Examiner)
    examiner._made, examiner._outputs = {0: SimpleNamespace(inputs={})}, {}
    examiner._runtime = SimpleNamespace(
        name="toy",
        prepare_library=lambda: None,
        library=lambda *_: launch,
        rest=lambda: done.append("rest"),
    )

    def examine(*_: object) -> Examination:
        done.append("turn")
        return Examination("ok")

    monkeypatch.setattr(Examiner, "_examine", examine)
    examiner.library(None, Timing())
    assert done == ["rest", "turn", "rest"]
