"""Right and wrong kernels of a program through the real examiner: which it refuses.

A right kernel is one of a backend, of a drawn schedule. What is not to be told from a right one by
anybody (see `Subject.tells`) is counted apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from explorer.expectation import SETS, ExpectationMaker, Recipe
from explorer.runtime.workers import Examination, Examiner, Timing
from ir.dtypes import is_float
from ir.errors import TilewrightError
from ir.oracle import evaluate
from ir.program import Program
from ir.roundoff import FORMATS
from ir.schedule import Schedule
from ir.target import Backend, Hardware
from tests.mutants.launches import LAUNCHES, Fault, Faulty, leaves, packed_before
from tests.mutants.programs import wrong_programs
from tests.mutants.results import wrong_results
from tests.mutants.subject import Subject, stored

SEED = 11
BRIEF = Timing(fewest=2, most=3, budget=0.0, again=0)
RIGHT = ("ok",)


@dataclass
class Machine:
    """A target and who runs its kernels."""

    backend: Backend
    hardware: Hardware
    runtime: Faulty
    accumulations: Any = ()
    timing: Timing = BRIEF


@dataclass
class Found:
    """What became of the kernels of one program: words for each."""

    right: int = 0
    used: float = 0.0  # the largest part of their room that right ones took
    refused: list[str] = field(default_factory=list)  # right ones
    caught: list[str] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    like_right: list[str] = field(default_factory=list)  # that nobody could tell
    unbuilt: list[str] = field(default_factory=list)  # that the target does not lower


class Suite:
    """Examines kernels of one program on one machine. Use as a context manager."""

    def __init__(self, program: Program, machine: Machine, seed: int = SEED) -> None:
        self.program, self.machine, self.seed = program, machine, seed
        self.found = Found()
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.subjects = [Subject.of(program, seed * SETS + number) for number in range(SETS)]
        self.examiner = self._examiner()
        self.rng = np.random.default_rng(seed)

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _examiner(self) -> Examiner:
        recipe = Recipe(self.program, self.seed, self.machine.accumulations)
        source = (
            recipe if self.machine.runtime.apart else ExpectationMaker(recipe, self._folder).make()
        )
        return _On(source, self.machine.runtime)

    # -- right ones

    def schedules(self, program: Program, count: int) -> list[Schedule]:
        space = self.machine.backend.space(program, self.machine.hardware)
        return [space.schedule(row) for row in space.sample(self.rng, count)]

    def calibrate(self, count: int, seeds: int = 0) -> None:
        """Right kernels of `count` drawn schedules and so many of the space's seeds."""
        space = self.machine.backend.space(self.program, self.machine.hardware)
        first = [space.schedule(row) for row in space.seed_rows(self.rng)[:seeds]] if seeds else []
        for schedule in (*first, *self.schedules(self.program, count)):
            with self.machine.runtime.really():
                seen = self._run(self.program, schedule)
            self.found.right += 1
            self.found.used = max(self.found.used, self._used())
            if seen.status not in RIGHT:
                self.found.refused.append(f"{seen.status}: {seen.detail} {schedule.to_json()}")

    def _used(self) -> float:
        """The largest part of the room beyond its own rounding that an element of the last right
        outputs took."""
        most = 0.0
        for name, bounds in self.examiner._set(1).bounds.items():
            if is_float(bounds.dtype) and bounds.picks is None:
                output = self.examiner._outputs[name].reshape(-1)
                have, want, low, high = bounds._sampled(output, 1)
                with np.errstate(all="ignore"):
                    half = FORMATS[bounds.dtype].half_unit(np.abs(want))
                    room, off = (high - low) / 2 - half, np.abs(have - want) - half
                    share = np.where(room > half / 16, off / room, 0.0)
                most = max(most, float(np.nanmax(np.where(np.isfinite(share), share, 0.0))))
        return round(most, 3)

    def _run(self, program: Program, schedule: Schedule, fault: Fault | None = None) -> Examination:
        machine = self.machine
        kernel = machine.backend.lower(program, schedule, machine.hardware)
        binary = machine.runtime.compile(kernel, Path(self._folder))
        machine.runtime.fault = fault
        try:
            return self.examiner.examine(binary, None, machine.timing)
        finally:
            machine.runtime.fault = None

    # -- wrong ones

    def judge_launches(self) -> None:
        """Faults of a right kernel's launches, and wrong outputs in the place of its own."""
        (schedule,) = self.schedules(self.program, 1)
        for what, fault in self._faults():
            self._note(what, self._run(self.program, schedule, fault))

    def _faults(self) -> Iterator[tuple[str, Fault]]:
        first, second = self.subjects
        for what, wrong in wrong_results(first):
            if first.tells(wrong):
                yield what, leaves(wrong)
            else:
                self.found.like_right.append(what)
        for spec in self.program.inputs:
            mixed = evaluate(self.program, {**second.inputs, spec.name: first.inputs[spec.name]})
            wrong = stored(self.program.outputs, mixed)
            if second.tells(wrong):
                yield f"{spec.name} kept from the first set", packed_before(wrong)
        for what, fault in LAUNCHES.items():
            if what.startswith("the second set") and not second.tells(first.stored):
                continue
            yield what, fault

    def judge_programs(self, each: int = 1) -> None:
        """Kernels of wrong programs: of what is wrong, `each` of the first that show."""
        for what, programs in wrong_programs(self.program):
            for program in islice(self._showing(what, programs), each):
                self._judge_program(what, program)

    def _showing(self, what: str, programs: Iterator[Program]) -> Iterator[Program]:
        subject, made, shown = self.subjects[0], False, False
        for program in programs:
            made = True
            if all(
                subject.tells(
                    stored(self.program.outputs, evaluate(program, subject.inputs, block=b))
                )
                for b in (0, 1 << 30)  # a state that a wrong carry spoils may never be carried
            ):
                shown = True
                yield program
        if made and not shown:
            self.found.like_right.append(what)

    def _judge_program(self, what: str, program: Program) -> None:
        try:
            (schedule,) = self.schedules(program, 1)
            seen = self._run(program, schedule)
        except TilewrightError as error:
            self.found.unbuilt.append(f"{what}: {error}")
            return
        self._note(what, seen)

    def _note(self, what: str, seen: Examination) -> None:
        (self.found.alive if seen.status in RIGHT else self.found.caught).append(what)


class _On(Examiner):
    """The examiner on a runtime that is there already."""

    def __init__(self, source: Any, runtime: Any) -> None:
        self._given = runtime
        super().__init__(source, "cpu")

    def _prepare(self, device: int) -> None:
        self._runtime = self._given
        self._runtime.prepare()
