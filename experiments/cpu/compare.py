"""Our tuned kernels against torch and OpenBLAS on this CPU, interleaved in one run.

python experiments/cpu/compare.py [--cases all|TEXT,...] [--trials 256] [--seconds 60] [--again]

Results are written after every case; a case that is there already is kept unless --again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import report  # noqa: E402
import table  # noqa: E402
from cases import Case, all_cases, chosen  # noqa: E402
from contest import THREADS, ContestantFailed, Duel, against_all, fastest_torch  # noqa: E402

from ir.errors import TilewrightError  # noqa: E402

Row = dict[str, Any]
WRONG, WRONG_BF16 = 1e-4, 5e-2  # error over the largest value from which a result is just wrong


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a search found, and what it took; `known` trials were in the store before."""

    schedule: str
    trials: int
    seconds: float
    known: int


def tuned(case: Case, trials: int, seconds: float, store: Path) -> Tuned:
    """Search, going on from what the store knows. An interrupted search ends the whole run."""
    from explorer.job import tune

    result = tune(
        case.operator, case.arguments, trials=trials, seconds=seconds, store=store,
        threads=THREADS, seed=0,
    )  # fmt: skip
    if result.interrupted:
        raise KeyboardInterrupt
    return Tuned(result.best.to_json(), result.trials, result.elapsed, result.known)


def _row(case: Case, metric: str, unit: str, ours: float, peer: str, value: float) -> Row:
    ratio = value / ours if ours else 1.0 if not value else 1e30
    return {
        "case": case.name, "group": case.group, "metric": metric, "unit": unit, "ours": ours,
        "peer": peer, "peer_value": value, "ratio": ratio, "spread": 0.0,
    }  # fmt: skip


def _spread(values: list[float]) -> float:
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def _refuse_wrong(case: Case, found: Duel) -> None:
    """A time counts only of what was right: this bounds every contestant, peers included."""
    allowed = WRONG_BF16 if case.arguments.get("dtype") == "bf16" else WRONG
    for name, facts in found.facts.items():
        if facts["error"] > allowed * facts["scale"]:
            raise ContestantFailed(
                f"{name} is wrong after timing: error {facts['error']:.3g}, "
                f"largest value {facts['scale']:.3g}"
            )


def rows_of(case: Case, found: Duel, search: Tuned) -> list[Row]:
    """Times against every peer, and the errors; raises ContestantFailed for a wrong result."""
    ours = statistics.median(found.samples["ours"])
    rows = []
    for peer, values in found.samples.items():
        if peer == "ours":
            continue
        row = _row(case, "time", "ms", ours * 1e3, peer, statistics.median(values) * 1e3)
        row |= {"spread": _spread(found.samples["ours"]), "peer_spread": _spread(values)}
        row |= {"others": found.others}
        effort = {"trials": search.trials, "known": search.known, "search_seconds": search.seconds}
        rows.append({**row, **effort})
    _refuse_wrong(case, found)
    pair = found.facts["ours"]["error"], "torch", found.facts["torch"]["error"]
    rows.append(_row(case, table.ERROR, "absolute", *pair))
    return rows


def memory_rows(case: Case, schedule: str) -> list[Row]:
    """Workspace of the tuned schedule at n and around it, where it is legal there too."""
    from explorer.workload import Workload
    from ir.schedule import Schedule

    n, rows = int(str(case.arguments["n"])), []
    for size in (n // 2, n, 2 * n, 4 * n):
        workload = Workload.of(case.operator, {**case.arguments, "n": size}, threads=THREADS)
        try:
            workload.refuse_illegal(Schedule.from_json(schedule))
            kernel = workload.kernel(Schedule.from_json(schedule))
        except TilewrightError:
            continue
        used = sum(a.bytes for a in kernel.arguments if a.role == "workspace")
        metric = f"{table.MEMORY} at n={size}"
        rows.append(_row(case, metric, "bytes", float(used), "n x n matrix", 4.0 * size * size))
    return rows


def measured(case: Case, options: argparse.Namespace, setting: str) -> list[Row]:
    """Everything about one case."""
    search = tuned(case, options.trials, options.seconds, options.records)
    rows = rows_of(case, against_all(case, search.schedule, setting), search)
    rows += memory_rows(case, search.schedule) if case.operator == "gaussian" else []
    origin = {"commit": report.commit(), "budget": [options.trials, options.seconds]}
    return [row | origin for row in rows]


class Results:
    """results.json and README.md in one folder, both rewritten after every case."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._json, self._page, self._notes = (
            folder / name for name in ("results.json", "README.md", "NOTES.md")
        )
        self.rows: list[Row] = []
        self.failed: dict[str, str] = {}
        self.head = report.header("torch", "llvmlite", threads=THREADS)
        if self._json.exists():
            kept = json.loads(self._json.read_text())
            self.rows, self.failed = kept["rows"], kept["header"].get("failed", {})
            origin = {"commit": kept["header"]["commit"]}  # rows from before rows said so
            self.rows = [origin | row for row in self.rows]

    def has(self, case: Case) -> bool:
        return any(row["case"] == case.name for row in self.rows)

    def add(self, case: Case, rows: list[Row]) -> None:
        self.failed.pop(case.name, None)
        self.rows = [row for row in self.rows if row["case"] != case.name] + rows
        order = {known.name: place for place, known in enumerate(all_cases())}
        self.rows.sort(key=lambda row: order.get(row["case"], len(order)))
        self.write()

    def fail(self, case: Case, reason: str) -> None:
        self.failed[case.name] = reason
        self.write()

    def write(self) -> None:
        self.head["failed"] = self.failed
        report.write(self._json, self.head, self.rows)
        scratch = self._page.with_suffix(".part")
        scratch.write_text(table.render(self.head, self.rows, self._notes))
        scratch.replace(self._page)


def said(case: Case, rows: list[Row]) -> str:
    row = table.best_rows(rows)[0]
    busy = "; DISTURBED by other processes" if table.disturbed(row) else ""
    return (
        f"{case.name}: ours {row['ours']:.4f} ms, {row['peer']} {row['peer_value']:.4f} ms, "
        f"ratio {row['ratio']:.2f} ({row['trials']} trials, {row['search_seconds']:.0f} s){busy}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cases", default="all", help="texts that names or groups contain, commas between them"
    )
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--records", type=Path, default=HERE / "records.db")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--again", action="store_true", help="measure cases that are there already")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    wanted = chosen(options.cases)
    results = Results(options.out)
    cases = [case for case in wanted if options.again or not results.has(case)]
    setting = ""
    if cases:
        setting, times = fastest_torch()
        results.head |= {"torch_setting": setting, "torch_ms": times}
        print(f"torch runs with {setting}", flush=True)
    for case in cases:
        try:
            rows = measured(case, options, setting)
        except (TilewrightError, ContestantFailed) as error:
            results.fail(case, f"{type(error).__name__}: {error}")
            print(f"{case.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        results.add(case, rows)
        print(said(case, rows), flush=True)
    if not cases:
        results.write()
    sys.exit(1 if any(case.name in results.failed for case in wanted) else 0)


if __name__ == "__main__":
    main()
