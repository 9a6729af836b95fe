"""What users get over what was recorded: exported modules called in a process of their own.

python experiments/cpu/calls.py [--operators TEXT] [--trials 48] [--rounds 7] [--out FILE]

Each workload is tuned afresh, its best kernel exported, and the module called by a program that
knows numpy alone, on arrays that numpy makes: with the usual pages, as torch's tensors have them
and as the search measured, and with the large pages that numpy asks for by itself. The ratio is a
call's median over the recorded time. Goal: median 1.03 at most, none above 1.10.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

MEDIAN, WORST = 1.03, 1.10
PAGES = {"usual pages": "0", "numpy's own": "1"}  # NUMPY_MADVISE_HUGEPAGE
TURN = 0.15  # seconds of one turn

_ROWS = ({"m": 256, "n": 1000}, {"m": 1024, "n": 4096}, {"m": 4096, "n": 3000})
_PRODUCTS = (
    {"m": 64, "n": 4096, "k": 1024},
    {"m": 512, "n": 512, "k": 512},
    {"m": 1000, "n": 1000, "k": 1000},
)
SHAPES: dict[str, Sequence[dict[str, Any]]] = {
    **dict.fromkeys(
        ("softmax", "layernorm", "rmsnorm", "row_sum", "row_max", "column_sum", "column_max"), _ROWS
    ),
    "matmul": _PRODUCTS,
    "matmul_bias_act": _PRODUCTS,
    "gated_mlp": (*_PRODUCTS[:2], {"m": 256, "n": 2048, "k": 1024, "dtype": "bf16"}),
    "scaled_matmul": (
        {"m": 64, "n": 1024, "k": 1024}, {"m": 256, "n": 256, "k": 512},
        {"m": 512, "n": 512, "k": 512},
    ),
    "attention": (
        {"b": 1, "heads": 8, "sq": 512, "d": 64},
        {"b": 1, "heads": 16, "sq": 512, "d": 128, "causal": True},
        {"b": 1, "heads": 16, "sq": 1024, "d": 64, "dtype": "bf16"},
    ),
    "gaussian": ({"n": 1024, "d": 64}, {"n": 4096, "d": 18, "expand": True}, {"n": 2048, "d": 8}),
    "conv2d": (
        {"n": 1, "h": 56, "w": 56, "c": 64, "f": 64, "padding": 1},
        {"n": 4, "h": 28, "w": 28, "c": 128, "f": 128, "padding": 1},
        {"n": 8, "h": 14, "w": 14, "c": 64, "f": 128},
    ),
}  # fmt: skip

# The program of a user: it imports the exported module and numpy.
USER = """
import importlib.util, json, statistics, sys, time
import numpy as np
module, name, turn, rounds, *files = sys.argv[1:]
spec = importlib.util.spec_from_file_location("exported", module)
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
function = getattr(made, name)
inputs = []
for file in files:
    stored = np.load(file, mmap_mode="r")
    array = np.empty(stored.shape, stored.dtype)
    array[...] = stored
    inputs.append(array)
result = function(*inputs)
turns = []
for _ in range(int(rounds)):
    samples, until = [], time.perf_counter() + float(turn)
    while time.perf_counter() < until or len(samples) < 3:
        began = time.perf_counter()
        result = function(*inputs)
        samples.append(time.perf_counter() - began)
    turns.append(statistics.median(samples))
print(json.dumps(turns))
"""


def called(files: Sequence[Path], module: Path, pages: str, rounds: int) -> list[float]:
    """Medians of turns in a fresh process."""
    words = [str(module), module.stem, str(TURN), str(rounds), *map(str, files)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", USER, *words], capture_output=True, text=True, check=True,
        env={**environment, "NUMPY_MADVISE_HUGEPAGE": PAGES[pages]},
    )  # fmt: skip
    turns: list[float] = json.loads(done.stdout)
    return turns


def measured(
    operator: str, arguments: dict[str, Any], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each kind of pages."""
    import numpy as np

    import explorer
    from explorer.job import run_schedule
    from ir.inputs import drawn_inputs

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        found = explorer.tune(
            operator, **arguments, trials=options.trials, store=folder / "records.db",
            baseline=False,
        )  # fmt: skip
        module = next(file for file in found.export(folder / "out") if file.suffix == ".py")
        files = []
        for name, array in drawn_inputs(found.program, 0).items():
            files.append(folder / f"{name}.npy")
            np.save(files[-1], array)
        turns: dict[str, list[float]] = {kind: [] for kind in PAGES}
        for number in range(options.rounds):
            for kind in list(PAGES)[:: 1 if number % 2 else -1]:
                turns[kind] += called(files, module, kind, 1)
        again = run_schedule(found.workload, found.best)
    case = " ".join([operator, *(f"{name}={value}" for name, value in arguments.items())])
    notes = dict(again.notes)
    return [
        {
            "case": case, "metric": f"a call on {kind}", "unit": "ms",
            "ours": 1e3 * statistics.median(turns[kind]), "peer": "recorded",
            "peer_value": 1e3 * found.seconds,
            "ratio": statistics.median(turns[kind]) / found.seconds,
            "spread": _spread(turns[kind]),
            "recorded_again": 1e3 * (again.seconds or float("nan")),
            "kernel": 1e3 * (found.kernel_seconds or float("nan")),
            "others": notes.get("foreign_load"),
        }
        for kind in PAGES
    ]  # fmt: skip


def _spread(values: list[float]) -> float:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def page(found: dict[str, Any]) -> str:
    """The table of the results."""
    head, rows = found["header"], found["rows"]
    lines = [
        "# Calls of exported modules over recorded times", "",
        ", ".join(f"{name} {value}" for name, value in head.items()) + ".", "",
        f"| case | recorded, ms | {' | '.join(PAGES)} |", "|---|---|---|---|",
    ]  # fmt: skip
    for case in dict.fromkeys(row["case"] for row in rows):
        ratios = {row["metric"][10:]: row["ratio"] for row in rows if row["case"] == case}
        recorded = next(row["peer_value"] for row in rows if row["case"] == case)
        cells = " | ".join(f"{ratios[kind]:.3f}" for kind in PAGES)
        lines.append(f"| {case} | {recorded:.4f} | {cells} |")
    for kind in PAGES:
        all_of = [row["ratio"] for row in rows if row["metric"].endswith(kind)]
        told = f"median {statistics.median(all_of):.3f}, worst {max(all_of):.3f}"
        lines += ["", f"On {kind}: {told}."]
    return "\n".join([*lines, ""])


def main() -> None:
    from report import header, write

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", default="", help="only those whose name contains this text")
    parser.add_argument("--shapes", type=int, default=3, help="of each operator")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=HERE / "calls.json")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    head = header("llvmlite")
    for operator, shapes in SHAPES.items():
        if options.operators not in operator:
            continue
        for arguments in shapes[: options.shapes]:
            rows += (new := measured(operator, arguments, options))
            told = ", ".join(f"{row['ratio']:.3f} on {row['metric'][10:]}" for row in new)
            print(f"{new[0]['case']}: {new[0]['peer_value']:.4f} ms recorded; {told}", flush=True)
            write(options.out, head, rows)
    options.out.with_suffix(".md").write_text(page(json.loads(options.out.read_text())))
    for kind in PAGES:
        ratios = [row["ratio"] for row in rows if row["metric"].endswith(kind)]
        middle, worst = statistics.median(ratios), max(ratios)
        reached = middle <= MEDIAN and worst <= WORST
        print(f"{kind}: median {middle:.3f}, worst {worst:.3f}; goal reached: {reached}")


if __name__ == "__main__":
    main()
