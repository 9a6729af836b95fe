"""What computes a phase by plain kernels, whose points threads share: its space and its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ir.columns import Columns, Decision
from ir.ops.fold import Fold
from ir.plain.build import choices_of, plain_kernels
from ir.plain.code import PlainKernel
from ir.plain.long_indices import with_long_indices
from ir.plain.overlap_space import OVERLAP, Offer, OverlapCuts
from ir.plain.pieces import Ways, parts_in
from ir.plain.shared_sums import with_shared_sums
from ir.program import Program
from ir.schedule import Schedule, Value
from ir.space import Constraint, Space
from ir.target import Hardware
from ir.targets.cpu.frame import PAGE, Frame, Planned, Room, bytes_of
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.phase_features import PlainFeatures
from ir.targets.cpu.plain import PlainLowering, plain_room, shared_parts
from ir.targets.cpu.plain_fold_lanes import fold_arrays
from ir.targets.cpu.plain_points import LaneAxis, PointLanes, lane_axis
from ir.targets.cpu.plain_team import TeamLowering, can_share, shared_bytes
from ir.targets.cpu.plan import round_up

OWNERS, PIECES, INNER, CHUNK, BESIDE = "owners", "pieces", "inner", "chunk", "beside"
TEAM = "team"
_TILES = Offer(
    (1024, 4096, 16384), (64, 256, 1024), {2: (16, 32, 64), 3: (8, 16, 32), 0: (4, 8)},
    (1,), (1,), 0, (1, 2, 8),
)  # fmt: skip
_LEAST_ROOM = 128 << 10
MOST_PARTS = 1 << 30
"""Bytes that the parts of pieces may take."""
_MANY = 4  # points for each thread, from which folds keep all busy without pieces
LONG = 256  # coordinates of an axis that are worth being cut into pieces
VECTORS = (1, 2, 4)  # of points that run beside each other


class _Way(NamedTuple):
    """A kernel, the axis of points that run beside each other, if any do, and whether all threads
    share its points."""

    kernel: PlainKernel
    axis: LaneAxis | None
    shares: bool


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
        usual = tuple(self._all())
        return PlainFeatures(self.program, self.hardware, self._domains, self._made, usual)

    def _made(self, values: Mapping[str, Value]) -> list[tuple[PlainKernel, int, bool]]:
        return [(way.kernel, self._together(way), way.shares) for way in self._ways(values)]

    def _together(self, way: _Way) -> int:
        """Points, or neighbours of what a point folds, that are computed in one vector."""
        if way.axis is not None:
            return way.axis.lanes
        stretched = not way.shares and fold_arrays(way.kernel)
        return vector_row(self.hardware.isa).lanes if stretched else 1

    @property
    def _folds(self) -> bool:
        return any(isinstance(node.op, Fold) for node in self.program.nodes)

    def _ways(self, values: Mapping[str, Value]) -> list[_Way]:
        """The kernels of a schedule."""
        ways = self._way_of(values)
        lanes = int(values.get(BESIDE) or 0) * vector_row(self.hardware.isa).lanes
        if _is_team(values):
            kernels = [_shared_kernel(kernel) for kernel in self._kernels(ways)]
            return [_Way(kernel, None, can_share(kernel)) for kernel in kernels]
        return [_Way(kernel, _lane_axis(kernel, lanes), False) for kernel in self._kernels(ways)]

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
        beside = [
            n for n in VECTORS for inner in inside
            if any(way.axis for way in self._ways({INNER: inner, BESIDE: n}))
        ]  # fmt: skip
        if beside:
            found[BESIDE] = (0, *dict.fromkeys(beside))
        found |= self._overlaps.domains if self._overlaps else {}
        if threads > 1 and few and any(map(can_share, self._kernels(Ways()))):
            found[TEAM] = (1, threads)
        return found

    @cached_property
    def _overlaps(self) -> OverlapCuts | None:
        """Several steps of a loop at a time, over tiles that stay in a thread's own cache."""
        windows = choices_of(self.program).windows
        offer = replace(_TILES, room=max(_LEAST_ROOM, self.hardware["l2_bytes"] // 2))
        return OverlapCuts(windows, offer, str) if windows else None

    def _decisions(self) -> Iterator[Decision]:
        points, threads = self._points(Ways()), self.hardware.threads
        several = threads > 1 and max(map(self._points, map(self._way_of, self._all()))) > 1
        kinds = ("block", "cyclic", "dynamic") if several else ("block",)
        why = f"how {points} points are dealt out to threads"
        yield Decision(CHUNK, kinds, "binding", "program", why, "block")
        whys = {
            OWNERS: f"threads among which the output is shared out: {points} points alone",
            PIECES: "parts of the longest axis, each by itself, merged in order",
            INNER: "axes without anything to meet are loops of a thread, not points",
            BESIDE: "vectors of points that do every step together; 0: one point at a time",
            TEAM: "threads that share the loops of a point, and meet where one needs what another "
            "wrote; 1: each has points of its own",
        } | (self._overlaps.whys() if self._overlaps else {})
        for name, domain in self._domains.items():
            group = {INNER: "order", BESIDE: "tile"}.get(name, "binding")
            first = domain[0]
            unsaid = None if name == OWNERS else first
            yield Decision(name, domain, group, "program", whys[name], first, unsaid=unsaid)

    def _constraints(self) -> tuple[Constraint, ...]:
        single = {name: self._domains[name][0] for name in (BESIDE, TEAM) if name in self._domains}
        tiles = self._overlaps.constraints(single) if self._overlaps else ()
        return (*self._of_pieces(), *self._of_teams(), *tiles)

    def _of_teams(self) -> tuple[Constraint, ...]:
        """Threads that share a point are at one of it."""
        if TEAM not in self._domains or BESIDE not in self._domains:
            return ()

        def check(columns: Columns) -> Any:
            return columns.is_(TEAM, 1) | columns.is_(BESIDE, 0)

        def explain(values: Mapping[str, Value]) -> str:
            return f"team={values[TEAM]} and beside={values[BESIDE]}: one of both"

        needs = "threads share a point, or points are beside each other"
        return (Constraint(TEAM, needs, check, explain, reads=(TEAM, BESIDE)),)

    def _of_pieces(self) -> tuple[Constraint, ...]:
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
        ways = [one for one in self._all() if not (one.get(BESIDE) and _is_team(one))]
        found = sorted(ways, key=self._features.cycles)
        return tuple({CHUNK: "block", **values} for values in found)

    def _all(self) -> Iterator[dict[str, Value]]:
        """All that there is to choose, but of tiles a few."""
        tiles = self._overlaps
        if tiles is None:
            yield from _all(self._domains)
            return
        others = {name: d for name, d in self._domains.items() if name not in tiles.domains}
        for said in tiles.all():
            alone = said.get(OVERLAP, 1) != 1
            yield from ({**one, **said} for one in _all(others, alone))

    def _way_of(self, values: Mapping[str, Value]) -> Ways:
        """How kernels are cut; tiles that nobody may have are none."""
        found = ways_of(values, self._overlaps)
        tiles, overlap = self._overlaps, found.overlap
        if tiles is None or overlap is None or tiles.fits(overlap.tile, overlap.steps):
            return found
        return replace(found, overlap=None)

    def space(self) -> Space:
        decisions, rules = tuple(self._decisions()), self._constraints()
        return Space("cpu", decisions, rules, self._seeds(), features=self._features)

    def planned(self, schedule: Schedule) -> Planned:
        made = self._ways(schedule.as_dict())
        vector, chunk = vector_row(self.hardware.isa), str(schedule.get(CHUNK, "block"))
        kernels, threads = [way.kernel for way in made], self.hardware.threads
        places = shared_parts(self.program, kernels)
        beside = [1 if way.axis is None else way.axis.lanes for way in made]
        room = plain_room(
            *kernels, parts=places, beside=beside, shares=[way.shares for way in made]
        )
        start = room.shared
        more = max((shared_bytes(way.kernel, threads) for way in made if way.shares), default=0)
        room = Room(start + round_up(more, PAGE), room.private)

        def emit(frame: Frame) -> None:
            for number, way in enumerate(made):
                if number:
                    frame.barrier()
                if way.shares:
                    TeamLowering(way.kernel, frame, vector, start, places).run(chunk)
                elif way.axis is None:
                    PlainLowering(way.kernel, frame, vector, places, self._folds).run(chunk)
                else:
                    PointLanes(way.kernel, frame, vector, way.axis, places).run(chunk)

        return Planned(room, emit)


def ways_of(values: Mapping[str, Value], overlaps: OverlapCuts | None = None) -> Ways:
    """How the kernels of a schedule are cut."""
    return Ways(
        owners=int(values.get(OWNERS) or 1),
        pieces=int(values.get(PIECES) or 1),
        inner=bool(values.get(INNER, False)),
        overlap=overlaps.overlap(values) if overlaps else None,
    )


def _is_team(values: Mapping[str, Value]) -> bool:
    return int(values.get(TEAM) or 1) > 1


def _all(
    domains: Mapping[str, tuple[Value, ...]], first: bool = False
) -> Iterator[dict[str, Value]]:
    """All values of decisions; of each the `first` alone."""
    for values in product(*(domain[:1] if first else domain for domain in domains.values())):
        yield dict(zip(domains, values, strict=True))


@lru_cache(maxsize=256)
def _lane_axis(kernel: PlainKernel, lanes: int) -> LaneAxis | None:
    return lane_axis(kernel, lanes) if lanes else None


@lru_cache(maxsize=256)
def _shared_kernel(kernel: PlainKernel) -> PlainKernel:
    return with_shared_sums(kernel) if can_share(kernel) else kernel


@lru_cache(maxsize=256)
def _plain_kernels(program: Program, ways: Ways) -> tuple[PlainKernel, ...]:
    return tuple(map(with_long_indices, plain_kernels(program, ways)))
