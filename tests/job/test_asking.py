"""Ask and get: the best known kernel, once in a process; what happens where none is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import kept, serving
from explorer.errors import ExportError, NothingValid
from explorer.outcome import Outcome
from explorer.recall import FINAL, to_record
from explorer.winner import Winner
from explorer.workload import Workload
from ir import Graph, UsageError, operator
from ir.schedule import Schedule
from records import Store

QUICK: dict[str, Any] = {"trials": 1}


@operator
def shifted(g: Graph, m: int, by: float = 1.0, dtype: str = "f32") -> None:
    """Y = X + by."""
    rows = g.axis("m", m)
    g.output("Y", g.input("X", (rows,), dtype) + by, dtype)


def schedules(workload: Workload, count: int) -> list[Schedule]:
    space = workload.space()
    rows = space.sample(np.random.default_rng(0), 64)
    return list(dict.fromkeys(space.schedule(row) for row in rows))[:count]


def note(path: Path, workload: Workload, schedule: Schedule, seconds: float) -> None:
    """Record a winner of finals."""
    with Store(path) as store:
        store.add(to_record(workload, schedule, Outcome("ok", seconds), "job", FINAL))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Winner]:
    """What was loaded: kernels that give their own schedule."""
    found: list[Winner] = []

    def function(winner: Winner) -> Callable[..., Any]:
        found.append(winner)
        return lambda *arrays, **named: winner.schedule

    monkeypatch.setattr(Winner, "function", function)
    return found


def test_the_best_is_looked_up_once(
    path: Path, loads: list[Winner], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = explorer.load(shifted, m=8)
    slow, fast = schedules(workload, 2)
    note(path, workload, slow, 2e-3)
    note(path, workload, fast, 1e-3)
    kernel = explorer.kernel(shifted, m=8, store=path)
    assert (kernel(), kernel.winner.schedule, kernel.winner.seconds) == (fast, fast, 1e-3)
    assert (kernel.recorded, kernel.tuning, kernel.wait()) == (True, False, True)
    monkeypatch.setattr(serving, "best_winner", None)
    x = np.ones(8, np.float32)
    assert explorer.kernel(shifted, m=8, store=path) is kernel
    assert explorer.kernel(shifted, x, store=path) is kernel
    assert explorer.kernel(shifted, x, store=path) is kernel
    assert explorer.kernel(shifted, m=np.int64(8), store=str(path), missing="tune") is kernel
    assert len(loads) == 1


def test_what_is_recorded_later_is_taken_on_request(path: Path, loads: list[Winner]) -> None:
    workload = explorer.load(shifted, m=9)
    slow, fast = schedules(workload, 2)
    note(path, workload, slow, 2e-3)
    kernel = explorer.kernel(shifted, m=9, store=path)
    note(path, workload, fast, 1e-3)
    assert explorer.kernel(shifted, m=9, store=path)() == slow
    assert explorer.kernel(shifted, m=9, store=path, refresh=True) is kernel
    assert kernel() == fast
    path.unlink()
    assert explorer.kernel(shifted, m=9, store=path, refresh=True)() == fast
    assert len(loads) == 2


def test_threads_that_ask_at_once_get_one_kernel(path: Path, loads: list[Winner]) -> None:
    workload = explorer.load(shifted, m=10)
    note(path, workload, schedules(workload, 1)[0], 1e-3)
    gate = threading.Barrier(8)

    def ask(number: int) -> serving.ServedKernel:
        gate.wait()
        if number % 2:
            return explorer.kernel(shifted, m=10, store=path)
        return explorer.kernel(shifted, np.ones(10, np.float32), store=path)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert len(found) == len(loads) == 1


def test_another_definition_is_another_kernel(path: Path, loads: list[Winner]) -> None:
    def made(by: float) -> Any:
        @operator
        def inside(g: Graph, m: int) -> None:
            g.output("Y", g.input("X", (g.axis("m", m),), "f32") + by)

        return inside

    for by in (2.0, 3.0):
        workload = explorer.load(made(by), m=4)
        note(path, workload, schedules(workload, 1)[0], by)
    assert explorer.kernel(made(2.0), m=4, store=path).winner.seconds == 2.0
    assert explorer.kernel(made(3.0), m=4, store=path).winner.seconds == 3.0


def test_a_file_that_has_changed_is_read_again(path: Path, loads: list[Winner]) -> None:
    file = path.with_name("mine.py")
    text = "from ir import operator\n@operator\ndef mine(g, m: int):\n    rows = g.axis('m', m)\n"
    for power in (10, 100):
        line = f"    g.output('Y', g.input('X', (rows,), 'f32') * {power}.0)\n"
        file.write_text(text + line)
        workload = explorer.load(f"{file}:mine", m=4)
        note(path, workload, schedules(workload, 1)[0], float(power))
        assert explorer.kernel(f"{file}:mine", m=4, store=path).winner.seconds == power


@pytest.mark.parametrize("there", [False, True])
def test_what_is_not_recorded_is_one_line_with_the_command(path: Path, there: bool) -> None:
    if there:
        Store(path).close()
    with pytest.raises(NothingValid) as caught:
        explorer.kernel("softmax", np.ones((3, 5), np.float32), store=path, memory="huge")
    command = f"tilewright tune softmax m=3 n=5 --memory huge --records {path}"
    assert f"softmax m=3 n=5: no kernel of it is recorded for this machine; `{command}`" in str(
        caught.value
    )
    with pytest.raises(NothingValid, match=r"`explorer.tune\(shifted, m=3\)` finds one"):
        explorer.kernel(shifted, m=3, store=path)
    assert path.exists() == there


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"missing": "hope"}, "missing='hope': what to do is one of error, tune, background"),
        ({"trials": 0}, "trials=0"),
        ({"effort": "heroic"}, "no effort 'heroic'"),
        ({"q": 3}, "shifted: unknown argument 'q'"),
        ({"target": "abacus"}, "unknown target 'abacus'"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        explorer.kernel(shifted, m=3, **given)


def test_a_kernel_is_tuned_when_it_is_asked_for(path: Path) -> None:
    x = np.arange(1000, dtype=np.float32)
    kernel = explorer.kernel(shifted, x, by=2.5, store=path, missing="tune", **QUICK)
    np.testing.assert_array_equal(kernel(x), x + np.float32(2.5))
    assert explorer.best(shifted, m=1000, by=2.5, store=path).schedule == kernel.winner.schedule
    assert explorer.kernel(shifted, m=1000, by=2.5, store=path) is kernel

    def call(number: int) -> bool:
        mine = x + number
        return all(np.array_equal(kernel(mine), mine + np.float32(2.5)) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))


def test_a_guess_serves_until_the_search_is_done(path: Path) -> None:
    x = np.arange(777, dtype=np.float32)
    kernel = explorer.kernel(shifted, x, store=path, missing="background", **QUICK)
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert explorer.kernel(shifted, x, store=path, missing="background") is kernel
    assert kernel.wait(60)
    assert (kernel.tuning, kernel.trouble, kernel.recorded) == (False, "", True)
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert explorer.kernel(shifted, x, store=path) is kernel
    with Store(path, read_only=True) as store:
        assert [job.state for job in store.jobs()] == ["done"]


class FakeSearch:
    """A search that ends when it is told to."""

    def __init__(self, plan: Any, store: str | None, ended: Callable[[str], None]) -> None:
        self.ended = ended
        FakeSearch.begun.append(self)

    begun: list[FakeSearch]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, loads: list[Winner]) -> list[FakeSearch]:
    """Searches in the background; the guess takes 2 ms."""
    FakeSearch.begun = []
    monkeypatch.setattr("explorer.background.BackgroundSearch", FakeSearch)
    monkeypatch.setattr("explorer.job.run_schedule", lambda *_: Outcome("ok", 2e-3))
    return FakeSearch.begun


def test_a_guess_stays_where_the_search_fails(path: Path, searches: list[FakeSearch]) -> None:
    kernel = explorer.kernel(shifted, m=11, store=path, missing="background")
    assert kernel.tuning
    with pytest.raises(NothingValid, match="no kernel of it is recorded"):
        explorer.kernel(shifted, m=11, store=path)
    searches[0].ended("nothing was right")
    assert (kernel.tuning, kernel.trouble, kernel.recorded) == (False, "nothing was right", False)
    assert explorer.kernel(shifted, m=11, store=path, missing="background") is kernel
    assert len(searches) == 1
    assert explorer.kernel(shifted, m=11, store=path, missing="background", refresh=True) is kernel
    assert len(searches) == 2
    assert kernel.tuning


@pytest.mark.parametrize("seconds", [1e-3, 3e-3])
def test_the_faster_of_guess_and_winner_serves(
    path: Path, searches: list[FakeSearch], seconds: float
) -> None:
    kernel = explorer.kernel(shifted, m=12, store=path, missing="background")
    guess = kernel.winner.schedule
    found = next(s for s in schedules(kernel.workload, 9) if s != guess)
    note(path, kernel.workload, found, seconds)
    searches[0].ended("")
    assert kernel() == (found if seconds < 2e-3 else guess)
    assert explorer.kernel(shifted, m=12, store=path) is kernel


def test_a_guess_that_is_wrong_does_not_serve(
    path: Path, searches: list[FakeSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Outcome("wrong_result", detail="Y[0] is off")
    monkeypatch.setattr("explorer.job.run_schedule", lambda *_: wrong)
    with pytest.raises(NothingValid, match=r"no first guess was right \(wrong_result: Y\[0\]"):
        explorer.kernel(shifted, m=13, store=path, missing="background")
    assert not searches


def test_operators_are_called_on_arrays(path: Path) -> None:
    x = np.arange(64, dtype=np.float64)
    with (
        pytest.raises(NothingValid, match="no kernel of it is recorded"),
        explorer.ask_with(store=path),
    ):
        shifted(x)
    with explorer.ask_with(store=path, missing="tune", trials=1):
        np.testing.assert_array_equal(shifted(x, by=3), x + 3)
        room = np.empty_like(x)
        assert shifted(x, by=3, Y=room) is room
        np.testing.assert_array_equal(room, x + 3)
        with pytest.raises(TypeError, match="unexpected keyword argument 'q'"):
            shifted(x, by=3, q=room)
    graph = Graph("g")
    for inner in (graph, graph.input("X", (graph.axis("m", 4),), "f32")):
        with pytest.raises(UsageError, match="shifted: called within an operator: it takes arrays"):
            shifted(inner)
    with pytest.raises(UsageError, match="shifted: X has 1 dimensions, not float32"):
        shifted(np.ones((2, 2), np.float32))


def test_outputs_without_elements_need_no_kernel(path: Path) -> None:
    assert explorer.kernel(shifted, m=0, store=path)(np.ones(0, np.float32)).shape == (0,)


def test_a_forked_process_asks_anew(path: Path, loads: list[Winner]) -> None:
    """Whatever other threads were doing here when it began."""
    workload = explorer.load(shifted, m=14)
    note(path, workload, schedules(workload, 1)[0], 1e-3)
    kernel = explorer.kernel(shifted, m=14, store=path)
    for place in serving._KERNELS._places.values():
        place.lock.acquire()
    try:
        child = os.fork()
        if not child:
            signal.alarm(20)
            same = explorer.kernel(shifted, m=14, store=path).winner == kernel.winner
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        for place in serving._KERNELS._places.values():
            place.lock.release()


def test_a_search_leaves_its_winner_ready(
    path: Path, leaves_ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No compiler, no linker and no check stand between another process and the kernel."""
    explorer.tune(shifted, m=65, by=4.0, store=path, baseline=False, **QUICK)
    kept._loaded.clear()
    monkeypatch.setattr("explorer.job.run_schedule", None)
    monkeypatch.setattr(Winner, "export", None)
    x = np.ones(65, np.float32)
    assert (explorer.kernel(shifted, x, by=4.0, store=path)(x) == 5.0).all()


def test_what_was_not_linked_is_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is installed later is found."""
    result = explorer.tune(shifted, m=67, store=path, baseline=False, **QUICK)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(path.parent / "cache"))
    x = np.ones(67, np.float32)
    with monkeypatch.context() as without:
        without.setattr("explorer.exporters.library.find_linker", lambda: None)
        with pytest.raises(ExportError, match="the kernel cannot be called"):
            result(x)
    assert (result(x) == 2.0).all()


def test_a_damaged_kernel_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = explorer.tune(shifted, m=66, store=path, baseline=False, **QUICK)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(path.parent / "cache"))
    x = np.ones(66, np.float32)
    result(x)
    (file,) = (path.parent / "cache").rglob("*.kernel")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    kept._loaded.clear()
    assert (result(x) == 2.0).all()
    assert not file.read_bytes().endswith(b"?")


FOLLOWED = """
import sys, time
from explorer.background import BackgroundSearch
from explorer.request import Request, plan_of
from explorer.workload import Workload

plan = plan_of(Workload.of("softmax", {"m": 64, "n": 64}), Request(trials=100_000))
search = BackgroundSearch(plan, sys.argv[1], print)
print(search.pid, flush=True)
time.sleep(120)
"""


def test_a_search_ends_with_the_program_that_wants_it(path: Path) -> None:
    """And leaves a job that can be resumed."""
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWED, str(path)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _trials(path):
            time.sleep(0.2)
        program.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.1)
    assert not _runs(pid)
    with Store(path, read_only=True) as store:
        assert [job.state for job in store.jobs()] == ["stopped"]


LOST = """
import threading, time
from explorer import background, interrupts

background._GRACE = 0.3
interrupts.ends_at_once()
interrupts.raises_from_now()
follower = threading.Timer(0.5, background._follow, (0,))
follower.daemon = True
follower.start()
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("lost", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("heard", flush=True)
"""


def test_an_interrupt_that_is_lost_comes_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["lost", "heard"]


def _trials(path: Path) -> int:
    if not path.exists():
        return 0
    with Store(path) as store:
        return store.count()


def _runs(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
