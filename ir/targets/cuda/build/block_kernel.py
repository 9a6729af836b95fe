"""A block kernel's plan as a kernel: tiles and steps one after the other, loads where needed.

What a step's loads are is said where loads of later steps may run ahead of it; others are formed by
what reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ir.kernel.body import (
    COPIES,
    COPY,
    FINISH,
    MAP,
    REDUCE,
    START,
    STORE,
    THREADS,
    Operation,
    Part,
)
from ir.kernel.modulo import STRAIGHT
from ir.kernel.passes import LoadAhead, Pass, Waits
from ir.kernel.passes.load_ahead import CP_ASYNC, WORDS
from ir.kernel.tile_kernel import (
    BLOCK,
    LEFT,
    NEVER,
    TILE,
    At,
    Do,
    If,
    Loop,
    Merge,
    Statement,
    Tile,
    TileKernel,
    When,
)
from ir.ops.load import Load
from ir.program import Program
from ir.stages import is_reduction
from ir.targets.cuda.build.tensor_kernel import L2
from ir.targets.cuda.plans.block_plan import BlockPlan
from ir.targets.cuda.text.naming import text_name, value_name
from ir.targets.cuda.text.passes import Pass as Run
from ir.targets.cuda.text.passes import needed, runs_behind

LAST = "last"  # the block that arrives last adds the parts


def passes_of(plan: BlockPlan) -> tuple[Pass, ...]:
    """What makes the built kernel the one that is printed."""
    walks = plan.options.walkers > 0
    waits = Waits(plan.early, walks and plan.exchanges, plan.cluster > 1)
    if not plan.runs_ahead:
        return (waits,)
    return (LoadAhead(plan.depth, WORDS if plan.in_registers else CP_ASYNC), waits)


def build(plan: BlockPlan, name: str) -> TileKernel:
    """The kernel of a plan, called `name`."""
    return _Builder(plan, name).kernel()


def order_of(plan: BlockPlan) -> tuple[str, str]:
    """The name of what a main loop does at a time, and words."""
    if not plan.runs_ahead:
        return STRAIGHT, "every step after the other"
    where = "registers" if plan.in_registers else "shared memory"
    steps = "the next step" if plan.depth == 1 else f"{plan.depth} steps"
    return f"ahead:{plan.depth}", f"loads of {steps} are on their way to {where}"


@dataclass
class _Builder:
    """What is built so far: operations by name, and loads that are values by themselves."""

    plan: BlockPlan
    name: str
    operations: dict[str, Operation] = field(default_factory=dict)
    loaded: dict[int, Tile] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        return self.plan.program

    def kernel(self) -> TileKernel:
        body = tuple(self._kernel_body())
        operations, tiles = (*self.operations.values(),), (*self.loaded.values(),)
        return TileKernel(self.name, tiles, (), operations, body)

    def _do(self, name: str, kind: str, nodes: Iterable[int], read: Iterable[int] = ()) -> Do:
        """What threads do with some nodes; what they store is no value."""
        nodes = tuple(nodes)
        parts = tuple(Part(kind, position) for position in nodes)
        written = () if kind == STORE else self._named(nodes)
        self.operations[name] = Operation(name, THREADS, self._named(read), written, (), parts)
        return Do(name)

    def _once(self, name: str, kind: str, nodes: Iterable[int], read: Iterable[int] = ()) -> Do:
        """What is no step's."""
        return Do(self._do(name, kind, nodes, read).operation, later=When(NEVER))

    def _named(self, positions: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self._name, positions)))

    def _name(self, position: int) -> str:
        """A node's name; loads of one tensor in several ways have their numbers behind it."""
        name, nodes = value_name(self.program, position), self.program.nodes
        same = (p for p in self.plan.loads if value_name(self.program, p) == name)
        first = next(same, position)
        again = isinstance(nodes[position].op, Load) and position != first
        return f"{name}_{position}" if again else name

    # -- statements

    def _kernel_body(self) -> Iterator[Statement]:
        plan = self.plan
        if plan.early and plan.options.prefetch:
            yield self._prefetch()
        if not plan.options.walkers:
            yield from self._tile()
            return
        every = plan.loads_of_all_tiles()
        if every:
            yield self._once("all", MAP, every)
        yield Loop(TILE, tuple(self._tile(every)))

    def _prefetch(self) -> Loop:
        """Asking the L2 cache for the first steps."""
        plan = self.plan
        parts = tuple(Part(COPIES, position, L2) for position in plan.prefetched())
        read = self._tensors(plan.prefetched())
        self.operations["prefetch"] = Operation("prefetch", COPY, read, (), (), parts)
        over = TILE if plan.options.walkers else BLOCK
        asked: Statement = Do("prefetch", At(over))
        if plan.options.walkers or plan.main:
            asked = If(When(LEFT, 1), (asked,))
        return Loop(over, (asked,), end=At("", plan.options.prefetch))

    def _tensors(self, loads: Iterable[int]) -> tuple[str, ...]:
        ops = (self.program.nodes[position].op for position in loads)
        return tuple(dict.fromkeys(text_name(op.tensor) for op in ops if isinstance(op, Load)))

    def _tile(self, known: Iterable[int] = ()) -> Iterator[Statement]:
        plan, found = self.plan, {*known}
        yield from self._loads("load", plan.loads_of_tile())
        first = plan.first_loads()
        if first:
            yield self._once("first", MAP, first)
        found.update(plan.loads_of_tile(), first)
        for number, one in enumerate(plan.passes.passes):
            yield from self._run(number, one, found)
        stores = tuple(self._stored(position) for position in plan.passes.after)
        if plan.options.parts > 1:
            yield Merge(LAST, stores)
        else:
            yield from stores

    def _loads(self, name: str, loads: tuple[int, ...]) -> Iterator[Do]:
        """Loads of a step, that later ones may run ahead of."""
        if not loads:
            return
        for position in loads:
            node = self.program.nodes[position]
            axes = tuple((a, self.plan.tiles[a]) for a in node.axes if self.plan.tiles[a] > 1)
            name_of = self._name(position)
            self.loaded[position] = Tile(name_of, position, "registers", node.dtype, axes)
        parts = tuple(Part(COPIES, position) for position in loads)
        operation = Operation(name, COPY, self._tensors(loads), self._named(loads), (), parts)
        self.operations[name] = operation
        yield Do(name)

    def _stored(self, position: int) -> Do:
        node = self.program.nodes[position]
        return self._once(f"store.{position}", STORE, (position,), node.args)

    # -- one run over the steps

    def _run(self, number: int, one: Run, known: set[int]) -> Iterator[Statement]:
        hoisted = tuple(self._hoisted(one, known))
        if hoisted:
            yield self._once(f"hoist.{number}", MAP, hoisted)
        known.update(hoisted)
        if one.reductions:
            yield self._once(f"start.{number}", START, one.reductions)
        yield Loop(BLOCK, tuple(self._step(number, one)))
        if one.reductions:
            yield self._once(f"finish.{number}", FINISH, one.reductions, one.reductions)
        known.update(one.reductions)

    def _step(self, number: int, one: Run) -> Iterator[Statement]:
        nodes = self.program.nodes
        yield from self._loads(f"load.{number}", self.plan.loads_of_run(number))
        for position in one.reductions:
            read = (*nodes[position].args, position)
            yield self._do(f"reduce.{position}", REDUCE, (position,), read)
        for position in one.stores:
            yield self._do(f"store.{position}", STORE, (position,), nodes[position].args)

    def _hoisted(self, one: Run, known: set[int]) -> Iterator[int]:
        """What the loop needs and does not change, formed ahead of it."""
        nodes, looped = self.program.nodes, self.plan.looped
        roots = tuple(r for p in one.reductions for r in nodes[p].args) + one.stores
        for position in needed(self.program, roots, frozenset(known) | {*one.reductions}):
            node = nodes[position]
            leaf = isinstance(node.op, Load) or is_reduction(node)
            fixed = not looped & {*node.axes} and position not in one.reductions
            if leaf and fixed and position not in known and not runs_behind(self.program, position):
                yield position
