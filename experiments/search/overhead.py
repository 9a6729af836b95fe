"""Where the wall clock of a search goes, and whether its memory stays flat.

    python experiments/search/overhead.py --scratch FOLDER [--trials 256] [--cases softmax ...]
    python experiments/search/overhead.py --scratch FOLDER --long 5000

The first searches each workload with a store and a code cache of its own and splits the wall clock;
the second makes one long search and samples the resident memory of its processes. Rows are
kept in overhead.json, and the tables in the README; run both on an idle machine. With
`--target cuda` it measures on the GPU.

Every second of the wall clock counts once, for what the searching thread did or waited for in it;
proposing counts as far as nothing is compiled or measured beside it.
The baseline is a kernel that runs: its turns count as those of candidates do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from peers import header  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402
from table import write  # noqa: E402

import explorer.job  # noqa: E402
import explorer.search  # noqa: E402
from explorer.asking import Asker  # noqa: E402
from explorer.baseline import LibraryTimer  # noqa: E402
from explorer.measure import Measurer  # noqa: E402
from explorer.result import Progress  # noqa: E402
from explorer.search import Search  # noqa: E402
from explorer.sharing import Sharing  # noqa: E402
from explorer.stages import Compilers, Device  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from records import Store  # noqa: E402

RESULTS = HERE / "overhead.json"
GOAL = 0.1  # of the wall clock: what is neither compiling nor running a kernel
SETTLED = 500  # trials after which memory is expected to stay
SAMPLED = 100  # trials between two samples of the memory
LOWERED = 24  # schedules that are lowered again, to tell lowering from compiling
FINE = {"n": 1, "h": 28, "w": 28, "c": 32, "f": 64, "r": 3, "s": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul 512x512x512": ("matmul", {"m": 512, "n": 512, "k": 512}),
    "softmax 1024x1024": ("softmax", {"m": 1024, "n": 1024}),
    "attention 4x128x64": ("attention", {"b": 1, "heads": 4, "sq": 128, "d": 64}),
    "conv2d 28x28x32 -> 64": ("conv2d", FINE),
    "matmul 2048x2048x2048": ("matmul", {"m": 2048, "n": 2048, "k": 2048}),
    "attention 8x1024x64": (
        "attention",
        {"b": 1, "heads": 8, "sq": 1024, "d": 64, "dtype": "bf16"},
    ),
}
LONG_CASE = "matmul 64x64x64, one long search"
LONG = ("matmul", {"m": 64, "n": 64, "k": 64})


def waited(measurer: Measurer) -> str:
    """What a search waits for: a kernel, else a compiler, else the oracle or a device's start."""
    if measurer._examining:
        return "run"
    return "compile" if measurer._compilers.busy else "start"


PARTS = (
    (Search, "__init__", "start"),
    (Measurer, "_wait", waited),
    *((Compilers, name, "compile") for name in ("begin", "end")),  # whoever is woken runs at once
    *((Device, name, "run") for name in ("begin", "end")),
    (Measurer, "_compiled", "compile"),
    (Measurer, "_final", "run"),
    *((Asker, name, "propose") for name in ("wait", "asked", "settle")),
    *((LibraryTimer, name, "run") for name in ("first", "turn")),
    (Store, "add", "store"),
    *((Sharing, name, "leases") for name in ("left", "take", "wait", "heard", "done")),
)
KERNELS = ("lower", "compile", "run")  # phases that are the search's purpose
PHASES = ("start", "propose", "lower", "compile", "run", "store", "leases", "rest")


def split(case: str, target: str, trials: int, scratch: Path) -> dict[str, Any]:
    """The row of one workload: seconds by phase, and the share that is overhead."""
    operator, arguments = CASES[case]
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        os.environ["TILEWRIGHT_CACHE"] = str(Path(folder) / "code")
        store = Path(folder) / "records.db"
        began = time.perf_counter()
        with watch.watching(PARTS):
            found = explorer.job.tune(
                operator, arguments, target=target, trials=trials, store=store
            )
        wall = time.perf_counter() - began
        lowering = share_of_lowering(Workload.of(operator, arguments, target), store)
    phases = dict(watch.seconds)
    waiting = phases.get("compile", 0.0)
    phases |= {"lower": waiting * lowering, "compile": waiting * (1.0 - lowering)}
    phases["rest"] = wall - sum(phases.values())
    overhead = 1.0 - sum(phases[name] for name in KERNELS) / wall
    return {
        "case": case,
        "metric": "share of the wall clock that is neither compiling nor running",
        "unit": "1",
        "ours": round(overhead, 4),
        "peer": "goal",
        "peer_value": GOAL,
        "ratio": round(GOAL / overhead, 3),
        "spread": None,
        "target": target,
        "trials": found.trials,
        "wall": round(wall, 2),
        "seconds": {name: round(phases.get(name, 0.0), 3) for name in PHASES},
        "processor": {name: round(spent, 3) for name, spent in watch.processor.items()},
    }


def share_of_lowering(workload: Workload, store: Path) -> float:
    """Of the time in which schedules become machine code: some of them are lowered here again."""
    with Store(store) as records:
        kept = [record for record in records.records(status="ok") if record.compile_seconds]
    chosen = kept[:: max(1, len(kept) // LOWERED)]
    began = time.perf_counter()
    for record in chosen:
        workload.kernel(Schedule.from_json(record.schedule))
    took = time.perf_counter() - began
    return min(1.0, took / sum(record.compile_seconds or 0.0 for record in chosen))


class Memory:
    """Resident megabytes by process of a search under way, sampled as its trials come."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []
        self.began = time.perf_counter()
        self._measurers: list[Measurer] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take note of measurers that searches make in the block."""
        original, made = explorer.search.Measurer, self._measurers

        class Noted(Measurer):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                made.append(self)

        explorer.search.Measurer = Noted  # type: ignore[misc]
        try:
            yield
        finally:
            explorer.search.Measurer = original  # type: ignore[misc]

    def progress(self, progress: Progress) -> None:
        if progress.trial % SAMPLED == 0:
            sizes = {name: resident(pid) for name, pid in self._processes()}
            sizes |= {"trials": progress.trial, "seconds": time.perf_counter() - self.began}
            self.samples.append({name: round(size, 2) for name, size in sizes.items()})

    def _processes(self) -> list[tuple[str, int]]:
        measurer = self._measurers[-1]
        found = [("parent", os.getpid()), ("server", measurer._server.pid)]
        found += [(f"compiler {n}", w.pid) for n, w in enumerate(measurer._compilers.workers)]
        timing = measurer._devices[0].worker
        return found + ([("timing", timing.pid)] if timing else [])

    def growth(self) -> dict[str, float]:
        """Megabytes that each process grew by after its first SETTLED trials."""
        first = next(sample for sample in self.samples if sample["trials"] >= SETTLED)
        last = self.samples[-1]
        names = [name for name in last if name in first and name not in ("trials", "seconds")]
        return {name: round(last[name] - first[name], 2) for name in names}


def resident(pid: int) -> float:
    """Megabytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def long_search(target: str, trials: int, scratch: Path) -> dict[str, Any]:
    """The row of the memory: what all processes together grew by, as a share of the trials' 500."""
    operator, arguments = LONG
    memory = Memory()
    with tempfile.TemporaryDirectory(dir=scratch) as folder, memory.watching():
        os.environ["TILEWRIGHT_CACHE"] = str(Path(folder) / "code")
        store = Path(folder) / "records.db"
        found = explorer.job.tune(
            operator, arguments, target=target, trials=trials, store=store,
            progress=memory.progress,
        )  # fmt: skip
    growth = memory.growth()
    start = next(sample for sample in memory.samples if sample["trials"] >= SETTLED)
    before = sum(start[name] for name in growth)
    return {
        "case": LONG_CASE,
        "metric": f"resident memory after {found.trials} trials over that after {SETTLED}",
        "unit": "1",
        "ours": round(1.0 + sum(growth.values()) / before, 4),
        "peer": "flat",
        "peer_value": 1.0,
        "ratio": round(before / (before + sum(growth.values())), 4),
        "spread": None,
        "target": target,
        "trials": found.trials,
        "settled": SETTLED,
        "growth": growth,
        "samples": memory.samples,
    }


def shown(row: dict[str, Any]) -> str:
    if "seconds" not in row:
        return f"{row['case']}: {row['metric']}: {row['ours']}; growth in MB {row['growth']}"
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row["seconds"].items())
    worked = sum(row["processor"].values()) / row["trials"]
    return (
        f"{row['case']}: {row['wall']:.1f} s, overhead {row['ours']:.1%} ({1e3 * worked:.1f} ms of "
        f"a processor a trial): {parts}"
    )


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--scratch", type=Path, required=True, help="folder of stores and code")
    words.add_argument("--target", default="cpu")
    words.add_argument("--trials", type=int, default=256, help="of each workload's search")
    words.add_argument("--long", type=int, default=0, help="trials of the long search instead")
    words.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    words.add_argument("--note", default="", help="what to know of the machine, for the table")
    words.add_argument("--out", type=Path, default=RESULTS)
    return words.parse_args()


def save(row: dict[str, Any], out: Path, note: str) -> None:
    """Put a row in the place of the one of its case and target."""
    row["note"] = note
    found = json.loads(out.read_text()) if out.exists() else {"rows": []}
    same = (row["case"], row["target"])
    kept = [other for other in found["rows"] if (other["case"], other["target"]) != same]
    found = {"header": header(), "rows": [*kept, row]}
    out.write_text(json.dumps(found, indent=1) + "\n")
    write()


def main() -> None:
    chosen = options()
    chosen.scratch.mkdir(parents=True, exist_ok=True)
    if chosen.long:
        row = long_search(chosen.target, chosen.long, chosen.scratch)
        save(row, chosen.out, chosen.note)
        print(shown(row), flush=True)
        return
    for case in CASES:
        if not chosen.cases or any(word in case for word in chosen.cases):
            row = split(case, chosen.target, chosen.trials, chosen.scratch)
            save(row, chosen.out, chosen.note)
            print(shown(row), flush=True)


if __name__ == "__main__":
    main()
