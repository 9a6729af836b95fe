"""One schedule of a kernel on tensor cores, worked out: tiles, frame, rings, shared memory.

Everything that the text needs is decided here; what cannot be is a Refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.kernel.modulo import Order
from ir.kernel.strip import Strip
from ir.kernel.turns import FREE
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.bodies.tensor_bodies import BUFFERS as BUFFERS
from ir.targets.cuda.bodies.tensor_bodies import body_of
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import stream_k
from ir.targets.cuda.grid.batching import APART
from ir.targets.cuda.layouts.frame import GROUP as GROUP
from ir.targets.cuda.layouts.frame import WARP, Digit, Frame, ThreadDigit
from ir.targets.cuda.layouts.operands import LINE, OperandTile, operand_tile
from ir.targets.cuda.layouts.placed import Placed, ThreadValues, framed
from ir.targets.cuda.layouts.raw_reads import RawRead, raw_read
from ir.targets.cuda.layouts.staging import Staging, staging_of
from ir.targets.cuda.layouts.synthesised import (
    ACCUMULATOR,
    OPERAND,
    SHARED,
    BlockLayouts,
    block_layouts,
    product_block,
)
from ir.targets.cuda.layouts.synthesised import ROWS as ROWS
from ir.targets.cuda.plans.forming import check_formed, source_tile
from ir.targets.cuda.plans.shares import Shares
from ir.targets.cuda.plans.sides import Side, side
from ir.targets.cuda.plans.tensor_memory import SharedMemory
from ir.targets.cuda.plans.tensor_rings import (
    HELD,
    fetched_of,
    found_twice,
    rings_of,
    rings_taken,
)
from ir.targets.cuda.prelude.families import WGMMA_KINDS

RESIDENT = "resident"  # the decision how many blocks a processor has
REGISTER_SPLITS: Mapping[str, tuple[int, int]] = {
    "none": (0, 0), "24/240": (24, 240), "40/232": (40, 232), "32/160": (32, 160),
    "56/224": (56, 224), "24/232": (24, 232), "24/136": (24, 136), "24/104": (24, 104),
}  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """Slots in shared memory that the producer fills and the consumers release together."""

    name: str
    operands: tuple[OperandTile, ...]
    stages: int


@dataclass(frozen=True)
class Plan(Shares):
    """All numbers of one kernel. `offsets` are byte offsets in shared memory."""

    program: Program
    roles: Roles
    tiles: Mapping[str, int]
    consumers: int
    partition: str
    stages: int
    cluster: tuple[int, int]
    raster: str
    processors: int
    registers: str
    epilogue: str
    epilogue_slots: int
    wait: int
    promotion: int
    stream: str
    early: bool
    parts: int
    merge: str
    extras: Mapping[str, int]  # slots by ring
    source: str = "shared"  # of the operands along the rows
    read: str = "step"  # when raw tiles are
    together: int = 1  # steps whose operands are formed together
    stream_k: str = stream_k.NONE
    layout: int = 0  # which of the synthesised layouts
    prefetch: int = 0  # blocks that the L2 cache is asked for before the kernel before has ended
    order: Order | None = None  # of chained products
    turns: str = FREE  # of the groups that compute these
    deal: int = 0  # batches whose longest tiles come first together
    overlapped: bool = False  # whether blocks of products with operands in registers are
    paired: bool = False  # whether products that are folded run two at a time
    moved: bool = False  # whether sums are scaled only where an extreme moved
    resident: int = 1  # blocks that a processor has at least
    batches: str = APART  # how they stand in the grid
    formed: tuple[Former, ...] = ()  # operands that are made of others in shared memory
    formers: int = 0  # warp groups that do so
    reads_early: bool = False  # whether threads read what they need for a block at its head
    dynamic: bool = False  # whether blocks draw their tiles
    ahead: int = 0  # columns whose operands an epilogue asks for early
    weights: int = 0  # slots in which a group of its own leaves what others multiply by
    unit = "wgmma"  # what multiplies, beside the threads that say so
    copies = "tma"  # what brings operands

    # -- tiles

    @property
    def own_columns(self) -> int:
        """Columns that a group of a block stores."""
        return self.group_columns // self.cluster_parts

    @property
    def step(self) -> int:
        """Summed points of one wgmma of the outer products."""
        return WGMMA_KINDS[self.roles.dtype].k

    def step_of(self, product: Product) -> int:
        """Summed points of one wgmma of a product."""
        return WGMMA_KINDS[self.roles.dtype_of(product)].k

    def shape_of(self, product: Product, columns: int) -> str:
        """What the instruction of a product is called, up to where its operands are."""
        return f"m64n{columns}k{self.step_of(product)}_{self.roles.kind_of(product)}"

    @property
    def from_registers(self) -> bool:
        """Whether threads load the operands along the rows, from their tiles in shared memory."""
        return self.source == "registers"

    @property
    def releases(self) -> int:
        """Arrivals with which a group releases a slot: one, or one of each warp that reads it."""
        return GROUP // WARP if self.from_registers else 1

    @cached_property
    def strip(self) -> Strip:
        """A block of products over the walk; piece by piece with operands in registers."""
        pieces = self.steps // self.together if self.from_registers else 1
        return Strip(body_of(self.roles, self.from_registers), pieces, self.through)

    @property
    def through(self) -> bool:
        """Whether products that run at the end of a block run into the next."""
        return self.wait > 0 or self.overlapped

    @property
    def fresh(self) -> int:
        """Blocks after which products begin anew; 0 where they go on to the end of the walk."""
        return self.roles.inside(self.tiles) if self.roles.folded else 0

    @property
    def steps(self) -> int:
        """Instructions along the sum of one block."""
        return self.block.size // self.step

    # -- the frame

    @cached_property
    def layouts(self) -> BlockLayouts:
        """Lines of operand tiles and places of fragments, as synthesised for this block."""
        return block_layouts(product_block(self), self.layout)

    @property
    def operand_values(self) -> ThreadValues:
        """Where an operand of one instruction lies in registers, over its rows and the sum."""
        fragment = self.layouts.fragments[f"{OPERAND}{self.roles.outer[0].a}"]
        return fragment.within(0, ROWS).within(1, self.step)

    @property
    def sums(self) -> ThreadValues:
        """Where the accumulators of 64 rows lie, over rows and columns."""
        return self.layouts.fragments[f"{ACCUMULATOR}{self.roles.outer[0].position}"]

    @cached_property
    def operand_frame(self) -> Frame:
        """Where the points of an operand in registers lie; digits of a block's steps come last."""
        fragment = self.layouts.fragments[f"{OPERAND}{self.roles.outer[0].a}"]
        one = Placed(fragment.within(1, self.step), (self.rows, self.block))
        frame = framed([one], self._groups(()))
        return Frame((*frame.registers, *self._blocks, *self.step_digits), frame.threads)

    @cached_property
    def step_digits(self) -> tuple[Digit, ...]:
        """Digits of a block's steps in the frame of operands."""
        return tuple(self.block.digits(self.steps, self.step))

    @cached_property
    def frame(self) -> Frame:
        """Where the points of accumulators lie; those of chained products side by side."""
        found = []
        for product in (self.roles.outer[0], *self.roles.inner[:1]):
            walk = product in self.roles.inner
            columns = self.block if walk else side((self.column_axis,), self.tiles)
            fragment = self.layouts.fragments[f"{ACCUMULATOR}{product.position}"]
            found.append(Placed(fragment, (self.rows, columns)))
        moves: tuple[tuple[str, int], ...] = ((self.column_axis, self.group_columns),)
        if self.shared_words and not self.apart:
            moves = (*moves, (self.roles.main_walk, self.group_walk))
        frame = framed(found, self._groups(moves))
        return Frame((*frame.registers, *self._blocks), frame.threads)

    @cached_property
    def own_frame(self) -> Frame:
        """The frame of what a block stores: of the columns that it finishes."""
        if not self.exchanges:
            return self.frame
        columns = [d for d in self.frame.registers if d.axis == self.column_axis]
        last = max(columns, key=lambda digit: digit.stride)
        shared = replace(last, size=last.size // self.parts)
        registers = tuple(shared if d == last else d for d in self.frame.registers)
        return replace(self.frame, registers=registers)

    @property
    def _blocks(self) -> list[Digit]:
        """Digits of the blocks of 64 rows."""
        return self.rows.digits(self.row_blocks, ROWS)

    def places_of(self, block: int) -> dict[Digit, int]:
        """The digits of a block of 64 rows."""
        found, rest = {}, block
        for digit in self._blocks:
            rest, found[digit] = divmod(rest, digit.size)
        return found

    @cached_property
    def rows(self) -> Side:
        """The rows of a tile."""
        return side(self.roles.rows, self.tiles)

    def _groups(self, columns: tuple[tuple[str, int], ...]) -> list[ThreadDigit]:
        """Digits of the warp groups that share a tile: `columns` is how they move along these."""
        if self.partition == "rows":
            return self.rows.threads(self.consumers, self.group_rows)
        return [ThreadDigit(self.consumers, columns)] if self.partition == "columns" else []

    # -- operands and rings

    def operand(self, product: Product, side: str) -> OperandTile | None:
        """The tile of operand "a" or "b"; None if it is computed."""
        position = product.a if side == "a" else product.b
        if not isinstance(self.program.nodes[position].op, Load):
            return None
        return self._fetched(product, position)

    def fetched(self, product: Product) -> list[OperandTile]:
        """Tiles that a product waits for."""
        positions = fetched_of(self.program, self.roles, product)
        return [self._fetched(product, position) for position in positions]

    def former_of(self, operand: OperandTile) -> Former | None:
        """What makes a tile of others, if it is not copied."""
        return next((one for one in self.formed if one.tensor == operand.spec.name), None)

    def copied(self, ring: Ring) -> tuple[OperandTile, ...]:
        """The tiles of a ring that are copied as they are."""
        return tuple(one for one in ring.operands if self.former_of(one) is None)

    def formed_in(self, ring: Ring) -> tuple[tuple[OperandTile, Former], ...]:
        """The others, with what makes them."""
        return tuple((x, f) for x in ring.operands if (f := self.former_of(x)) is not None)

    def source_of(self, operand: OperandTile, former: Former) -> OperandTile:
        """The tile that an operand is made of: the same points, as they lie in memory."""
        return source_tile(operand, former, self.tiles)

    def unplaced(self, product: Product, position: int) -> OperandTile:
        """A tile that a product waits for, before layouts are known."""
        raw = product.a in self.roles.computed and position in self.roles.raw
        return operand_tile(self.program, position, product.over, self.tiles, raw)

    def _fetched(self, product: Product, position: int) -> OperandTile:
        known = self._tiles.get((product.position, position))
        if known is None:
            known = self._tiles[product.position, position] = self._placed(product, position)
        return known

    @cached_property
    def _tiles(self) -> dict[tuple[int, int], OperandTile]:
        """Tiles that were asked for, by product and load."""
        return {}

    def _placed(self, product: Product, position: int) -> OperandTile:
        tile = self.unplaced(product, position)
        first = found_twice(self.program, self.roles).get(position)
        if first is not None:
            inner = next(one for one in self.roles.inner if one.b == first)
            known = self._fetched(inner, first)
            return replace(tile, line=known.line, order=known.order)
        if not tile.raw:
            lines = self.layouts.lines
            own = lines.get(f"{SHARED}{position}_{product.position}")
            own = own or lines[f"{SHARED}{position}"]
            return replace(tile, line=own.width, order=own.order)
        read = self.raw_read(tile)
        return tile if read is None else replace(tile, line=read.line)

    def raw_read(self, tile: OperandTile) -> RawRead | None:
        """How threads read a raw tile; None for one that is not of all rows and whole runs of the
        sum, which keeps lines of up to 128 bytes."""
        fragment = self.layouts.fragments[f"{OPERAND}{self.roles.outer[0].a}"]
        axes = self.program.nodes[tile.position].axes
        there = [axis in axes for axis, points in self.block.axes if points > 1]
        apart = prod(points for axis, points in self.block.axes if axis not in axes)
        if any(self.tiles[axis] > 1 and axis not in axes for axis in self.roles.rows):
            return None
        if not any(there) or there != sorted(there, reverse=True):
            return None
        points = self.block.size // apart
        found = raw_read(fragment, tile.spec.dtype, points, apart, tile.sums_inside)
        if found is not None and tile.length * tile.size % found.line:
            return None  # of several dimensions: lines hold fewer points
        return found

    @cached_property
    def rings(self) -> tuple[Ring, ...]:
        """Rings in the order in which a block uses them; the one that is held comes first."""
        found = []
        for name, operands in rings_of(self.program, self.roles).items():
            tiles = tuple(
                self._fetched(product, position) for position, product in operands.items()
            )
            slots = (1 if name == HELD else self.stages) + self.extras.get(name, 0)
            found.append(Ring(name, tiles, slots))
        return tuple(found)

    @cached_property
    def every_ring(self) -> tuple[Ring, ...]:
        """Those, and the one that weights are left in."""
        left = (Ring(WEIGHTS, (), self.weights),) if self.apart else ()
        return (*self.rings, *left)

    def readers(self, ring: Ring) -> int:
        """Warp groups that free a slot of a ring."""
        if not self.cooperative:
            return 1
        outer = (*rings_taken(self.program, self.roles, self.roles.outer), WEIGHTS)
        return self.consumers if ring.name in outer or not self.apart else 1

    @cached_property
    def _read_by_threads(self) -> dict[int, OperandTile]:
        read = set(self.roles.raw) if self.from_registers else set()
        if self.from_registers:
            read |= {product.a for product in self.roles.outer}
        tiles = {o.position: o for ring in self.rings for o in ring.operands}
        return {position: tile for position, tile in tiles.items() if position in read}

    def raw_tile(self, position: int) -> OperandTile | None:
        """The tile of a load that threads read for operands in registers."""
        return self._read_by_threads.get(position)

    def ring_of(self, operand: OperandTile) -> Ring:
        """The ring of a tile; a load that products sum over different axes has one for each."""
        first = found_twice(self.program, self.roles).get(operand.position)
        if first is None:
            return next(ring for ring in self.rings if operand in ring.operands)
        there = ((ring, [one.position for one in ring.operands]) for ring in self.rings)
        return next(ring for ring, positions in there if first in positions)

    def slot_of(self, operand: OperandTile) -> str:
        """Under which name `offsets` has the first slot of a tile."""
        first = found_twice(self.program, self.roles).get(operand.position, operand.position)
        return f"{self.ring_of(operand).name}.{first}"

    def peers(self, operand: OperandTile) -> int:
        """CTAs of the cluster that share the operand's tile; one line is not worth sharing."""
        if operand.raw and operand.count == 1:
            return 1
        axes = set(self.program.nodes[operand.position].axes)
        peers = 1
        if not axes & set(self.roles.rows):
            peers *= self.cluster[0]
        if not axes & set(self.roles.columns) or self.roles.inner:
            peers *= self.cluster[1]
        return peers

    def passing(self, operand: OperandTile) -> bool:
        """Whether the operand's lines are the first to leave the L2 cache."""
        sides = {"rows": self.roles.rows, "columns": self.roles.columns}
        axes = set(self.program.nodes[operand.position].axes)
        return bool(axes & set(sides.get(self.stream, ())))

    # -- shared memory

    @cached_property
    def memory(self) -> SharedMemory:
        return SharedMemory(self)

    @property
    def lines_of_rows(self) -> int:
        """Lines that 64 rows of an output make where they are contiguous."""
        stores = (node for node in self.program.nodes if isinstance(node.op, Store))
        return max(ROWS * dtype_of(node.dtype).bytes for node in stores) // LINE

    @cached_property
    def store_transposed(self) -> bool:
        """Whether the outputs over rows and columns are contiguous along the rows."""
        wide = {*self.roles.rows, *self.roles.columns}
        return any(
            wide <= {*store.axes} and store.axes[-1] in self.roles.rows
            for _, store in self.program.stores()
        )

    def staging(self, dtype: str, columns: int) -> Staging:
        """How 64 rows of an output by so many columns are staged for TMA."""
        return staging_of(self.sums, dtype, columns, self.store_transposed)

    def check(self, shared_limit: int) -> None:
        """Refusal for what the constraints should have excluded."""
        groups = self.consumers if self.partition == "rows" else 1
        if self.tile_rows % (ROWS * groups):
            raise Refusal("rows", f"{self.tile_rows} rows for {groups} groups of {ROWS}")
        for ring in self.rings:
            for operand in ring.operands:
                problem = operand.problem()
                if problem:
                    raise Refusal("operand", f"{operand.spec.name}: {problem}")
            for operand, former in self.formed_in(ring):
                check_formed(operand, self.source_of(operand, former), self.tiles)
        if self.memory.offsets["scratch"] > shared_limit:
            raise Refusal("shared", f"{self.memory.offsets['scratch']} of {shared_limit} bytes")
