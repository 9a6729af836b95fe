"""A plan on wgmma as a kernel: every tile and block after the other, copies where they are used.

All contractions alike: what a block of the main loop does is the operations of its body, and how
they overlap is what the passes say that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ir.errors import Refusal
from ir.kernel.body import (
    COPIES,
    COPY,
    CORRECT,
    FINISH,
    GET,
    IN_ORDER,
    LEAVE,
    MAP,
    REDUCE,
    START,
    STORE,
    THREADS,
    Operation,
    Part,
)
from ir.kernel.modulo import STRAIGHT
from ir.kernel.passes import (
    Apart,
    Early,
    InOrder,
    Pairs,
    Pass,
    Pieces,
    Pipeline,
    Place,
    Relay,
    Roles,
    Synchronise,
)
from ir.kernel.tile_kernel import (
    AGAIN,
    BLOCK,
    EVERY,
    NEVER,
    SECOND,
    WITHIN,
    Do,
    If,
    Loop,
    Merge,
    Ring,
    Statement,
    Tile,
    TileKernel,
    When,
)
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.stages import is_reduction
from ir.targets.cuda.bodies.apart import (
    TALLY,
    WEIGH,
    WEIGHTS,
    apart_operations,
    factors_of,
    left_name,
    states_of,
    states_read,
)
from ir.targets.cuda.bodies.tensor_bodies import (
    BETWEEN,
    BY,
    FOLD,
    INNER,
    MULTIPLY,
    body_of,
    early_loads,
    folding_body,
    multiply,
    words_name,
)
from ir.targets.cuda.bodies.tensor_order import MOVED, PAIRS
from ir.targets.cuda.build.computed import below
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.grid.stream_k import NONE
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.plans.tensor_rings import HELD
from ir.targets.cuda.text.bounds import masks_along
from ir.targets.cuda.text.naming import text_name, value_name
from ir.targets.cuda.text.passes import Pass as Run
from ir.targets.cuda.text.passes import Passes, find_passes, needed, runs_behind

TMA, L2 = "tma", "l2"
HAND = "hand"
LOADED, BEGUN, BEGIN = "beside", "begun", "begin"
NEXT, KEEP = "take", "keep"
EARLY = "early"
HOIST, STATES, SUMS = "hoist", "start.states", "start.sums"
STATES_END, SUMS_END, LEFT, GOT = "finish.states", "finish.sums", "leave.states", "get.states"
OF_WEIGHERS = (INNER, BETWEEN, WEIGH, TALLY, STATES, STATES_END, LEFT)


def passes_of(plan: Plan) -> tuple[Pass, ...]:
    """What makes the built kernel the one that is printed."""
    found: list[Pass] = [Roles((plan.copies, L2))]
    strip = None
    if plan.apart:
        found.append(Apart(OF_WEIGHERS, (HOIST,)))
    elif plan.order is not None:
        one = len(plan.roles.walked) == 1
        found.append(Pipeline(plan.order, one and not plan.shared_sums))
    elif plan.fresh == 1:
        found.append(Pairs(plan.row_blocks, 2 if plan.paired else 1, LOADED, MULTIPLY, FOLD))
    else:
        strip = plan.strip
        found.append(Pieces(strip))
    held = HELD if any(ring.name == HELD for ring in plan.rings) else ""
    order = None if plan.apart else plan.order
    found.append(Synchronise(order, strip, plan.turns, held, plan.cooperative, plan.early))
    if plan.apart:
        found.append(Relay())
    if plan.unit in IN_ORDER:
        found.append(InOrder())
    if plan.reads_early:
        found.append(Early(EARLY, INNER))
    return (*found, Place())


def build(plan: Plan, name: str) -> TileKernel:
    """The kernel of a plan, called `name`."""
    return _Builder(plan, name).kernel()


def passes_over(plan: Plan) -> Passes:
    """The runs of a plan's main loops."""
    roles = plan.roles
    return find_passes(plan.program, frozenset(roles.walked), frozenset(roles.around))


@dataclass
class _Builder:
    """What is built so far: operations by name."""

    plan: Plan
    name: str
    operations: dict[str, Operation] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        return self.plan.program

    def kernel(self) -> TileKernel:
        body = tuple(self._kernel_body())
        return TileKernel(
            self.name, tuple(self._tiles()), tuple(self._rings()), (*self.operations.values(),),
            body,
        )  # fmt: skip

    def _do(self, operation: Operation) -> Do:
        by = {BY: self.plan.unit}
        parts = tuple(replace(part, by=by.get(part.by, part.by)) for part in operation.parts)
        self.operations[operation.name] = replace(operation, parts=parts)
        return Do(operation.name)

    def _once(self, operation: Operation) -> Do:
        """What is no block's."""
        return replace(self._do(operation), later=When(NEVER))

    def _named(self, positions: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value_name(self.program, p) for p in positions))

    # -- values

    def _tiles(self) -> Iterator[Tile]:
        """What lies in shared memory, and what tensor cores write."""
        plan, nodes = self.plan, self.program.nodes
        for ring in plan.rings:
            for operand in ring.operands:
                axes = tuple((axis, points) for axis, points in operand.tiles if points > 1)
                layout = f"lines of {operand.line or operand.width} bytes"
                name = value_name(self.program, operand.position)
                yield Tile(name, operand.position, "shared", operand.spec.dtype, axes, layout)
        inner = plan.roles.inner[: None if plan.roles.scores is None else 1]  # of all registers
        products = (*inner, *plan.roles.outer)
        for product in products if plan.fresh != 1 else ():  # by parts of rows
            node = nodes[product.position]
            axes = tuple((axis, plan.tiles[axis]) for axis in node.axes if plan.tiles[axis] > 1)
            name = value_name(self.program, product.position)
            yield Tile(name, product.position, "registers", node.dtype, axes)
        computed = dict.fromkeys(product.a for product in plan.roles.outer)
        for a in computed if plan.order is not None else ():
            node = nodes[a]
            axes = tuple((axis, plan.tiles[axis]) for axis in node.axes if plan.tiles[axis] > 1)
            name = words_name(self.program, a)
            if plan.shared_words:
                layout = f"lines of {plan.words.width} bytes"
                yield Tile(name, a, "shared", node.dtype, axes, layout)
            else:
                yield Tile(name, a, "registers", node.dtype, axes, "operand")

        for position in self._left:
            node, name = nodes[position], left_name(plan.roles, position)
            axes = tuple((axis, plan.tiles[axis]) for axis in node.axes if plan.tiles[axis] > 1)
            yield Tile(name, position, "shared", node.dtype, axes, "words by row")

    @property
    def _left(self) -> tuple[int, ...]:
        """Values of rows that weighers leave for those who multiply."""
        roles = self.plan.roles
        found = (*factors_of(roles), *states_read(roles)) if self.plan.apart else ()
        return tuple(dict.fromkeys(found))

    def _rings(self) -> Iterator[Ring]:
        for ring in self.plan.rings:
            positions = tuple(operand.position for operand in ring.operands)
            yield Ring(ring.name, self._named(positions), ring.stages)
        if self.plan.apart:
            words = dict.fromkeys(words_name(self.program, p.a) for p in self.plan.roles.outer)
            left = (left_name(self.plan.roles, position) for position in self._left)
            yield Ring(WEIGHTS, (*words, *left), self.plan.weights)

    # -- statements

    def _kernel_body(self) -> Iterator[Statement]:
        plan = self.plan
        if plan.prefetch:
            every = [operand for ring in plan.rings for operand in ring.operands]
            parts = tuple(Part(COPIES, o.position, L2) for o in every if not o.gathers)
            yield self._once(Operation("prefetch", COPY, (), (), (), parts))
        yield Loop("tile", tuple(self._tile()))

    def _tile(self) -> Iterator[Statement]:
        passes = passes_over(self.plan)
        held = [ring.name for ring in self.plan.rings if ring.name == HELD]
        yield from (self._once(self._fetch(name)) for name in held)
        known: set[int] = set()
        for number, one in enumerate(passes.passes):
            yield from self._run(number, one, known)
        stores = [self._once(self._store(position)) for position in passes.after]
        if self.plan.shared_sums:
            yield Merge(self._way, tuple(stores))
        else:
            yield from stores

    @property
    def _way(self) -> str:
        """How the parts of a sum come together."""
        return "stream" if self.plan.stream_k != NONE else self.plan.merge

    def _fetch(self, name: str) -> Operation:
        ring = next(ring for ring in self.plan.rings if ring.name == name)
        parts = tuple(Part(COPIES, one.position, self.plan.copies) for one in ring.operands)
        written = self._named(tuple(operand.position for operand in ring.operands))
        tensors = tuple(dict.fromkeys(text_name(o.spec.name) for o in ring.operands))
        return Operation(f"fetch.{name}", COPY, tensors, written, (name,), parts)

    def _store(self, position: int) -> Operation:
        node = self.program.nodes[position]
        assert isinstance(node.op, Store)
        by = TMA if self.plan.epilogue == "tma" and self._whole(node.axes) else ""
        parts = (Part(STORE, position, by),)
        return Operation(f"store.{position}", THREADS, self._named(node.args), (), (), parts)

    def _whole(self, axes: tuple[str, ...]) -> bool:
        return {*self.plan.roles.rows, self.plan.column_axis} <= {*axes}

    # -- one run over the blocks

    def _run(self, number: int, one: Run, known: set[int]) -> Iterator[Statement]:
        plan, products = self.plan, {p.position for p in self.plan.roles.outer}
        hoisted = tuple(self._hoisted(one, known))
        if hoisted:
            name = HOIST if plan.apart else f"{HOIST}.{number}"
            yield self._once(self._made(name, MAP, hoisted))
        known.update(hoisted)
        if plan.apart:
            yield from self._run_apart(one)
            known.update(one.reductions)
            return
        fresh = plan.fresh == 1
        started = tuple(p for p in one.reductions if not (fresh and p in products))
        yield self._once(self._made(f"start.{number}", START, started))
        yield from self._begun(one)
        outer = [p for p in one.reductions if p in products]
        body = (*self._fetches(one), *self._block(one, outer))
        yield Loop(BLOCK, body, order=self._order(outer), free=self._free(outer))
        kept = tuple(p for p in started if not (plan.fresh and p in products))
        parts, names = tuple(Part(FINISH, position) for position in kept), self._named(kept)
        yield self._once(Operation(f"finish.{number}", THREADS, names, names, (), parts))
        known.update(started)

    def _run_apart(self, one: Run) -> Iterator[Statement]:
        """A run whose weights a group of its own makes, which has their states."""
        roles = self.plan.roles
        sums, states = tuple(product.position for product in roles.outer), states_of(roles)
        yield self._once(self._made(STATES, START, states))
        yield self._once(self._made(SUMS, START, sums))
        operations = map(self._do, map(self._scaled, apart_operations(roles)))
        body = (*self._fetches(one), *operations)
        masks = masks_along(self.program, roles.main_walk)
        alone = len(roles.walked) == 1 and not self.plan.shared_sums
        yield Loop(BLOCK, body, free=0 if masks and alone else None)
        named = self._named(states)
        ends = tuple(Part(FINISH, position) for position in states)
        yield self._once(Operation(STATES_END, THREADS, named, named, (), ends))
        read = states_read(roles)
        if read:
            left, named = tuple(left_name(roles, p) for p in read), self._named(read)
            leaves = tuple(Part(LEAVE, position) for position in read)
            yield self._once(Operation(LEFT, THREADS, named, left, (WEIGHTS,), leaves))
            gets = tuple(Part(GET, position) for position in read)
            yield self._once(Operation(GOT, THREADS, left, named, (WEIGHTS,), gets))
        names, ends = self._named(sums), tuple(Part(FINISH, position) for position in sums)
        yield self._once(Operation(SUMS_END, THREADS, names, names, (), ends))

    def _made(self, name: str, kind: str, positions: tuple[int, ...]) -> Operation:
        """What threads make of nothing that is kept."""
        parts = tuple(Part(kind, position) for position in positions)
        return Operation(name, THREADS, (), self._named(positions), (), parts)

    def _order(self, outer: list[int]) -> str:
        plan = self.plan
        if not outer:
            return ""
        if plan.order is not None:
            return str(plan.order)
        return (PAIRS if plan.paired else STRAIGHT) if plan.fresh == 1 else ""

    def _free(self, outer: list[int]) -> int | None:
        """Whether blocks that no mask touches are a loop of their own: operands that are computed
        under masks cost less there."""
        roles = self.plan.roles
        straight = self.plan.order is None and self.plan.fresh != 1
        alone = straight and roles.computed and len(roles.walked) == 1
        return 0 if outer and alone and masks_along(self.program, roles.main_walk) else None

    def _hoisted(self, one: Run, known: set[int]) -> Iterator[int]:
        """What the loop needs and does not change: loads and reductions, formed ahead of it."""
        nodes, looped = self.program.nodes, frozenset(self.plan.roles.walked)
        stop = frozenset(known) | frozenset(one.reductions)
        roots = tuple(r for p in one.reductions for r in nodes[p].args) + one.stores
        for position in needed(self.program, roots, stop):
            node = nodes[position]
            leaf = isinstance(node.op, Load) or is_reduction(node)
            fixed = not looped & set(node.axes) and position not in one.reductions
            if leaf and fixed and position not in known and self._in_registers(position):
                yield position

    def _in_registers(self, position: int) -> bool:
        """Not a product, nor an operand that stays in shared memory, nor what a loop changes."""
        roles, nodes = self.plan.roles, self.program.nodes
        if any(product.position == position for product in roles.inner):
            return False
        operands = {x for p in (*roles.inner, *roles.outer) for x in (p.a, p.b)}
        if isinstance(nodes[position].op, Load) and position in operands:
            return False
        made = (below(self.program, operand) for operand in roles.computed)
        if any(position in values for values in made):
            return False
        return not runs_behind(self.program, position)

    def _begun(self, one: Run) -> Iterator[Statement]:
        """A sum begins with another product, and with what is made of it."""
        sums = {product.position for product in self.plan.roles.outer}
        if not sums & {*one.reductions}:
            return
        for begin in self.plan.roles.begins:
            short = multiply(BEGIN, self.plan.roles, (begin.product,))
            yield self._once(short)
            if begin.start != begin.product.position:
                parts = (Part(MAP, begin.start),)
                read = self._named((begin.product.position,))
                yield self._once(Operation(BEGUN, THREADS, read, read, (), parts))

    def _inner(self, one: Run) -> bool:
        """Whether a run needs the inner products."""
        nodes, inner = self.program.nodes, {p.position for p in self.plan.roles.inner}
        roots = tuple(r for p in one.reductions for r in nodes[p].args)
        roots += tuple(r for p in one.stores for r in nodes[p].args)
        return bool(inner & {*needed(self.program, roots, frozenset(one.reductions))})

    def _fetches(self, one: Run) -> Iterator[Statement]:
        """Copies of what a block of a run reads, ring by ring."""
        roles, products = self.plan.roles, [*self.plan.roles.inner] * self._inner(one)
        products += [product for product in roles.outer if product.position in one.reductions]
        tiles = [tile for product in products for tile in self.plan.fetched(product)]
        rings = dict.fromkeys(self.plan.ring_of(tile).name for tile in tiles)
        yield from (self._do(self._fetch(name)) for name in rings if name != HELD)

    def _block(self, one: Run, outer: list[int]) -> Iterator[Statement]:
        """What is computed in a block."""
        plan = self.plan
        if outer and plan.order is not None:
            if plan.reads_early:  # where, a pass says
                self._once(self._made(EARLY, MAP, early_loads(plan.roles)))
            yield from (self._do(self._scaled(one)) for one in plan.order.body.operations)
            return
        if outer and plan.fresh == 1:
            yield self._do(self._beside(one))
            yield from map(self._do, folding_body(plan.roles).operations)
            return
        if self._inner(one):
            yield self._do(multiply(INNER, plan.roles, plan.roles.inner))
        yield from self._handed_on()
        left = len(outer)
        for position in one.reductions:
            if position in outer:
                left -= 1
                if not left:
                    yield from self._strip()
            elif not plan.fresh:
                yield self._do(self._reduce(position))
        stores: tuple[Statement, ...] = tuple(self._do(self._store(p)) for p in one.stores)
        if plan.roles.handed is not None:
            stores = (If(When(EVERY, plan.roles.inside(plan.tiles)), stores),)
        yield from stores
        if plan.fresh:
            fold = self._do(folding_body(plan.roles).operations[-1])
            yield If(When(EVERY, plan.fresh), (fold,))

    def _handed_on(self) -> Iterator[Statement]:
        """What a state goes through before the next product is added to it."""
        one = self.plan.roles.handed
        if one is not None and one.factor is not None:
            sums = self._named(one.products)
            scale = Operation(HAND, THREADS, sums, sums, (), (Part(CORRECT, one.state),))
            yield If(When(AGAIN, self.plan.roles.inside(self.plan.tiles)), (self._do(scale),))

    def _scaled(self, one: Operation) -> Operation:
        """An operation whose sums are scaled only where that changes them, if the plan says so."""
        if not self.plan.moved:
            return one
        parts = (replace(p, by=MOVED) if p.kind == CORRECT else p for p in one.parts)
        return replace(one, parts=tuple(parts))

    def _strip(self) -> Iterator[Statement]:
        plan = self.plan
        operations = body_of(plan.roles, plan.from_registers).operations
        if not plan.from_registers:
            if not all(map(self._direct, plan.roles.outer)):
                raise Refusal("chain", "an operand is computed beside others that are loaded")
            later = When(WITHIN, plan.fresh) if plan.fresh else SECOND
            yield from (replace(self._do(one), later=later) for one in operations)
            return
        rings = operations[-1].takes
        yield self._do(Operation(NEXT, THREADS, (), (), rings))
        later = When(WITHIN, plan.fresh) if plan.fresh else SECOND
        yield from (replace(self._do(one), later=later) for one in operations)
        yield self._do(Operation(KEEP, THREADS, (), (), rings))

    def _direct(self, product: Product) -> bool:
        """Whether tensor cores may take both operands from shared memory."""
        plan = self.plan
        return product.a not in plan.roles.computed and plan.operand(product, "a") is not None

    def _reduce(self, position: int) -> Operation:
        names = self._named((position,))
        parts = (Part(REDUCE, position),)
        read = (*self._named(self.program.nodes[position].args), *names)
        return Operation(f"reduce.{position}", THREADS, read, names, (), parts)

    def _beside(self, one: Run) -> Operation:
        """What products are folded with, but for what is as large as they are."""
        roles, nodes = self.plan.roles, self.program.nodes
        sums = {product.position for product in roles.outer}
        folds = [position for position in one.reductions if position not in sums]
        roots = tuple(arg for position in folds for arg in nodes[position].args)
        wide = {*roles.rows, *roles.columns}
        loads = tuple(
            p for p in needed(self.program, roots, frozenset(sums))
            if isinstance(nodes[p].op, Load) and not wide <= {*nodes[p].axes}
        )  # fmt: skip
        return self._made(LOADED, MAP, loads)
