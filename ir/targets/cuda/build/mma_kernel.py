"""A plan on mma.sync as a kernel: every block after the other, copies where they are used.

How far copies and what is computed of them run ahead, and where threads meet, is what the passes
say that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ir.kernel.body import FINISH, MAP, START, STORE, THREADS, Operation, Part
from ir.kernel.modulo import Order
from ir.kernel.passes import Ahead, Meet, Pass
from ir.kernel.tile_kernel import (
    BLOCK,
    NEVER,
    Do,
    Loop,
    Ring,
    Statement,
    Tile,
    TileKernel,
    When,
)
from ir.targets.cuda.bodies.mma_bodies import COPIES, FORM, order_of, tile_names
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.plans.mma_fill import kept_loads
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.text.bounds import ends_early
from ir.targets.cuda.text.naming import value_name

BEGIN, HOIST, FINISHED, STORED = "start", "hoist", "finish", "store"
SHARED = "shared"


def passes_of(plan: MmaPlan) -> tuple[Pass, ...]:
    """What makes the built kernel the one that is printed."""
    order = order_of(plan)
    return Ahead(order, 0 if narrowed(plan) else plan.blocks, plan.blocks), Meet(order, plan.early)


def narrowed(plan: MmaPlan) -> bool:
    """Whether masks or lengths may end the walk early."""
    return ends_early(plan.program, plan.roles.walked[0])


def build(plan: MmaPlan, name: str) -> TileKernel:
    """The kernel of a plan, called `name`."""
    return _Builder(plan, name, order_of(plan)).kernel()


@dataclass
class _Builder:
    """What is built so far: operations by name."""

    plan: MmaPlan
    name: str
    order: Order
    operations: dict[str, Operation] = field(default_factory=dict)

    def kernel(self) -> TileKernel:
        body = tuple(self._body())
        tiles, rings = tuple(self._tiles()), tuple(self._rings())
        return TileKernel(self.name, tiles, rings, tuple(self.operations.values()), body)

    # -- values

    def _named(self, positions: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(value_name(self.plan.program, position) for position in positions)

    @property
    def _products(self) -> tuple[int, ...]:
        return tuple(product.position for product in self.plan.roles.outer)

    @property
    def _sums(self) -> tuple[str, ...]:
        return self._named(self._products)

    @property
    def _staged_sums(self) -> tuple[str, ...]:
        """Sums in shared memory, where outputs are made of those."""
        staged = self.plan.epilogue == "staged"
        return tuple(f"{name}_tile" for name in self._sums) if staged else ()

    def _tiles(self) -> Iterator[Tile]:
        plan, nodes = self.plan, self.plan.program.nodes
        for tile in plan.stored:
            (name,) = tile_names(plan, [tile])
            points = (*tile.free.axes, *tile.depth.axes)
            axes = tuple((axis, many) for axis, many in points if many > 1)
            layout = f"lines of {tile.width} bytes"
            yield Tile(name, tile.position, SHARED, tile.dtype, axes, layout)
        for position, name in zip(self._products, self._sums, strict=True):
            node = nodes[position]
            axes = tuple((axis, plan.tiles[axis]) for axis in node.axes if plan.tiles[axis] > 1)
            yield Tile(name, position, "registers", node.dtype, axes)
            if plan.epilogue == "staged":
                layout = f"{plan.warps[2]} parts as {plan.crossing.memory}"
                yield Tile(f"{name}_tile", position, SHARED, node.dtype, axes, layout)

    def _rings(self) -> Iterator[Ring]:
        for name, copied in ((COPIES, True), (FORM, False)):
            tiles = [tile for tile in self.plan.stored if tile.copied == copied]
            if tiles:
                yield Ring(name, tile_names(self.plan, tiles), self.plan.slots(tiles[0]))

    # -- statements

    def _do(self, operation: Operation) -> Do:
        self.operations[operation.name] = operation
        return Do(operation.name)

    def _once(self, operation: Operation) -> Do:
        """What is no block's."""
        self.operations[operation.name] = operation
        return Do(operation.name, later=When(NEVER))

    def _body(self) -> Iterator[Statement]:
        plan = self.plan
        started = tuple(Part(START, position) for position in self._products)
        yield self._once(Operation(BEGIN, THREADS, (), self._sums, (), started))
        for tile in plan.operands:
            if not tile.copied:
                yield self._once(self._hoist(tile))
        block = tuple(self._do(one) for one in self.order.body.operations)
        yield Loop(BLOCK, block, order=str(self.order))
        if plan.epilogue == "staged":
            yield self._once(self._finish())
        made = self._staged_sums or self._sums
        for position, _ in plan.program.stores():
            parts = (Part(STORE, position),)
            yield self._once(Operation(f"{STORED}.{position}", THREADS, made, (), (), parts))

    def _hoist(self, tile: StageTile) -> Operation:
        """What a computed operand is made of and no block changes."""
        kept = kept_loads(self.plan, tile)
        parts = tuple(Part(MAP, leaf) for leaf in kept)
        return Operation(
            f"{HOIST}.{tile.position}", THREADS, (), tuple(dict.fromkeys(self._named(kept))), (),
            parts,
        )  # fmt: skip

    def _finish(self) -> Operation:
        """Sums to shared memory, over the tiles that they were made of."""
        parts = tuple(Part(FINISH, position, SHARED) for position in self._products)
        written = (*self._staged_sums, *tile_names(self.plan, self.plan.stored))
        return Operation(FINISHED, THREADS, self._sums, written, (), parts)
