"""Attention by mma.sync alone, as cards before Hopper have it, on this card.

Beside FlashAttention-2, which is written for the same instructions, through torch.
The search is told of a card with what sm_80 has; text is compiled for the card that there is.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from attention import cases, peer, reference
from common import RESERVE, Clock, Results, compare, going_on, parser, pending
from torch.nn.attention import SDPBackend

from explorer.budget import BATCH, Budget
from explorer.job import run_plan, single
from explorer.measure import Measurer
from explorer.plan import NO_MODEL, JobPlan, Plan
from explorer.settings import cache_dir
from explorer.workload import Workload
from ir.schedule import Schedule
from ir.target import Hardware

PREFIX = "as sm_80: "
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


def found(
    arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock
) -> tuple[Workload, Schedule, dict[str, Any]]:
    """The best schedule of a search, and what it took."""
    job = JobPlan("attention", tuple(arguments.items()), "cuda", model=NO_MODEL, baseline=False)
    seconds = min(settings.each, clock.left - RESERVE)
    budget = Budget.of("standard", settings.trials, seconds, BATCH)
    result = single(run_plan(Plan((job,), budget), store=settings.store, machines=OlderCard()))
    workload = OlderCard().on(Workload.of("attention", arguments, "cuda"), None)
    facts = {"trials": result.trials, "schedule": result.best.as_dict()}
    return workload, result.best, facts


def main() -> None:
    words = parser(__doc__ or "")
    words.add_argument("--each", type=float, default=60.0, help="seconds of each search")
    settings = words.parse_args()
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    peers = ("FlashAttention-2", "cuDNN")
    named = [(PREFIX + name, causal, sizes) for name, causal, sizes in cases()]
    for name, causal, arguments in pending(named, settings, results, clock, peers, 40.0):
        with going_on(), torch.no_grad():
            workload, schedule, facts = found(arguments, settings, clock)
            sides = {
                "FlashAttention-2": peer(SDPBackend.FLASH_ATTENTION, causal),
                "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
            }
            compare(name, workload, schedule, sides, reference(causal), results, facts)


if __name__ == "__main__":
    main()
