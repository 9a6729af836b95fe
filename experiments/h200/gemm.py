"""Matrix products against cuBLAS (torch): 20 shapes in bf16, and other types at two sizes."""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

import torch
from common import (
    Clock,
    Ours,
    Peer,
    Results,
    Tensors,
    compare,
    fresh_start,
    going_on,
    options,
    pending,
    searched,
    sets_of,
)
from contest import Run, Side, interleaved, time_row

from explorer.job import Progress, tune
from explorer.workload import Workload
from ir.schedule import Schedule

PARITY = "parity 4096x4096x4096"
PARITY_SECONDS = 150.0
METRICS = ("time", "time, L2 flushed")

SHAPES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (8192, 8192, 1024),
    (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512), (256, 8192, 8192),
    (128, 8192, 8192), (64, 8192, 8192), (16, 8192, 8192), (1, 8192, 8192),
    (4096, 14336, 4096), (4096, 4096, 14336), (8192, 28672, 8192), (8192, 8192, 28672),
    (8192, 1024, 8192), (32768, 2048, 2048), (4096, 11008, 4096), (256, 256, 16384),
)  # fmt: skip


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(name, operator, arguments)."""
    found = [
        (f"bf16 {m}x{n}x{k}", "matmul", {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True})
        for m, n, k in SHAPES
    ]
    for size in (4096, 8192):
        sizes: dict[str, Any] = {"m": size, "n": size, "k": size}
        for dtype in ("f16", "tf32"):
            found.append((f"{dtype} {size}^3", "matmul", {**sizes, "dtype": dtype, "tb": True}))
        found.append((f"fp8 {size}^3", "scaled_matmul", sizes))
    return found


def plain(tensors: Tensors) -> Run:
    a, b, c = tensors["A"], tensors["B"].t(), tensors["C"]
    return lambda: torch.mm(a, b, out=c)


def scaled(fast: bool) -> Any:
    def make(tensors: Tensors) -> Run:
        a, b, c = tensors["A"], tensors["B"].t(), tensors["C"]
        left, right = tensors["scale_a"], tensors["scale_b"]
        return lambda: torch._scaled_mm(
            a, b, left, right, out_dtype=torch.bfloat16, use_fast_accum=fast, out=c
        )

    return make


def reference(tensors: Tensors) -> torch.Tensor:
    product = tensors["A"].float() @ tensors["B"].float().t()
    if "scale_a" in tensors:
        product *= tensors["scale_a"] * tensors["scale_b"]
    return product


def parity(settings: argparse.Namespace, clock: Clock, results: Results) -> None:
    """Seconds from a cold start (no records, no compiled kernels, no workers) to a schedule that
    is no slower than cuBLAS: every best of its moment is measured beside it afterwards."""
    size = 4096
    arguments = {"m": size, "n": size, "k": size, "dtype": "bf16", "tb": True}
    workload = Workload.of("matmul", arguments, "cuda")
    found: list[tuple[float, Schedule]] = []

    def note(progress: Progress) -> None:
        if progress.outcome.ok and progress.outcome.seconds == progress.best_seconds:
            found.append((progress.elapsed, progress.schedule))

    with fresh_start() as store:
        result = tune(
            "matmul", arguments, target="cuda", trials=settings.trials, store=store,
            seconds=min(PARITY_SECONDS, clock.left - 30), progress=note,
        )  # fmt: skip
    found.append((result.elapsed, result.best))
    sets = sets_of(workload)
    ratios = []
    for elapsed, schedule in found:
        ours = Ours(workload, schedule)
        mine = Side("ours", [ours.on(tensors) for tensors in sets])
        library = Side("cuBLAS", [plain(tensors) for tensors in sets])
        interleaved([mine, library])
        ratios.append((round(elapsed, 1), round(time_row("", mine, library)["ratio"], 4)))
        if ratios[-1][1] >= 1 or clock.left < 5:
            break
    elapsed, ratio = ratios[-1]
    results.add({
        "case": PARITY, "metric": "parity_seconds", "unit": "s", "ours": elapsed, "peer": "goal",
        "peer_value": 120, "ratio": 120 / max(elapsed, 0.1) if ratio >= 1 else 0, "spread": 0.0,
        "reached": ratio >= 1, "bests": ratios, "trials": result.trials,
        "search_seconds": round(result.elapsed, 1),
    })  # fmt: skip


def geometric_means(results: Results) -> None:
    """Rows of the groups that are whole."""
    products = {f"bf16 {m}x{n}x{k}": m for m, n, k in SHAPES}
    groups = {"20 shapes": products, "m <= 128": {c: m for c, m in products.items() if m <= 128}}
    for (group, names), metric in itertools.product(groups.items(), METRICS):
        rows = [results.rows.get(f"{name}|cuBLAS|{metric}") for name in names]
        there = [row["ratio"] for row in rows if row]
        if len(there) == len(names):
            mean = statistics.geometric_mean(there)
            results.add({
                "case": f"bf16, {group}", "metric": f"geometric mean of {metric}",
                "unit": "ratio", "ours": mean, "peer": "cuBLAS", "peer_value": 1, "ratio": mean,
                "spread": 0.0, "least": min(there),
            })  # fmt: skip


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    peers = ("cuBLAS", "cuBLAS fast")
    for name, operator, arguments in pending(cases(), settings, results, clock, peers):
        torch.backends.cuda.matmul.allow_tf32 = arguments.get("dtype") == "tf32"
        with going_on():
            workload, schedule, facts = searched(operator, arguments, settings, clock)
            sides: dict[str, Peer] = {"cuBLAS": plain}
            if operator == "scaled_matmul":
                sides = {"cuBLAS fast": scaled(True), "cuBLAS precise": scaled(False)}
            compare(name, workload, schedule, sides, reference, results, facts)
    if not settings.compare_only:
        for _ in pending([(PARITY,)], settings, results, clock, ("goal",), 90.0):
            parity(settings, clock, results)
    geometric_means(results)


if __name__ == "__main__":
    main()
