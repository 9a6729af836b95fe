"""What computes the phases of a program: tiles of vectors, or a plain kernel's scalars.

Each part has a space of its own, and takes its place in a kernel's frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from ir.columns import Decision
from ir.plain.build import plain_kernel
from ir.plain.code import PlainKernel
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Hardware
from ir.targets.cpu.constraints import Constraints
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.features import Features
from ir.targets.cpu.frame import Frame, Room
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.lower import Lowering, room_of
from ir.targets.cpu.meaning import Meaning
from ir.targets.cpu.phase_features import PlainFeatures
from ir.targets.cpu.plain import PlainLowering, plain_room
from ir.targets.cpu.planner import make_plan
from ir.targets.cpu.seeds import seeds
from ir.targets.cpu.shape import stage_shapes
from ir.targets.cpu.splitting import WHOLE, choices, split_program, translated


@dataclass(frozen=True, slots=True)
class Planned:
    """One candidate of a part: the workspace that it needs, and what emits it."""

    room: Room
    emit: Callable[[Frame], None]


@dataclass(frozen=True)
class StagedPart:
    """A program cut into stages, which register tiles of vectors compute."""

    program: Program
    hardware: Hardware

    @cached_property
    def _features(self) -> Features:
        return Features(self._decisions)

    @cached_property
    def _decisions(self) -> Decisions:
        program, hardware = self.program, self.hardware
        staged = split_program(program, WHOLE)
        shapes = stage_shapes(staged, hardware.isa)
        splits = choices(program, staged, hardware.threads)
        vector = vector_row(hardware.isa)
        return Decisions(staged, shapes, hardware, vector, splits, program)

    @property
    def ideal(self) -> float:
        """Cycles that it takes at least."""
        return self._features.ideal

    def space(self) -> Space:
        decisions = self._decisions
        found = decisions.all()
        rules = Constraints(decisions).all()
        meaning = Meaning(decisions)
        return Space("cpu", found, rules, seeds(decisions), self._features, meaning=meaning)

    def planned(self, schedule: Schedule) -> Planned:
        """Raises Refusal."""
        isa = self.hardware.isa
        staged = split_program(self.program, WHOLE)
        choice = str(schedule.get("split", WHOLE))
        if choice != WHOLE:
            parted = split_program(self.program, choice)
            schedule, staged = translated(schedule, staged, parted, isa), parted
        plan = make_plan(staged, schedule, vector_row(isa), self.hardware.threads)
        return Planned(room_of(plan), lambda frame: Lowering(plan, frame).run())


@dataclass(frozen=True)
class PlainPart:
    """A program that a plain kernel computes, whose points threads share."""

    program: Program
    hardware: Hardware

    def _points(self, owners: int = 1) -> int:
        return prod(extent for _, extent in _plain_kernel(self.program, owners).points)

    @property
    def ideal(self) -> float:
        """Cycles that it takes at least."""
        return self._features.ideal

    @cached_property
    def _features(self) -> PlainFeatures:
        return PlainFeatures(self.program, self._points(), self.hardware)

    def space(self) -> Space:
        threads = self.hardware.threads
        points, most = self._points(), self._points(threads)
        dealt = Decision(
            "chunk",
            ("block", "cyclic", "dynamic") if threads > 1 and most > 1 else ("block",),
            "binding",
            "program",
            f"how {points} points are dealt out to threads",
            "block",
        )
        found = [dealt]
        if most > points:
            why = f"threads that go through all that is sent: {points} points alone, or {most}"
            found.append(Decision("owners", (1, threads), "binding", "program", why, 1))
        return Space("cpu", tuple(found), features=self._features)

    def planned(self, schedule: Schedule) -> Planned:
        kernel = _plain_kernel(self.program, int(schedule.get("owners") or 1))
        vector, chunk = vector_row(self.hardware.isa), str(schedule.get("chunk", "block"))
        return Planned(
            plain_room(kernel), lambda frame: PlainLowering(kernel, frame, vector).run(chunk)
        )


@lru_cache(maxsize=256)
def _plain_kernel(program: Program, owners: int) -> PlainKernel:
    return plain_kernel(program, owners)
