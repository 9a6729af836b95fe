"""Attention by mma.sync alone, as cards before Hopper have it, on this card.

Beside FlashAttention-2, which is written for the same instructions, through torch.
The search is told of a card with what sm_80 has; text is compiled for the card that there is.
"""

from __future__ import annotations

import argparse
import json
import runpy
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from attention import cases, peer, reference
from common import RESERVE, Clock, Results, compare, going_on, header, parser, pending
from torch.nn.attention import SDPBackend

from explorer.budget import BATCH, Budget
from explorer.job import run_plan, single
from explorer.measure import Measurer
from explorer.plan import NO_MODEL, JobPlan, Plan
from explorer.result import JobResult
from explorer.settings import cache_dir
from explorer.workload import Workload
from ir.schedule import Schedule
from ir.target import Hardware

LABEL = "as sm_80"
COMPILING = 40.0  # seconds in which a candidate has to be compiled


class OlderCard:
    """This card, as a search would see it that knows nothing of Hopper."""

    def placed(self, plan: Plan) -> Plan:
        return plan

    def on(self, workload: Workload, hardware: str | None) -> Workload:
        there = replace(workload, machine=_older(workload.hardware))
        there.__dict__["program"] = workload.program
        return there

    def measurer(self, workload: Workload, seed: int, library: bool) -> Measurer:
        return Measurer(
            workload.program, workload.target, workload.hardware, cache_dir=cache_dir(), seed=seed,
            memory=workload.memory, compile_deadline_s=COMPILING,
        )  # fmt: skip

    def peaks(self, workload: Workload) -> Mapping[str, float]:
        return {}


def _older(hardware: Hardware) -> Hardware:
    """The same processors and memory, with the instructions of sm_80."""
    facts = {**dict(hardware.facts), "major": 8, "minor": 0}
    return replace(
        hardware, name=f"{hardware.name} as sm_80", facts=tuple(sorted(facts.items()))
    )  # fmt: skip


def searched(
    operator: str, arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock,
    machines: OlderCard | None, model: str | None,
) -> JobResult:  # fmt: skip
    """What a search finds."""
    job = JobPlan(operator, tuple(arguments.items()), "cuda", model=model, baseline=False)
    seconds = min(settings.each, clock.left - RESERVE)
    budget = Budget.of("standard", settings.trials, seconds, BATCH)
    return single(run_plan(Plan((job,), budget), store=settings.store, machines=machines))


def found(
    arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock
) -> tuple[Workload, Schedule, dict[str, Any]]:
    """The best schedule of a search, and what it took."""
    result = searched("attention", arguments, settings, clock, OlderCard(), NO_MODEL)
    workload = OlderCard().on(Workload.of("attention", arguments, "cuda"), None)
    facts = {"trials": result.trials, "schedule": result.best.as_dict()}
    return workload, result.best, facts


def search_programs(file: str, settings: argparse.Namespace, clock: Clock) -> None:
    """The programs of a file, "full", on this card as it is and as an older one: times alone."""
    rows = []
    for name, extents in runpy.run_path(file)["EXTENTS"].items():
        for machines in (None, OlderCard()):
            if clock.left < settings.each + RESERVE:
                return
            with going_on():
                result = searched(
                    f"{file}:{name}", extents["full"], settings, clock, machines, None
                )
                rows.append({
                    "program": name, "arguments": extents["full"], "trials": result.trials,
                    "card": "as it is" if machines is None else LABEL,
                    "us": 1e6 * result.seconds, "schedule": result.best.as_dict(),
                })  # fmt: skip
                print({k: v for k, v in rows[-1].items() if k != "schedule"}, flush=True)
                told = {"header": header(), "rows": rows}
                Path(settings.out).write_text(json.dumps(told, indent=1) + "\n")


def main() -> None:
    words = parser(__doc__ or "")
    words.add_argument("--programs", default="", help="a file of operators, in place of attention")
    words.add_argument("--each", type=float, default=60.0, help="seconds of each search")
    words.add_argument("--label", default=LABEL, help="what rows are called: which code it is")
    settings = words.parse_args()
    if settings.programs:
        search_programs(settings.programs, settings, Clock(settings.seconds))
        return
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    peers = ("FlashAttention-2", "cuDNN")
    named = [(f"{settings.label}: {name}", causal, sizes) for name, causal, sizes in cases()]
    for name, causal, arguments in pending(named, settings, results, clock, peers, 40.0):
        with going_on(), torch.no_grad():
            workload, schedule, facts = found(arguments, settings, clock)
            sides = {
                "FlashAttention-2": peer(SDPBackend.FLASH_ATTENTION, causal),
                "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
            }
            compare(name, workload, schedule, sides, reference(causal), results, facts)
    if results.rows:
        results.path.with_suffix(".md").write_text(page(results))


def page(results: Results) -> str:
    """A table of the rows."""
    head, rows = results.head, [row for row in results.rows.values() if row["metric"] == "time"]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    commands = sorted({row["command"] for row in rows})
    lines = [
        "# Attention by mma.sync alone, beside FlashAttention-2", "",
        f"{head['hardware']}, {versions}, {head['date']}.", "",
        *(f"    {command}" for command in commands), "",
        "The search knows a card with the instructions of sm_80; kernels are compiled for the card",
        "that there is. All sides in one run, in turns, medians. Ratios above 1: ours is faster.",
        "cuDNN is there for scale: it has wgmma and TMA.", "",
        "| case | us | TFLOP/s | FlashAttention-2 | cuDNN | trials | error |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    ratios: dict[str, list[float]] = {}
    for case in dict.fromkeys(row["case"] for row in rows):
        sides = {row["peer"]: row for row in rows if row["case"] == case}
        row = next(iter(sides.values()))
        told = {name: f"{one['ratio']:.3f}" for name, one in sides.items()}
        masked = 2 if case.endswith("causal") else 1  # half of the products are left out
        rate = row["flops"] / masked / row["ours"] * 1e-6
        lines.append(
            f"| {case} | {row['ours']:.1f} | {rate:.0f} | {told.get('FlashAttention-2', '')} | "
            f"{told.get('cuDNN', '')} | {row['trials']} | {row['error']:.1e} |"
        )
        if "FlashAttention-2" in sides:
            label = case.partition(":")[0]
            ratios.setdefault(label, []).append(sides["FlashAttention-2"]["ratio"])
    for label, some in ratios.items():
        mean = statistics.geometric_mean(some)
        lines.append(f"| {label}: geometric mean of {len(some)} | | | {mean:.3f} | | | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
