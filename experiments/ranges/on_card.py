"""Ranges of extents on a CUDA card: regret beside searches of single extents, ratio to the library.

    python experiments/ranges/on_card.py --seconds 480 [--cases 7168x4096] [--out FOLDER]

Each range is searched once, with at most `--trials`. At extents that it never measured, its
schedule runs in turns with that of a search of this extent alone, and with the array library
(cuBLAS for products). What is done is in FOLDER/card.json and the stores beside it, and is not done
again: call it until it says that nothing is left. It ends by itself within `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import explorer  # noqa: E402
from explorer.errors import NothingValid  # noqa: E402
from explorer.measure import Measurer  # noqa: E402
from explorer.outcome import kernel_of  # noqa: E402
from explorer.recall import best_winner  # noqa: E402
from explorer.settings import cache_dir  # noqa: E402
from explorer.workload import Workload  # noqa: E402

PRODUCT = {"dtype": "bf16", "tb": True}
ROWS = (3, 200, 1500, 5000)
HEADS = {"b": 2, "heads": 32, "kv_heads": 8, "d": 128, "dtype": "bf16"}
CASES: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "matmul 7168x4096": ("matmul", "m=1..8192", {"n": 7168, "k": 4096, **PRODUCT}, ROWS),
    "matmul 4096x14336": ("matmul", "m=1..8192", {"n": 4096, "k": 14336, **PRODUCT}, ROWS),
    "matmul 1024x8192": ("matmul", "m=1..8192", {"n": 1024, "k": 8192, **PRODUCT}, ROWS),
    "decode_attention": (
        "decode_attention", "sk=128..131072", HEADS, (200, 5000, 100000),
    ),
}  # fmt: skip
ROUNDS = 5
LEAST_RANGE = 100.0  # seconds that must be left to begin one
FINALS = 15.0  # seconds that finals and a comparison under way may take at the end


class Clock:
    """What is left of the budget."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


class Results:
    """Rows by what they are of, written whole after each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path = folder, folder / "card.json"
        self.rows: dict[str, dict[str, Any]] = {}
        self.head: dict[str, Any] = {}
        if self.path.exists():
            found = json.loads(self.path.read_text())
            self.rows, self.head = found["rows"], found["header"]

    def add(self, key: str, row: dict[str, Any], head: dict[str, Any]) -> None:
        self.rows[key] = row
        commands = [*self.head.get("commands", []), head.pop("command")]
        self.head = {**head, "commands": list(dict.fromkeys(commands))}
        text = json.dumps({"header": self.head, "rows": self.rows}, indent=1) + "\n"
        self.path.write_text(text)
        (self.folder / "card.md").write_text(page(self.head, self.rows))
        print(f"{key}: {json.dumps(row)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=600, help="of a range")
    parser.add_argument("--alone", type=int, default=128, help="of an extent by itself")
    parser.add_argument("--range-seconds", type=float, default=270.0)
    parser.add_argument("--alone-seconds", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=480.0, help="budget of this call")
    parser.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--target", default="cuda")
    options = parser.parse_args()
    clock, results = Clock(options.seconds), Results(options.out)
    wanted = [
        name for name in CASES if not options.cases or any(word in name for word in options.cases)
    ]
    for name in wanted:
        if not _case(name, options, clock, results):
            print(f"{name}: to go on with, call it again", flush=True)
            return
    print("nothing is left to do", flush=True)


def _case(name: str, options: argparse.Namespace, clock: Clock, results: Results) -> bool:
    """What is left of a case, as far as there is time; whether that was all."""
    if name not in results.rows:
        if clock.left < LEAST_RANGE:
            return False
        results.add(name, _range(name, options, clock), _header(options))
    for extent in _extents(name, results.rows[name]):
        key = f"{name} at {extent}"
        if key in results.rows:
            continue
        if clock.left < options.alone_seconds + FINALS:
            return False
        results.add(key, _row(name, extent, options, clock), _header(options))
    return True


def _range(name: str, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    operator, varying, given, _ = CASES[name]
    seconds = min(options.range_seconds, clock.left - FINALS)
    found = explorer.tune_range(
        operator, target=options.target, trials=options.trials, seconds=seconds,
        store=options.out / "ranges.db", progress=lambda step: print(step, flush=True),
        **dict([varying.split("=")]), **given,
    )  # fmt: skip
    return {
        "metric": "range", "varying": varying, "trials": found.trials,
        "seconds": round(found.elapsed, 1), "schedules": len(found.schedules),
        "searched": [point[0] for point in found.searched],
        "measured": sorted(row.point[0] for row in found.table.rows),
        "held_out": [regret.point[0] for regret in found.regrets],
        "told_mean": found.mean_regret, "told_worst": found.worst_regret,
    }  # fmt: skip


def _extents(name: str, row: dict[str, Any]) -> Iterator[int]:
    """Extents that the range has not measured."""
    seen = {*row["measured"], *row["held_out"]}
    for extent in CASES[name][3]:
        while extent in seen:
            extent += 1
        yield extent


def _row(name: str, extent: int, options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    operator, varying, given, _ = CASES[name]
    arguments = {**given, varying.partition("=")[0]: extent}
    workload = Workload.of(operator, arguments, options.target)
    mine = best_winner(workload, options.out / "ranges.db").schedule
    alone = options.out / "alone.db"
    try:
        own = best_winner(workload, alone).schedule
    except NothingValid:
        seconds = min(options.alone_seconds, clock.left - FINALS)
        own = explorer.tune(
            operator, target=options.target, store=alone, trials=options.alone, seconds=seconds,
            baseline=False, **arguments,
        ).best  # fmt: skip
    schedules = list(dict.fromkeys([mine, own]))
    with Measurer(
        workload.program, workload.target, workload.hardware, cache_dir=cache_dir(), library=True,
        memory=workload.memory,
    ) as measurer:  # fmt: skip
        outcomes = measurer.compete(schedules, ROUNDS, library=True)
        library = measurer.baseline
    times = {
        schedule: (kernel_of(outcome) or outcome.seconds) if outcome.ok else None
        for schedule, outcome in zip(schedules, outcomes, strict=True)
    }
    ours, theirs = times[mine], times[own]
    peer = None if library is None else library.seconds
    return {
        "metric": "kernel", "unit": "s", "case": name, "extent": extent, "ours": ours,
        "status": outcomes[0].status, "alone": theirs,
        "loss": ours / theirs - 1.0 if ours and theirs else None,
        "peer": None if library is None else library.library or library.why, "peer_value": peer,
        "ratio": peer / ours if peer and ours else None,
    }  # fmt: skip


def _header(options: argparse.Namespace) -> dict[str, Any]:
    import datetime
    import platform

    workload = Workload.of("softmax", {"m": 1, "n": 1}, options.target)
    return {
        "hardware": workload.hardware.key, "python": platform.python_version(),
        "generator": workload.backend.generator, "date": datetime.date.today().isoformat(),
        "command": " ".join(["python experiments/ranges/on_card.py", *sys.argv[1:]]),
    }  # fmt: skip


def page(head: dict[str, Any], rows: dict[str, dict[str, Any]]) -> str:
    """The results as tables."""
    lines = [
        "# Ranges of extents on a card", "",
        f"{head['hardware']}, python {head['python']}, {head['generator']}. {head['date']}.", "",
        *[f"    {command}" for command in head["commands"]], "",
        "A range is searched once. At extents that it never measured, its schedule runs in turns",
        "with that of a search of this extent alone, and with the array library. The regret is how",
        "much longer the range's kernel takes; the ratio is the library's time over ours.", "",
        "| range | extent | range's kernel, us | alone, us | regret | library | ratio |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    kernels = [row for row in rows.values() if row["metric"] == "kernel"]
    for row in kernels:
        cells = [
            row["case"], str(row["extent"]), _us(row["ours"]), _us(row["alone"]),
            _percent(row["loss"]), str(row["peer"]),
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", "| range | mean regret | worst | told mean | told worst | mean ratio | trials "
        "| searched | schedules | seconds |", "|---" * 10 + "|",
    ]  # fmt: skip
    for name, row in rows.items():
        if row["metric"] == "range":
            mine = [one for one in kernels if one["case"] == name]
            losses = [one["loss"] for one in mine if one["loss"] is not None]
            ratios = [one["ratio"] for one in mine if one["ratio"]]
            cells = [
                f"{name} {row['varying']}",
                _percent(statistics.mean(losses) if losses else None),
                _percent(max(losses, default=None)), _percent(row["told_mean"]),
                _percent(row["told_worst"]),
                f"{statistics.geometric_mean(ratios):.2f}" if ratios else "",
                str(row["trials"]), str(len(row["searched"])), str(row["schedules"]),
                f"{row['seconds']:.0f}",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:,.1f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
