"""Searches on an H200, and comparisons of what they find with peers, turn by turn.

Every side runs as a captured graph over operand sets that together exceed the L2 cache; blocks of
replays alternate A B B A, and medians of blocks are compared.
"""

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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import torch  # noqa: E402

from explorer.job import tune  # noqa: E402
from explorer.runtime.cuda import CudaRuntime, cupy  # noqa: E402
from explorer.settings import cache_dir  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402

L2_TIMES = 3
BLOCK_SECONDS = 2e-3
BLOCKS = 24
MOST_SETS = 32
MOST_BYTES = 8 << 30

TORCH = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32,
    "i32": torch.int32, "i8": torch.int8, "e4m3": torch.float8_e4m3fn,
}  # fmt: skip
Tensors = dict[str, torch.Tensor]
Run = Callable[[], Any]


def options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--store", default="h200.db", help="records of the searches")
    parser.add_argument("--out", default=str(HERE / "results.json"))
    parser.add_argument("--seconds", type=float, default=480.0, help="budget of this call")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    parser.add_argument("--compare-only", action="store_true", help="take schedules from the store")
    return parser.parse_args()


@dataclass
class Results:
    """Rows by (case, peer, metric), written whole after every case."""

    path: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def at(cls, path: str) -> Results:
        found = cls(Path(path))
        if found.path.exists():
            for row in json.loads(found.path.read_text())["rows"]:
                found.rows[_key(row)] = row
        return found

    def has(self, case: str, peer: str) -> bool:
        """Whether a row of times is there: an interrupted call goes on where it ended."""
        return any(row["case"] == case and row["peer"] == peer for row in self.rows.values())

    def add(self, row: dict[str, Any]) -> None:
        row["commit"], row["command"] = _commit(), " ".join(["python", *sys.argv])
        self.rows[_key(row)] = row
        self.path.write_text(json.dumps({"header": header(), "rows": list(self.rows.values())},
                                        indent=1) + "\n")  # fmt: skip
        print(shown(row), flush=True)


def _key(row: dict[str, Any]) -> str:
    return f"{row['case']}|{row['peer']}|{row['metric']}"


def shown(row: dict[str, Any]) -> str:
    extra = {k: row[k] for k in ("trials", "search_seconds", "error") if k in row}
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
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    versions["cupy"] = cupy().__version__
    versions["cuda"] = str(torch.version.cuda)
    with contextlib.suppress(ImportError):
        import triton

        versions["triton"] = triton.__version__
    return {
        "hardware": torch.cuda.get_device_name(),
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


def searched(
    operator: str, arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock
) -> tuple[Workload, Schedule, dict[str, Any]]:
    """The best schedule of a search from nothing (or of the store), and what it took."""
    workload = Workload.of(operator, arguments, "cuda", None)
    if settings.compare_only:
        from explorer.recall import best_record

        record = best_record(workload, settings.store)
        return workload, Schedule.from_json(record.schedule), {}
    result = tune(
        operator, arguments, target="cuda", trials=settings.trials, store=settings.store,
        seconds=max(10.0, clock.left - 15.0),
    )  # fmt: skip
    facts = {
        "trials": result.trials,
        "known": result.known,
        "search_seconds": round(result.elapsed, 1),
        "outcomes": dict(result.outcomes),
        "schedule": json.loads(result.best.to_json())["values"],
    }
    return workload, result.best, facts


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


@dataclass
class Side:
    """One competitor: `runs` has a run for each operand set."""

    name: str
    runs: list[Run]
    graph: Any = None
    count: int = 0
    samples: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        """Warm up, and capture enough runs for one block."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for run in self.runs[:3]:
                run()
            stream.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(stream)
            for number in range(4):
                self.runs[number % len(self.runs)]()
            end.record(stream)
            stream.synchronize()
        seconds = start.elapsed_time(end) * 1e-3 / 4
        self.count = max(len(self.runs), min(200, math.ceil(BLOCK_SECONDS / max(seconds, 1e-6))))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for number in range(self.count):
                self.runs[number % len(self.runs)]()

    def block(self) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3 / self.count


def interleaved(sides: list[Side], blocks: int = BLOCKS) -> None:
    """Fill the samples of all sides in turns that go forth and back."""
    for side in sides:
        side.prepare()
    for number in range(blocks + 2):
        for side in sides if number % 2 else reversed(sides):
            seconds = side.block()
            if number > 1:
                side.samples.append(seconds)


def spread(samples: list[float]) -> float:
    """Between the quartiles, over the median."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle


def time_row(case: str, ours: Side, peer: Side, **more: Any) -> dict[str, Any]:
    mine, theirs = statistics.median(ours.samples), statistics.median(peer.samples)
    return {
        "case": case, "metric": "time", "unit": "us", "ours": mine * 1e6, "peer": peer.name,
        "peer_value": theirs * 1e6, "ratio": theirs / mine, "spread": spread(ours.samples),
        **more,
    }  # fmt: skip


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is wanted, in f64 chunks."""
    difference = total = 0.0
    for mine, right in zip(found.flatten().split(1 << 26), wanted.flatten().split(1 << 26),
                           strict=True):  # fmt: skip
        difference += float((mine.double() - right.double()).square().sum())
        total += float(right.double().square().sum())
    return math.sqrt(difference / max(total, 1e-300))


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """f32 products of torch without tf32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def compare(
    case: str, workload: Workload, schedule: Schedule, peers: dict[str, Callable[[Tensors], Run]],
    reference: Callable[[Tensors], torch.Tensor], results: Results, facts: dict[str, Any],
) -> None:  # fmt: skip
    """Measure a schedule against peers in one run and add a row for each."""
    sets = sets_of(workload)
    ours = Ours(workload, schedule)
    mine = Side("ours", [ours.on(tensors) for tensors in sets])
    output = workload.program.outputs[0].name
    sets[0][output].fill_(float("nan") if sets[0][output].is_floating_point() else -1)
    mine.runs[0]()
    torch.cuda.synchronize()
    with exact_products():
        error = relative_error(sets[0][output], reference(sets[0]).reshape(sets[0][output].shape))
    torch.cuda.empty_cache()
    sides = [mine]
    for name, make in peers.items():
        try:
            sides.append(Side(name, [make(tensors) for tensors in sets]))
        except Exception as problem:  # noqa: BLE001 (a peer that fails is a result)
            print(f"{case}: {name} failed: {problem}", flush=True)
    interleaved(sides)
    for peer in sides[1:]:
        results.add(time_row(case, mine, peer, error=error, flops=workload.program.flops,
                             bytes=workload.program.bytes, **facts))  # fmt: skip
    if len(sides) == 1:
        results.add({"case": case, "metric": "time", "unit": "us", "peer": "none", "peer_value": 0,
                     "ours": statistics.median(mine.samples) * 1e6, "ratio": 0,
                     "spread": spread(mine.samples), "error": error, **facts})  # fmt: skip
    del sets, sides, mine, ours
    torch.cuda.empty_cache()
