"""How long the synthesis of layouts takes, whether memory stays flat, whether bytes repeat.

python experiments/layout_synthesis.py [--calls 10000] [--repeats 15] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from ir.blocks import Scheduling, from_program  # noqa: E402
from ir.layout.synthesis import TileProgram, synthesise  # noqa: E402
from ir.registry import load_operator  # noqa: E402

SOLUTIONS = 8
GOALS = {"gemm": 10.0, "attention": 60.0}
FLAT = 2.0  # MiB that may come and go with the allocator
WARM = 500
SEEDS = ("0", "1", "12345")

GEMMS: tuple[tuple[str, str, dict[str, int], int], ...] = (
    # family, type, tile, threads
    ("wgmma", "bf16", {"m": 64, "n": 64, "k": 64}, 128),
    ("wgmma", "bf16", {"m": 128, "n": 128, "k": 64}, 256),
    ("wgmma", "f16", {"m": 128, "n": 256, "k": 64}, 256),
    ("wgmma", "bf16", {"m": 192, "n": 192, "k": 64}, 384),
    ("wgmma", "f16", {"m": 64, "n": 24, "k": 64}, 128),
    ("mma", "bf16", {"m": 64, "n": 64, "k": 32}, 128),
    ("mma", "f16", {"m": 128, "n": 128, "k": 32}, 128),
    ("mma", "bf16", {"m": 128, "n": 128, "k": 64}, 256),
    ("mma", "f16", {"m": 64, "n": 24, "k": 64}, 128),
)
ATTENTIONS: tuple[tuple[str, str, dict[str, int], int], ...] = (
    ("wgmma", "bf16", {"sq": 128, "sk": 64, "d": 64, "dv": 64}, 256),
    ("wgmma", "f16", {"sq": 128, "sk": 128, "d": 128, "dv": 128}, 256),
    ("mma", "bf16", {"sq": 64, "sk": 64, "d": 64, "dv": 64}, 128),
    ("mma", "f16", {"sq": 128, "sk": 32, "d": 64, "dv": 64}, 256),
)


def problems() -> Iterator[tuple[str, str, TileProgram]]:
    """(group, case, problem)."""
    for family, dtype, tile, threads in GEMMS:
        extents = {"m": 16 * tile["m"], "n": 16 * tile["n"], "k": 16 * tile["k"]}
        program = load_operator("matmul").build(dtype=dtype, tb=True, **extents)
        yield (
            "gemm",
            _name("gemm", family, dtype, tile),
            from_program(program, Scheduling(tile, threads, family)),
        )
    for family, dtype, tile, threads in ATTENTIONS:
        program = load_operator("attention").build(b=2, heads=4, sq=1024, d=tile["d"], dtype=dtype)
        yield (
            "attention",
            _name("attention", family, dtype, tile),
            from_program(program, Scheduling(tile, threads, family)),
        )


def _name(group: str, family: str, dtype: str, tile: dict[str, int]) -> str:
    return f"{group} {family} {dtype} {'x'.join(map(str, tile.values()))}"


def timed(problem: TileProgram, limit: int, repeats: int) -> tuple[float, float, int]:
    """Median milliseconds of a call, the quartiles' distance over it, and the solutions found."""
    samples, found = [], 0
    for _ in range(repeats):
        began = time.perf_counter()
        found = len(synthesise(problem, limit))
        samples.append(1e3 * (time.perf_counter() - began))
    low, middle, high = statistics.quantiles(samples, n=4)
    return middle, (high - low) / middle, found


def speed_rows(repeats: int) -> Iterator[dict[str, Any]]:
    for group, case, problem in problems():
        synthesise(problem, SOLUTIONS)
        whole, spread, found = timed(problem, SOLUTIONS, repeats)
        yield row(case, "time per solution", "ms", whole / found, GOALS[group], spread, group=group,
                  solutions=found, call_ms=whole)  # fmt: skip
        best, spread, _ = timed(problem, 1, repeats)
        yield row(case, "time to the best solution", "ms", best, GOALS[group], spread, group=group)


def medians(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The two metrics over all cases of a group."""
    for group, goal in GOALS.items():
        for metric in ("time per solution", "time to the best solution"):
            own = [r["ours"] for r in rows if r.get("group") == group and r["metric"] == metric]
            yield row(f"{group}, median of {len(own)}", metric, "ms", statistics.median(own), goal)


def resident() -> float:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory_rows(calls: int) -> Iterator[dict[str, Any]]:
    """Growth of the process over many calls, once caches are full."""
    every = [problem for _, _, problem in problems()]
    for number in range(WARM):
        synthesise(every[number % len(every)], 1)
    before, began = resident(), time.perf_counter()
    for number in range(calls):
        synthesise(every[number % len(every)], 1)
    seconds, growth = time.perf_counter() - began, resident() - before
    case = f"{calls:,} calls over {len(every)} problems"
    yield row(case, "growth of memory", "MiB", growth, FLAT, before_mib=before, seconds=seconds)


def digests() -> list[str]:
    """Of every case, the hash of all solutions' bytes."""
    return [
        hashlib.sha256(
            repr([(s, s.reasons) for s in synthesise(p, SOLUTIONS)]).encode()
        ).hexdigest()
        for _, _, p in problems()
    ]


def repeat_rows() -> Iterator[dict[str, Any]]:
    """Different bytes over processes with different hash seeds."""
    told = []
    for seed in SEEDS:
        command = [sys.executable, str(Path(__file__).resolve()), "--digests"]
        run = subprocess.run(
            command, cwd=ROOT, text=True, capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        told.append(run.stdout)
    different = len(set(told)) - 1
    yield row(f"{len(SEEDS)} processes, all cases", "differing solutions", "count", different, 0)


def row(
    case: str, metric: str, unit: str, ours: float, goal: float, spread: float = 0.0, **more: Any
) -> dict[str, Any]:
    """A measurement beside its goal; smaller is better, so a ratio above 1 is ours."""
    ratio = goal / ours if ours > 0 else (1.0 if goal == ours else 1e9)
    return {
        "case": case, "metric": metric, "unit": unit, "ours": ours, "peer": "goal",
        "peer_value": goal, "ratio": ratio, "spread": spread, **more,
    }  # fmt: skip


def header() -> dict[str, Any]:
    words = ["git", "rev-parse", "--short", "HEAD"]
    told = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=False)
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "hardware": models[0] if models else platform.processor(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), "numpy": version("numpy")},
        "date": time.strftime("%Y-%m-%d"),
        "commit": told.stdout.strip(),
        "command": f"python experiments/layout_synthesis.py {' '.join(sys.argv[1:])}".strip(),
    }


def table(head: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The short page beside the numbers."""
    lines = [
        "# Synthesis of layouts: time, memory, repeatability",
        "",
        f"{head['hardware']}, {head['processors']} processors (load {head['load']} at the start), "
        f"Python {head['versions']['python']}, {head['date']}, commit {head['commit']}.",
        f"`{head['command']}`; raw numbers in `results.json`. One process, one thread, no GPU.",
        "",
        f"Time per solution: one call for {SOLUTIONS} solutions over the number found. Time to the "
        "best solution: a call for one.",
        "",
        "| case | metric | ours | goal | |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        met = "reached" if r["ratio"] >= 1 else "missed"
        ours, goal = f"{r['ours']:.3g} {r['unit']}", f"{r['peer_value']:g} {r['unit']}"
        lines.append(f"| {r['case']} | {r['metric']} | {ours} | {goal} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--calls", type=int, default=10_000)
    words.add_argument("--repeats", type=int, default=15)
    words.add_argument("--out", type=Path, default=HERE / "layout_synthesis")
    words.add_argument("--digests", action="store_true", help="print hashes of all solutions")
    asked = words.parse_args()
    if asked.digests:
        print("\n".join(digests()))
        return
    head = header()
    rows = list(speed_rows(asked.repeats))
    rows = [*medians(rows), *rows, *memory_rows(asked.calls), *repeat_rows()]
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "results.json").write_text(
        json.dumps({"header": head, "rows": rows}, indent=1) + "\n"
    )
    page = table(head, rows)
    (asked.out / "README.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
