"""The command as a process: streams that are closed or full, Ctrl-C at any moment, no home.

These need processes of their own; everything else that a user may get wrong is `test_fuzz`'s.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# says "begun" as soon as the command's own handler of Ctrl-C is in place
START = """\
from explorer import interrupts
from explorer.cli import main
begin = interrupts.ends_at_once
interrupts.ends_at_once = lambda: (begin(), print("begun", flush=True))
main()
"""
COMMAND = f"{sys.executable} -m explorer.cli"
SHOW = "show row_sum m=8 n=8"


def shell(line: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """One line for the shell, in which `tw` is the command."""
    wanted = {n: v for n, v in (os.environ | environment).items() if v is not None}
    text = f'tw() {{ {COMMAND} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", text], env=wanted, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (f"tw {SHOW} >&-", 2, "tilewright: standard output is closed"),
        (f"tw {SHOW} > /dev/full", 2, "standard output cannot be written: No space left on device"),
        ("tw --help > /dev/full", 2, "standard output cannot be written"),
        ("tw targets | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("tw show no_such m=4 2>&-", 2, ""),
        ("tw show no_such m=4 2>/dev/full", 2, ""),
        (f"tw {SHOW} <&- >/dev/null", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(line: str, code: int, message: str) -> None:
    done = shell(line)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == bool(message)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_an_early_interrupt_is_one_line(after: float, tmp_path: Path) -> None:
    words = ("tune", "matmul", "m=256", "n=256", "k=256", "--plain", "--no-baseline")
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words, "--records", str(tmp_path / "records.db")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith("tilewright: interrupted")
    assert errors.count("\n") == 1


def test_no_home_is_told_with_what_helps(tmp_path: Path) -> None:
    """A user who is not in the list of users, as containers have them."""
    unknown = """
import os, pwd
def getpwuid(uid):
    raise KeyError(uid)
pwd.getpwuid = getpwuid
from explorer.cli import main
main()
"""
    lost = dict.fromkeys(("HOME", "USER", "LOGNAME", "USERNAME", "LNAME", "XDG_DATA_HOME"))
    environment = {n: v for n, v in os.environ.items() if n not in lost and "TILEWRIGHT" not in n}
    environment["TMPDIR"] = str(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", unknown, "top"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no home folder to keep records in: name a store with --records" in done.stderr


def test_a_user_without_a_name_has_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.settings import cache_dir

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "TILEWRIGHT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cache_dir().is_absolute()


IMPORTING = """\
import signal, sys
sys.path.insert(0, sys.argv[1])
from explorer import interrupts
interrupts.ends_at_once()
interrupts.raises_from_now()
try:
    import slow
    for _ in range(1000):
        slow.time.sleep(0.01)
    print("lost")
except KeyboardInterrupt:
    print("whole" if "slow" in sys.modules else "broken off")
"""


TOGETHER = """\
import os, signal, sys, time
from explorer import interrupts
interrupts.ends_at_once()
interrupts.raises_from_now()
try:
    interrupts._waiting.set()  # as in an import
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, interrupts._AGAIN))
    os.kill(os.getpid(), signal.SIGINT)
    interrupts._send()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, interrupts._AGAIN))
    time.sleep(1)
except KeyboardInterrupt:
    time.sleep(0.1)
    print("once")
"""


def test_a_second_interrupt_and_the_first_one_anew_are_one() -> None:
    """Where a busy machine hands both over at once."""
    done = subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("once\n", "")


@pytest.mark.parametrize(("signals", "outcome"), [(1, "whole"), (2, "broken off")])
def test_an_interrupt_waits_for_an_import_and_a_second_one_does_not(
    signals: int, outcome: str, tmp_path: Path
) -> None:
    slow = "import time\nprint('begun', flush=True)\nfor _ in range(30): time.sleep(0.1)\n"
    (tmp_path / "slow.py").write_text(slow)
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)  # two that a busy machine has not handed over yet are one
    said, _ = process.communicate(timeout=60)
    assert said == outcome + "\n"
