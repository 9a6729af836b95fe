"""Attention forward with the loop's order as a decision, and with it pinned to the first one.

FA3_LIBRARY=.../_vllm_fa3_C.abi3.so python experiments/h200/overlap.py --out overlap.json

One search for each row; what it found, the same schedule with `order=straight`, FlashAttention-3
(from that library, in its own layout of operands) and cuDNN are measured in one run, in turns.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any

import torch
from attention import peer, reference
from common import Clock, Ours, Results, Tensors, compare, going_on, options, pending
from contest import Run
from torch.nn.attention import SDPBackend

from explorer.job import tune
from explorer.workload import Workload
from ir.schedule import Schedule

SEARCH = 12.0  # seconds for each row
STRAIGHT = {"order": "straight"}
SHAPES = (
    (4, 16, 4096, 128, False), (4, 16, 4096, 128, True), (4, 32, 4096, 64, False),
    (4, 32, 4096, 64, True), (1, 16, 16384, 128, False), (4, 16, 4096, 96, False),
    (2, 16, 4096, 256, False), (16, 16, 1024, 128, False),
)  # fmt: skip


def flash3(causal: bool) -> Any:
    """FlashAttention-3 on packed sequences."""

    def make(tensors: Tensors) -> Run:
        torch.ops.load_library(os.environ["FA3_LIBRARY"])
        forward = torch.ops._vllm_fa3_C.fwd
        batch, _, length, depth = tensors["Q"].shape
        q, k, v = (tensors[name].transpose(1, 2).flatten(0, 1).contiguous() for name in "QKV")
        out = torch.empty_like(q)
        ends = torch.arange(0, (batch + 1) * length, length, device="cuda", dtype=torch.int32)

        def run() -> None:
            forward(
                q, k, v, None, None, None, out, ends, ends, None, None, None, length, length,
                None, None, None, None, None, None, None, None, None, depth**-0.5, causal, -1, -1,
                0.0, True, None, 1, None, 0, None, 1, 0, None,
            )  # fmt: skip

        run()
        return run

    return make


def straight(workload: Workload, schedule: Schedule) -> Any:
    """The same schedule with blocks that do not overlap."""
    names = [name for name in schedule.as_dict() if name.split(".")[0] == "order"]
    pinned = Schedule.of("cuda", {**schedule.as_dict(), **dict.fromkeys(names, "straight")})

    def make(tensors: Tensors) -> Run:
        return Ours(workload, pinned).on(tensors)

    return make


def cases() -> list[tuple[str, bool, dict[str, Any]]]:
    """(name, causal, arguments)."""
    found = []
    for b, h, s, d, causal in SHAPES:
        name = f"attention {b}x{h}x{s}x{d}{' causal' if causal else ''}"
        sizes = {"b": b, "heads": h, "sq": s, "d": d, "causal": causal, "dtype": "bf16"}
        found.append((name, causal, sizes))
    return found


def page(told: dict[str, Any]) -> str:
    """The rows as a page."""
    peers = ("straight", "FlashAttention-3", "cuDNN")
    head, cases = told["header"], list(dict.fromkeys(row["case"] for row in told["rows"]))
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    lines = [
        "# Attention with its blocks overlapped, and one by one", "",
        f"{head['hardware']}, {versions}, {head['date']}; `{told['rows'][0]['command']}`.", "",
        f"bf16, a search of {SEARCH:.0f} s for each row; all sides in one run, in turns, medians. "
        "Ratios above 1: ours is faster. `straight`: the schedule found, with `order=straight`.",
        "", "| case | us | TFLOP/s | order | straight | FlashAttention-3 | cuDNN | trials |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    ratios: dict[str, list[float]] = {name: [] for name in peers}
    for case in cases:
        here = [row for row in told["rows"] if row["case"] == case and row["metric"] == "time"]
        by_peer = {row["peer"]: row["ratio"] for row in here}
        one = here[0]
        flops = one["flops"] * (0.5 if "causal" in case else 1.0)
        order = Schedule.from_json(one["schedule"]).as_dict()["order"]
        cells = [f"{by_peer[name]:.3f}" if name in by_peer else "" for name in peers]
        for name, ratio in by_peer.items():
            ratios[name].append(ratio)
        lines.append(
            f"| {case} | {one['ours']:.1f} | {flops / one['ours'] / 1e6:.0f} | `{order}` | "
            f"{' | '.join(cells)} | {one['trials']} |"
        )
    means = [f"{statistics.geometric_mean(ratios[name]):.3f}" for name in peers]
    return "\n".join([*lines, f"| geometric mean | | | | {' | '.join(means)} | |", ""])


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    names = ("straight", "FlashAttention-3", "cuDNN")
    for name, causal, arguments in pending(cases(), settings, results, clock, names, SEARCH + 8):
        with going_on(), torch.no_grad():
            workload = Workload.of("attention", arguments, "cuda", None)
            found = tune(
                "attention", arguments, target="cuda", seconds=SEARCH, store=settings.store,
                model="none", baseline=False,
            )  # fmt: skip
            print(name, found.best.to_json(), flush=True)
            sides = {
                "straight": straight(workload, found.best),
                "FlashAttention-3": flash3(causal),
                "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
            }
            facts = {"trials": found.trials, "schedule": found.best.to_json()}
            compare(name, workload, found.best, sides, reference(causal), results, facts)
    told = {"header": results.head, "rows": list(results.rows.values())}
    Path(settings.out).with_suffix(".md").write_text(page(told))


if __name__ == "__main__":
    main()
