"""The candidates of a program on the CPU: its space, and the kernel of each schedule of it."""

from __future__ import annotations

from ir.errors import UsageError
from ir.kernel import Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.stages import StagedProgram
from ir.target import Hardware
from ir.targets.cpu.constraints import Constraints
from ir.targets.cpu.decisions import Decisions
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.features import Features
from ir.targets.cpu.instructions import vector_row
from ir.targets.cpu.llvm import print_llvm
from ir.targets.cpu.lower import Lowering
from ir.targets.cpu.meaning import Meaning
from ir.targets.cpu.nest import SCALAR_BYTES
from ir.targets.cpu.planner import make_plan
from ir.targets.cpu.seeds import seeds
from ir.targets.cpu.shape import stage_shapes
from ir.targets.cpu.splitting import WHOLE, choices, split_program, translated


def staged_program(program: Program) -> StagedProgram:
    """The program streamed and cut into stages."""
    return split_program(program, WHOLE)


def space_of(program: Program, hardware: Hardware) -> Space:
    """Every decision for `program`; raises UsageError for dtypes that no scalar holds."""
    program.refuse_empty()
    for spec in program.tensors:
        if scalar_of(spec.dtype) not in SCALAR_BYTES:
            raise UsageError(f"{program.name}: the cpu target has no {spec.dtype} ({spec.name})")
    staged = staged_program(program)
    vector = vector_row(hardware.isa)
    shapes = stage_shapes(staged, hardware.isa)
    decisions = Decisions(
        staged, shapes, hardware, vector, choices(program, staged, hardware.threads), program
    )
    found = decisions.all()
    constraints = Constraints(decisions).all()
    features = Features(decisions)
    meaning = Meaning(decisions)
    return Space("cpu", found, constraints, seeds(decisions), features, meaning=meaning)


def lower(program: Program, schedule: Schedule, hardware: Hardware, full: bool = False) -> Kernel:
    """Generate the kernel (with C text too if `full`); raises Refusal."""
    staged = staged_program(program)
    choice = str(schedule.get("split", WHOLE))
    if choice != WHOLE:
        parted = split_program(program, choice)
        schedule, staged = translated(schedule, staged, parted, hardware.isa), parted
    plan = make_plan(staged, schedule, vector_row(hardware.isa), hardware.threads)
    entry = f"{program.name}_body"
    lowering = Lowering(plan, entry)
    function = lowering.run()
    texts = [("llvm", print_llvm(function, hardware.isa))]
    if full:
        from ir.targets.cpu.c import print_c

        texts.append(("c", print_c(function)))
    return Kernel(program.name, "cpu", lowering.arguments, tuple(texts), entry, hardware.threads)
