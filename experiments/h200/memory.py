"""Memory-bound operators: their share of the card's copy bandwidth, and torch beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Clock,
    Results,
    Tensors,
    compare,
    going_on,
    options,
    pending,
    searched,
)
from contest import Run, Side, flushed, interleaved

SIZES = ((4096, 4096), (16384, 8192), (65536, 8192))
OPERATORS = ("softmax", "rmsnorm", "layernorm", "row_sum", "column_sum")


def function(operator: str, x: Tensors) -> torch.Tensor:
    n = x["X"].shape[1]
    if operator == "softmax":
        return torch.softmax(x["X"], -1)
    if operator == "rmsnorm":
        return F.rms_norm(x["X"], (n,), x["gamma"], 1e-6)
    if operator == "layernorm":
        return F.layer_norm(x["X"], (n,), x["gamma"], x["beta"], 1e-5)
    return x["X"].sum(-1 if operator == "row_sum" else 0, dtype=torch.float32)


def copy_rate() -> float:
    """Bytes a second, read and written, of the fastest large copy: by the driver, by kernels, in
    a graph or launched one by one (a graph's own copies are slower)."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    narrow, other = source.view(torch.bfloat16), target.view(torch.bfloat16)
    copies: list[Run] = [
        lambda: target.copy_(source),
        lambda: torch.neg(source, out=target),
        lambda: torch.neg(narrow, out=other),
    ]
    sides = [Side(f"copy {number}", [copy]) for number, copy in enumerate(copies)]
    interleaved(sides)
    flushed(sides)
    times = [statistics.median(kept) for side in sides for kept in (side.samples, side.cold)]
    print("copies, GB/s:", *(f"{2 * source.nbytes / t / 1e9:.0f}" for t in times), flush=True)
    return 2 * source.nbytes / min(times)


def peer(operator: str) -> Callable[[Tensors], Run]:
    return lambda tensors: lambda: function(operator, tensors)


def reference(operator: str) -> Callable[[Tensors], torch.Tensor]:
    def make(tensors: Tensors) -> torch.Tensor:
        wide = {k: v.double() for k, v in tensors.items() if k in ("X", "gamma", "beta")}
        if operator.endswith("sum"):
            return wide["X"].sum(-1 if operator == "row_sum" else 0)
        return function(operator, wide)

    return make


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(name, operator, arguments)."""
    sizes = [(o, m, n, "bf16") for m, n in SIZES for o in OPERATORS]
    return [
        (f"{o} {dtype} {m}x{n}", o, {"m": m, "n": n, "dtype": dtype})
        for o, m, n, dtype in [*sizes, ("softmax", 16384, 8192, "f32")]
    ]


def main() -> None:
    settings = options(__doc__ or "")
    settings.trials = min(settings.trials, 300)
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    rate = 0.0 if settings.dry else copy_rate()
    for name, operator, arguments in pending(cases(), settings, results, clock, ("copy",)):
        with going_on():
            workload, schedule, facts = searched(operator, arguments, settings, clock)
            sides = {"torch": peer(operator)}
            compare(name, workload, schedule, sides, reference(operator), results, facts)
            row = results.rows.get(f"{name}|torch|time") or results.rows[f"{name}|none|time"]
            reached = workload.program.bytes / (row["ours"] * 1e-6)
            results.add({"case": name, "metric": "bandwidth", "unit": "GB/s", "ours": reached / 1e9,
                         "peer": "copy", "peer_value": rate / 1e9, "ratio": reached / rate,
                         "spread": row["spread"], "sm_clock_mhz": row["sm_clock_mhz"]})  # fmt: skip


if __name__ == "__main__":
    main()
