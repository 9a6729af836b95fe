"""Of all recorded winners in this repository: does the check take them for right?

    python experiments/check/winners.py --target cpu --out experiments/check/winners-cpu.json

Takes the best schedule of every workload, machine and code generator that the record files hold,
rebuilds its program, lowers it as today's generator does, and has the examiner judge the kernel. A
schedule that is illegal here (another machine's, or an older generator's) is told as such.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from explorer.expectation import ExpectationMaker, Recipe  # noqa: E402
from explorer.rebuilding import machine_of, of_record, rebuilt  # noqa: E402
from explorer.recall import best_of  # noqa: E402
from explorer.runtime.base import get_runtime  # noqa: E402
from explorer.runtime.workers import Examiner, Timing  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.errors import Refusal, TilewrightError, UsageError  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from ir.space import Space  # noqa: E402
from ir.target import StatesRoundoff  # noqa: E402
from records import Record, Store  # noqa: E402

SEED = 3
_GRACE = 30.0  # seconds for a winner that was begun when there was still time
BRIEF = Timing(fewest=2, most=3, budget=0.0, again=0)
OPERATORS = ("tests/targets/unseen.py",)  # files that records name operators of


def files() -> list[Path]:
    """Every file of records in the repository, the newest of a kind first."""
    return sorted((ROOT / "experiments").rglob("*.jsonl.xz"), reverse=True)


def winners(target: str, most: int) -> Iterator[tuple[str, Record]]:
    """The best `most` candidates of each workload of each file, the best first."""
    for file in files():
        groups: dict[tuple[str, ...], list[Record]] = {}
        for record in trials_of(file, target):
            key = record.operator, record.extents, record.hardware, record.generator
            groups.setdefault(key, []).append(record)
        for trials in groups.values():
            for _ in range(most):
                best = best_of(trials)
                if best is None:
                    break
                yield file.relative_to(ROOT).as_posix(), best
                trials = [t for t in trials if t.candidate != best.candidate]


def trials_of(file: Path, target: str) -> Iterator[Record]:
    """The trials on a target that a file holds."""
    with lzma.open(file, "rt", encoding="ascii") as lines:
        for line in map(json.loads, lines):
            if line["kind"] == "trial" and line["trial"]["target"] == target:
                yield Record.from_dict(line["trial"])


def workload_of(record: Record) -> Workload:
    """What was tuned; by its name where its program has been written otherwise since."""
    with tempfile.TemporaryDirectory() as folder, Store(str(Path(folder, "r.db"))) as store:
        named, known = of_record(record, record.threads), [str(ROOT / file) for file in OPERATORS]
        try:
            found = rebuilt(store, named, known)
        except TilewrightError:
            found = rebuilt(store, replace(named, key=""), known)
    return found


def examined(record: Record, cache: Path, dry: bool = False) -> dict[str, Any]:
    """What the examiner says of a winner: `status`, `detail` and the largest error."""
    row: dict[str, Any] = {}
    try:
        work = workload_of(record)
        hardware = machine_of(record) if dry else work.hardware
        schedule, row["chosen"] = completed(work.space_on(hardware), record)
        kernel = work.backend.lower(work.program, schedule, hardware)
    except Refusal as refusal:
        return row | {"status": "illegal here", "detail": str(refusal)}
    except TilewrightError as error:
        return row | {"status": "not rebuilt", "detail": str(error)}
    if dry:
        return row | {"status": "lowered", "detail": ""}
    backend = work.backend
    accumulations = backend.accumulations(hardware) if isinstance(backend, StatesRoundoff) else ()
    recipe = Recipe(work.program, SEED, accumulations)
    runtime = get_runtime(work.target)
    with tempfile.TemporaryDirectory() as folder:
        source = recipe if runtime.apart else ExpectationMaker(recipe, folder).make()
        try:
            examiner = Examiner(source, work.target)
            seen = examiner.examine(runtime.compile(kernel, cache), None, BRIEF)
        except TilewrightError as error:
            return row | {"status": "unchecked", "detail": str(error)}
        finally:
            if runtime.apart:
                runtime.arrays().get_default_memory_pool().free_all_blocks()
    now = min(seen.samples, default=None)
    return row | {"status": seen.status, "detail": seen.detail, "error": seen.error, "now": now}


def completed(space: Space, record: Record) -> tuple[Schedule, list[str]]:
    """The recorded schedule as one of this space, and the decisions that it said nothing of.

    An older generator knew fewer: what it left open is drawn such that the whole is legal.
    """
    given = Schedule.from_json(record.schedule).as_dict()
    known = {name: value for name, value in given.items() if name in space.names}
    try:
        return space.schedule(space.encode(Schedule.of(space.target, known))), []
    except UsageError:
        chosen = [name for name in space.names if name not in known]
        pinned = space.pin(known)
        try:
            return pinned.schedule(pinned.any_legal(np.random.default_rng(SEED))), chosen
        except UsageError as error:
            raise Refusal("none", str(error)) from None


def attempted(record: Record, cache: Path, dry: bool) -> dict[str, Any]:
    try:
        return examined(record, cache, dry)
    except Exception as error:  # noqa: BLE001 (told with the others)
        return {"status": "failed", "detail": repr(error)[:500]}


def row_of(record: Record, file: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "file": file, "operator": record.operator, "extents": record.extents,
        "generator": record.generator, "schedule": record.schedule_key, "recorded": record.seconds,
    } | found  # fmt: skip


def part(given: argparse.Namespace, number: int, of: int, done: frozenset[tuple[str, str]]) -> None:
    """Print what becomes of every `of`th winner but those that are done, while there is time."""
    with tempfile.TemporaryDirectory() as cache:
        for place, (file, record) in enumerate(winners(given.target, given.best)):
            if place % of != number or (file, record.schedule_key) in done:
                continue
            if time.time() > given.end:
                row = {"status": "no time"}
            else:
                row = attempted(record, Path(cache), given.dry)
            print(json.dumps(row_of(record, file, row)), flush=True)


def all_parts(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The parts side by side, each in a process of its own: a crash costs one part alone."""
    end, known = time.time() + given.seconds, known_rows(given.out)

    def one(number: int) -> list[dict[str, Any]]:
        command = [
            sys.executable, __file__, "--target", given.target, "--best", str(given.best),
            "--part", f"{number}/{given.jobs}", "--end", str(end), "--out", given.out,
        ]  # fmt: skip
        command += ["--dry"] if given.dry else []
        output, said = finished(command, given.seconds + _GRACE)
        rows: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
        if said:
            rows.append({"file": "", "operator": f"part {number}", "extents": "", "generator": "",
                         "schedule": "", "status": "died", "detail": said})  # fmt: skip
        return rows

    with ThreadPoolExecutor(given.jobs) as pool:
        return known + [row for rows in pool.map(one, range(given.jobs)) for row in rows]


def finished(command: list[str], seconds: float) -> tuple[str, str]:
    """What a command printed until it ended, or had to; and why, where that was too soon."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], "it did not end"
    return output, errors[-1500:] if process.returncode else ""


def known_rows(out: str) -> list[dict[str, Any]]:
    """What an earlier call with this `--out` has found."""
    if not out or not Path(out).exists():
        return []
    rows: list[dict[str, Any]] = json.loads(Path(out).read_text())["winners"]
    return [row for row in rows if row["status"] not in ("no time", "died", "failed")]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """How many by generator and status, and what went wrong."""
    count = Counter((row["generator"], row["status"]) for row in rows)
    states = sorted({status for _, status in count})
    lines = [f"| recorded by | {' | '.join(states)} |", "|---" * (len(states) + 1) + "|"]
    for generator in sorted({generator for generator, _ in count}):
        cells = (str(count[generator, status]) for status in states)
        lines.append(f"| {generator} | {' | '.join(cells)} |")
    for row in rows:
        if row["status"] not in ("ok", "lowered", "illegal here", "no time"):
            lines.append(
                f"- {row['status']}: {row['operator']} {row['extents']} {row['detail']}"[:400]
            )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    words.add_argument("--out", default="")
    words.add_argument("--best", type=int, default=1, help="how many of each workload")
    words.add_argument("--jobs", type=int, default=1, help="processes side by side")
    words.add_argument("--seconds", type=float, default=600)
    words.add_argument("--dry", action="store_true", help="lower for the recorded machine alone")
    words.add_argument("--part", default="", help=argparse.SUPPRESS)
    words.add_argument("--end", type=float, default=0, help=argparse.SUPPRESS)
    return words.parse_args()


def main() -> None:
    given = options()
    if given.part:
        number, _, of = given.part.partition("/")
        done = frozenset((row["file"], row["schedule"]) for row in known_rows(given.out))
        part(given, int(number), int(of), done)
        return
    rows = all_parts(given)
    if given.out:
        facts = {"date": time.strftime("%Y-%m-%d"), "target": given.target, "winners": rows}
        Path(given.out).write_text(json.dumps(facts, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
