"""The kernels of a schedule for people: behind every pass, and their text."""

from __future__ import annotations

from collections.abc import Mapping

from ir.kernel.listing import Listing, listing_of
from ir.kernel.modulo import STRAIGHT
from ir.kernel.turns import FREE, WORDS
from ir.program import Program
from ir.rewrite.indexing import indexed
from ir.rewrite.inhabited import inhabited
from ir.schedule import Schedule, Value
from ir.target import Hardware
from ir.targets.cuda.bodies.mma_bodies import order_of
from ir.targets.cuda.bodies.tensor_order import FOLDED, PAIRS
from ir.targets.cuda.build import block_kernel, mma_kernel
from ir.targets.cuda.build.kernels import AnyKernel, scheduled_kernels
from ir.targets.cuda.build.program_text import launches_of
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.plans.block_plan import BlockPlan
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.engines import route_of
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.tensor import TensorKernel

NONE = "written in one go, not by passes"


def listings_of(program: Program, schedule: Schedule, hardware: Hardware) -> tuple[Listing, ...]:
    """One for each kernel that is launched."""
    program = indexed(inhabited(program))
    route, values = route_of(program, schedule, hardware)
    kernels, own = scheduled_kernels(program, values, hardware, route.engine, route.residence)
    return tuple(found for kernel in kernels for found in _listed(kernel, own))


def _listed(kernel: AnyKernel, values: Mapping[str, Value]) -> list[Listing]:
    launches = launches_of(kernel, values)
    if isinstance(kernel, TensorKernel):
        plan = kernel.plan(values)
        (launch,) = launches
        made = build(plan, launch.name)
        return [listing_of(made, passes_of(plan), *_order(plan), launch.text)]
    if isinstance(kernel, MmaKernel):
        return [_on_mma(kernel.plan(values), one.name, one.text) for one in launches]
    if isinstance(kernel, BlockKernel):
        return [_listed_block(kernel.plan(values), one) for one in launches]
    return [Listing(one.name, "", NONE, (), one.text) for one in launches]


def _listed_block(plan: BlockPlan, launch: Launch) -> Listing:
    made = block_kernel.build(plan, launch.name)
    passes, order = block_kernel.passes_of(plan), block_kernel.order_of(plan)
    return listing_of(made, passes, *order, launch.text)


def _on_mma(plan: MmaPlan, name: str, text: str) -> Listing:
    made, order = mma_kernel.build(plan, name), order_of(plan)
    return listing_of(made, mma_kernel.passes_of(plan), str(order), order.words(), text)


def _order(plan: Plan) -> tuple[str, str]:
    """The name of what the main loop does at a time, and words."""
    if plan.order is not None:
        return str(plan.order), f"{plan.order.words()}; {WORDS[plan.turns]}"
    if plan.fresh:
        order = PAIRS if plan.paired else STRAIGHT
        return order, FOLDED[order]
    turns = "" if plan.turns == FREE else f"; {WORDS[plan.turns]}"
    return str(plan.strip), f"{plan.strip.words()}{turns}"
