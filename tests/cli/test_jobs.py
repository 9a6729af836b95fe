"""tune with several jobs, with --resume, on a terminal; on a scripted device where that will do."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from explorer import cli, peaks
from explorer.errors import DeviceLost, ServerLost
from explorer.outcome import Outcome
from explorer.settings import cache_dir
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store
from tests.job.device import ScriptedDevice, by_key

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "explorer.cli")
MATMUL = ("matmul", "m=32", "n=32", "k=32")
JOBS = """\
batch = 4
[defaults]
strategy = "random"
[[job]]
operator = "matmul"
arguments = { m = 32, n = 32, k = 32 }
[[job]]
operator = "softmax"
arguments = { m = 32, n = 32 }
"""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    scripted = ScriptedDevice()
    monkeypatch.setattr("explorer.search.Measurer", scripted)
    return scripted


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return path


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def interrupt_after(device: ScriptedDevice, count: int) -> None:
    """The measurement after `count` others is met by Ctrl-C."""

    def rule(schedule: Schedule) -> Outcome:
        if len(device.measured) >= count:
            raise KeyboardInterrupt
        return by_key(schedule)

    device.rule = rule


def test_jobs_of_a_file(
    device: ScriptedDevice, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "--jobs", str(file), "--trials", "24"]
    assert cli.invoke(words) == cli.EXIT_DONE
    out = capsys.readouterr().out
    assert "softmax m=32 n=32: best " in out
    assert re.search(r"^matmul m=32 n=32 k=32: \d+ trials \(\d+ ok\)$", out, re.M)
    assert out.rstrip().endswith(" s")
    assert cli.invoke([*words, "--format", "json"]) == cli.EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert [row["program"] for row in found["jobs"]] == ["matmul", "softmax"]
    assert sum(row["trials"] for row in found["jobs"]) == found["trials"] == 24
    assert found["missed"] == []


def test_a_job_without_a_result_is_code_3_and_the_others_stand(
    device: ScriptedDevice, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(["tune", "--jobs", str(file), "--trials", "4"]) == cli.EXIT_NOTHING
    captured = capsys.readouterr()
    assert "schedule {" in captured.out
    assert captured.err == (
        "tilewright: softmax m=32 n=32: the budget was spent before its turn came\n"
    )


def test_exports_of_several_jobs_have_a_folder_each(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "--jobs", str(file), "--trials", "8", "--out", str(tmp_path / "kernels")]
    assert cli.invoke(words) == cli.EXIT_DONE
    assert (tmp_path / "kernels" / "1-matmul" / "matmul.c").exists()
    assert (tmp_path / "kernels" / "2-softmax" / "softmax.c").exists()


def test_resume_goes_on_and_says_so(
    device: ScriptedDevice, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_after(device, 10)
    assert cli.invoke(["tune", *MATMUL, "--trials", "24"]) == cli.EXIT_INTERRUPTED
    captured = capsys.readouterr()
    assert "schedule {" in captured.out
    with Store(store) as records:
        (stopped,) = records.jobs("stopped")
    again = f"`tilewright tune --resume {stopped.id}` goes on from it"
    assert captured.err == f"tilewright: interrupted; what was measured is kept, {again}\n"
    device.rule = by_key
    assert cli.invoke(["tune", "--resume", "--format", "json"]) == cli.EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["trials"], found["resumed"]) == (stopped.id, 24, 10)
    assert cli.invoke(["tune", "--resume", stopped.id[:4]]) == cli.EXIT_USAGE
    assert "is done" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tune", "--resume", "--trials", "3"), "--trials cannot be given here: --resume goes on"),
        (("tune", "--resume", "ab", "m=3"), "words cannot be given here"),
        (("tune", "--jobs", "FILE", "--pin", "a=1"), "--pin cannot be given here: with --jobs"),
        (("tune", "matmul", "--jobs", "FILE"), "operator and words cannot be given here"),
        (("tune", "--jobs", "gone.toml"), "gone.toml: No such file"),
        (("tune", "--resume"), "no such store"),
        (("tune", "--resume", "--jobs", "FILE"), "--jobs cannot be given here"),
        (("tune", "--jobs", "FILE", "--replay", "x.db"), "--jobs cannot be given here: --replay"),
        (("tune", "--jobs", "FILE", "--start-from", "x.db"), "--start-from cannot be given here"),
        (("tune", "--resume", "--replay", "x.db"), "--resume cannot be given here: --replay"),
        (("tune", "--resume", "--start-from", "x.db"), "--start-from cannot be given here"),
        (("tune", *MATMUL, "--replay", "x.db", "--records", "y.db"), "answers from records and"),
        (("tune", *MATMUL, "--start-from", "x.db"), "x.db: no such file"),
        (("report", "--out", "x.html"), "no such store"),
        (("explain", "--job", "ab"), "no such store"),
        (("explain", "matmul", "--job", "ab"), "give an operator or --job, not both"),
        (("explain",), "Missing argument 'OPERATOR', or --job JOB"),
    ],
)
def test_what_does_not_go_together(
    words: tuple[str, ...],
    message: str,
    file: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(store.parent)
    given = [str(file) if word == "FILE" else word for word in words]
    assert cli.invoke(given) == cli.EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not store.exists()


@pytest.mark.parametrize("error", [DeviceLost, ServerLost])
def test_a_lost_device_or_process_server_ends_with_7(
    error: type[Exception], device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(schedule: Schedule) -> Outcome:
        if len(device.measured) > 5:
            raise error("cpu: it does not answer any more")
        return by_key(schedule)

    device.rule = lost
    assert cli.invoke(["tune", *MATMUL, "--trials", "9"]) == cli.EXIT_LOST
    assert capsys.readouterr().err == "tilewright: cpu: it does not answer any more\n"
    device.rule = by_key
    assert cli.invoke(["tune", "--resume"]) == cli.EXIT_DONE


def test_a_busy_machine_is_warned_of_once(
    device: ScriptedDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = (("foreign_load", 0.4), ("crowded", True))

    def rule(schedule: Schedule) -> Outcome:
        good = by_key(schedule)
        return Outcome("ok", good.seconds, notes=notes if len(device.measured) > 3 else ())

    device.rule = rule
    assert cli.invoke(["tune", *MATMUL, "--trials", "9"]) == cli.EXIT_DONE
    assert capsys.readouterr().out.count("warning: other programs use 40 % of the proc") == 1
    assert cli.invoke(["tune", *MATMUL, "--trials", "2", "--format", "json"]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["foreign_load"] == 0.4


def _know_peaks() -> None:
    """As measured on a quiet machine; this one may be busy."""
    file = peaks._file(Workload.of("matmul", {"m": 32, "n": 32, "k": 32}).hardware, cache_dir())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"peak_flops.f32": 1e15}')


def _terminal(*words: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command on a terminal of 100 columns; its process and our end of the terminal."""
    ours, theirs = pty.openpty()
    given: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    size = environment() | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen([*COMMAND, *words], env=size, **given)
    os.close(theirs)
    return process, ours


def _read(terminal: int, until: str, seconds: float = 40.0) -> str:
    """What a terminal shows, without its control sequences, until it has shown `until`."""
    text, end = "", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
            if until and until in text:
                break
    return text


def test_a_terminal_gets_a_panel() -> None:
    _know_peaks()
    process, terminal = _terminal("tune", *MATMUL, "--trials", "6", "--strategy", "random")
    text = _read(terminal, "")
    assert process.wait(30) == cli.EXIT_DONE
    assert "─ matmul m=32 n=32 k=32 ─" in text
    assert re.search(r"trials +━+ +6 of 6, [\d.]+ a second", text)
    assert "of the machine's peak" in text
    assert "schedule {" in text
    os.close(terminal)


def test_a_second_interruption_ends_at_once(store: Path) -> None:
    """The first one is held up by a store that another process has locked."""
    words = ("tune", *MATMUL, "--trials", "100000", "--strategy", "random", "--plain")
    process, terminal = _terminal(*words)
    assert "trial   32" in _read(terminal, "trial   32")
    import sqlite3

    lock = sqlite3.connect(store)
    for _ in range(200):
        try:
            lock.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError:
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == cli.EXIT_INTERRUPTED
    assert "interrupted twice" in _read(terminal, "", 2.0)
    lock.close()
    os.close(terminal)
    with Store(store) as records:
        assert records.count() >= 32
