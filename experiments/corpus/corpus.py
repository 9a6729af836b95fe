"""Every operator of the library at an extent of a real model, beside the strongest peer.

    python experiments/corpus/corpus.py search --target cuda [--seconds 10] [--at-once 5]
    python experiments/corpus/corpus.py compile --target cuda [--at-once 8]
    python experiments/corpus/corpus.py time --target cuda [--compile-seconds 20]
    python experiments/corpus/corpus.py table --target cuda

`search` stores the best schedule of each operator, several searches at a time; `compile` has torch
compile the peers that are worth it, so that its cache knows them; `time` builds, checks and times
what was found, alone on the device, in turns with the peer. All go on where they ended; rows that
are there are kept unless --again. See README.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import math
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from processes import Slots, Worker, alone, pinned  # noqa: E402
from table import page, said  # noqa: E402

from explorer.workload import Workload  # noqa: E402
from ir.catalogue import SMALL, families, settings_of  # noqa: E402
from ir.errors import TilewrightError  # noqa: E402
from ir.program import Program  # noqa: E402

Row = dict[str, Any]
PATIENCE = 3.0  # times as long as in `time` may a compilation take in `compile`
_OF_TIMING = (
    "failed", "peer_failed", "stopped", "seconds", "share",
    "peer", "peer_troubles", "peer_seconds", "peer_captured", "ratio",
)  # fmt: skip
LIMITS = {"compile": 120.0, "time": 60.0}  # seconds for one operator


@dataclass(frozen=True, slots=True)
class Room:
    """What an operator may take at most: operations, and bytes of what it reads and writes."""

    operations: float = math.inf
    bytes: float = math.inf

    def fitted(self, name: str, arguments: Row) -> Row:
        """Arguments halved, the largest that can be first, until there is room for the operator."""
        program, given = Workload.of(name, arguments).program, arguments
        while program.flops > self.operations or program.bytes > self.bytes:
            smaller = next(self._halves(name, given, program.flops + program.bytes), None)
            if smaller is None:
                break
            program, given = smaller
        return given

    def _halves(self, name: str, given: Row, work: float) -> Iterator[tuple[Program, Row]]:
        """The operator with one argument halved, where that makes it less."""
        extents = [key for key, value in given.items() if type(value) is int and value > 1]
        for key in sorted(extents, key=lambda key: -given[key]):
            halved = given | {key: given[key] // 2}
            try:
                program = Workload.of(name, halved).program
            except TilewrightError:
                continue  # two arguments have to go together
            if program.flops + program.bytes < work:
                yield program, halved


def listed(path: Path, extent: str) -> dict[str, Row]:
    """Rows by label of a file: each with `operator`, `family` and `arguments`; of a file of
    programs here, all that it has extents of, `full` or `small`.

    An operator of programs.py is written as its name behind a colon, one of another file here with
    the file's name in front. `against` are texts in the names of the peers to compare it with.
    """
    if path.suffix == ".py":
        extents = importlib.import_module(path.stem).EXTENTS
        return {
            name: {"operator": f"{path.name}:{name}", "family": path.stem, "setting": "",
                   "arguments": given[extent]}
            for name, given in extents.items()
        }  # fmt: skip
    found = json.loads(path.read_text())
    for row in found.values():
        row.setdefault("setting", "")
    return dict(found)


def operator_of(name: str, case: Row) -> str:
    """The operator of a row, as `tune` wants it."""
    operator: str = case.get("operator", name)
    file, colon, function = operator.partition(":")
    return f"{HERE / (file or 'programs.py')}:{function}" if colon else operator


def cases(given: argparse.Namespace) -> dict[str, Row]:
    """Rows by operator: the first setting of a real model, or the small one; or those of a file."""
    room, small = Room(given.most_operations, given.most_bytes), given.small
    if given.cases:
        return {
            name: row | {"arguments": room.fitted(operator_of(name, row), row["arguments"])}
            for path in given.cases
            for name, row in listed(path, "small" if small else "full").items()
        }
    found = {}
    for family in families():
        for operator in family.operators:
            settings = settings_of(operator)
            wanted = [key for key in settings if key.startswith(SMALL) == small]
            key = (wanted or list(settings))[0]
            found[operator.name] = {
                "family": family.name, "setting": key,
                "arguments": room.fitted(operator.name, dict(settings[key])),
            }  # fmt: skip
    return found


class Rows:
    """The rows of one target, written whole after every change."""

    def __init__(self, given: argparse.Namespace) -> None:
        stem = given.name or (given.cases[0].stem if given.cases else "corpus")
        self.path = given.out / f"{stem}-{given.target}{'-small' if given.small else ''}.json"
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.rows: dict[str, Row] = kept.get("rows", {})
        self.head: Row = kept.get("header", {})
        self._writing = threading.Lock()

    def add(self, name: str, row: Row) -> None:
        """What is new of an operator's row; the file's other words stay."""
        with self._writing:
            self.rows[name] = self.rows.get(name, {}) | row
            print(said(name, self.rows[name]), flush=True)
            self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".part")
        text = json.dumps({"header": self.head, "rows": self.rows}, indent=1)
        scratch.write_text(text + "\n")
        scratch.replace(self.path)


def header(target: str) -> Row:
    from ir.target import get_backend

    versions = [f"Python {platform.python_version()}"]
    for name in ("numpy", "torch", "triton", "cupy-cuda13x"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    found = get_backend(target).hardware()
    return {
        "hardware": f"{found.name}, {found.threads} threads" if target == "cpu" else found.name,
        "versions": ", ".join(versions),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def wanted(given: argparse.Namespace, rows: Rows, done: str) -> dict[str, Row]:
    """The cases of this call that have no `done` yet."""
    found = {}
    for name, case in cases(given).items():
        if given.only and not any(re.search(text, name) for text in given.only):
            continue
        if given.again or done not in rows.rows.get(name, {}):
            found[name] = case
    return found


def search(given: argparse.Namespace, rows: Rows) -> None:
    """Several searches at a time, each in a process of its own with its share of the processors."""
    slots, until = Slots(given.at_once), time.monotonic() + given.budget
    if given.stores:
        given.stores.mkdir(parents=True, exist_ok=True)

    def one(name: str, case: Row) -> None:
        if time.monotonic() + given.seconds > until:
            return
        words = [
            "searching.py",
            operator_of(name, case),
            json.dumps(case["arguments"]),
            given.target,
        ]
        with slots.taken() as processors:
            limit = given.seconds + given.grace
            kept = re.sub(r"\W+", "_", name) + ".db"
            store = [str(given.stores / kept)] if given.stores else []
            row = alone([*words, str(given.seconds), *store], limit, processors, "no_schedule")
        rows.rows.pop(name, None)
        rows.add(name, case | {"searched": True} | row)

    with ThreadPoolExecutor(given.at_once) as threads:
        left = [threads.submit(one, *item) for item in wanted(given, rows, "schedule").items()]
    for ended in left:
        ended.result()


def compile_peers(given: argparse.Namespace, rows: Rows) -> None:
    """For its cache alone: says what failed, and writes nothing."""
    slots, until = Slots(given.at_once), time.monotonic() + given.budget

    def one(name: str, case: Row) -> None:
        if time.monotonic() > until:
            return
        request = {"name": operator_of(name, case), "only_compile": True, **case, **_how(given)}
        request["compile_seconds"] *= PATIENCE
        with slots.taken() as processors:
            worker = Worker("timing.py", given.target, processors)
            for answer in worker.ask(request, request["compile_seconds"] + LIMITS["compile"]):
                print(f"{name}: {answer}", flush=True)
            worker.close()

    with ThreadPoolExecutor(given.at_once) as threads:
        for item in wanted(given, rows, "peer").items():
            threads.submit(one, *item)


def _how(given: argparse.Namespace) -> Row:
    return {"compile_seconds": given.compile_seconds, "packs": given.packs, "peers": given.peers}


def time_all(given: argparse.Namespace, rows: Rows) -> None:
    """One after the other, by one process until it fails or ends."""
    until = time.monotonic() + given.budget
    rows.head |= header(given.target) | {"timed_by": " ".join(["corpus.py", *sys.argv[1:]])}
    worker: Worker | None = None
    for name in wanted(given, rows, "timed"):
        row = rows.rows.get(name, {})
        if time.monotonic() > until:
            break
        if "setting" not in row:
            continue  # not searched yet
        request = {"name": operator_of(name, row), **row, **_how(given)}
        request["schedule"] = row.get("schedule")
        if worker is None or not worker.alive:
            worker = renewed(worker, given.target)
        found: Row = {"timed": True}
        for answer in worker.ask(request, given.compile_seconds + LIMITS["time"]):
            found |= answer
        rows.rows[name] = {k: v for k, v in row.items() if k not in _OF_TIMING}
        rows.add(name, found)
    if worker:
        worker.close()


def renewed(worker: Worker | None, target: str) -> Worker:
    if worker is not None:
        worker.close()
    return Worker("timing.py", target, ())


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("step", choices=["search", "compile", "time", "table"])
    words.add_argument("--target", default="cpu")
    words.add_argument("--seconds", type=float, default=10.0, help="of each search")
    words.add_argument("--grace", type=float, default=90.0, help="that a search may take besides")
    words.add_argument("--at-once", type=int, default=0, help="searches at a time (cuda: 5)")
    words.add_argument(
        "--only", nargs="*", default=[], help="operators whose name has such a pattern"
    )
    words.add_argument("--stores", type=Path, help="a folder for the records of the searches")
    words.add_argument("--most-operations", type=float, default=math.inf, help="of an operator")
    words.add_argument("--most-bytes", type=float, default=math.inf, help="of its operands")
    words.add_argument("--small", action="store_true", help="small extents")
    words.add_argument("--budget", type=float, default=float("inf"), help="seconds of this call")
    words.add_argument(
        "--cases", type=Path, nargs="*", help="files of other cases: graphs.json, frontier.py"
    )
    words.add_argument("--name", default="", help="of the table, if not the first file's")
    words.add_argument("--again", action="store_true", help="also rows that are there")
    words.add_argument("--cpus", default="", help="processors to keep to, such as 0-9,12")
    words.add_argument("--compile-seconds", type=float, default=20.0, help="0: compile no peer")
    words.add_argument("--no-peers", dest="peers", action="store_false")
    words.add_argument("--packs", default="", help="folder of unpacked peers (README.md)")
    words.add_argument("--out", type=Path, default=HERE)
    return words


def main() -> None:
    given = parser().parse_args()
    given.at_once = given.at_once or (5 if given.target == "cuda" else 1)
    pinned(given.cpus)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    rows = Rows(given)
    {"search": search, "compile": compile_peers, "time": time_all}.get(given.step, lambda *_: None)(
        given, rows
    )
    if given.step == "search":
        rows.head |= {"searched_by": " ".join(["corpus.py", *sys.argv[1:]])}
        rows.head |= {} if "timed_by" in rows.head else header(given.target)
    known = cases(given)
    rows.rows = {name: rows.rows[name] for name in known if name in rows.rows}
    rows.write()
    title = "Programs whose graph is searched" if given.cases else "Every operator at real extents"
    rows.path.with_suffix(".md").write_text(page(title, rows.head, known | rows.rows))


if __name__ == "__main__":
    main()
