"""Our tuned kernels against torch and OpenBLAS on this CPU, interleaved in one run.

python experiments/cpu/compare.py [--cases TEXT] [--trials 256] [--seconds 60] [--again]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from cases import GOALS, Case, all_cases  # noqa: E402

RESULTS, TABLE = HERE / "results.json", HERE / "README.md"
# Results of tens of megabytes must not be mapped afresh (and zeroed by the system) at every call.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
PEERS = (
    ("torch", "torch", {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", **KEEP_MEMORY}),
    ("OpenBLAS SkylakeX", "numpy", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    ("OpenBLAS as installed", "numpy", {}),
)
ROUNDS = 9


class Contestant:
    """A child process that times itself when asked."""

    def __init__(self, name: str, kind: str, extra: dict[str, str]) -> None:
        self.name = name
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "OPENBLAS_NUM_THREADS": "2",
            "MKL_NUM_THREADS": "2",
            **extra,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "peers.py"), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def tuned(case: Case, trials: int, seconds: float, store: Path) -> tuple[str, int, float]:
    """Schedule JSON, trials and seconds of the search."""
    from explorer.job import tune

    result = tune(
        case.operator,
        case.arguments,
        trials=trials,
        seconds=seconds,
        store=store,
        threads=2,
        seed=0,
    )
    return result.best.to_json(), result.trials, result.elapsed


def duel(case: Case, schedule: str) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Samples and errors of every contestant, taken in turns."""
    contestants = [Contestant("ours", "ours", {})] + [Contestant(*peer) for peer in PEERS]
    try:
        samples: dict[str, list[float]] = {}
        errors: dict[str, float] = {}
        ready = []
        for contestant in contestants:
            answer = contestant.ask(
                operator=case.operator, arguments=case.arguments, schedule=schedule
            )
            if answer["ready"]:
                ready.append(contestant)
                samples[contestant.name] = []
                if answer["error"] is not None:
                    errors[contestant.name] = answer["error"]
        for turn in range(ROUNDS):
            for contestant in ready[turn % len(ready) :] + ready[: turn % len(ready)]:
                time.sleep(0.25)  # let the threads of the one before stop spinning and park
                found = contestant.ask(seconds=0.08)["seconds"]
                samples[contestant.name].append(statistics.median(found))
        return samples, errors
    finally:
        for contestant in contestants:
            contestant.close()


def rows_of(
    case: Case, samples: dict[str, list[float]], errors: dict[str, float], search: tuple[int, float]
) -> list[dict[str, Any]]:
    ours = statistics.median(samples["ours"])
    low, _, high = statistics.quantiles(samples["ours"], n=4)
    rows = []
    for peer, values in samples.items():
        if peer == "ours":
            continue
        value = statistics.median(values)
        rows.append(
            {
                "case": case.name,
                "group": case.group,
                "metric": "time",
                "unit": "ms",
                "ours": ours * 1e3,
                "peer": peer,
                "peer_value": value * 1e3,
                "ratio": value / ours,
                "spread": (high - low) / ours,
                "trials": search[0],
                "search_seconds": search[1],
            }
        )
    if "torch" in errors:
        rows.append(
            {
                "case": case.name,
                "group": case.group,
                "metric": "largest error",
                "unit": "absolute",
                "ours": errors["ours"],
                "peer": "torch",
                "peer_value": errors["torch"],
                "ratio": errors["torch"] / max(errors["ours"], 1e-30),
                "spread": 0.0,
            }
        )
    return rows


def header() -> dict[str, Any]:
    from ir.target import get_backend

    hardware = get_backend("cpu").hardware(2)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        text=True,
        capture_output=True,
        check=False,
    ).stdout.strip()
    return {
        "hardware": hardware.name,
        **dict(hardware.facts),
        "isa": list(hardware.isa),
        "threads": 2,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "llvmlite")},
        },
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
        "command": " ".join(["python", "experiments/cpu/compare.py", *sys.argv[1:]]),
    }


def best_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per case: against the fastest peer."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["metric"] == "time" and (
            row["case"] not in found or row["ratio"] < found[row["case"]]["ratio"]
        ):
            found[row["case"]] = row
    return list(found.values())


def write(head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """results.json and the table; called after every case."""
    RESULTS.write_text(json.dumps({"header": head, "rows": rows}, indent=1) + "\n")
    lines = [
        "# Tuned kernels against torch and OpenBLAS on a CPU",
        "",
        f"{head['model']} ({head['hardware']}), 2 threads, {', '.join(head['isa'])}. "
        + ", ".join(f"{k} {v}" for k, v in head["versions"].items())
        + f". {head['date']}, commit {head['commit']}.",
        "",
        f"    {head['command']}",
        "",
        "Ratio: the peer's median time over ours, above 1 we are faster; against the fastest "
        "peer of each case.",
        "",
        "| case | ours, ms | fastest peer | its ms | ratio | spread | trials |",
        "|---|---|---|---|---|---|---|",
    ]
    best = best_rows(rows)
    lines += [
        f"| {r['case']} | {r['ours']:.4f} | {r['peer']} | {r['peer_value']:.4f} | "
        f"{r['ratio']:.2f} | {100 * r['spread']:.0f} % | {r['trials']} |"
        for r in best
    ]
    lines += ["", "| group | geometric mean | least | goal | reached |", "|---|---|---|---|---|"]
    for group, goal in GOALS.items():
        ratios = [r["ratio"] for r in best if r["group"] == group]
        if not ratios:
            continue
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        met = mean >= (goal.geomean or 0) and min(ratios) >= (goal.least or 0)
        wanted = ", ".join(
            text
            for text in (
                f"mean {goal.geomean}" if goal.geomean else "",
                f"least {goal.least}" if goal.least else "",
            )
            if text
        )
        lines.append(
            f"| {group} | {mean:.2f} | {min(ratios):.2f} | {wanted} | {'yes' if met else 'no'} |"
        )
    errors = [r for r in rows if r["metric"] == "largest error"]
    if errors:
        lines += [
            "",
            "Largest absolute error against float64 (three heads):",
            "",
            "| case | ours | torch |",
            "|---|---|---|",
        ]
        lines += [f"| {r['case']} | {r['ours']:.2e} | {r['peer_value']:.2e} |" for r in errors]
    notes = HERE / "NOTES.md"
    if notes.exists():
        lines += ["", notes.read_text().strip()]
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="only cases whose name contains this text")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--records", type=Path, default=HERE / "records.db")
    parser.add_argument("--again", action="store_true", help="measure cases that are there already")
    options = parser.parse_args()
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    for case in all_cases():
        known = any(row["case"] == case.name for row in rows)
        if options.cases not in case.name or (known and not options.again):
            continue
        schedule, trials, elapsed = tuned(case, options.trials, options.seconds, options.records)
        samples, errors = duel(case, schedule)
        rows = [row for row in rows if row["case"] != case.name]
        rows += rows_of(case, samples, errors, (trials, elapsed))
        order = {c.name: i for i, c in enumerate(all_cases())}
        rows.sort(key=lambda row: order.get(row["case"], len(order)))
        write(header(), rows)
        row = best_rows([r for r in rows if r["case"] == case.name])[0]
        print(
            f"{case.name}: ours {row['ours']:.4f} ms, {row['peer']} {row['peer_value']:.4f} ms, "
            f"ratio {row['ratio']:.2f} ({trials} trials, {elapsed:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
