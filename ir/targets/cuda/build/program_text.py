"""The text of a program's kernels put together, with the plan of how they are launched."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.kernel import Argument, Kernel
from ir.ops.map import Map
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.build.kernels import AnyKernel, scheduled_kernels
from ir.targets.cuda.launch import Launch, placed, plan_json
from ir.targets.cuda.prelude import prelude_text
from ir.targets.cuda.space.plain import PlainCudaKernel
from ir.targets.cuda.space.residences import USUAL
from ir.targets.cuda.text.coded import table_texts
from ir.targets.cuda.text.naming import kernel_name

ALIGN = 256
MARK = "//@ kernel\n"


def lower_all(
    program: Program, values: Mapping[str, Value], hardware: Hardware, engine: str | None = None,
    residence: str = USUAL,
) -> Kernel:  # fmt: skip
    """The kernel text of a whole program; `values` are those of the engine's decisions."""
    kernels, values = scheduled_kernels(program, values, hardware, engine, residence)
    launches = [launch for kernel in kernels for launch in launches_of(kernel, values)]
    for launch in launches:
        if launch.shared > hardware["shared_bytes"]:
            have = hardware["shared_bytes"]
            raise Refusal("shared", f"{launch.name}: {launch.shared:,} bytes of {have:,}")
    arch = hardware.isa[0]
    places, total = _places(program, kernels)
    clean = []
    for room in (room for launch in launches for room in launch.rooms):
        places[room.argument] = total
        clean += [(total, room.bytes)] if room.clean else []
        total += -(-room.bytes // ALIGN) * ALIGN
    zeros = max((sum(size for _, size in launch.zero) for launch in launches), default=0)
    launches = [placed(launch, places) for launch in launches]
    body = "\n".join([*_tables(program), *(launch.text for launch in launches)])
    arguments = [Argument(s.name, s.shape, s.dtype, s.role, s.packs) for s in program.tensors]
    workspace = total + zeros
    if workspace:
        arguments.append(Argument("workspace", (workspace,), "u8", "workspace"))
    plan = plan_json(launches, arch, workspace, clean)
    text = f"{prelude_text(body)}{MARK}// launch: {plan}\n{body}"
    notes = tuple(fact for launch in launches for fact in launch.facts)
    return Kernel(
        program.name, "cuda", tuple(arguments), (("cuda", text), ("launch", plan)),
        launches[0].name, 0, notes,
    )  # fmt: skip


def launches_of(kernel: AnyKernel, values: Mapping[str, Value]) -> tuple[Launch, ...]:
    """What a kernel of the program is launched as, one after the other."""
    name = kernel_name(kernel.program.name)
    if isinstance(kernel, PlainCudaKernel):
        return kernel.launches(values, name)
    return (kernel.lower(values, name),)


def _tables(program: Program) -> list[str]:
    """Tables of constants, each once."""
    ops = (node.op for node in program.nodes)
    tables = [op for op in ops if isinstance(op, Map) and op.table is not None]
    return table_texts((op.entries, op.dtype or "") for op in tables)


def _places(program: Program, kernels: tuple[AnyKernel, ...]) -> tuple[dict[str, int], int]:
    """Byte offsets in the workspace of tensors between kernels."""
    own = {spec.name for spec in program.tensors}
    places: dict[str, int] = {}
    total = 0
    for kernel in kernels:
        formed = {former.tensor for former in getattr(kernel, "formed", ())}
        for spec in kernel.program.tensors:
            if spec.name not in own and spec.name not in places and spec.name not in formed:
                places[spec.name] = total
                size = prod(spec.shape) * dtype_of(spec.dtype).bytes
                total += -(-size // ALIGN) * ALIGN
    return places, total
