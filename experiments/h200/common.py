"""Searches on an H200, and comparisons of what they find with peers; options, budgets, results."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import torch  # noqa: E402
from contest import Run, Side, flushed, interleaved, time_row  # noqa: E402

from explorer.job import tune  # noqa: E402
from explorer.recall import DECIDING, best_record, open_store  # noqa: E402
from explorer.runtime.cuda import CudaRuntime, cupy  # noqa: E402
from explorer.settings import CACHE, cache_dir  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.errors import TilewrightError  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from records import Job, Record  # noqa: E402

L2_TIMES = 3
MOST_SETS = 32
MOST_BYTES = 8 << 30
SHORT_SECONDS = 1e-4  # kernels for which single launches behind a flush are told too
RESERVE = 20.0
WRONG = 2e-2
NEVER = 1e30  # the error of what was not written

TORCH = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32,
    "i32": torch.int32, "i8": torch.int8, "e4m3": torch.float8_e4m3fn,
}  # fmt: skip
Tensors = dict[str, torch.Tensor]
Peer = Callable[[Tensors], Run]


def parser(description: str) -> argparse.ArgumentParser:
    """The options that every script has."""
    words = argparse.ArgumentParser(description=description)
    words.add_argument("--store", default="h200.db", help="records of the searches")
    words.add_argument("--out", default=str(HERE / "results.json"))
    words.add_argument("--seconds", type=float, default=480.0, help="budget of this call")
    words.add_argument("--trials", type=int, default=300)
    words.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    words.add_argument("--compare-only", action="store_true", help="take schedules from the store")
    words.add_argument("--again", action="store_true", help="also what is in the results")
    words.add_argument("--dry", action="store_true", help="only name what would run")
    return words


def options(description: str) -> argparse.Namespace:
    return parser(description).parse_args()


@dataclass
class Results:
    """Rows by (case, peer, metric), written whole after every case."""

    path: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, path: str) -> Results:
        found = cls(Path(path))
        if found.path.exists():
            kept = json.loads(found.path.read_text())
            found.head = kept["header"]
            found.rows = {_key(row): row for row in kept["rows"]}
        return found

    def has(self, case: str, peer: str, metric: str = "") -> bool:
        """Whether a row is there: an interrupted call goes on where it ended."""
        wanted = {"case": case, "peer": peer, **({"metric": metric} if metric else {})}
        return any(wanted.items() <= row.items() for row in self.rows.values())

    def add(self, row: dict[str, Any]) -> None:
        row["commit"], row["command"] = _commit(), " ".join(["python", *sys.argv])
        self.rows[_key(row)] = row
        if row["metric"] == "time":
            self.rows.pop(_key({**row, "metric": "failed"}), None)
        if torch.cuda.is_available() or not self.head:
            self.head = header()
        scratch = self.path.with_suffix(".part")
        told = {"header": self.head, "rows": list(self.rows.values())}
        scratch.write_text(json.dumps(told, indent=1) + "\n")
        scratch.replace(self.path)
        print(shown(row), flush=True)


def _key(row: dict[str, Any]) -> str:
    return f"{row['case']}|{row['peer']}|{row['metric']}"


def shown(row: dict[str, Any]) -> str:
    named = ("trials", "search_seconds", "error", "problem", "spills")
    extra = {k: row[k] for k in named if row.get(k)}
    return (
        f"{row['case']}: {row['metric']} {row['ours']:.5g} {row['unit']}, {row['peer']} "
        f"{row['peer_value']:.5g}, ratio {row['ratio']:.3f} (spread {row['spread']:.3f}) {extra}"
    )


def _commit() -> str:
    """Of the tree, or as TILEWRIGHT_COMMIT says where there is no repository."""
    if "TILEWRIGHT_COMMIT" in os.environ:
        return os.environ["TILEWRIGHT_COMMIT"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    return "unknown"


def header() -> dict[str, Any]:
    """Hardware and versions; where there is no GPU, kernels are only compiled."""
    versions = {"python": sys.version.split()[0], "cuda": str(torch.version.cuda)}
    for name in ("torch", "triton", "cupy-cuda13x", "cuda-bindings"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    here = torch.cuda.is_available()
    return {
        "hardware": torch.cuda.get_device_name() if here else "none, compiled for sm_90a",
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def chosen(case: str, words: list[str]) -> bool:
    return not words or any(word in case for word in words)


class Clock:
    """The budget of a call."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


class Unfinished(Exception):
    """The call's budget ended a search; its records stay, and the next call goes on."""


def pending(
    cases: Iterable[tuple[Any, ...]],
    settings: argparse.Namespace,
    results: Results,
    clock: Clock,
    peers: Sequence[str],
    least: float = 30.0,
) -> Iterator[tuple[Any, ...]]:
    """The chosen cases, named by their first item, that have no row yet against any of `peers`."""
    for case in cases:
        name = case[0]
        there = any(results.has(name, peer) for peer in peers)
        if not chosen(name, settings.cases) or (there and not settings.again):
            continue
        if settings.dry or clock.left < least:
            print(f"{name}: {'to do' if settings.dry else 'no time left'}", flush=True)
            continue
        yield case


def searched(
    operator: str, arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock,
    reserve: float = RESERVE,
) -> tuple[Workload, Schedule, dict[str, Any]]:  # fmt: skip
    """The best schedule of a search from nothing, and what it took.

    What the store has of the search counts as a part of it; `reserve` seconds of the budget are
    for the finals and the comparison. Raises Unfinished.
    """
    workload = Workload.of(operator, arguments, "cuda", None)
    left = 0 if settings.compare_only else settings.trials - _tried(workload, settings.store)
    if left > 0:
        result = tune(
            operator, arguments, target="cuda", trials=left, store=settings.store,
            seconds=max(10.0, clock.left - reserve), model="none",
        )  # fmt: skip
        if result.trials < left and clock.left < reserve + 1:
            raise Unfinished(f"{operator} {arguments}: {result.trials} of {left} trials")
        return workload, result.best, _facts(workload, result.best, settings.store)
    best = Schedule.from_json(best_record(workload, settings.store).schedule)
    return workload, best, _facts(workload, best, settings.store)


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """A case without a result says why, and the next one has its turn."""
    try:
        yield
    except (Unfinished, TilewrightError) as problem:
        print(problem, flush=True)


@contextlib.contextmanager
def fresh_start() -> Iterator[str]:
    """An empty store, and an empty cache of compiled kernels for as long as it is used."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="fresh-") as folder:
        os.environ[CACHE] = str(Path(folder) / "cache")
        try:
            yield str(Path(folder) / "records.db")
        finally:
            os.environ.pop(CACHE, None)
            os.environ.update({CACHE: before} if before is not None else {})


def _records(workload: Workload, store: str) -> list[Record]:
    with open_store(store) as records:
        return list(
            records.records(
                workload=workload.program.key, target="cuda",
                hardware=workload.hardware.key, generator=workload.backend.generator,
            )
        )  # fmt: skip


def _tried(workload: Workload, store: str) -> int:
    """Candidates that searches of this workload measured."""
    return sum(record.strategy not in DECIDING for record in _records(workload, store))


def _facts(workload: Workload, best: Schedule, store: str) -> dict[str, Any]:
    """Of all searches of the workload together, as the store tells them."""
    records = _records(workload, store)
    trials = [record for record in records if record.strategy not in DECIDING]
    with open_store(store) as opened:
        jobs = [opened.job(name) for name in sorted({record.job for record in records})]
    return {
        "trials": len(trials),
        "jobs": len(jobs),
        "search_seconds": round(sum(map(job_seconds, jobs)), 1),
        "outcomes": dict(Counter(record.status for record in trials)),
        "schedule": best.as_dict(),
    }


def job_seconds(job: Job) -> float:
    """From the start of a job to its end, finals included."""
    parse = datetime.datetime.fromisoformat
    return (parse(job.updated) - parse(job.created)).total_seconds()


# --- sides ------------------------------------------------------------------------------------


def operands(workload: Workload) -> Tensors:
    """Random inputs and empty outputs on the device."""
    program = workload.program
    found: Tensors = {}
    for spec in program.inputs:
        shape = spec.shape or (1,)
        if spec.dtype in ("i8", "u8"):
            found[spec.name] = torch.randint(-8, 8, shape, device="cuda", dtype=torch.int8)
        else:
            found[spec.name] = torch.randn(shape, device="cuda").to(TORCH[spec.dtype])
    for spec in program.outputs:
        found[spec.name] = torch.empty(spec.shape, device="cuda", dtype=TORCH[spec.dtype])
    return found


def sets_of(workload: Workload) -> list[Tensors]:
    """Operand sets that together exceed the L2 cache."""
    first = operands(workload)
    size = sum(t.numel() * t.element_size() for t in first.values())
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = max(1, min(MOST_SETS, math.ceil(L2_TIMES * l2 / size), MOST_BYTES // size))
    return [first, *(operands(workload) for _ in range(count - 1))]


class Ours:
    """A schedule's kernel as something to run on torch's current stream."""

    def __init__(self, workload: Workload, schedule: Schedule) -> None:
        runtime = CudaRuntime()
        runtime.prepare()
        kernel = workload.kernel(schedule)
        self.binary = runtime.compile(kernel, cache_dir())
        self.kernel = runtime.load(self.binary)

    def on(self, tensors: Tensors) -> Run:
        arrays = [
            cupy().asarray(tensors[argument.name].view(-1).view(torch.uint8))
            for argument in self.binary.operands
        ]
        calls = self.kernel.calls(arrays)

        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            for call in calls:
                call.run(stream)

        run.keep = (arrays, tensors)  # type: ignore[attr-defined]
        return run


def plain_name(decision: str) -> str:
    """A decision's name without that of its form, and without its kernel's number."""
    return next(part for part in reversed(decision.split(".")) if not part.isdigit())


def pinned(workload: Workload, schedule: Schedule, pins: Mapping[str, str]) -> Peer:
    """The same schedule with some decisions at other values."""
    found = {name: pins[word] for name in schedule.as_dict() if (word := plain_name(name)) in pins}
    changed = Schedule.of("cuda", {**schedule.as_dict(), **found})

    def make(tensors: Tensors) -> Run:
        return Ours(workload, changed).on(tensors)

    return make


def sm_clock_mhz() -> float | None:
    """The clock of the processors now, right behind a block."""
    ghz = CudaRuntime().clock_ghz()
    if ghz is not None:
        return ghz * 1e3
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError, ValueError):
        return float(subprocess.check_output(query, text=True, timeout=5).split()[0])
    return None


def failed_row(case: str, peer: str, problem: object, **more: Any) -> dict[str, Any]:
    """A peer that gave no time."""
    words = (str(problem).splitlines() or [type(problem).__name__])[-1][:300]
    return {
        "case": case, "metric": "failed", "unit": "", "ours": 0, "peer": peer, "peer_value": 0,
        "ratio": 0, "spread": 0.0, "problem": words, **more,
    }  # fmt: skip


def errors(found: torch.Tensor, wanted: torch.Tensor) -> dict[str, float]:
    """`error`: norm of the difference over the norm of what is wanted; `max_error`: the largest
    difference over its value's magnitude plus the root mean square of all. In f64, by chunks."""
    parts = (torch.split(tensor.flatten(), 1 << 26) for tensor in (found, wanted))
    pairs = list(zip(*parts, strict=True))
    total = sum(float(right.double().square().sum()) for _, right in pairs)
    scale = math.sqrt(total / max(1, found.numel())) or 1.0
    difference = worst = 0.0
    for mine, right in pairs:
        gap = mine.double() - right.double()
        difference += float(gap.square().sum().nan_to_num(NEVER))
        relative = gap.abs() / (right.double().abs() + scale)
        worst = max(worst, float(relative.nan_to_num(NEVER).max()))
    return {"error": math.sqrt(difference / max(total, 1e-300)), "max_error": worst}


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return errors(found, wanted)["error"]


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """f32 products of torch without tf32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def checked(
    run: Run, output: torch.Tensor, tensors: Tensors, reference: Callable[[Tensors], torch.Tensor]
) -> dict[str, float]:
    """Errors of one run that begins with a poisoned output."""
    output.fill_(float("nan") if output.is_floating_point() else -1)
    run()
    torch.cuda.synchronize()
    with exact_products():
        found = errors(output, reference(tensors).reshape(output.shape))
    torch.cuda.empty_cache()
    return found


def peer_sides(
    case: str, peers: Mapping[str, Peer], sets: list[Tensors], results: Results
) -> list[Side]:
    """The peers, warm and captured; one that fails is a row of its own."""
    sides = []
    for name, make in peers.items():
        try:
            side = Side(name, [make(tensors) for tensors in sets])
            side.prepare()
            sides.append(side)
        except Exception as problem:  # noqa: BLE001 (a peer that fails is a result)
            results.add(failed_row(case, name, problem))
    return sides


def compare(
    case: str, workload: Workload, schedule: Schedule, peers: Mapping[str, Peer],
    reference: Callable[[Tensors], torch.Tensor], results: Results, facts: Mapping[str, Any],
    wrong: float = WRONG,
) -> None:  # fmt: skip
    """Check a schedule, measure it against peers in one run, check it again; a row for each.

    A relative error above `wrong` is noted as a problem.
    """
    sets = sets_of(workload)
    ours = Ours(workload, schedule)
    mine = Side("ours", [ours.on(tensors) for tensors in sets])
    output = workload.program.outputs[0].name
    before = checked(mine.runs[0], sets[0][output], sets[0], reference)
    sides = [mine, *peer_sides(case, peers, sets, results)]
    interleaved(sides)
    clock = sm_clock_mhz()
    short = statistics.median(mine.samples) < SHORT_SECONDS
    if short:
        flushed(sides)
    after = checked(mine.runs[-1], sets[-1][output], sets[-1], reference)
    found: dict[str, Any] = {
        **{name: max(before[name], after[name]) for name in before},
        "sm_clock_mhz": clock, "operand_sets": len(sets), "flops": workload.program.flops,
        "bytes": workload.program.bytes, **facts,
    }  # fmt: skip
    if found["error"] > wrong:
        found["problem"] = "wrong result"
    if len(sides) == 1:
        sides.append(Side("none", [], samples=mine.samples, cold=mine.cold))
    for peer in sides[1:]:
        results.add(time_row(case, mine, peer, **found))
        if short:
            results.add(time_row(case, mine, peer, cold=True))
    del sets, sides, mine, ours
    torch.cuda.empty_cache()
