"""The candidates of a program on the CPU: its space, and the kernel of each schedule of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ir.alternatives import ROWS, Alternatives, chosen
from ir.errors import UsageError
from ir.joined import Joined, part_of, prefixes
from ir.kernel import Kernel
from ir.ops.base import TensorSpec
from ir.phases import Phase, phases_of
from ir.program import Program
from ir.rewrite.joining import short_joined
from ir.rewrite.work import Rates
from ir.routes import as_given, formed, space_of_forms
from ir.rows import row_axes, stretch, tensors_along
from ir.schedule import Schedule
from ir.space import Space
from ir.stages import StagedProgram
from ir.target import Hardware
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.features import CLOCK
from ir.targets.cpu.frame import PAGE, Frame, Planned, Room, alone, bytes_of
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.nest import SCALAR_BYTES
from ir.targets.cpu.parts import StagedPart
from ir.targets.cpu.phase_features import PhaseFeatures
from ir.targets.cpu.plain_part import PlainPart
from ir.targets.cpu.plan import round_up
from ir.targets.cpu.runs import in_runs
from ir.targets.cpu.splitting import WHOLE, split_program

Part = StagedPart | PlainPart
WHOLE_ROWS = "whole"
OF_CACHE = 0.5  # of a core's second cache, for what lies between phases of a stretch
MEMORY = 10e9  # bytes a second that one machine's memory gives, for comparisons on paper


def staged_program(program: Program) -> StagedProgram:
    """The program streamed and cut into stages."""
    return split_program(program, WHOLE)


def space_of(program: Program, hardware: Hardware) -> Space:
    """Every decision for `program`; raises UsageError for dtypes that no scalar holds."""
    return space_of_forms(
        program,
        rates_of(hardware),
        lambda form: ideal_of(short_joined(form), hardware),
        lambda form, least, _: _space_of(short_joined(form), hardware, least),
    )


def rates_of(hardware: Hardware) -> Rates:
    """What the machine does in a second, on paper."""
    lanes = vector_row(hardware.isa).lanes
    rate = CLOCK * hardware.threads * lanes
    return Rates({"f32": 4 * rate, "f64": 2 * rate}, 2 * rate, MEMORY)


def ideal_of(program: Program, hardware: Hardware) -> float:
    """Cycles that a program takes at least."""
    return sum(part.ideal for part in parts_of(program, hardware))


def _space_of(program: Program, hardware: Hardware, least: float | None) -> Space:
    phases = phases_of(program)
    for spec in (spec for phase in phases for spec in phase.program.tensors):
        if scalar_of(spec.dtype) not in SCALAR_BYTES:
            raise UsageError(f"{program.name}: the cpu target has no {spec.dtype} ({spec.name})")
    stretches = stretches_of(program, hardware)
    if not stretches:
        return _joined_space(program, hardware, least)
    least = least or ideal_of(program, hardware)
    spaces = {WHOLE_ROWS: _joined_space(program, hardware, least)}
    for one in stretches:  # each thread's cycles, as often as it does one
        turns = one.turns / hardware.threads
        own = _joined_space(one.program, one.hardware, least / turns, least, one.turns)
        spaces[one.name] = own
    owner = next(iter(program.axes), program.name)
    return Alternatives(ROWS, spaces, owner).space()


def _joined_space(
    program: Program, hardware: Hardware, least: float | None, whole: float | None = None,
    often: int = 1,
) -> Space:  # fmt: skip
    """The space of all phases; costs are relative to `least` cycles. Of what is done `often` these
    stand for `whole` cycles."""
    parts = parts_of(program, hardware, least)
    joined = Joined.of([part.space() for part in parts])
    ideals = [part.ideal for part in parts] if len(parts) > 1 else []
    return joined.space(PhaseFeatures(joined, tuple(ideals), least, whole, often))


def parts_of(program: Program, hardware: Hardware, least: float | None = None) -> tuple[Part, ...]:
    """What computes each phase; costs of a single one are relative to `least` cycles."""
    phases = phases_of(program)
    own = least if len(phases) == 1 else None
    return tuple(
        PlainPart(phase.program, hardware)
        if phase.plain
        else StagedPart(phase.program, hardware, least=own)
        for phase in phases
    )


def lower(program: Program, schedule: Schedule, hardware: Hardware, full: bool = False) -> Kernel:
    """Generate the kernel (with C text too if `full`); raises Refusal."""
    form, own = formed(program, schedule, rates_of(hardware))
    return as_given(_lower(short_joined(form), own, hardware, full), program)


def _lower(program: Program, schedule: Schedule, hardware: Hardware, full: bool) -> Kernel:
    from ir.targets.cpu.llvm import print_llvm

    stretches = stretches_of(program, hardware)
    names = (WHOLE_ROWS, *(one.name for one in stretches))
    value, own = chosen(schedule, ROWS, names) if stretches else (WHOLE_ROWS, schedule)
    if value == WHOLE_ROWS:
        phased = _Phased.of(program, own, hardware)
        frame = _frame(program, phased.temps, phased.rooms, hardware)
        phased.emit(frame)
    else:
        frame = _by_stretches(program, stretches[names.index(value) - 1], own, hardware)
    in_runs(frame.b)
    function = frame.b.function
    texts = [("llvm", print_llvm(function, hardware.isa))]
    if full:
        from ir.targets.cpu.c import print_c

        texts.append(("c", print_c(function)))
    entry = frame.b.function.name
    return Kernel(program.name, "cpu", frame.arguments, tuple(texts), entry, hardware.threads)


def _frame(
    program: Program, temps: list[tuple[TensorSpec, int]], rooms: list[Room], hardware: Hardware
) -> Frame:
    return Frame(f"{program.name}_body", program.tensors, temps, rooms, hardware.threads)


def _by_stretches(program: Program, one: Stretch, schedule: Schedule, hardware: Hardware) -> Frame:
    """Every thread takes stretches, and goes through all phases with each."""
    phased = _Phased.of(one.program, schedule, one.hardware)
    frame = _frame(program, [], [alone(phased.temps, phased.rooms)], hardware)
    steps = {
        spec.name: bytes_of(spec)
        for spec in one.program.tensors
        if spec.name in tensors_along(program, one.axis)
    }
    even = one.turns % hardware.threads == 0
    with frame.iterations(one.turns, "block" if even else "dynamic", True) as turn:
        pointers = dict(frame.pointers)
        for name, step in steps.items():
            pointers[name] = frame.b.offset(pointers[name], frame.b.mul(turn, step))
        phased.emit(frame.within(pointers, phased.temps, phased.rooms))
    return frame


@dataclass(frozen=True)
class _Phased:
    """What computes the phases of a program, by one schedule, one behind the other."""

    parts: tuple[Part, ...]
    planned: list[Planned]
    temps: list[tuple[TensorSpec, int]]

    @classmethod
    def of(cls, program: Program, schedule: Schedule, hardware: Hardware) -> _Phased:
        """Raises Refusal."""
        parts = parts_of(program, hardware)
        own = [part_of(schedule, prefix) for prefix in prefixes(len(parts))]
        planned = [part.planned(values) for part, values in zip(parts, own, strict=True)]
        return cls(parts, planned, places(program, phases_of(program)))

    @property
    def rooms(self) -> list[Room]:
        return [one.room for one in self.planned]

    def emit(self, frame: Frame) -> None:
        for number, (part, one) in enumerate(zip(self.parts, self.planned, strict=True)):
            if number:
                frame.barrier()
            if len(self.parts) > 1:
                frame.b.comment(f"phase {number}: {part.program.name}")
            one.emit(frame)


@dataclass(frozen=True)
class Stretch:
    """Coordinates of a row axis that a thread takes through all phases by itself."""

    axis: str
    count: int
    turns: int
    program: Program
    hardware: Hardware

    @property
    def name(self) -> str:
        return f"{self.axis}-{self.count}"


@lru_cache(maxsize=64)
def stretches_of(program: Program, hardware: Hardware) -> tuple[Stretch, ...]:
    """The stretch of each row axis whose temporaries fit a part of a core's own cache, where there
    are several phases: of those between them, none is read from memory then."""
    if len(phases_of(program)) < 2:
        return ()
    found = []
    for axis in row_axes(program):
        extent = program.axes[axis]
        room = hardware["l2_bytes"] * OF_CACHE / max(1, _bytes_between(stretch(program, axis, 1)))
        most = min(int(room), extent // hardware.threads)
        count = max((n for n in range(1, most + 1) if extent % n == 0), default=0)
        if count:
            one = replace(hardware, threads=1)
            part = stretch(program, axis, count)
            found.append(Stretch(axis, count, extent // count, part, one))
    return tuple(found)


def _bytes_between(program: Program) -> int:
    """Of the tensors between phases, as many as there are at a time."""
    return max((at + bytes_of(spec) for spec, at in places(program, phases_of(program))), default=0)


def places(program: Program, phases: Sequence[Phase]) -> list[tuple[TensorSpec, int]]:
    """The tensors between phases, and where each lies: those that are needed at a time apart."""
    own = {spec.name for spec in program.tensors}
    last = {spec.name: n for n, phase in enumerate(phases) for spec in phase.program.inputs}
    found: list[tuple[TensorSpec, int]] = []
    for number, phase in enumerate(phases):
        for spec in (spec for spec in phase.program.outputs if spec.name not in own):
            busy = [(at, at + _room(one)) for one, at in found if last[one.name] >= number]
            found.append((spec, _first_free(sorted(busy), _room(spec))))
    return found


def _room(spec: TensorSpec) -> int:
    return round_up(bytes_of(spec), PAGE)


def _first_free(busy: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest place for so many bytes beside what is busy (in order)."""
    place = 0
    for low, high in busy:
        if place + size <= low:
            break
        place = max(place, high)
    return place
