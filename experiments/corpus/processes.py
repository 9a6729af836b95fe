"""Processes that may hang or crash: each leads a group that ends with it. Knows no operator."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]
_LEAST = 2  # processors beside its share that one of several may use: not all compile at a time


def pinned(words: str) -> None:
    """Keep this process and its children to processors such as 0-9,12; to all if none are named."""
    if not words:
        return
    found: set[int] = set()
    for part in words.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    os.sched_setaffinity(0, found)


class Slots:
    """Shares of the processors for so many at a time; they overlap a little."""

    def __init__(self, count: int) -> None:
        have = sorted(os.sched_getaffinity(0))
        size = min(len(have), len(have) // count + _LEAST) if count > 1 else len(have)
        self._free: queue.Queue[tuple[int, ...]] = queue.Queue()
        for number in range(count):
            start = number * len(have) // count
            self._free.put(tuple(have[(start + i) % len(have)] for i in range(size)))

    @contextlib.contextmanager
    def taken(self) -> Iterator[tuple[int, ...]]:
        mine = self._free.get()
        try:
            yield mine
        finally:
            self._free.put(mine)


def _environment(processors: Sequence[int]) -> dict[str, str]:
    """Libraries with as many threads as there are processors, few where several run at a time."""
    count = str(min(4, len(processors)) if processors else len(os.sched_getaffinity(0)))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, count)}


def _started(words: Sequence[str], processors: Sequence[int], **pipes: Any) -> Any:
    numbers = ",".join(map(str, processors))
    command = [sys.executable, __file__, numbers, str(HERE / words[0]), *words[1:]]
    return subprocess.Popen(
        command, env=_environment(processors), start_new_session=True, text=True, **pipes
    )


def _ended(process: Any) -> None:
    """The whole group, whatever of it is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(text: str, code: int | None) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return f"{(lines or ['no word'])[-1][:300]}" + (
        f" (signal {-code})" if code and code < 0 else ""
    )


def alone(words: Sequence[str], limit: float, processors: Sequence[int], failed: str) -> Row:
    """What a script of this folder prints as its last line; else how it ended, as `failed`."""
    process = _started(words, processors, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _ended(process)
        process.communicate()
        return {failed: f"no end within {limit:.0f} s"}
    _ended(process)
    if process.returncode or not out.strip():
        return {failed: _last_words(err, process.returncode)}
    found: Row = json.loads(out.splitlines()[-1])
    return found


class Worker:
    """A script that answers lines of JSON with lines of JSON, the last of each answer an empty one.

    What it says in answer to one request, it may say in parts: those before it failed are kept.
    After a part that says `ending` it takes no other request.
    """

    def __init__(self, script: str, target: str, processors: Sequence[int]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._process = _started([script, target], processors, **pipes)
        self._lines: queue.Queue[str] = queue.Queue()  # the last one is ""
        threading.Thread(target=self._read, daemon=True).start()
        self.alive = True

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, request: Row, limit: float) -> Iterator[Row]:
        """The parts of an answer; {"stopped": why} as the last where the process did not end it."""
        until = time.monotonic() + limit
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            yield self._stopped("its process had ended")
            return
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                yield self._stopped(f"no end within {limit:.0f} s")
                return
            if not line:
                yield self._stopped(self._why())
                return
            if line == "\n":
                return
            if line.startswith("{"):
                part = json.loads(line)
                self.alive = not part.pop("ending", False)
                yield part

    def _why(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return _last_words(self._errors.read()[-20_000:], self._process.returncode)

    def _stopped(self, why: str) -> Row:
        self.close()
        return {"stopped": why}

    def close(self) -> None:
        self.alive = False
        _ended(self._process)


if __name__ == "__main__":  # a script of this folder, kept to processors
    pinned(sys.argv[1])
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
