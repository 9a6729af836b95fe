"""Operands of wgmma in registers: from tiles in shared memory, computed where they are not plain.

Layouts of fragments are the PTX ISA's. Fragments of some steps are formed while the products of the
steps before still run on those formed before: two sets of registers take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ir.dtypes import is_float
from ir.layout.expressions import ZERO, Expression, constant, scaled, total, variable
from ir.layout.printing import summand
from ir.ops.load import Load
from ir.targets.cuda.build.computed import below
from ir.targets.cuda.build.products import loads_of
from ir.targets.cuda.layouts.lanes import matrix_row
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.plans.tensor_plan import BUFFERS, ROWS
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.packed import HALVES, PackedWords
from ir.targets.cuda.text.registers import Fragment, Point, Team, number_of, spread
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering

WIDEST = 8  # bytes that a thread reads at once of a tile that the synthesis is not asked about


class OperandEvaluator(Evaluator):
    """Forms an operand's points where wgmma reads them; `slots` are the addresses of its tiles."""

    def __init__(self, lowering: TensorLowering, writer: Writer, team: Team) -> None:
        plan = lowering.plan
        super().__init__(lowering.program, writer, plan.operand_frame, plan.tiles, team)
        self.lowering, self.plan = lowering, plan
        self.slots: dict[int, str] = {}
        self.starts: dict[int, str] = {}
        self.present: int | None = None  # the step that is formed
        self.pairs: dict[int, Callable[[Point], str]] = {}  # of loads, by a point

    def ragged(self, axis: str) -> bool:
        """Clusters may reach a whole tile over the end of the rows."""
        down = self.plan.cluster[0] if axis == self.plan.roles.rows[-1] else 1
        return self.program.axes[axis] % (self.tiles[axis] * down) != 0

    # -- where a point lies in a tile

    def declare_tile(self, tile: OperandTile) -> None:
        """Declare the place of this thread's first point in a tile."""
        line, inner = tile.place(self.thread_part)
        name = self.w.name(f"{tile.spec.name}_lane")
        self.w.line(f"const u32 {name} = {tile.offset(line, inner)};")
        self.starts[tile.position] = name

    def address(self, tile: OperandTile, point: Point) -> str:
        """Where a point is; bits within a swizzled pattern are the thread's or the registers'."""
        line, inner = tile.place(lambda axis: self.registers_part(axis, point))
        return self.moved(tile, line, inner)

    def moved(self, tile: OperandTile, line: Expression, inner: Expression) -> str:
        """The thread's place in a tile moved by lines and by points along them."""
        slot, start = self.slots[tile.position], self.starts[tile.position]
        exchanged, added = tile.memory.moved(line, scaled(inner, tile.size))
        if exchanged != ZERO:
            start = f"({start} ^ ({exchanged}))"
        return f"{slot} + {start}" + (f" + {summand(added)}" if added != ZERO else "")

    # -- raw values

    def _load(self, position: int) -> Fragment:
        tile = self.plan.raw_tile(position)
        if tile is None:
            return super()._load(position)
        node = self.nodes[position]
        fragment = self.new(text_name(tile.spec.name), node.axes, node.dtype)
        if self.by_matrices(tile):
            self._from_matrices(tile, fragment)
            return fragment
        width = self._together(tile, fragment)
        paired = width > 1 and node.dtype == "i8"  # e4m3 and u8 are widened from their values
        pairs = self._open_pairs(position, fragment) if paired else None
        address = partial(self.address, tile)
        self.read_shared(fragment, node.dtype, width, address, pairs)
        return fragment

    def _open_pairs(self, position: int, fragment: Fragment) -> Callable[[Point], str]:
        """Words for two bytes each, as they lie in memory, beside their values."""
        name = self.w.name(f"{fragment.name}_pairs")
        self.w.line(f"u32 {name}[{fragment.count // 2}];")

        def at(point: Point) -> str:
            return f"{name}[({number_of(fragment.digits, point)}) / 2]"

        self.pairs[position] = at
        return at

    def pair(self, position: int, point: Point) -> str:
        """The word of the two bytes of a load that begin with a point; empty if there is none."""
        return self.pairs[position](point) if position in self.pairs else ""

    def _together(self, tile: OperandTile, fragment: Fragment) -> int:
        """Neighbours of a line that one thread reads at once."""
        first = fragment.digits[0] if fragment.digits else None
        axis, factor = tile.run[-1]
        if first is None or first.axis != axis or first.stride != 1 or factor != 1:
            return 1
        read = self.plan.raw_read(tile)
        return min(first.size, read.elements if read else WIDEST // tile.size)

    # -- by ldmatrix

    def by_matrices(self, tile: OperandTile) -> bool:
        """Whether a tile holds whole matrices of the operand: 16-bit, of all rows and the sum."""
        plan = self.plan
        axes = {axis for axis, points in tile.tiles if points > 1}
        sides = {axis for axis in (*plan.roles.rows, *plan.roles.walked) if plan.tiles[axis] > 1}
        return tile.size == 2 and tile.swizzle > 0 and axes == sides and self._in_order(tile)

    def _in_order(self, tile: OperandTile) -> bool:
        """Whether lines and points follow the rows and the sum as the instruction counts them."""
        plan = self.plan
        rows = [axis for axis in plan.roles.rows if plan.tiles[axis] > 1]
        walk = [axis for axis in plan.roles.walked if plan.tiles[axis] > 1]
        run = [axis for axis, _ in tile.run if plan.tiles[axis] > 1]
        lines = [n for axis, _ in tile.lines for n, _ in tile.inside(axis) if plan.tiles[n] > 1]
        return (run, lines) in ((walk, rows), (rows, walk))

    def declare_matrices(self, tile: OperandTile) -> None:
        """Declare where this lane's line of the first fragment is."""
        plan = self.plan
        row, depth = matrix_row(plan.operand_values, tile.size * 8, 4, not tile.sums_inside)
        if plan.partition == "rows":
            row = total(scaled(variable("member", plan.consumers), plan.group_rows), row)
        line, inner = (row, depth) if tile.sums_inside else (depth, row)
        name = self.w.name(f"{tile.spec.name}_lane")
        self.w.line(f"const u32 {name} = {tile.offset(line, inner)};")
        self.starts[tile.position] = name

    def load_matrices(self, tile: OperandTile, words: str, step: int, first: int = 0) -> None:
        """A step's words of all blocks of rows, from `words[first]` on."""
        plan, transposed = self.plan, "" if tile.sums_inside else "_trans"
        for block in range(plan.row_blocks):
            row, depth = constant(block * ROWS), constant(step * plan.step)
            line, inner = (row, depth) if tile.sums_inside else (depth, row)
            address = self.moved(tile, line, inner)
            registers = ", ".join(f"{words}[{first + block}][{i}]" for i in range(4))
            self.w.line(f"tw_ldmatrix_x4{transposed}({address}, {registers});")

    def _from_matrices(self, tile: OperandTile, fragment: Fragment) -> None:
        """Values of the present step, or all, unpacked from fragments of 16-bit words."""
        steps = range(self.plan.steps) if self.present is None else (self.present,)
        blocks = self.plan.row_blocks
        words = self.w.name(f"{tile.spec.name}_words")
        self.w.line(f"u32 {words}[{len(steps) * blocks}][4];")
        for number, step in enumerate(steps):
            self.load_matrices(tile, words, step, number * blocks)
        with self.each_vector(fragment.digits, 2) as points:
            rest = fragment.digits[1:]
            index = number_of(rest, points[0])
            for half, point in enumerate(points):
                word = f"{words}[({index}) / 4][({index}) % 4]"
                value = scalars.unpack(word, half, tile.spec.dtype)
                self.w.line(f"{self.element(fragment, point)} = {value};")

    @contextmanager
    def at_step(self, step: int) -> Iterator[None]:
        """Values formed inside are those of one step of the block."""
        self.present = step
        digits = self.plan.step_digits
        self.fixed |= spread(digits, step)
        with self.scope():
            yield
        for digit in digits:
            del self.fixed[digit]
        self.present = None


class Fragments:
    """The operands along the rows of one kernel, in registers."""

    def __init__(self, lowering: TensorLowering, writer: Writer, team: Team) -> None:
        self.lowering, self.plan, self.w = lowering, lowering.plan, writer
        self.nodes = lowering.program.nodes
        self.e = OperandEvaluator(lowering, writer, team)
        self.positions = tuple(dict.fromkeys(p.a for p in self.plan.roles.outer))
        self.words: dict[int, str] = {}
        self.ahead: dict[int, Fragment] = {}

    def declare(self) -> None:
        """This thread's coordinates and places in the tiles, once for the kernel."""
        self.e.declare_threads()
        whole = [p for p in self.plan.roles.computed if self._of_integers(p)]
        for dtype in dict.fromkeys(self.nodes[p].dtype for p in whole):
            start = HALVES[dtype].start
            self.w.line(f"const u32 start_{dtype} = tw_kept({start << 16 | start:#x}u);")
        for ring in self.plan.rings:
            for tile in ring.operands:
                if self._read(tile):
                    matrices = self.e.by_matrices(tile)
                    (self.e.declare_matrices if matrices else self.e.declare_tile)(tile)

    def _of_integers(self, position: int) -> bool:
        made = below(self.plan.program, position)
        return any(not is_float(self.nodes[n].dtype) for n in made)

    def _read(self, tile: OperandTile) -> bool:
        return self.plan.raw_tile(tile.position) is not None

    def open(self, origins: dict[str, str]) -> None:
        """Ahead of a walk: registers for the words, and what does not change on the way."""
        self.e.origins = origins
        self.e.values = {}
        for position in self.positions:
            name = self.w.name(f"{self._stem(position)}_words")
            rows = self.plan.together * self.plan.row_blocks
            self.w.line(f"u32 {name}[{BUFFERS}][{rows}][4];")
            self.words[position] = name
            if position in self.plan.roles.computed:
                self.e.form_without(position, self.plan.roles.walked)
        with self._at("0"):
            self.ahead = {load: self.e.fragment(load) for load in self._small}

    def _stem(self, position: int) -> str:
        op = self.nodes[position].op
        return text_name(op.tensor) if isinstance(op, Load) else f"operand_{position}"

    @contextmanager
    def block(self) -> Iterator[None]:
        """Inside, steps of the block in the present slots are formed."""
        plan = self.plan
        for ring in plan.rings:
            for tile in ring.operands:
                if self._read(tile):
                    name = self.w.name(f"{tile.spec.name}_slot")
                    slot = self.lowering.slot(ring, tile, f"{ring.name}_slot")
                    self.w.line(f"const u32 {name} = {slot};")
                    self.e.slots[tile.position] = name
        tiled = [axis for axis in plan.roles.walked if plan.tiles[axis] > 1]
        with self.e.scope():
            following = self._take()
            for position in self.positions:
                if position in plan.roles.computed:
                    self.e.form_without(position, tiled)
            if plan.read == "block":
                for load in plan.roles.raw:
                    self.e.fragment(load)
            yield
        for load, fragment in following.items():
            self._copy(fragment, self.ahead[load])

    @cached_property
    def _small(self) -> tuple[int, ...]:
        """Loads that threads read from memory anew for every block, a block ahead of their use."""
        walked = self.plan.roles.walked
        return tuple(
            load
            for position in sorted(self.plan.roles.computed)
            for load in loads_of(self.plan.program, position)
            if load not in self.plan.roles.raw
            and any(axis in walked for axis in self.nodes[load].axes)
            and all(self.plan.tiles[a] == 1 for a in self.nodes[load].axes if a in walked)
        )

    def _take(self) -> dict[int, Fragment]:
        """Make what was loaded ahead this block's values; start to load the next block's."""
        for load, fragment in self.ahead.items():
            node = self.nodes[load]
            here = self.e.new(self.e.label(load), node.axes, node.dtype)
            self._copy(fragment, here)
            self.e.values[load] = here
        with self._at("(block + 1)"), self.e.scope():
            for load in self.ahead:
                del self.e.values[load]
            return {load: self.e.fragment(load) for load in self.ahead}

    def _copy(self, source: Fragment, target: Fragment) -> None:
        with self.e.each(source.digits) as point:
            value = self.e.element(source, point)
            self.w.line(f"{self.e.element(target, point)} = {value};")

    @contextmanager
    def _at(self, block: str) -> Iterator[None]:
        """Values formed inside are another block's; what is behind the last is some block's."""
        saved, known = dict(self.e.origins), dict(self.e.values)
        if self._small:
            self.e.origins |= self.lowering.walk_origins(self.w, block)
        yield
        self.e.origins.clear()
        self.e.origins |= saved
        self.e.values = known

    def form(self, group: int) -> None:
        """Fill the words of a group of steps."""
        together = self.plan.together
        for step in range(group * together, (group + 1) * together):
            with self.w.block(""), self.e.at_step(step):
                for position in self.positions:
                    self._form(position, step)
        for position in self.positions:
            for row in range(together * self.plan.row_blocks):
                self.w.line(f"tw_hold({self.words[position]}[{group % BUFFERS}][{row}]);")

    def _form(self, position: int, step: int) -> None:
        words, first = f"{self.words[position]}[{self._buffer(step)}]", self._first(step)
        tile = self.plan.raw_tile(position)
        if tile is not None and self.e.by_matrices(tile):
            self.e.load_matrices(tile, words, step, first)
        else:
            self._compute(position, words, first)

    def _buffer(self, step: int) -> int:
        return step // self.plan.together % BUFFERS

    def _first(self, step: int) -> int:
        """The row of the words of a step's first block."""
        return step % self.plan.together * self.plan.row_blocks

    def _compute(self, position: int, words: str, first: int) -> None:
        e, node = self.e, self.nodes[position]
        e.ready(position, node.axes)
        digits = e.own((*self.plan.roles.rows, *self.plan.roles.walked))
        pair, rest = digits[0], digits[1:]
        with e.each(rest) as point:
            places = [Point({**point.digits, pair: str(half)}) for half in range(pair.size)]
            index = number_of(rest, point)
            word = self._packed(position, places) or scalars.pack_word(
                [self._value(position, place) for place in places], node.dtype
            )
            row = f"{first} + ({index}) / 4" if first else f"({index}) / 4"
            self.w.line(f"{words}[{row}][({index}) % 4] = {word};")

    def _packed(self, position: int, places: Sequence[Point]) -> str:
        """The word computed in halves, where these are exact; empty if it is not."""
        if self._ragged:
            return ""
        memos: tuple[dict[int, str], dict[int, str]] = ({}, {})

        def value(here: int, place: int) -> str:
            return self.e.scalar(here, places[place], memos[place])

        half = HALVES[self.nodes[position].dtype]

        def raw(here: int) -> str:
            return self.e.pair(here, places[0])

        words = PackedWords(self.plan.program, half, self.w, value, f"start_{half.name}", raw)
        return words.word(position)

    @cached_property
    def _ragged(self) -> list[str]:
        """Walked axes of which the last tile reaches over the end."""
        axes, tiles = self.plan.program.axes, self.plan.tiles
        return [axis for axis in self.plan.roles.walked if axes[axis] % tiles[axis]]

    def _value(self, position: int, point: Point) -> str:
        """A point's value; 0 behind the end of the sum, whatever would be computed there."""
        value = self.e.scalar(position, point, {})
        inside = [
            f"{self.e.coordinate(axis, point)} < {self.plan.program.axes[axis]}"
            for axis in self._ragged
        ]
        return f"({' && '.join(inside)} ? {value} : 0)" if inside else value

    def step_words(self, position: int, step: int, block: int) -> str:
        """The words of one instruction."""
        return f"{self.words[position]}[{self._buffer(step)}][{self._first(step) + block}]"
