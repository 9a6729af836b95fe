"""Text of a kernel on wgmma: its signature, its barriers and rings, the tiles of its roles.

Persistent and warp-specialised: the producer goes through the same tiles and blocks as the
consumers and keeps rings of slots full by TMA. What each role does is the kernel's, behind its
passes; `tensor_producer` and `tensor_consumer` print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from math import prod

from ir.kernel.passes import after_each
from ir.kernel.passes.apart import WEIGHERS
from ir.kernel.passes.roles import CONSUMERS, PRODUCER
from ir.kernel.tile_kernel import BLOCK, Do, Loop
from ir.ops.base import TensorSpec
from ir.program import Program
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.build.tensor_kernel import build, passes_of, passes_over
from ir.targets.cuda.grid.drawing import Draws
from ir.targets.cuda.grid.merging import Meeting
from ir.targets.cuda.grid.multicast import first_line
from ir.targets.cuda.grid.tensor_exchange import Exchange
from ir.targets.cuda.grid.tensor_grid import TensorGrid
from ir.targets.cuda.grid.tensor_merge import hand_over_of, meeting_of, rooms_of
from ir.targets.cuda.launch import Launch, Parameter
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter
from ir.targets.cuda.lower.tensor_evaluate import TensorEvaluator
from ir.targets.cuda.lower.tensor_former import FormerPrinter
from ir.targets.cuda.lower.tensor_producer import ProducerPrinter
from ir.targets.cuda.lower.tensor_weigher import WeigherPrinter
from ir.targets.cuda.plans.tensor_plan import GROUP, Plan, Ring
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.bounds import blocks_along, gap_bounds, loop_bounds
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.registers import Team
from ir.targets.cuda.text.writer import Writer

WEIGHERS_BARRIER = 15  # id of the named barrier of the group that makes weights
TEAM_BARRIER = 1  # ids of named barriers: one for each consumer that syncs alone


class TensorLowering:
    """Lowers one plan. What prints its producer, multiplies and synchronises is the unit's."""

    produces: type[ProducerPrinter] = ProducerPrinter
    evaluates: type[TensorEvaluator] = TensorEvaluator
    spans: tuple[str, str] | None = None  # blocks of the first of two spans, and between them
    ends = 1  # arrivals that say that a slot's copies have ended

    def __init__(self, plan: Plan, program: Program, name: str) -> None:
        self.plan, self.program, self.name = plan, program, name
        self.looped = frozenset(plan.roles.walked)
        self.passes = passes_over(plan)
        self.maps: dict[str, Parameter] = {}
        (*_, (_, self.kernel)) = after_each(build(plan, name), passes_of(plan))
        self.grid = TensorGrid(plan, program.axes, name)
        self.stream = self.grid.stream
        self.draws: Draws | None = None
        if plan.dynamic:
            readers = GROUP * (plan.consumers + plan.others)
            self.draws = Draws(plan.memory.offsets["draws"], self.grid.total(), readers)

    def run(self) -> Launch:
        printer = ConsumerPrinter(self)
        consumer = printer.role(self.kernel.role(CONSUMERS))
        producer = self.produces(self).role(self.kernel.role(PRODUCER))
        formers = FormerPrinter(self).role(self.kernel.role(PRODUCER))
        registers = printer.e.scratch_registers
        weighers = Writer()
        if self.plan.apart:
            weigher = WeigherPrinter(self)
            weighers = weigher.role(self.kernel.role(WEIGHERS))
            registers = max(registers, weigher.e.scratch_registers)
        shared = self.plan.memory.offsets["scratch"] + self.plan.memory.scratch_bytes(registers)
        w = Writer()
        if registers and not self.plan.cooperative:
            w.line(f"constexpr i32 scratch_bytes = {registers * self.plan.frame.team * 8};")
        self._prologue(w)
        with w.block("if (group == 0)"):
            w.lines += producer.lines
        if self.plan.formed:
            with w.block(f"else if (group > {self.plan.consumers})"):
                w.lines += formers.lines
        if self.plan.apart:
            with w.block(f"else if (group > {self.plan.consumers})"):
                w.lines += weighers.lines
        with w.block("else"):
            w.lines += consumer.lines
        if self.plan.cluster_blocks > 1:
            w.line("tw_cluster_sync();")
        pointed = consumer.pointed | producer.pointed | formers.pointed | weighers.pointed
        tensors = [spec for spec in self._tensors() if text_name(spec.name) in pointed]
        parameters = [*self.maps.values(), *(Parameter(spec.name) for spec in tensors)]
        words = [f"const __grid_constant__ tw_tensor_map {name}" for name in self.maps]
        for spec in tensors:
            constness = "const " if spec.role == "input" else ""
            storage = scalars.STORAGE[spec.dtype]
            words.append(f"{constness}{storage}* __restrict__ {text_name(spec.name)}")
        places = self.grid.total() // self.plan.parts * self.plan.cluster_size
        rooms = rooms_of(self.plan, self.grid.blocks() if self.stream else places, self.name)
        rooms += (self.draws.room(self.name),) if self.draws else ()
        parameters += [Parameter(room.argument) for room in rooms]
        words += [f"u32* {room.argument.removeprefix(f'{self.name}.')}" for room in rooms]
        cluster = self.plan.cluster_blocks
        extra = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
        bounds = f"__launch_bounds__({self.plan.threads}, {self.plan.resident})"
        head = f"TW_KERNEL {bounds} {extra}{self.name}({', '.join(words)})"
        table = f"static __device__ const u32 {self.name}_order[] = {{{self.grid.order}}};\n"
        text = f"{table if self.grid.order else ''}{head} {{\n{w.text}}}\n"
        return Launch(
            self.name,
            text,
            self.grid.blocks(),
            self.plan.threads,
            shared,
            tuple(parameters),
            cluster,
            rooms=rooms,
            early=self.plan.early,
        )

    def _tensors(self) -> Iterator[TensorSpec]:
        """What the kernel may read or write in memory, each once."""
        made = {former.tensor for former in self.plan.formed}
        programs = (self.program, *(former.program for former in self.plan.formed))
        every = {spec.name: spec for one in programs for spec in one.tensors}
        return (spec for name, spec in every.items() if name not in made)

    # -- tiles of the grid

    def meeting(self) -> Meeting:
        """Where the parts of the present tile meet."""
        size = self.plan.cluster_size
        if self.stream is not None:
            return hand_over_of(
                self.plan, self.stream, self.whole, self.first_block, self._team_sync()
            )
        tile = f"({self.whole} * {size} + rank)" if size > 1 else self.whole
        return meeting_of(self.plan, tile, self.part, self._team_sync())

    # -- what both roles share

    def _prologue(self, w: Writer) -> None:
        plan = self.plan
        w.line("const u32 smem = tw_shared_address(tw_shared_base());")
        w.line(f"const i32 group = tw_uniform(tw_thread() / {GROUP});")
        if plan.exchanges:
            Exchange(plan).declare_part(w)
        elif plan.cluster_size > 1:
            w.line("const i32 rank = tw_cluster_rank();")
        with w.block("if (tw_thread() == 0)"):
            for name in self.maps:
                w.line(f"tw_prefetch_map(&{name});")
            for ring in plan.every_ring:
                readers = plan.readers(ring) * plan.cluster_size * plan.releases
                with w.block(f"for (i32 slot = 0; slot < {ring.stages}; slot++)"):
                    for barrier, arrivals in self._barriers(ring, readers):
                        w.line(f"tw_barrier_init({barrier}, {arrivals});")
            if plan.exchanges:
                Exchange(plan).make_barriers(w)
            if self.draws:
                self.draws.make_barriers(w)
            w.line("tw_fence_barrier_init();")
        w.line("tw_cluster_sync();" if plan.cluster_blocks > 1 else "tw_sync();")

    def _barriers(self, ring: Ring, readers: int) -> Iterator[tuple[str, int]]:
        """The barriers of a slot, with the arrivals that they wait for."""
        plan = self.plan
        warps = plan.formers * (GROUP // WARP) if plan.formed_in(ring) else 0
        told = self.ends if plan.copied(ring) else int(ring.name == WEIGHTS)
        yield self.full(ring, "slot"), warps + told
        yield self.empty(ring, "slot"), readers
        if warps:
            yield self.source_full(ring, "slot"), 1
            yield self.source_empty(ring, "slot"), warps

    def source_full(self, ring: Ring, stage: str) -> str:
        """Of the tiles that a ring's are formed of."""
        at = self.plan.memory.offsets["sources"]
        for other in self.plan.rings:
            if other is ring:
                break
            at += 16 * other.stages if self.plan.formed_in(other) else 0
        return f"smem + {at} + 8 * {stage}"

    def source_empty(self, ring: Ring, stage: str) -> str:
        return f"{self.source_full(ring, stage)} + {8 * ring.stages}"

    def source_slot(self, ring: Ring, operand: OperandTile, source: OperandTile, stage: str) -> str:
        """Where the tile lies that an operand is formed of."""
        at = self.plan.memory.offsets[f"source.{operand.position}"]
        return f"smem + {at} + {stage} * {source.pitch}"

    def _ring_start(self, ring: Ring) -> int:
        at = self.plan.memory.offsets["barriers"]
        for other in self.plan.every_ring:
            if other.name == ring.name:
                break
            at += 16 * other.stages
        return at

    def full(self, ring: Ring, stage: str) -> str:
        return f"smem + {self._ring_start(ring)} + 8 * {stage}"

    def empty(self, ring: Ring, stage: str) -> str:
        return f"smem + {self._ring_start(ring) + 8 * ring.stages} + 8 * {stage}"

    def slot(self, ring: Ring, operand: OperandTile, stage: str) -> str:
        at = self.plan.memory.offsets[self.plan.slot_of(operand)]
        if ring.stages == 1:
            return f"smem + {at}"
        return f"smem + {at} + {stage} * {operand.pitch}"

    def first_and_step(self) -> tuple[str, str]:
        """This cluster's first tile, and the way to its next."""
        size = self.plan.cluster_blocks
        if size == 1:
            return "tw_block_x()", "tw_grid_x()"
        return f"tw_block_x() / {size}", f"tw_grid_x() / {size}"

    @contextmanager
    def tiles(self, w: Writer, evaluator: Evaluator, draws: bool = False) -> Iterator[None]:
        """The loop over this cluster's tiles, with their origins declared; where tiles are drawn,
        one role `draws` them."""
        if not self.plan.cooperative:
            w.line("i32 turn = -1;")
        if self.stream is not None:
            turns, cluster = not self.plan.cooperative, self.first_and_step()[0]
            pieces = self.stream.pieces(w, cluster, turns)
            with pieces as (self.whole, self.first_block):
                evaluator.origins |= self.grid.decode(w, self.whole)
                evaluator.looped, self.walk_from, self.spans = self.looped, "0", None
                yield
            return
        tile = w.name("tile")
        if self.draws:
            with self.draws.drawn(w, tile) if draws else self.draws.told(w, tile):
                self.enter(w, evaluator, tile)
                yield
            return
        total = self.grid.total()
        start, step = self.first_and_step()
        with w.block(f"for (i32 {tile} = {start}; {tile} < {total}; {tile} += {step})"):
            if not self.plan.cooperative:
                w.line(f"const bool more = {tile} + {step} < {total};")
            self.enter(w, evaluator, tile)
            yield

    def enter(self, w: Writer, evaluator: Evaluator, tile: str) -> None:
        """Declare the origins of a tile and the blocks of its walk."""
        self.whole, self.part = tile, "0"
        if self.plan.exchanges:
            self.part = "own_part"
        elif self.plan.parts > 1:
            self.whole, self.part = w.name("whole"), w.name("part")
            w.line(f"const i32 {self.whole} = {tile} / {self.plan.parts};")
            w.line(f"const i32 {self.part} = {tile} % {self.plan.parts};")
        evaluator.origins |= self.grid.decode(w, self.whole)
        self._walk_bounds(w, evaluator)

    def _walk_bounds(self, w: Writer, evaluator: Evaluator) -> None:
        """Declare the number of blocks to walk, and where a narrowed walk begins."""
        walked, axes = self.plan.roles.walked, self.program.axes
        if len(walked) > 1:
            count = prod(-(-axes[axis] // self.plan.tiles[axis]) for axis in walked)
            evaluator.looped = self.looped
            ends = None if self.plan.roles.handed else blocks_along(evaluator, walked)
            self._declare_blocks(w, ends or str(count))
            return
        axis = walked[0]
        tile = self.plan.tiles[axis]
        evaluator.looped = self.looped
        low, high = loop_bounds(evaluator, axis)
        self.walk_from = "0"
        if low != "0":
            self.walk_from = f"{axis}_from"
            w.line(f"const i32 {self.walk_from} = {low};")
        self.spans, gap = None, gap_bounds(evaluator, axis)
        if gap is not None:
            high = f"min({high}, {gap[-1]})"
        blocks = f"(max({high} - {self.walk_from}, 0) + {tile - 1}) / {tile}"
        if gap is not None:
            blocks = self._declare_spans(w, axis, blocks, *gap[:2])
        self._declare_blocks(w, blocks)

    def _declare_spans(self, w: Writer, axis: str, blocks: str, end: str, begin: str) -> str:
        """Where the first span ends and how many blocks the second is behind it; the blocks of
        both."""
        tile, start = self.plan.tiles[axis], self.walk_from
        every, near, gone = (f"{axis}_{word}" for word in ("blocks", "near", "gone"))
        w.line(f"const i32 {every} = {blocks};")
        w.line(f"const i32 {near} = min((max({end} - {start}, 0) + {tile - 1}) / {tile}, {every});")
        far = f"min(max({begin} - {start}, 0) / {tile}, {every})"
        w.line(f"const i32 {gone} = max({far} - {near}, 0);")
        self.spans = near, gone
        return f"{every} - {gone}"

    def _declare_blocks(self, w: Writer, blocks: str) -> None:
        """The blocks that are walked, all of them or this part's share."""
        if self.plan.parts == 1:
            w.line(f"const i32 blocks = {blocks};")
            return
        every, self.first_block = w.name("all_blocks"), w.name("first_block")
        w.line(f"const i32 {every} = {blocks};")
        if self.plan.exchanges:  # neighbours read neighbouring blocks, at about the same time
            last = self.plan.parts - 1
            w.line(f"const i32 blocks = ({every} - {self.part} + {last}) / {self.plan.parts};")
            return
        share = f"{every} * {{}} / {self.plan.parts}"
        w.line(f"const i32 {self.first_block} = {share.format(self.part)};")
        end = share.format(f"({self.part} + 1)")
        w.line(f"const i32 blocks = {end} - {self.first_block};")

    def walk_origins(self, w: Writer, block: str) -> dict[str, str]:
        """Origins along the walked axes of one block."""
        walked, axes = self.plan.roles.walked, self.program.axes
        if self.plan.exchanges:
            block = f"(({block}) * {self.plan.parts} + {self.part})"
        elif self.plan.shared_sums:
            block = f"({self.first_block} + {block})"
        if len(walked) == 1:
            axis = walked[0]
            name = w.name(f"{axis}_at")
            start = "" if self.walk_from == "0" else f"{self.walk_from} + "
            if self.spans:
                near, gone = self.spans
                block = f"({block} + ({block} < {near} ? 0 : {gone}))"
            w.line(f"const i32 {name} = {start}{block} * {self.plan.tiles[axis]};")
            return {axis: name}
        origins, rest = {}, w.name("number")
        w.line(f"const i32 {rest} = tw_any({block});")
        for axis in reversed(walked):
            count = -(-axes[axis] // self.plan.tiles[axis])
            name = w.name(f"{axis}_at")
            w.line(f"const i32 {name} = ({rest}) % {count} * {self.plan.tiles[axis]};")
            rest = f"({rest}) / {count}"
            origins[axis] = name
        return origins

    def present(self, ring: Ring) -> str:
        """The slot that is used, as text."""
        return f"{ring.name}_slot" if ring.stages > 1 else "0"

    def slot_back(self, ring: Ring, back: int) -> str:
        """The slot that was the present one so many slots ago, as text."""
        here = f"{ring.name}_slot"
        return f"(({here} + {ring.stages - back}) % {ring.stages})" if back else here

    def state(self, w: Writer) -> None:
        for ring in self.plan.every_ring:
            w.line(f"i32 {ring.name}_slot = 0; u32 {ring.name}_phase = 0;")

    def advance_ring(self, w: Writer, ring: Ring) -> None:
        if ring.stages == 1:
            w.line(f"{ring.name}_phase ^= 1;")
            return
        with w.block(f"if (++{ring.name}_slot == {ring.stages})"):
            w.line(f"{ring.name}_slot = 0; {ring.name}_phase ^= 1;")

    # -- copies

    def ring(self, name: str) -> Ring:
        return next(ring for ring in self.plan.every_ring if ring.name == name)

    def runs_of(self, ring: Ring) -> int:
        """How many loops over the blocks of a tile use a ring."""
        loops = (one for one in self.kernel.statements() if isinstance(one, Loop))
        fetches = [
            [do for do in loop.body if isinstance(do, Do)] for loop in loops if loop.over == BLOCK
        ]
        return sum(any(do.operation == f"fetch.{ring.name}" for do in done) for done in fetches)

    def boxes(
        self, operand: OperandTile, origins: Mapping[str, str], whole: bool = False
    ) -> Iterator[tuple[str, int, list[str]]]:
        """Tensor map, place and coordinates of this block's share of every panel of a tile; of what
        is copied in pieces, of each of them. Of what an operand is formed of, it has the `whole`.
        """
        first, peers = "", 1
        if not whole:
            first, peers = first_line(self.plan, operand), self.plan.peers(operand)
        parameter = operand.parameter(peers, self.plan.promotion)
        name = self.map_name(operand.spec.name, parameter)
        for at, where in self.places(operand, origins, first):
            yield name, at, where

    def places(
        self, operand: OperandTile, origins: Mapping[str, str], first: str = ""
    ) -> Iterator[tuple[int, list[str]]]:
        """Byte and coordinates of every box of a tile, panel by panel."""
        lines = operand.panel_bytes // operand.times
        for panel, piece in product(range(operand.panels), range(operand.times)):
            at = panel * operand.panel_bytes + piece * lines
            yield at, operand.coordinates(origins, panel, first, piece)

    def map_name(self, tensor: str, parameter: Parameter) -> str:
        """The kernel's parameter for a tensor map; equal maps are passed once."""
        for name, known in self.maps.items():
            if known == parameter:
                return name
        name = f"{tensor}_map"
        if name in self.maps:
            name = f"{name}_{len(self.maps)}"
        self.maps[name] = parameter
        return name

    # -- values

    def evaluator(self, w: Writer, team: Team) -> TensorEvaluator:
        return self.evaluates(self, w, team)

    def team(self) -> Team:
        """The consumers that meet."""
        return Team("thread", self.plan.frame.team, self._team_sync(), self._scratch())

    def weighers(self) -> Team:
        """The group that makes weights, which needs no other's memory to meet in."""
        sync = f"tw_group_sync({WEIGHERS_BARRIER}, {GROUP});"
        return Team("thread", GROUP, sync, self._scratch())

    def _team_sync(self) -> str:
        if self.plan.cooperative:
            return f"tw_group_sync({TEAM_BARRIER}, {GROUP * self.plan.consumers});"
        return f"tw_group_sync({TEAM_BARRIER} + member, {GROUP});"

    def _scratch(self) -> str:
        at = self.plan.memory.offsets["scratch"]
        if self.plan.cooperative:
            return f"tw_shared_base() + {at}"
        return f"tw_shared_base() + {at} + member * scratch_bytes"
