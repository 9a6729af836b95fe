"""What a learned model sees of a program of several phases: the same columns as of one phase.

Times add up; what is not a time is that of the heaviest phase. A plain kernel has the columns of
a program without stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.joined import Joined
from ir.plain.code import PlainKernel
from ir.plain.strides import moved_bytes, steps_of
from ir.program import Program
from ir.schedule import Value
from ir.space import Columns
from ir.target import Hardware
from ir.targets.cpu.costs import BARRIER, BYTES_PER_CYCLE
from ir.targets.cpu.features import CLOCK, ESTIMATES, SLOT_NAMES, SLOTS
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.plain_team import meetings as meetings_of
from ir.targets.cpu.regions import Array

LOGS = ("seconds.ideal", "seconds.traffic", "program.flops", "program.bytes")
COUNTS = ("program.stages", "program.products")
SHARES = ("total.serial", "joint.alone")
NOT_RELATIVE = ("joint.live", "joint.uneven", "joint.speed", "joint.set.l1", "joint.set.l2",
                "joint.set.l3", "joint.l1.work", "joint.l2.work", "joint.l3.work")  # fmt: skip
LEAST = 2.0**-20
UNLIKE = 0.75  # of its lanes is a vector worth, whose points do some things alike one by one


@dataclass(frozen=True)
class PhaseFeatures:
    """Callable: columns -> (names, float32 matrix), of phases whose least cycles are `ideals`.

    Costs are relative to all of them, or to `least` cycles, which stand for `whole` ones where the
    phases are those of a part that is done `often`.
    """

    joined: Joined
    ideals: tuple[float, ...]
    least: float | None = None
    whole: float | None = None
    often: int = 1

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        tables = [
            self._table(number, columns.part(prefix))
            for number, prefix in enumerate(self.joined.prefixes)
        ]
        names = tuple(tables[0])
        first = tables[self._main([t["program.stages"].max() > 0 for t in tables])]
        found = {
            name: self._combined(name, [t[name] for t in tables], first[name]) for name in names
        }
        for name in ("program.flops", "program.bytes"):
            found[name] = found[name] + log2(self.often)
        found["program.intensity"] = found["program.flops"] - found["program.bytes"]
        if self.least is not None:
            more = log2(sum(self.ideals) / self.least)
            found |= {name: found[name] + more for name in names if _is_relative(name)}
            found["seconds.ideal"] = np.full(columns.rows, log2((self.whole or self.least) / CLOCK))
        matrix = np.empty((columns.rows, len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            matrix[:, place] = found[name]
        return names, matrix

    def _main(self, staged: list[bool]) -> int:
        """The heaviest phase, of those with stages if there are any."""
        numbers = [n for n, has in enumerate(staged) if has] or range(len(staged))
        return max(numbers, key=lambda number: self.ideals[number])

    def _table(self, number: int, columns: Columns) -> dict[str, Array]:
        features = self.joined.spaces[number].features
        assert features is not None
        names, matrix = features(columns)
        return {name: matrix[:, place].astype(np.float64) for place, name in enumerate(names)}

    def _combined(self, name: str, values: list[Array], first: Array) -> Array:
        """One column of all phases."""
        stack = np.stack(values)
        if name in LOGS:
            return np.asarray(np.log2(np.exp2(stack).sum(axis=0)))
        if name in COUNTS:
            return np.asarray(stack.sum(axis=0))
        weights = np.array(self.ideals)[:, None] / sum(self.ideals)
        if name in SHARES:
            return np.asarray((stack * weights).sum(axis=0))
        if _is_relative(name):
            return _log((np.exp2(stack) * weights).sum(axis=0))
        return first


def _is_relative(name: str) -> bool:
    """Whether a column is a cost over that of the ideal."""
    costs = name.startswith(("total.", "joint.")) and name not in NOT_RELATIVE
    return costs and name not in SHARES


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of kernels one after the other: threads at work in the longest, cycles of all threads'
    scalars and of what they move, and meetings."""

    busy: int
    work: float
    moved: float
    meetings: float


class PlainFeatures:
    """Of plain kernels, which `kernels` makes of the values of decisions with these `domains`, each
    with the number of its points that run beside each other, and whether all threads share a point:
    callable as `Features` is. `usual` are values that are worth being looked at."""

    def __init__(
        self,
        program: Program,
        hardware: Hardware,
        domains: Mapping[str, tuple[Value, ...]],
        kernels: Callable[[Mapping[str, Value]], Sequence[tuple[PlainKernel, int, bool]]],
        usual: Sequence[Mapping[str, Value]],
    ) -> None:
        self.program, self.hardware = program, hardware
        self.domains, self.kernels, self.usual = domains, kernels, usual
        self._costs: dict[tuple[Value, ...], _Cost] = {}

    @property
    def _lanes(self) -> int:
        return vector_row(self.hardware.isa).lanes

    @cached_property
    def ideal(self) -> float:
        """Cycles: one for each operation, of scalars; or those of moving every tensor once."""
        busy = max(self._cost_of(values).busy for values in self.usual)
        moved = self.program.bytes / BYTES_PER_CYCLE["l3"]
        return max(self.program.flops / busy, moved / busy, 1.0)

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        table = self._workload() | dict.fromkeys(ESTIMATES, 0.0) | self._estimates(columns)
        for kind in ("block", "cyclic", "dynamic"):
            table[f"chunk.{kind}"] = columns.is_("chunk", kind).astype(np.float64)
        for number in range(SLOTS):
            table |= {f"stage{number}.{name}": np.nan for name in SLOT_NAMES}
        matrix = np.empty((columns.rows, len(table)), dtype=np.float32)
        for place, value in enumerate(table.values()):
            matrix[:, place] = value
        return tuple(table), matrix

    def _workload(self) -> dict[str, float | Array]:
        program, hardware = self.program, self.hardware
        flops = max(1, program.flops)
        return {
            "seconds.ideal": log2(self.ideal / CLOCK),
            "program.flops": log2(flops),
            "program.bytes": log2(program.bytes),
            "program.intensity": log2(flops / program.bytes),
            "program.stages": 0.0,
            "program.products": 0.0,
            "program.narrowest": min(dtype_of(spec.dtype).bytes for spec in program.tensors),
            "program.heaviest": 1.0,
            "machine.threads": hardware.threads,
            "machine.lanes": self._lanes,
            "machine.l1": log2(hardware["l1_bytes"]),
            "machine.l2": log2(hardware["l2_bytes"]),
        }

    def _cost_of(self, values: Mapping[str, Value]) -> _Cost:
        key = tuple(values.get(name, domain[0]) for name, domain in self.domains.items())
        if key not in self._costs:
            self._costs[key] = self._cost(dict(zip(self.domains, key, strict=True)))
        return self._costs[key]

    def _cost(self, values: Mapping[str, Value]) -> _Cost:
        busy, work, moved = 1, 0.0, 0.0
        kernels = self.kernels(values)
        meetings = len(kernels) - 1.0
        for kernel, beside, shares in kernels:
            points = prod(extent for _, extent in kernel.points)
            rounds = kernel.rounds[1] if kernel.rounds else 1
            own, most = min(points, self.hardware.threads), float(points * rounds)
            meetings += rounds - 1.0
            if shares:
                own = self.hardware.threads
                meetings += most * meetings_of(kernel.body)
            busy = max(busy, own)
            steps = most * steps_of(kernel.body)
            steps = max(steps, self.program.flops if len(kernels) == 1 else steps)
            work += steps / own / min(beside, self._lanes * UNLIKE)
            moved += (
                most * moved_bytes(kernel, self.hardware["l2_bytes"]) / BYTES_PER_CYCLE["l3"] / own
            )
        return _Cost(busy, work, moved, meetings)

    def cycles(self, values: Mapping[str, Value]) -> float:
        """The estimate of one way to cut."""
        cost = self._cost_of(values)
        return cost.work + cost.moved + cost.meetings * BARRIER

    def _estimates(self, columns: Columns) -> dict[str, float | Array]:
        which = np.zeros(columns.rows, dtype=np.int64)
        for name, domain in self.domains.items():
            which = which * len(domain) + columns.codes(name)
        _, first, place = np.unique(which, return_index=True, return_inverse=True)
        costs = [
            self._cost_of({name: domain[columns.codes(name)[row]]
                           for name, domain in self.domains.items()})
            for row in map(int, first)
        ]  # fmt: skip
        work, moved, busy, meetings = (
            np.array([getattr(cost, name) for cost in costs], dtype=np.float64)[place.reshape(-1)]
            for name in ("work", "moved", "busy", "meetings")
        )
        meeting = meetings * BARRIER
        return {
            "total.arithmetic": _log(work / self.ideal),
            "total.l3": _log(moved / self.ideal),
            "total.meeting": _log(meeting / self.ideal),
            "total.estimate": _log((work + moved + meeting) / self.ideal),
            "seconds.traffic": _log(moved / CLOCK),
            "total.serial": (busy == 1).astype(np.float64),
            "joint.work": _log(work / self.ideal),
            "joint.l3": _log(moved / self.ideal),
            "joint.estimate": _log((work + moved + meeting) / self.ideal),
            "joint.speed": busy,
        }


def _log(values: Array) -> Array:
    return np.asarray(np.log2(np.maximum(values, LEAST)), dtype=np.float64)
