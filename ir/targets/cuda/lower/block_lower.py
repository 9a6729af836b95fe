"""A block kernel as text: its signature, and the statements of the kernel that passes made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from ir.kernel.body import COPIES, FINISH, MAP, REDUCE, START, STORE, Operation, Part
from ir.kernel.passes import after_each
from ir.kernel.passes.load_ahead import CP_ASYNC, WORDS
from ir.kernel.tile_kernel import (
    ADVANCE,
    BARRIER,
    BLOCK,
    BLOCKS,
    CLUSTER,
    EXCHANGED,
    LEFT,
    OVERLAID,
    TILE,
    Alloc,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Merge,
    Ring,
    Sync,
    When,
    walk,
)
from ir.program import Program
from ir.targets.cuda.build.block_kernel import build, passes_of
from ir.targets.cuda.build.readers import read_again
from ir.targets.cuda.build.tensor_kernel import L2
from ir.targets.cuda.grid.merging import ARRIVALS, SHARES
from ir.targets.cuda.launch import Launch, Parameter, Room
from ir.targets.cuda.layouts.windows import alike
from ir.targets.cuda.lower.block_parts import FLAG_BYTES, Parts
from ir.targets.cuda.plans.block_plan import BlockPlan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.bounds import loop_bounds, stops
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.loops import TileBody
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.passes import meets
from ir.targets.cuda.text.printer import Printer
from ir.targets.cuda.text.registers import SCRATCH_BYTES, Fragment, Team
from ir.targets.cuda.text.transfers import Staged
from ir.targets.cuda.text.writer import Writer

MOST_TWICE = 512  # values of a thread in a step that is written twice
SCRATCH_ROOM = 32 << 10  # bytes in which reductions after one another have places of their own


class BlockLowering(Printer):
    """Prints the kernel of one plan."""

    who = "a block"

    def __init__(self, plan: BlockPlan, name: str) -> None:
        (*_, (_, kernel)) = after_each(build(plan, name), passes_of(plan))
        super().__init__(kernel, Writer())
        self.plan, self.program, self.name = plan, plan.program, name
        self.e = self._evaluator()
        self.body = TileBody(self.e, plan.passes, plan.looped)
        self.states: dict[int, Fragment] = {}  # of the present run
        self.words: dict[str, Staged] = {}  # of loads that wait in registers, by tile
        self.over = TILE if plan.options.walkers else BLOCK  # what the present loop is over
        self.step = ""  # the number of a step before the main loop, where one is filled
        self.rank = ""  # the name of a block's number in its cluster
        self.rooms: tuple[Room, ...] = ()

    def _evaluator(self) -> Evaluator:
        plan = self.plan
        scratch, before = "tw_shared_base()", self._before_scratch
        team = Team("thread", plan.frame.team, "tw_sync();", scratch)
        if before:
            team = replace(team, scratch=f"{scratch} + {before}")
        evaluator = Evaluator(self.program, self.w, plan.frame, plan.tiles, team)
        evaluator.room = SCRATCH_ROOM
        evaluator.alone = True
        evaluator.spread, evaluator.blocks = plan.options.spread, plan.cluster
        if not plan.runs_ahead:
            evaluator.alike = alike(self.program)
        if plan.options.keep:
            evaluator.kept = read_again(self.program)
        return evaluator

    @property
    def _before_scratch(self) -> int:
        """Bytes of shared memory ahead of where warps write for each other."""
        return self.plan.ring_bytes + (FLAG_BYTES if self.plan.options.parts > 1 else 0)

    def run(self) -> Launch:
        plan, w = self.plan, self.w
        w.line("const i32 thread = tw_thread();")
        self.e.declare_threads()
        self._prologue()
        self.all(self.kernel.body)
        team = plan.frame.team
        shared = self._before_scratch + self.e.scratch_registers * team * SCRATCH_BYTES
        words = [f"u32* {name}" for name in (SHARES, ARRIVALS)[: len(self.rooms)]]
        extra = f"__cluster_dims__({plan.cluster}, 1, 1) " if plan.cluster > 1 else ""
        head = kernel_head(self.program, self.name, team, extra, plan.options.walkers, words)
        text = f"{head} {{\n{w.text}}}\n"
        names = [spec.name for spec in self.program.tensors]
        names += [room.argument for room in self.rooms]
        return Launch(
            self.name, text, plan.grid, team, shared, tuple(map(Parameter, names)),
            cluster=plan.cluster, rooms=self.rooms, early=plan.early,
        )  # fmt: skip

    def _prologue(self) -> None:
        """Which tile, and which part of it, is this block's."""
        w, plan = self.w, self.plan
        if plan.options.walkers:
            w.line("const i32 block = tw_block_x();")
        elif plan.cluster > 1:
            axis = plan.options.spread
            self.rank, tile = w.name("rank"), w.name("tile")
            w.line(f"const i32 {self.rank} = tw_cluster_rank();")
            w.line(f"const i32 {tile} = tw_block_x() / {plan.cluster};")
            self._origins(tile)
            self.e.origins[axis] = w.name(f"{axis}_first")
            w.line(f"const i32 {self.e.origins[axis]} = {self.rank} * {plan.tiles[axis]};")
        elif plan.options.parts > 1:
            w.reserve(SHARES, ARRIVALS)
            w.line(f"const i32 tile = tw_block_x() % {plan.total};")
            w.line(f"const i32 part = tw_block_x() / {plan.total};")
            self._origins("tile")
        else:
            self._origins("tw_block_x()")

    # -- statements

    def branch(self, one: If) -> None:
        with self._later(one.when):
            self.all(one.body)

    def merge(self, one: Merge) -> None:
        with self._last():
            self.all(one.body)

    def do(self, one: Do) -> None:
        operation = self.kernel.operation(one.operation)
        for part in operation.parts:
            self._parts[part.kind](self, operation, part)

    # -- loops

    def loop(self, loop: Loop) -> None:
        over, step = self.over, self.step
        self.over = loop.over
        if loop.end != At(BLOCKS):
            self._first_steps(loop)
        elif loop.over == TILE:
            self._tiles(loop)
        else:
            self._blocks(loop)
        self.over, self.step = over, step

    def _first_steps(self, loop: Loop) -> None:
        """Steps before a main loop. Registers have no place that a number picks: one step."""
        done = (self.kernel.operation(do.operation) for do in walk(loop.body) if isinstance(do, Do))
        words = any(part.by == WORDS for one in done for part in one.parts)
        self.step = "0" if words else "step"
        head = self.w.block("") if words else self.w.unrolled("step", loop.end.number)
        with head:
            self.all(loop.body)

    def _tiles(self, loop: Loop) -> None:
        """The tiles of a block, as many apart as there are blocks."""
        total, grid = self.plan.total, self.plan.grid
        head = f"for (i32 tile = block; tile < {total}; tile += {grid})"
        with self.w.block(head), self.e.scope():
            self._origins("tile")
            self.all(loop.body)
        meets = any(one == Sync(BARRIER, EXCHANGED) for one in loop.body)
        if self._writes_again and not meets:
            raise KernelError(f"kernel {self.name}: warps write again what others may still read")

    def _blocks(self, loop: Loop) -> None:
        """The steps of a run over the walked axes."""
        later = []
        with ExitStack() as stack:
            for axis in (axis for axis in self.program.axes if axis in self.plan.looped):
                low, high = self._bounds(axis)
                at, tile = self.w.name(f"{axis}_at"), self.plan.tiles[axis]
                head = f"for (i32 {at} = {low}; {at} < {high}; {at} += {tile})"
                stack.enter_context(self.w.block(head))
                self.e.origins[axis] = at
                later.append(f"{at} != {low}")
            self.body.later = " || ".join(later)
            with self.e.scope(), self.e.repeating(True):
                self._stop(loop, axis)
                self._step(loop, axis)

    def _step(self, loop: Loop, axis: str) -> None:
        """The statements of a step; of those that lie inside the axis without a guard, where what a
        step does is short enough to be written twice."""
        e, at = self.e, self.e.origins[axis]
        done = (self.kernel.operation(do.operation) for do in walk(loop.body) if isinstance(do, Do))
        nodes = (self.program.nodes[part.node] for one in done for part in one.parts)
        length = sum(self.plan.frame.count(node.axes) for node in nodes)
        if not e.ragged(axis) or length > MOST_TWICE:
            self.all(loop.body)
            return
        before = (e.exchanges, e.scratch_registers, e.shared_place)
        with self.w.block(f"if ({at} <= {self.program.axes[axis] - self.plan.tiles[axis]})"):
            e.full[axis] = at
            with e.scope():
                self.all(loop.body)
            del e.full[axis]
        e.exchanges, e.scratch_registers, e.shared_place = before  # of one step
        with self.w.block("else"), e.scope():
            self.all(loop.body)

    def _stop(self, loop: Loop, axis: str) -> None:
        """Leave the innermost loop, along `axis`, where none of a thread's points has more to come:
        that is each thread's own to tell if none waits for another in a step."""
        statements = tuple(walk(loop.body))
        done = [self.kernel.operation(one.operation) for one in statements if isinstance(one, Do)]
        parts = [part for one in done for part in one.parts]
        if len(done) < len(statements) or any(part.kind != REDUCE for part in parts):
            return
        if meets(self.program, tuple(part.node for part in parts), self.plan.looped):
            return
        for condition in stops(self.e, axis):
            fragment, some = self.e.fragment(condition), self.w.name("some")
            self.w.line(f"bool {some} = false;")
            with self.e.each(fragment.digits) as point:
                self.w.line(f"{some} |= {self.e.element(fragment, point)};")
            self.w.line(f"if (!{some}) break;")

    def _bounds(self, axis: str) -> tuple[str, str]:
        """First point and end of this block's main loop along an axis, as text."""
        low, high = loop_bounds(self.e, axis)
        count, tile = self.plan.options.parts, self.plan.tiles[axis]
        if count == 1:
            return low, high
        points = -(-self.program.axes[axis] // (tile * count)) * tile
        return f"max({low}, part * {points})", f"min({high}, (part + 1) * {points})"

    # -- where steps are

    def _origins(self, number: str) -> None:
        """Declare where tile `number` starts, the last axis fastest."""
        rest = number
        if not number.startswith("tw_block"):
            rest = self.w.name("number")
            self.w.line(f"const i32 {rest} = tw_any({number});")
        for axis in reversed(self.plan.free):
            count = self.plan.count(axis)
            if count == 1:
                continue
            here, origin = self.w.name(f"{axis}_tile"), self.w.name(f"{axis}_first")
            self.w.line(f"const i32 {here} = ({rest}) % {count};")
            self.w.line(f"const i32 {origin} = {here} * {self.plan.tiles[axis]};")
            rest = f"({rest}) / {count}"
            self.e.origins[axis] = origin

    @contextmanager
    def _later(self, when: When) -> Iterator[None]:
        """What is written inside is about the last step that has to be left, and done if it is."""
        if when.of != LEFT:
            raise KernelError(f"kernel {self.name}: a block does nothing if {when}")
        saved, steps = dict(self.e.origins), when.least - 1
        with self._later_tile(steps) if self.over == TILE else self._later_block(steps):
            yield
        self.e.origins = saved

    @contextmanager
    def _later_tile(self, steps: int) -> Iterator[None]:
        grid = self.plan.grid
        number = f"block + {self.step} * {grid}" if self.step else f"tile + {steps * grid}"
        with self.w.block(f"if ({number} < {self.plan.total})"):
            self._origins(number)
            yield

    @contextmanager
    def _later_block(self, steps: int) -> Iterator[None]:
        axis, origins = self.plan.main, self.e.origins
        tile, (low, high) = self.plan.tiles[axis], self._bounds(axis)
        first = f"{low} + {self.step} * {tile}"
        start = first if self.step else f"{origins[axis]} + {steps * tile}"
        later = self.w.name(f"{axis}_later")
        self.w.line(f"const i32 {later} = {start};")
        with self.w.block(f"if ({later} < {high})"):
            origins[axis] = later
            yield

    # -- what operations do

    def _copy(self, operation: Operation, part: Part) -> None:
        """Ask for a load, or form it."""
        if part.by == L2:
            self.e.prefetch(part.node)
        elif part.by == CP_ASYNC:
            self.e.copy_ahead(part.node, self._slot(operation, part.node))
        elif part.by == WORDS:
            self.e.fetch_ahead(part.node, self.words[self._waiting(operation.writes, part.node)])
        else:
            self.e.fragment(part.node)

    def _map(self, operation: Operation, part: Part) -> None:
        """Form a value, from where it waits if it does."""
        position, waiting = part.node, self._waiting(operation.reads, part.node)
        if waiting:
            slot = self._slot(operation, position) if operation.takes else self.words[waiting]
            self.e.staged[position] = slot
        self.e.fragment(position)
        self.e.staged.pop(position, None)

    def _start(self, operation: Operation, part: Part) -> None:
        self.states[part.node] = self.body.open(part.node)

    def _reduce(self, operation: Operation, part: Part) -> None:
        self.body.advance(part.node, self.states[part.node])

    def _finish(self, operation: Operation, part: Part) -> None:
        self.body.close(part.node, self.states[part.node])

    def _store(self, operation: Operation, part: Part) -> None:
        spread = self.plan.options.spread
        alone = bool(spread) and spread not in self.program.nodes[part.node].axes
        if alone:  # all blocks of the cluster have it
            self.e.prepare(part.node)
        with self.w.block(f"if ({self.rank} == 0)") if alone else nullcontext():
            self.e.store(part.node, self.plan.options.stream)

    _parts: Mapping[str, Callable[[BlockLowering, Operation, Part], None]] = {
        COPIES: _copy, MAP: _map, START: _start, REDUCE: _reduce, FINISH: _finish, STORE: _store,
    }  # fmt: skip

    # -- where loads wait for their steps

    def _waiting(self, names: Sequence[str], position: int) -> str:
        """The tile among `names` in which a load waits; empty for none."""
        tiles = (tile for tile in self.kernel.tiles if tile.node == position)
        return next((tile.name for tile in tiles if tile.name in names), "")

    def alloc(self, one: Alloc) -> None:
        """Where a ring begins and its present slot, or the words of what waits in registers."""
        rings = {ring.name for ring in self.kernel.rings}
        nodes = {tile.name: tile.node for tile in self.kernel.tiles}
        for name in one.names:
            if name in rings:
                self.w.line("const u32 ring = tw_shared_address(tw_shared_base()) + 0;")
                self.w.line("u32 slot = 0;")
            else:
                self.words[name] = self.e.declare_words(nodes[name])

    def _slot(self, operation: Operation, position: int) -> Staged:
        """Where a load lies in the present slot of its ring."""
        ring, offset = self.kernel.ring(operation.takes[0]), 0
        sizes = {tile: self.plan.step_bytes(node) for tile, node in self._tiles_of(ring)}
        for tile, node in self._tiles_of(ring):
            if node == position:
                break
            offset += sizes[tile]
        slot = f" + {self.step or 'slot'} * {sum(sizes.values())}u" if ring.slots > 1 else ""
        return Staged(f"ring{slot} + {offset}" if offset else f"ring{slot}")

    def _tiles_of(self, ring: Ring) -> tuple[tuple[str, int], ...]:
        """Names and nodes of what a ring holds."""
        nodes = {tile.name: tile.node for tile in self.kernel.tiles}
        return tuple((name, nodes[name]) for name in ring.tiles)

    # -- what synchronises

    def sync(self, one: Sync) -> None:
        if one.kind == ADVANCE:
            last = self.kernel.ring(one.of).slots - 1
            if last:
                self.w.line(f"slot = slot == {last} ? 0 : slot + 1;")
        elif one.kind == CLUSTER:
            self.w.line("tw_cluster_sync();")
        elif one.kind == BARRIER:
            if one.of == OVERLAID or self._writes_again:
                self.w.line(self.e.team.sync)
        else:
            super().sync(one)

    @property
    def _writes_again(self) -> bool:
        """Whether the next tile's first exchange between warps may use the place of this one's
        last: one exchange, or places that are shared. Others have a barrier between two uses."""
        return self.e.exchanges == 1 or self.e.shared_place

    @contextmanager
    def _last(self) -> Iterator[None]:
        """What is written inside is done by the last block of a tile, on the whole sums."""
        plan, results = self.plan, self.plan.passes.passes[0].reductions
        flag = f"tw_shared_base() + {plan.ring_bytes}"
        parts = Parts(self.e, plan.options.parts, plan.total, "tile", "part", flag)
        self.rooms = parts.rooms(self.name, results)
        with parts.last(results):
            yield


def kernel_head(
    program: Program,
    name: str,
    threads: int,
    extra: str,
    resident: int = 0,
    more: Sequence[str] = (),
) -> str:
    """The signature of a kernel on plain pointers, then `more` parameters.

    With `resident`, it may take registers as long as so many blocks fit a processor.
    """
    parameters = []
    for spec in program.tensors:
        constness = "const " if spec.role == "input" else ""
        storage = scalars.STORAGE[spec.dtype]
        parameters.append(f"{constness}{storage}* __restrict__ {text_name(spec.name)}")
    bounds = f"__launch_bounds__({threads}{f', {resident}' if resident else ''})"
    return f"TW_KERNEL {bounds} {extra}{name}({', '.join([*parameters, *more])})"
