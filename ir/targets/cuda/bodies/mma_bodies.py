"""The main loop of a kernel on mma.sync: its body, derived from its tiles, and its order.

Copies run `stages` - 1 blocks ahead of the products. What is computed of copies is computed a block
ahead of them, from other tensors as far ahead as copies are.
"""

from __future__ import annotations

from collections.abc import Iterable

from ir.kernel.body import CONVERT, COPY, MAP, MMA, THREADS, Body, Operation, Part
from ir.kernel.body import COPIES as COPY_PART
from ir.kernel.modulo import Order
from ir.targets.cuda.build.products import loads_of
from ir.targets.cuda.layouts.mma_operands import FEWEST, StageTile
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.text.naming import value_name

COPIES, LOAD, FORM, MULTIPLY = "copy", "load", "form", "multiply"
MMA_SYNC, CP_ASYNC = "mma.sync", "cp.async"


def order_of(plan: MmaPlan) -> Order:
    """The body in its order. A step first loads what it computes, then begins copies, multiplies,
    and last puts what it computed where products will read it."""
    body, lag = body_of(plan), plan.stages - 1
    computed = lag - 1 if plan.staged else 0
    stages = {COPIES: 0, LOAD: computed, FORM: computed, MULTIPLY: lag}
    places = sorted(
        range(len(body.operations)),
        key=lambda n: (LOAD, COPIES, MULTIPLY, FORM).index(body.operations[n].name),
    )
    return Order(body, tuple(stages[one.name] for one in body.operations), tuple(places))


def body_of(plan: MmaPlan) -> Body:
    """Copies, what is computed of them or of memory, and the products."""
    computed = [tile for tile in plan.operands if not tile.copied]
    copied = [tile for tile in plan.stored if tile.copied]
    found = []
    if copied:
        parts = tuple(Part(COPY_PART, tile.position, _copier(tile)) for tile in copied)
        found.append(
            Operation(COPIES, COPY, _values(plan, copied), tile_names(plan, copied), (), parts)
        )
    values = tuple(f"{name}_values" for name in _values(plan, computed))
    if computed:
        raw = [tile for one in computed for tile in plan.raw(one)]
        apart = {tile.position for tile in raw}
        loads = [n for one in computed for n in loads_of(plan.program, one.position)]
        plain = [value_name(plan.program, n) for n in loads if n not in apart]
        read = tuple(dict.fromkeys((*tile_names(plan, raw), *plain)))
        loaded, formed = (
            tuple(Part(kind, tile.position) for tile in computed) for kind in (MAP, CONVERT)
        )
        found.append(Operation(LOAD, THREADS, read, values, (), loaded))
        found.append(Operation(FORM, THREADS, values, tile_names(plan, computed), (), formed))
    sums = tuple(value_name(plan.program, product.position) for product in plan.roles.outer)
    read = (*tile_names(plan, plan.operands), *sums)
    products = tuple(Part(MMA, product.position, MMA_SYNC) for product in plan.roles.outer)
    found.append(Operation(MULTIPLY, THREADS, read, sums, (), products))
    turns = [(name, plan.slots(t)) for t in plan.stored for name in tile_names(plan, [t])]
    stored = frozenset(tile_names(plan, plan.stored))
    return Body(tuple(found), frozenset(values), tuple(turns), stored)


def _values(plan: MmaPlan, tiles: Iterable[StageTile]) -> tuple[str, ...]:
    return tuple(value_name(plan.program, tile.position) for tile in tiles)


def _copier(tile: StageTile) -> str:
    """What brings a tile's pieces; those too small for cp.async go through registers."""
    return CP_ASYNC if tile.piece >= FEWEST else ""


def tile_names(plan: MmaPlan, tiles: Iterable[StageTile]) -> tuple[str, ...]:
    """What tiles in shared memory are called; also of tensors used raw and as they are."""
    operands = {tile.position for tile in plan.operands}
    names = ((value_name(plan.program, tile.position), tile) for tile in tiles)
    return tuple(
        f"{name}_raw_tile" if tile.raw and tile.position in operands else f"{name}_tile"
        for name, tile in names
    )
