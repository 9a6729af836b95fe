"""What the shipped model is worth before anything is measured: the first 16 trials of a search.

    python experiments/model/first_trials.py [--seeds 3] [--trials 256]

Workloads whose extents are in no record that the model learnt from. The best known is what a search
of `--trials` finds; the winners of all searches of a workload are then measured again in turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from explorer.finals import ROUNDS  # noqa: E402
from explorer.job import tune  # noqa: E402
from explorer.measure import Measurer  # noqa: E402
from explorer.settings import cache_dir  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402

FIRST = 16
WORKLOADS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 320, "n": 448, "k": 576}),
    ("matmul", {"m": 96, "n": 1200, "k": 640}),
    ("matmul_bias_act", {"m": 160, "n": 720, "k": 352}),
    ("gated_mlp", {"m": 96, "n": 640, "k": 416}),
    ("softmax", {"m": 1500, "n": 700}),
    ("layernorm", {"m": 900, "n": 1100}),
    ("column_sum", {"m": 3000, "n": 500}),
    ("conv2d", {"n": 2, "h": 24, "w": 24, "c": 48, "f": 40, "padding": 1}),
)


def searched(operator: str, arguments: dict[str, Any], trials: int, seed: int, model: str) -> Any:
    """The best of a search from an empty store."""
    with tempfile.TemporaryDirectory() as folder:
        return tune(
            operator, arguments, trials=trials, seed=seed, model=model or None,
            store=str(Path(folder) / "records.db"),
        ).best  # fmt: skip


def again(workload: Workload, schedules: list[Schedule]) -> list[float]:
    """Seconds of each, measured in turns."""
    with Measurer(
        workload.program, workload.target, workload.hardware, cache_dir=cache_dir()
    ) as measurer:
        outcomes = measurer.compete(schedules, ROUNDS)
    return [outcome.seconds or float("inf") for outcome in outcomes]


def row(operator: str, arguments: dict[str, Any], seeds: int, trials: int) -> dict[str, Any]:
    workload = Workload.of(operator, arguments, "cpu")
    sides = {"shipped": "", "none": "none"}
    found = {
        name: [searched(operator, arguments, FIRST, seed, model) for seed in range(seeds)]
        for name, model in sides.items()
    }
    best = searched(operator, arguments, trials, seeds, "none")
    times = again(workload, [best, *found["shipped"], *found["none"]])
    known = min(times)
    after = {
        "shipped": statistics.median(times[1 : 1 + seeds]),
        "none": statistics.median(times[1 + seeds :]),
    }
    return {
        "case": f"{operator} {arguments}", "metric": f"best after {FIRST} trials", "unit": "ms",
        "ours": after["shipped"] * 1e3, "peer": f"best of {trials} trials and all others",
        "peer_value": known * 1e3, "ratio": known / after["shipped"], "spread": 0.0,
        "without_model": after["none"] * 1e3, "seeds": seeds,
    }  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--trials", type=int, default=256)
    options = words.parse_args()
    rows = []
    for operator, arguments in WORKLOADS:
        rows.append(row(operator, arguments, options.seeds, options.trials))
        one = rows[-1]
        told = f"{one['ours']:.4g} ms, known {one['peer_value']:.4g}, ratio {one['ratio']:.3f}"
        print(f"{one['case']}: {told}; without {one['without_model']:.4g}", flush=True)
    head = {"date": datetime.date.today().isoformat(), "command": " ".join(sys.argv),
            "python": sys.version.split()[0]}  # fmt: skip
    text = json.dumps({"header": head, "rows": rows}, indent=1)
    (HERE / "first_trials.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
