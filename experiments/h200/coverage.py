"""Configurations that others measured as best on Hopper: each a legal point of our space, compiled
without spills, and right where a GPU runs it (--run).

Source: the SM90 tuning tables and dispatch of github.com/modular/modular; m x n x k of its rows,
tiles rows x columns, clusters of blocks along columns, rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from common import Clock, Ours, Results, exact_products, operands, parser, relative_error

from explorer.runtime import nvrtc
from explorer.workload import Workload
from ir.columns import Decision
from ir.errors import Refusal, TilewrightError
from ir.kernel import Kernel
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.target import Hardware
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.rows.hardware import known_hardware

WRONG = 1e-2
REGISTERS = {1: "none", 2: "40/232"}
FREE: dict[str, tuple[Value, ...]] = {
    "epilogue": ("tma", "direct"), "epilogue_slots": (2, 1), "wait": (1,),
    "promotion": (256,), "stream": ("none",), "early": (False,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """One row of the tables: a product of m x n x k and how it is computed.

    `order` is "one" (blocks walk the tiles one after another), "two" (128 of them in a supertile of
    8 x 16 tiles), or "" for a block of its own for every tile.
    """

    m: int
    n: int
    k: int
    tile: str
    consumers: int
    stages: int
    cluster: str = "1,1"
    order: str = ""
    split: int = 1
    dtype: str = "bf16"

    @property
    def case(self) -> str:
        words = f"{self.dtype} {self.m}x{self.n}x{self.k}: {self.tile}, {self.consumers} consumers"
        words += f", {self.stages} stages, cluster {self.cluster}"
        words += {"one": ", persistent", "two": ", supertile"}.get(self.order, "")
        return words + (f", split {self.split}" if self.split > 1 else "")

    @property
    def regime(self) -> str:
        if self.dtype == "fp8":
            return "fp8"
        return "few rows" if self.m <= 256 else "many rows"

    @property
    def workload(self) -> tuple[str, dict[str, Any]]:
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        if self.dtype == "fp8":
            return "scaled_matmul", sizes
        return "matmul", {**sizes, "dtype": self.dtype, "tb": True}

    @property
    def decisions(self) -> dict[str, Value]:
        """In our words; theirs has a cluster's columns first."""
        rows, columns = map(int, self.tile.split("x"))
        across, down = self.cluster.split(",")
        return {
            "tile.m": rows, "tile.n": columns, "tile.k": 128 if self.dtype == "fp8" else 64,
            "swap": False, "consumers": self.consumers, "partition": "rows",
            "stages": self.stages, "registers": REGISTERS[self.consumers],
            "cluster": f"{down}x{across}", "raster": "rows8" if self.order == "two" else "rows",
            "processors": {"one": 132, "two": 128}.get(self.order, 0),
            "split": f"k:{self.split}" if self.split > 1 else "none",
        }  # fmt: skip


CHOICES = (
    Choice(2, 5120, 2560, "64x128", 1, 8, order="one"),
    Choice(32, 5120, 2560, "64x128", 1, 8, order="one"),
    Choice(8, 5120, 2560, "64x64", 1, 8, "2,1"),
    Choice(64, 5120, 2560, "64x40", 1, 8, order="one"),
    Choice(80, 5120, 2560, "64x128", 1, 9, "2,2"),
    Choice(96, 5120, 2560, "64x80", 1, 12, "1,2"),
    Choice(128, 5120, 2560, "128x64", 2, 8),
    Choice(192, 5120, 2560, "64x160", 1, 7, "2,1"),
    Choice(256, 5120, 2560, "128x80", 2, 8, "1,2"),
    Choice(32, 5120, 13824, "64x80", 1, 6, split=2),
    Choice(48, 5120, 13824, "64x64", 1, 9, order="one"),
    Choice(64, 5120, 13824, "64x40", 1, 12, order="one"),
    Choice(8, 27648, 5120, "64x216", 1, 4, order="one"),
    Choice(64, 27648, 5120, "64x128", 1, 6, order="one"),
    Choice(256, 27648, 5120, "128x216", 2, 5, "1,2"),
    Choice(64, 76032, 5120, "64x192", 1, 4, order="one"),
    Choice(8, 76032, 5120, "64x144", 1, 4, order="one"),
    Choice(192, 76032, 5120, "128x256", 2, 4, "1,2"),
    Choice(256, 76032, 5120, "128x192", 2, 5, "1,2"),
    Choice(64, 2560, 5120, "64x32", 1, 12),
    Choice(128, 2560, 5120, "64x64", 1, 10),
    Choice(256, 2560, 5120, "128x64", 2, 8, "2,2"),
    Choice(64, 5120, 27648, "64x64", 1, 12),
    Choice(128, 5120, 27648, "128x40", 2, 8),
    Choice(256, 5120, 27648, "128x80", 2, 8, "1,2"),
    Choice(64, 3200, 6400, "64x32", 1, 12),
    Choice(128, 3200, 6400, "128x32", 2, 9),
    Choice(256, 3200, 6400, "128x64", 2, 8, "1,2"),
    Choice(64, 1664, 3200, "64x16", 1, 12),
    Choice(128, 1664, 3200, "64x32", 1, 10),
    Choice(256, 1664, 3200, "64x64", 1, 8, "1,2"),
    Choice(256, 13824, 5120, "128x256", 2, 4, "2,2"),
    Choice(512, 8192, 5376, "128x256", 2, 4),
    Choice(512, 5376, 4096, "128x168", 2, 6),
    Choice(512, 43008, 5376, "128x224", 2, 4),
    Choice(1024, 43008, 5376, "128x224", 2, 4, "2,1", "two"),
    Choice(1024, 5376, 21504, "128x168", 2, 4, "2,1", "two"),
    Choice(2048, 8192, 5376, "128x256", 2, 4, order="two"),
    Choice(3072, 5376, 4096, "128x224", 2, 4),
    Choice(2000, 43008, 5376, "128x224", 2, 4, order="two"),
    Choice(4096, 8192, 2048, "128x256", 2, 4, "2,1", "two"),
    Choice(4096, 14336, 8192, "128x256", 2, 4, "2,1", "two"),
    Choice(8192, 8192, 7168, "128x256", 2, 4, "2,1", "two"),
    Choice(128, 2304, 16384, "64x48", 1, 8, order="one", dtype="fp8"),
    Choice(1024, 2304, 16384, "128x144", 2, 4, order="one", dtype="fp8"),
    Choice(256, 13312, 16384, "128x208", 2, 4, "1,2", dtype="fp8"),
    Choice(4096, 16384, 2048, "128x128", 2, 4, "2,1", "two", dtype="fp8"),
)


def legal_schedule(space: Space, choice: Choice) -> Schedule:
    """The choice with the first legal values of what it leaves open; raises the last Refusal."""
    refusal: Refusal | None = None
    for values in itertools.product(*FREE.values()):
        chosen = {**choice.decisions, **dict(zip(FREE, values, strict=True))}
        picked = tuple((d.name, _picked(d, chosen)) for d in space.decisions)
        schedule = Schedule("cuda", picked)
        refusal = space.refusal(schedule)
        if refusal is None:
            return schedule
    assert refusal is not None
    raise refusal


def _picked(decision: Decision, chosen: dict[str, Value]) -> Value:
    """A value of the decision's domain; UsageError for another."""
    return decision.domain[decision.index(chosen[decision.name])]


@dataclass(frozen=True, slots=True)
class Point:
    """What became of a choice: its schedule and resources, or what was wrong."""

    choice: Choice
    problem: str = ""
    schedule: Schedule | None = None
    resources: nvrtc.Resources | None = None

    @property
    def fine(self) -> bool:
        found = self.resources
        return not self.problem and found is not None and not (
            found.spill_stores + found.spill_loads + len(found.serialised)
        )  # fmt: skip


def point(choice: Choice, hardware: Hardware) -> Point:
    backend, schedule = CudaBackend(), None
    try:
        operator, arguments = choice.workload
        program = Workload.of(operator, arguments, "cuda").program
        schedule = legal_schedule(backend.space(program, hardware), choice)
        kernel = backend.lower(program, schedule, hardware)
        return Point(choice, "", schedule, compiled(kernel))
    except (Refusal, TilewrightError) as problem:
        return Point(choice, f"{type(problem).__name__}: {problem}", schedule)


def compiled(kernel: Kernel) -> nvrtc.Resources:
    plan = json.loads(kernel.text("launch"))
    return nvrtc.compile_text(kernel.text("cuda"), plan["arch"], plan["options"])[1]


def ran(found: Point) -> float:
    """The relative error of one run on fresh inputs and a poisoned output."""
    assert found.schedule is not None
    operator, arguments = found.choice.workload
    workload = Workload.of(operator, arguments, "cuda")
    tensors = operands(workload)
    tensors["C"].fill_(float("nan"))
    Ours(workload, found.schedule).on(tensors)()
    torch.cuda.synchronize()
    with exact_products():
        wanted = tensors["A"].float() @ tensors["B"].float().t()
    if operator == "scaled_matmul":
        wanted *= tensors["scale_a"] * tensors["scale_b"]
    return relative_error(tensors["C"], wanted)


def row(found: Point, error: float | None) -> dict[str, Any]:
    resources = found.resources or nvrtc.Resources()
    good = found.fine and (error is None or error < WRONG)
    return {
        "case": found.choice.case, "regime": found.choice.regime, "unit": "",
        "metric": "configuration", "ran": error is not None,
        "ours": int(good), "peer": "goal", "peer_value": 1, "ratio": float(good), "spread": 0.0,
        "problem": found.problem, "error": error, "registers": resources.registers,
        "spills": resources.spill_stores + resources.spill_loads,
        "serialised": list(resources.serialised),
        "schedule": found.schedule.as_dict() if found.schedule else None,
    }  # fmt: skip


def points(choices: list[Choice], clock: Clock) -> Iterator[Point]:
    """In order, compiled side by side, until the budget ends."""
    hardware = known_hardware("h200")
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(point, choice, hardware) for choice in choices]
        for future in waiting:
            if clock.left < 5:
                future.cancel()
                continue
            yield future.result()


def options() -> argparse.Namespace:
    words = parser(__doc__ or "")
    words.add_argument("--run", action="store_true", help="run them on the GPU too")
    return words.parse_args()


def main() -> None:
    settings = options()
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    wanted = [c for c in CHOICES if not settings.cases or any(w in c.case for w in settings.cases)]
    good = 0
    for found in points(wanted, clock):
        error = ran(found) if settings.run and not found.problem else None
        good += found.fine and (error is None or error < WRONG)
        results.add(row(found, error))
        torch.cuda.empty_cache()
    right = " and right" if settings.run else ""
    print(f"{good} of {len(wanted)} are legal, compiled without spills{right}")


if __name__ == "__main__":
    main()
