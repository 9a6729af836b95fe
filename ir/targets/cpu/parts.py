"""What computes a phase of a program that register tiles of vectors compute.

Like `plain_part`, it has a space of its own, and takes its place in a kernel's frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ir.alternatives import RESIDENCE, Alternatives, chosen
from ir.program import Program
from ir.residence import AS_USUAL, Residence, residences
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Hardware
from ir.targets.cpu.constraints import Constraints
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.features import Features
from ir.targets.cpu.frame import Planned
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.meaning import Meaning
from ir.targets.cpu.planner import make_plan
from ir.targets.cpu.seeds import seeds
from ir.targets.cpu.shape import stage_shapes
from ir.targets.cpu.splitting import WHOLE, choices, split_program, translated


@dataclass(frozen=True)
class StagedPart:
    """A program cut into stages, which register tiles of vectors compute."""

    program: Program
    hardware: Hardware
    residence: Residence = AS_USUAL
    least: float | None = None  # cycles to which costs are relative, if not its own

    @cached_property
    def _features(self) -> Features:
        return Features(self._decisions, self.least)

    @cached_property
    def _decisions(self) -> Decisions:
        program, hardware = self.program, self.hardware
        staged = split_program(program, WHOLE, self.residence)
        shapes = stage_shapes(staged, hardware.isa)
        splits = choices(program, staged, hardware.threads, self.residence)
        vector = vector_row(hardware.isa)
        return Decisions(staged, shapes, hardware, vector, splits, program, self.residence)

    @property
    def ideal(self) -> float:
        """Cycles that it takes at least."""
        return self._features.ideal

    def space(self) -> Space:
        """The space of all residences; costs of each are relative to the same."""
        if self.residence != AS_USUAL:
            return self._own_space()
        others = {r.name: self._at(r) for r in residences(self.program)}
        spaces = {name: part._own_space() for name, part in others.items()}
        owner = next(iter(self.program.axes), self.program.name)
        return Alternatives(RESIDENCE, spaces, owner).space()

    def _at(self, residence: Residence) -> StagedPart:
        return StagedPart(self.program, self.hardware, residence, self.ideal)

    def _own_space(self) -> Space:
        decisions = self._decisions
        found = decisions.all()
        rules = Constraints(decisions).all()
        meaning = Meaning(decisions)
        return Space("cpu", found, rules, seeds(decisions), self._features, meaning=meaning)

    def planned(self, schedule: Schedule) -> Planned:
        """Raises Refusal."""
        if self.residence == AS_USUAL:
            names = {r.name: r for r in residences(self.program)}
            value, schedule = chosen(schedule, RESIDENCE, tuple(names))
            return self._at(names[value])._planned(schedule)
        return self._planned(schedule)

    def _planned(self, schedule: Schedule) -> Planned:
        from ir.targets.cpu.lower import Lowering, room_of

        isa = self.hardware.isa
        staged = split_program(self.program, WHOLE, self.residence)
        choice = str(schedule.get("split", WHOLE))
        if choice != WHOLE:
            parted = split_program(self.program, choice, self.residence)
            schedule, staged = translated(schedule, staged, parted, isa), parted
        plan = make_plan(staged, schedule, vector_row(isa), self.hardware.threads)
        return Planned(room_of(plan), lambda frame: Lowering(plan, frame).run())
