"""A solution of the layout synthesis in words: for each tile what decided it, what was refused and
why, with the numbers. Reads solutions; decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ir.blocks import Scheduling, from_program
from ir.layout.synthesis.search import synthesise
from ir.layout.synthesis.solution import (
    ConvertPlan,
    CopyPlan,
    DescriptorPlan,
    GemmPlan,
    ReducePlan,
    Solution,
    Step,
    TilePlan,
)
from ir.sources import build, find_source

ALTERNATIVES = 4
"""Solutions compared when one is explained."""


def explain_operator(
    operator: str,
    arguments: Mapping[str, str],
    tiles: Mapping[str, int],
    threads: int = 128,
    family: str = "wgmma",
    epilogue: str = "direct",
    number: int = 1,
) -> str:
    """The `number` best solutions of a named operator's block in words; for the command line.

    UsageError for an unknown operator or argument, LayoutError for what cannot be laid out.
    """
    program = build(find_source(operator), arguments, operator)
    problem = from_program(program, Scheduling(tiles, threads, family, epilogue))
    found = synthesise(problem, max(number, ALTERNATIVES))
    return "\n\n".join(explain(solution) for solution in found[:number])


def explain(solution: Solution) -> str:
    """For each tile which op decided it, what was refused and why; then the steps. Several lines,
    the same for the same solution."""
    return "\n".join(_lines(solution))


def _lines(solution: Solution) -> Iterator[str]:
    yield (
        f"{solution.program}: {solution.cycles:,.0f} cycles predicted, "
        f"{solution.registers} registers of a thread, {solution.shared_bytes:,} B shared, "
        f"{solution.threads} threads"
    )
    for tile in solution.tiles:
        yield ""
        yield from _tile(solution, tile)
    yield ""
    yield "steps"
    for number, step in enumerate(solution.steps):
        yield f"  {number}. {_step(step)}"


def _tile(solution: Solution, tile: TilePlan) -> Iterator[str]:
    axes = " x ".join(f"{name} {extent}" for name, extent in tile.axes)
    yield f"{tile.name}: {tile.scope} {tile.dtype} {axes}"
    yield f"  layout   {tile.layout}"
    if tile.scope == "register":
        yield f"  holds    {tile.registers} registers of a thread{_replicas(tile.replicated)}"
    elif tile.scope == "shared":
        yield f"  holds    {tile.bytes:,} B x {tile.stages}, aligned to {tile.alignment} B"
    for reason in solution.reasons:
        if reason.subject == tile.name:
            where = f" (op {reason.op})" if reason.op >= 0 else ""
            yield f"  {reason.verdict:8} {reason.text}{where} [{reason.code}]"


def _replicas(digits: tuple[tuple[int, int], ...]) -> str:
    if not digits:
        return ""
    places = ", ".join(f"{extent} along thread stride {stride}" for stride, extent in digits)
    return f"; the same elements in {places}"


def _step(step: Step) -> str:
    if isinstance(step, CopyPlan):
        return _copy(step)
    if isinstance(step, GemmPlan):
        return _gemm(step)
    if isinstance(step, ReducePlan):
        return _reduce(step)
    if isinstance(step, ConvertPlan):
        return f"convert {step.source} -> {step.target} by {step.price_class}: {step.why}"
    return f"map {', '.join(step.inputs)} -> {step.output}"


def _copy(step: CopyPlan) -> str:
    name = " + ".join(step.instructions)
    facts = [f"{step.issues} x {step.elements} elements"]
    if step.tma is not None:
        facts.append(f"box {step.tma.extents}, swizzle {step.tma.swizzle}")
    if step.ways > 1:
        facts.append(f"{step.ways}-way bank conflicts")
    if step.sectors:
        facts.append(f"{step.sectors} sectors a warp")
    return f"copy {step.source} -> {step.target} by {name}: {', '.join(facts)}"


def _gemm(step: GemmPlan) -> str:
    swapped = ", operands swapped" if step.swapped else ""
    sides = "".join(
        f", {name} by descriptor ({side.major}-major, {_span(side)}, LBO {side.lbo}, "
        f"SBO {side.sbo})"
        for name, side in ((step.a, step.a_descriptor), (step.b, step.b_descriptor))
        if side is not None
    )
    return (
        f"gemm {step.c} += {step.a} {step.b} by {step.instruction}{swapped}: "
        f"warps {step.warps[0]} x {step.warps[1]}, repeats {step.loops}, "
        f"k order {step.k_order}{sides}"
    )


def _span(side: DescriptorPlan) -> str:
    return f"{16 << side.swizzle}-byte swizzle" if side.swizzle else "no swizzle"


def _reduce(step: ReducePlan) -> str:
    parts = ["in the thread"]
    if step.lanes:
        parts.append(f"lanes xor {', '.join(map(str, step.lanes))}")
    if step.digits:
        parts.append(f"across warps through {step.scratch_bytes} B")
    same = _replicas(step.replicated)
    return f"reduce {step.input} -> {step.output}: {', '.join(parts)}{same}"
