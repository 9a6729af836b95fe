"""What computes a phase by plain kernels, whose points threads share: its space and its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any

from ir.columns import Columns, Decision
from ir.plain.build import choices_of, plain_kernels
from ir.plain.code import PlainKernel
from ir.plain.pieces import Ways, parts_in
from ir.program import Program
from ir.schedule import Schedule, Value
from ir.space import Constraint, Space
from ir.target import Hardware
from ir.targets.cpu.frame import Frame, Planned, bytes_of
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.phase_features import PlainFeatures
from ir.targets.cpu.plain import PlainLowering, plain_room, shared_parts
from ir.targets.cpu.plain_points import LaneAxis, PointLanes, lane_axis

OWNERS, PIECES, INNER, CHUNK, BESIDE = "owners", "pieces", "inner", "chunk", "beside"
MOST_PARTS = 1 << 30
"""Bytes that the parts of pieces may take."""
_MANY = 4  # points for each thread, from which folds keep all busy without pieces
LONG = 256  # coordinates of an axis that are worth being cut into pieces
VECTORS = (1, 2, 4)  # of points that run beside each other


@dataclass(frozen=True)
class PlainPart:
    """A program that plain kernels compute, one after the other."""

    program: Program
    hardware: Hardware

    @property
    def ideal(self) -> float:
        """Cycles that it takes at least."""
        return self._features.ideal

    @cached_property
    def _features(self) -> PlainFeatures:
        return PlainFeatures(self.program, self.hardware, self._domains, self._made)

    def _made(self, values: Mapping[str, Value]) -> list[tuple[PlainKernel, int]]:
        return [
            (kernel, 1 if axis is None else axis.lanes)
            for kernel, axis in self._ways(ways_of(values), int(values.get(BESIDE) or 0))
        ]

    def _ways(self, ways: Ways, vectors: int) -> list[tuple[PlainKernel, LaneAxis | None]]:
        """The kernels, each with the axis of points that run beside each other, if any do."""
        lanes = vectors * vector_row(self.hardware.isa).lanes
        return [(kernel, _lane_axis(kernel, lanes)) for kernel in self._kernels(ways)]

    def _kernels(self, ways: Ways) -> tuple[PlainKernel, ...]:
        return _plain_kernels(self.program, ways)

    def _points(self, ways: Ways) -> int:
        return max(prod(extent for _, extent in one.points) for one in self._kernels(ways))

    @cached_property
    def _domains(self) -> Mapping[str, tuple[Value, ...]]:
        """What there is to choose, but for how points are dealt out."""
        threads, choices = self.hardware.threads, choices_of(self.program)
        found: dict[str, tuple[Value, ...]] = {}
        inside = (False, True) if choices.inner else (False,)
        if threads > 1 and any(
            self._points(Ways(threads, inner=inner)) > self._points(Ways(inner=inner))
            for inner in inside
        ):
            found[OWNERS] = (1, threads)
        few = choices.owners or self._points(Ways()) < _MANY * threads
        if threads > 1 and choices.longest >= LONG and few:
            found[PIECES] = (1, threads)
        if choices.inner:
            found[INNER] = inside
        each = [Ways(inner=inner) for inner in inside]
        beside = [n for n in VECTORS if any(axis for way in each for _, axis in self._ways(way, n))]
        if beside:
            found[BESIDE] = (0, *beside)
        return found

    def _decisions(self) -> Iterator[Decision]:
        points, threads = self._points(Ways()), self.hardware.threads
        ways = map(ways_of, _all(self._domains))
        several = threads > 1 and max(map(self._points, ways)) > 1
        kinds = ("block", "cyclic", "dynamic") if several else ("block",)
        why = f"how {points} points are dealt out to threads"
        yield Decision(CHUNK, kinds, "binding", "program", why, "block")
        whys = {
            OWNERS: f"threads among which the output is shared out: {points} points alone",
            PIECES: "parts of the longest axis, each by itself, merged in order",
            INNER: "axes without anything to meet are loops of a thread, not points",
            BESIDE: "vectors of points that do every step together; 0: one point at a time",
        }
        for name, domain in self._domains.items():
            group = {INNER: "order", BESIDE: "tile"}.get(name, "binding")
            first = domain[0]
            unsaid = None if name == OWNERS else first
            yield Decision(name, domain, group, "program", whys[name], first, unsaid=unsaid)

    def _constraints(self) -> tuple[Constraint, ...]:
        if PIECES not in self._domains:
            return ()
        room = {
            count: sum(
                map(bytes_of, parts_in(self.program, self._kernels(Ways(pieces=int(count)))))
            )
            for count in self._domains[PIECES]
        }

        def check(columns: Columns) -> Any:
            return columns.lookup(PIECES, room) <= MOST_PARTS

        def explain(values: Mapping[str, Value]) -> str:
            return (
                f"{values[PIECES]} pieces take {room[int(values[PIECES])]:,} bytes, "
                f"{MOST_PARTS:,} at most"
            )

        needs = "what pieces leave for the merge has room"
        return (Constraint(PIECES, needs, check, explain, reads=(PIECES,)),)

    def _room(self, pieces: int) -> int:
        parts = parts_in(self.program, self._kernels(Ways(pieces=pieces)))
        return sum(map(bytes_of, parts))

    def _seeds(self) -> tuple[dict[str, Value], ...]:
        """All that there is, the most promising first."""
        found = sorted(_all(self._domains), key=self._features.cycles)
        return tuple({CHUNK: "block", **values} for values in found)

    def space(self) -> Space:
        decisions, rules = tuple(self._decisions()), self._constraints()
        return Space("cpu", decisions, rules, self._seeds(), features=self._features)

    def planned(self, schedule: Schedule) -> Planned:
        values = schedule.as_dict()
        made = self._ways(ways_of(values), int(values.get(BESIDE) or 0))
        vector, chunk = vector_row(self.hardware.isa), str(schedule.get(CHUNK, "block"))
        kernels = [kernel for kernel, _ in made]
        places = shared_parts(self.program, kernels)

        def emit(frame: Frame) -> None:
            for number, (kernel, axis) in enumerate(made):
                if number:
                    frame.barrier()
                if axis is None:
                    PlainLowering(kernel, frame, vector, places).run(chunk)
                else:
                    PointLanes(kernel, frame, vector, axis, places).run(chunk)

        beside = [1 if axis is None else axis.lanes for _, axis in made]
        return Planned(plain_room(*kernels, parts=places, beside=beside), emit)


def ways_of(values: Mapping[str, Value]) -> Ways:
    """How the kernels of a schedule are cut."""
    return Ways(
        owners=int(values.get(OWNERS) or 1),
        pieces=int(values.get(PIECES) or 1),
        inner=bool(values.get(INNER, False)),
    )


def _all(domains: Mapping[str, tuple[Value, ...]]) -> Iterator[dict[str, Value]]:
    for values in product(*domains.values()):
        yield dict(zip(domains, values, strict=True))


@lru_cache(maxsize=256)
def _lane_axis(kernel: PlainKernel, lanes: int) -> LaneAxis | None:
    return lane_axis(kernel, lanes) if lanes else None


@lru_cache(maxsize=256)
def _plain_kernels(program: Program, ways: Ways) -> tuple[PlainKernel, ...]:
    return plain_kernels(program, ways)
