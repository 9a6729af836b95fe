"""Whoever is stopped or killed, and whenever: each answer has a deadline, and the work goes on."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer import cli
from explorer.errors import ServerLost, WorkerError
from explorer.measure import Measurer
from explorer.runtime import process, wire
from explorer.runtime.process import Answer, Died, ProcessServer, Worker
from explorer.runtime.workers import Timing
from tests.runtime.echo import ENOUGH
from tests.runtime.fake_backend import HARDWARE, PROGRAM, schedule

SOON = 0.4  # seconds that a server or worker has here
ECHO, NOTHING = "tests.runtime.echo:Echo", "tests.runtime.echo:Nothing"
SIGNALS = pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])


def gone(pid: int) -> bool:
    """Whether a process has ended, or does soon; who adopted it may leave it as it is."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_MODULES", ())
        made = ProcessServer(NOTHING, tmp_path_factory.mktemp("cache"))
    Worker(made, ECHO).close()
    yield made
    folder = made.folder
    made.close()
    assert not folder.exists()


@pytest.fixture
def server(servers: ProcessServer, monkeypatch: pytest.MonkeyPatch) -> ProcessServer:
    """One that has answered; then deadlines are short."""
    Worker(servers, ECHO).close()
    monkeypatch.setattr(process, "ANSWER_DEADLINE", SOON)
    return servers


@pytest.fixture
def worker(server: ProcessServer) -> Iterator[Worker]:
    made = Worker(server, ECHO)
    yield made
    made.close()


@SIGNALS
def test_a_server_lost_between_requests_is_replaced(
    server: ProcessServer, worker: Worker, number: int
) -> None:
    before, own = server.pid, worker.pid
    os.kill(before, number)
    other = Worker(server, ECHO)
    assert other.ask(ENOUGH, "slow", 0) == Answer("done")
    assert gone(own)  # it dies with its server, in a moment
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")
    assert server.pid != before
    assert worker.pid != own
    assert gone(own)
    other.close()


@SIGNALS
def test_a_server_lost_during_a_request(server: ProcessServer, worker: Worker, number: int) -> None:
    """Killed, it takes its workers along, and what they were asked is asked again."""
    worker.post(ENOUGH, "slow", 0.2)
    os.kill(server.pid, number)
    assert worker.collect() == Answer("done")
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")


@SIGNALS
def test_a_late_worker_of_a_lost_server(server: ProcessServer, worker: Worker, number: int) -> None:
    """The server cannot end it any more; both are replaced."""
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")
    worker.post(SOON, "slow", ENOUGH)
    threading.Timer(SOON / 2, os.kill, (server.pid, number)).start()
    seconds = (SOON, 2 * SOON)  # twice as long where it was asked again, of a new worker
    late = [Died("timeout", f"no answer within {one:.3g} s") for one in seconds]
    assert worker.collect() in late
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")


@SIGNALS
def test_closing_beside_a_lost_server(server: ProcessServer, worker: Worker, number: int) -> None:
    workers = [Worker(server, ECHO) for _ in range(3)]
    pids = [one.pid for one in workers]
    os.kill(server.pid, number)
    start = time.monotonic()
    for one in workers:
        one.close()
    assert time.monotonic() - start < 4 * SOON  # one deadline for all of them
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")
    assert all(map(gone, pids))


def test_a_worker_has_longer_for_its_first_request(worker: Worker) -> None:
    """And one that replaces it has, too."""
    for _ in range(2):
        assert worker.ask(SOON, "slow", 1.5 * SOON) == Answer("done")
        late = Died("timeout", f"no answer within {SOON:.3g} s")
        assert worker.ask(SOON, "slow", ENOUGH) == late


@pytest.mark.parametrize("data", [b"", bytes(1 << 22)], ids=["little", "much"])
def test_a_stopped_worker_is_late(worker: Worker, data: bytes) -> None:
    """Also where the request does not fit the socket, so that sending it would wait for ever."""
    own = worker.ask(ENOUGH, "pid")
    os.kill(worker.pid, signal.SIGSTOP)
    assert worker.ask(SOON, "length", data) == Died("timeout", f"no answer within {SOON:.3g} s")
    assert worker.ask(ENOUGH, "length", data) == Answer(len(data))
    assert worker.ask(ENOUGH, "pid") != own


def test_two_requests_are_answered_one_after_the_other(worker: Worker) -> None:
    worker.post(ENOUGH, "slow", 0.2)
    worker.post_ahead(ENOUGH, "length", b"abc")
    assert worker.collect() == Answer("done")
    worker.advance()
    assert worker.collect() == Answer(3)


def test_what_waits_is_asked_again_with_what_was_lost(worker: Worker, tmp_path: Path) -> None:
    worker.post(ENOUGH, "unlucky", tmp_path / "mark")
    worker.post_ahead(ENOUGH, "length", b"abc")
    assert worker.collect() == Answer("done")
    worker.advance()
    assert worker.collect() == Answer(3)


def test_a_late_worker_takes_along_what_waited(worker: Worker) -> None:
    worker.post(0.3, "slow", ENOUGH)
    worker.post_ahead(ENOUGH, "length", b"abc")
    assert isinstance(worker.collect(), Died)
    assert worker.ask(ENOUGH, "length", b"abcd") == Answer(4)


def test_a_request_that_takes_the_server_along(worker: Worker, tmp_path: Path) -> None:
    assert worker.ask(ENOUGH, "unlucky", tmp_path / "mark") == Answer("done")
    assert worker.ask(ENOUGH, "deadly") == Died(
        "crash", "worker died with the process server, twice"
    )
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")


@pytest.mark.parametrize("verb", ["end", "spawn"])
def test_who_was_interrupted_asks_again(
    server: ProcessServer, worker: Worker, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """What the server answered to the interrupted request is nobody's answer."""

    def interrupted(self: ProcessServer) -> tuple[int, int]:
        raise KeyboardInterrupt

    other = Worker(server, ECHO)
    before = server.pid
    with monkeypatch.context() as patch:
        patch.setattr(ProcessServer, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.close() if verb == "end" else Worker(server, ECHO)
    os.kill(worker.pid, signal.SIGSEGV)
    assert worker.ask(ENOUGH, "slow", 0) == Died("crash", "worker died of SIGSEGV")
    other.close()
    assert other.pid == 0
    assert worker.ask(ENOUGH, "slow", 0) == Answer("done")
    assert server.pid == before


@pytest.mark.parametrize(
    ("boot", "words"), [("import time; time.sleep(99)", "within 0.1 s"), ("1 / 0", "is gone")]
)
def test_a_server_that_never_answers(
    boot: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(process, "BOOT_DEADLINE", 0.1 if "sleep" in boot else ENOUGH)
    monkeypatch.setattr(process, "_BOOT", boot)
    server = ProcessServer("cpu", tmp_path)
    with pytest.raises(WorkerError, match=f"the process server .*{words}"):
        Worker(server, ECHO)
    server.close()
    assert ("ZeroDivisionError" in capfd.readouterr().err) is ("/" in boot)


def test_one_that_does_not_come_back_ends_the_command_with_a_code_of_its_own(
    server: ProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "BOOT_DEADLINE", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(process, "_BOOT", "import time; time.sleep(99)")
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(ServerLost, match="did not answer within") as lost:
            Worker(server, ECHO)
    assert cli.exit_code(lost.value) == cli.EXIT_LOST


def test_an_answer_that_came_in_time_is_read_however_late() -> None:
    """This process may have been stopped itself, as by Ctrl-Z."""
    ours, theirs = socket.socketpair()
    wire.send(theirs, "answer")
    assert wire.receive(ours, time.monotonic() - 60.0) == "answer"
    with pytest.raises(wire.Late):
        wire.receive(ours, time.monotonic() - 60.0)


@SIGNALS
def test_a_job_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Compilers, timing worker, the oracle's files: all are there again."""
    place = "tests.runtime.fake_backend:FakeBackend"
    with Measurer(
        PROGRAM, place, HARDWARE, cache_dir=tmp_path, runtime="cpu", compilers=2,
        timing=Timing(budget=0.001), deadline_s=ENOUGH,
    ) as measurer:  # fmt: skip
        assert next(measurer.measure([schedule("good", n) for n in range(3)])).ok
        monkeypatch.setattr(process, "ANSWER_DEADLINE", SOON)
        os.kill(measurer._server.pid, number)
        (crash,) = measurer.measure([schedule("segfault")])
        assert crash.status == "crash"
        assert all(outcome.ok for outcome in measurer.measure([schedule("good", 9)]))
