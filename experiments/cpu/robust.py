"""Legal candidates over all operators: how many fail to lower, to compile, or to be right.

python experiments/cpu/robust.py [--count 2000] [--seed 0] [--cases TEXT] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import report  # noqa: E402

from explorer.runtime.workers import Timing  # noqa: E402

# Small and ragged: every extent has a tail somewhere.
CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("matmul", {"m": 37, "n": 53, "k": 41}),
    ("matmul", {"m": 150, "n": 210, "k": 130, "ta": True}),
    ("matmul", {"m": 60, "n": 70, "k": 96, "tb": True, "batch": 3}),
    ("matmul", {"m": 1, "n": 200, "k": 300}),
    ("matmul", {"m": 20, "n": 30, "k": 25, "dtype": "f64"}),
    ("matmul", {"m": 100, "n": 130, "k": 260, "dtype": "bf16"}),
    ("matmul", {"m": 33, "n": 130, "k": 71, "dtype": "bf16", "tb": True, "out": "f32"}),
    ("matmul", {"m": 100, "n": 130, "k": 260, "dtype": "i8"}),
    ("matmul", {"m": 65, "n": 75, "k": 131, "dtype": "i8", "tb": True}),
    ("matmul_bias_act", {"m": 70, "n": 90, "k": 200}),
    ("matmul_bias_act", {"m": 45, "n": 37, "k": 61, "dtype": "bf16", "activation": "silu"}),
    ("gated_mlp", {"m": 70, "n": 90, "k": 200}),
    ("gated_mlp", {"m": 45, "n": 67, "k": 131, "dtype": "bf16"}),
    ("softmax", {"m": 70, "n": 301}),
    ("softmax", {"m": 33, "n": 1030, "dtype": "bf16"}),
    ("layernorm", {"m": 70, "n": 301}),
    ("rmsnorm", {"m": 35, "n": 77}),
    ("row_sum", {"m": 70, "n": 301}),
    ("row_max", {"m": 70, "n": 301}),
    ("column_sum", {"m": 70, "n": 301}),
    ("column_max", {"m": 70, "n": 301}),
    ("attention", {"b": 1, "heads": 2, "sq": 70, "d": 33}),
    ("attention", {"b": 2, "heads": 2, "sq": 130, "d": 64, "window": 20, "causal": True}),
    (
        "attention",
        {
            "b": 1, "heads": 4, "kv_heads": 2, "sq": 75, "sk": 130, "d": 64, "causal": True,
            "dtype": "bf16",
        },
    ),
    ("gaussian", {"n": 150, "d": 5}),
    ("gaussian", {"n": 77, "m": 133, "d": 18}),
    ("gaussian", {"n": 150, "d": 5, "expand": True}),
    ("attention", {"b": 1, "heads": 2, "sq": 128, "d": 64, "causal": True, "dtype": "bf16"}),
    ("conv2d", {"n": 1, "h": 14, "w": 13, "c": 17, "f": 33, "padding": 1}),
    ("conv2d", {"n": 2, "h": 14, "w": 13, "c": 8, "f": 24, "stride": 2, "dtype": "bf16"}),
)  # fmt: skip
COMPILE = ("illegal", "compile_error")
SEEDS = 4
# Two samples, the fewest after which a candidate is checked again, and with other inputs.
BRIEF = Timing(fewest=2, most=2, budget=0.0, cut=float("inf"), slow=float("inf"))


@dataclass(frozen=True, slots=True)
class Failure:
    """A legal candidate that did not end well, with what it takes to see it again."""

    operator: str
    arguments: dict[str, object]
    status: str
    detail: str
    schedule: str


def draw(
    operator: str, arguments: dict[str, object], count: int, seed: int
) -> tuple[Counter[str], list[Failure]]:
    """Outcomes of `count` legal candidates of one case, the backend's seeds among them."""
    import numpy as np

    from explorer.measure import Measurer
    from explorer.settings import cache_dir
    from explorer.workload import Workload

    workload = Workload.of(operator, arguments)
    space = workload.space()
    rng = np.random.default_rng(seed)
    seeds = space.seed_rows(rng)[: min(SEEDS, count)]
    matrix = np.concatenate([seeds, space.sample(rng, count - len(seeds))])
    schedules = [space.schedule(line) for line in matrix]
    found: Counter[str] = Counter()
    failures = []
    with Measurer(
        workload.program, "cpu", workload.hardware, cache_dir=cache_dir(), seed=seed, timing=BRIEF
    ) as measurer:
        for schedule, outcome in zip(schedules, measurer.measure(schedules), strict=True):
            found[outcome.status] += 1
            if not outcome.ok:
                detail, text = outcome.detail[:300], schedule.to_json()
                failures.append(Failure(operator, arguments, outcome.status, detail, text))
    return found, failures


def rows_of(counts: Counter[str], seconds: float) -> list[dict[str, Any]]:
    """Failures by kind, each beside none at all, and the rate."""
    total = sum(counts.values())
    case = f"{total} legal candidates"
    kinds = {
        "fail to lower or compile": COMPILE,
        "wrong results": ("wrong_result",),
        "crash or hang": ("crash", "timeout", "out_of_memory"),
        "other": ("unstable", "below_roofline"),
    }
    rows = [
        report.row(case, name, "count", sum(counts[s] for s in statuses), 0, less=True)
        for name, statuses in kinds.items()
    ]
    return [*rows, report.row(case, "candidates, all checks", "per second", total / seconds, 15.0)]


def listed(failures: list[Failure]) -> list[dict[str, object]]:
    return [asdict(failure) for failure in failures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", default="", help="only operators whose name contains this text")
    parser.add_argument("--out", type=Path, default=HERE / "robust.json")
    options = parser.parse_args()
    cases = [case for case in CASES if options.cases in case[0]]
    if not cases:
        raise SystemExit(f"no operator here is named like {options.cases!r}")
    head = report.header("llvmlite")
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    began = time.perf_counter()
    for number, (operator, arguments) in enumerate(cases):
        share = options.count * (number + 1) // len(cases) - options.count * number // len(cases)
        found, failed = draw(operator, arguments, share, options.seed + number)
        counts += found
        failures += failed
        words = ", ".join(f"{value} {name}" for name, value in found.most_common())
        print(f"{operator} {arguments}: {words}", flush=True)
        rows = rows_of(counts, time.perf_counter() - began)
        report.write(options.out, head, rows, failures=listed(failures))
    report.show(rows)
    for failure in failures:
        print(f"{failure.status}: {failure.operator} {failure.arguments}: {failure.detail[:120]}")


if __name__ == "__main__":
    main()
