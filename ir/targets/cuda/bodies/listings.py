"""The main loops of a schedule's kernels, for people: bodies, orders, waits, and their text."""

from __future__ import annotations

from collections.abc import Mapping

from ir.kernel.listing import Listing, staged_steps, steps_of, strip_steps
from ir.kernel.modulo import STRAIGHT
from ir.kernel.synchronise import synchronised
from ir.kernel.turns import WORDS
from ir.program import Program
from ir.rewrite.inhabited import inhabited
from ir.schedule import Schedule, Value
from ir.target import Hardware
from ir.targets.cuda.bodies.mma_bodies import order_of
from ir.targets.cuda.bodies.tensor_bodies import folding_body
from ir.targets.cuda.bodies.tensor_order import FOLDED, PAIRS
from ir.targets.cuda.build.kernels import AnyKernel, launches_of, scheduled_kernels
from ir.targets.cuda.build.mma_plan import MmaPlan
from ir.targets.cuda.build.tensor_plan import Plan
from ir.targets.cuda.lower.tensor_folds import steps_of as folding_steps
from ir.targets.cuda.space.engines import route_of
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.tensor import TensorKernel

NONE = "no body: its text is written in order, not scheduled"


def listings_of(program: Program, schedule: Schedule, hardware: Hardware) -> tuple[Listing, ...]:
    """One for each kernel that is launched."""
    program = inhabited(program)
    route, values = route_of(program, schedule, hardware)
    kernels, own = scheduled_kernels(program, values, hardware, route.engine, route.residence)
    return tuple(found for kernel in kernels for found in _listed(kernel, own))


def _listed(kernel: AnyKernel, values: Mapping[str, Value]) -> list[Listing]:
    launches = launches_of(kernel, values)
    if isinstance(kernel, TensorKernel):
        plan = kernel.plan(values)
        (launch,) = launches
        return [_of_plan(plan, launch.name, launch.text)]
    if isinstance(kernel, MmaKernel):
        (launch,) = launches
        return [_of_stages(kernel.plan(values), launch.name, launch.text)]
    return [Listing(one.name, "", None, "", NONE, (), one.text) for one in launches]


def _loop(walked: tuple[str, ...], points: int) -> str:
    return f"{', '.join(walked)} in blocks of {points}"


def _of_stages(plan: MmaPlan, name: str, text: str) -> Listing:
    order, loop = order_of(plan), _loop(plan.roles.walked, plan.depth.size)
    steps = staged_steps(order)
    return Listing(name, loop, order.body, str(order), order.words(), steps, text)


def _of_plan(plan: Plan, name: str, text: str) -> Listing:
    loop = _loop(plan.roles.walked, plan.tiles[plan.roles.main_walk])
    if plan.order is not None:
        chained, steps = plan.order, steps_of(synchronised(plan.order), plan.turns)
        words = f"{chained.words()}; {WORDS[plan.turns]}"
        return Listing(name, loop, chained.body, str(chained), words, steps, text)
    if plan.fresh:
        order = PAIRS if plan.paired else STRAIGHT
        body, steps = folding_body(plan.roles), folding_steps(plan)
        return Listing(name, loop, body, order, FOLDED[order], steps, text)
    if not plan.roles.inner:
        strip = plan.strip
        steps = strip_steps(strip)
        return Listing(name, loop, strip.body, str(strip), strip.words(), steps, text)
    return Listing(name, loop, None, "", NONE, (), text)
