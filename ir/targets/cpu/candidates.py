"""The candidates of a program on the CPU: its space, and the kernel of each schedule of it."""

from __future__ import annotations

from collections.abc import Sequence

from ir.errors import UsageError
from ir.joined import Joined, part_of, prefixes
from ir.kernel import Kernel
from ir.ops.base import TensorSpec
from ir.phases import Phase, phases_of
from ir.program import Program
from ir.rewrite.forms import Rates
from ir.routes import as_given, formed, space_of_forms
from ir.schedule import Schedule
from ir.space import Space
from ir.stages import StagedProgram
from ir.target import Hardware
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.features import CLOCK
from ir.targets.cpu.frame import PAGE, Frame, bytes_of
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.nest import SCALAR_BYTES
from ir.targets.cpu.parts import StagedPart
from ir.targets.cpu.phase_features import PhaseFeatures
from ir.targets.cpu.plain_part import PlainPart
from ir.targets.cpu.plan import round_up
from ir.targets.cpu.splitting import WHOLE, split_program

Part = StagedPart | PlainPart
MEMORY = 10e9  # bytes a second that one machine's memory gives, for comparisons on paper


def staged_program(program: Program) -> StagedProgram:
    """The program streamed and cut into stages."""
    return split_program(program, WHOLE)


def space_of(program: Program, hardware: Hardware) -> Space:
    """Every decision for `program`; raises UsageError for dtypes that no scalar holds."""
    return space_of_forms(
        program,
        rates_of(hardware),
        lambda form: ideal_of(form, hardware),
        lambda form, least, _: _space_of(form, hardware, least),
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
    parts = parts_of(program, hardware, least)
    joined = Joined.of([part.space() for part in parts])
    ideals = [part.ideal for part in parts] if len(parts) > 1 else []
    return joined.space(PhaseFeatures(joined, tuple(ideals), least))


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
    return as_given(_lower(form, own, hardware, full), program)


def _lower(program: Program, schedule: Schedule, hardware: Hardware, full: bool) -> Kernel:
    entry = f"{program.name}_body"
    parts = parts_of(program, hardware)
    own = [part_of(schedule, prefix) for prefix in prefixes(len(parts))]
    planned = [part.planned(values) for part, values in zip(parts, own, strict=True)]
    temps = places(program, phases_of(program))
    rooms = [one.room for one in planned]
    frame = Frame(entry, program.tensors, temps, rooms, hardware.threads)
    for number, (part, one) in enumerate(zip(parts, planned, strict=True)):
        if number:
            frame.barrier()
        if len(parts) > 1:
            frame.b.comment(f"phase {number}: {part.program.name}")
        one.emit(frame)
    function = frame.b.function
    texts = [("llvm", print_llvm(function, hardware.isa))]
    if full:
        from ir.targets.cpu.c import print_c

        texts.append(("c", print_c(function)))
    return Kernel(program.name, "cpu", frame.arguments, tuple(texts), entry, hardware.threads)


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
