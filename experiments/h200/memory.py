"""Memory-bound operators: their share of the card's copy bandwidth, and torch beside them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Clock,
    Results,
    Run,
    Side,
    Tensors,
    chosen,
    compare,
    interleaved,
    options,
    searched,
)

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
    """Bytes a second, read and written, of a large device-to-device copy."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    side = Side("copy", [lambda: target.copy_(source)])
    interleaved([side], 10)
    return 2 * 4 * source.numel() / sorted(side.samples)[len(side.samples) // 2]


def main() -> None:
    settings = options(__doc__ or "")
    settings.trials = min(settings.trials, 96)
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    rate = copy_rate()
    cases = [(o, m, n, "bf16") for m, n in SIZES for o in OPERATORS]
    for operator, m, n, dtype in [*cases, ("softmax", 16384, 8192, "f32")]:
        name = f"{operator} {dtype} {m}x{n}"
        if not chosen(name, settings.cases) or clock.left < 30:
            continue
        if results.has(name, "copy"):
            continue
        arguments: dict[str, Any] = {"m": m, "n": n, "dtype": dtype}
        workload, schedule, facts = searched(operator, arguments, settings, clock)

        def peer(tensors: Tensors) -> Run:
            return lambda: function(operator, tensors)  # noqa: B023 (used within this turn)

        def reference(tensors: Tensors) -> torch.Tensor:
            wide = {k: v.double() for k, v in tensors.items() if k in ("X", "gamma", "beta")}
            if operator.endswith("sum"):  # noqa: B023
                return wide["X"].sum(-1 if operator == "row_sum" else 0)  # noqa: B023
            return function(operator, wide)  # noqa: B023

        compare(name, workload, schedule, {"torch": peer}, reference, results, facts)
        row = results.rows[f"{name}|torch|time"]
        reached = workload.program.bytes / (row["ours"] * 1e-6)
        results.add({"case": name, "metric": "bandwidth", "unit": "GB/s", "ours": reached / 1e9,
                     "peer": "copy", "peer_value": rate / 1e9, "ratio": reached / rate,
                     "spread": row["spread"]})  # fmt: skip


if __name__ == "__main__":
    main()
