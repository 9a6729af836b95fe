"""The kernels of a program: how it is cut, which kind each is, and their text put together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

from ir.columns import Decision
from ir.dtypes import dtype_of
from ir.errors import Refusal, UsageError
from ir.kernel import Argument, Kernel
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.block import BlockKernel
from ir.targets.cuda.cut import cut_program
from ir.targets.cuda.launch import Launch, placed, plan_json
from ir.targets.cuda.prelude import prelude_text
from ir.targets.cuda.tensor import TensorKernel

AnyKernel = BlockKernel | TensorKernel
ALIGN = 256
MARK = "//@ kernel\n"


@lru_cache(maxsize=256)
def kernels_of(program: Program, hardware: Hardware) -> tuple[AnyKernel, ...]:
    """One kernel, or several in order where the program is cut; UsageError if none can be."""
    problem = ""
    for everywhere in (False, True):
        parts = cut_program(program, everywhere)
        try:
            return tuple(_kernel(part, n, len(parts), hardware) for n, part in enumerate(parts))
        except Refusal as refusal:
            problem = str(refusal)
    raise UsageError(f"{program.name}: the cuda target cannot compute it: {problem}")


def _kernel(part: Program, number: int, count: int, hardware: Hardware) -> AnyKernel:
    mark = f".{number}" if count > 1 else ""
    try:
        return TensorKernel(part, mark, hardware)
    except Refusal:
        return BlockKernel(part, mark)


def decisions_of(kernels: tuple[AnyKernel, ...]) -> tuple[Decision, ...]:
    return tuple(decision for kernel in kernels for decision in kernel.decisions())


def constraints_of(kernels: tuple[AnyKernel, ...]) -> tuple[Constraint, ...]:
    return tuple(rule for kernel in kernels for rule in kernel.constraints())


def seeds_of(kernels: tuple[AnyKernel, ...]) -> tuple[dict[str, Value], ...]:
    """Seeds of all kernels joined, shorter lists repeated."""
    lists = [kernel.seeds() for kernel in kernels]
    longest = max(len(seeds) for seeds in lists)
    joined = []
    for number in range(longest):
        values: dict[str, Value] = {}
        for seeds in lists:
            values |= seeds[number % len(seeds)]
        joined.append(values)
    return tuple(joined)


def lower_all(
    program: Program, kernels: tuple[AnyKernel, ...], values: Mapping[str, Value], arch: str
) -> Kernel:
    """The kernel text of a whole program."""
    launches = [
        kernel.lower(values, kernel.program.name.replace(".", "_")) for kernel in kernels
    ]
    places, total = _places(program, kernels)
    zeros = max((sum(size for _, size in launch.zero) for launch in launches), default=0)
    launches = [placed(launch, places) for launch in launches]
    body = "\n".join(launch.text for launch in launches)
    arguments = [Argument(s.name, s.shape, s.dtype, s.role) for s in program.tensors]
    workspace = total + zeros
    if workspace:
        arguments.append(Argument("workspace", (workspace,), "u8", "workspace"))
    plan = plan_json(launches, arch, workspace)
    text = f"{prelude_text(body)}{MARK}// launch: {plan}\n{body}"
    notes = tuple(fact for launch in launches for fact in launch.facts)
    return Kernel(
        program.name, "cuda", tuple(arguments), (("cuda", text), ("launch", plan)),
        launches[0].name, 0, notes,
    )  # fmt: skip


def _places(program: Program, kernels: tuple[AnyKernel, ...]) -> tuple[dict[str, int], int]:
    """Byte offsets in the workspace of tensors between kernels."""
    own = {spec.name for spec in program.tensors}
    places: dict[str, int] = {}
    total = 0
    for kernel in kernels:
        for spec in kernel.program.tensors:
            if spec.name not in own and spec.name not in places:
                places[spec.name] = total
                size = prod(spec.shape) * dtype_of(spec.dtype).bytes
                total += -(-size // ALIGN) * ALIGN
    return places, total


