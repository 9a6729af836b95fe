"""How consumers write a tile: straight from registers, or by TMA through buffers.

How a panel lies in its buffer, and whether stmatrix or plain stores write it, is the synthesis'.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.layout.expressions import Expression, constant, scaled, total, variable
from ir.ops.store import Store
from ir.targets.cuda.build.products import mapped
from ir.targets.cuda.launch import Parameter
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.layouts.lanes import matrix_row, place
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.placed import Step
from ir.targets.cuda.layouts.staging import Staging
from ir.targets.cuda.plans.tensor_plan import GROUP, ROWS
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.late import Late, asking, fixing_ahead
from ir.targets.cuda.text.registers import Point, spread

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_evaluate import TensorEvaluator
    from ir.targets.cuda.lower.tensor_lower import TensorLowering

STORE_BARRIER = 5


@dataclass(frozen=True, slots=True)
class Panel:
    """So many columns of a tile, from `start` on, on their way through a buffer."""

    buffer: str
    form: Staging
    start: int
    width: int


class TensorStore:
    """Emits the stores of one tile."""

    def __init__(self, lowering: TensorLowering, evaluator: TensorEvaluator) -> None:
        self.lowering, self.e, self.plan = lowering, evaluator, lowering.plan
        self.nodes = lowering.program.nodes
        self._late: Late | None = None  # of the present rows

    def store(self, position: int, staged: bool) -> None:
        """Write a value; `staged`: through buffers in shared memory, by TMA."""
        self.e.form_without(position, self.plan.roles.columns)
        axes = self.nodes[position].axes
        if staged:
            if self.plan.store_transposed:
                self._transposed(position)
            else:
                self._straight(position)
            return
        own = self.e.own((self.plan.column_axis,))
        digits = [d for d in own if d.stride == self._columns and d.size > 1]
        if digits and self.plan.column_axis in axes:
            with fixing_ahead(self.e, position, digits[0], self.plan.ahead):
                self.e.store(position)
        else:
            self.e.store(position)

    # -- geometry

    @cached_property
    def _pair(self) -> Step:
        """The neighbours in a row of sums that a thread has."""
        return next(step for step in self.plan.sums.values if step.axis == 1)

    @cached_property
    def _halves(self) -> Step:
        """The rows of a matrix that a thread has parts of."""
        return next(step for step in self.plan.sums.values if step.axis == 0)

    @cached_property
    def _columns(self) -> int:
        """Columns that the neighbours of all threads make: those of one matrix."""
        return self._pair.size * prod(s.size for s in self.plan.sums.threads if s.axis == 1)

    def _size(self, position: int) -> int:
        return dtype_of(self.nodes[position].dtype).bytes

    def _form(self, position: int, columns: int) -> Staging:
        """How a panel of so many columns is staged."""
        return self.plan.staging(self.nodes[position].dtype, columns)

    def _columns_digit(self) -> Digit:
        own = self.e.frame.own((self.plan.column_axis,))
        found = [d for d in own if d.stride == self._columns]
        return found[0] if found else Digit(self.plan.column_axis, 1, self._columns)

    def _row_digits(self) -> tuple[list[Digit], list[Digit]]:
        """Digits of the row half, and of the blocks of 64 rows."""
        plan = self.plan
        halves = plan.rows.digits(self._halves.size, self._halves.stride)
        return halves, plan.rows.digits(plan.row_blocks, ROWS)

    def _begin(self, buffer: str) -> None:
        """Wait until the buffer's last store has read it."""
        w, slots = self.e.w, self.plan.epilogue_slots
        w.line(f"if (lane == 0) tw_store_wait_read<{slots - 1}>();")
        w.line(f"tw_group_sync({STORE_BARRIER} + member, {GROUP});")

    def _finish(
        self, position: int, parameter: Parameter, buffer: str, *places: list[str]
    ) -> None:  # fmt: skip
        """Send the panels of a buffer, one after the other, each to its place."""
        w = self.e.w
        store = self.nodes[position].op
        assert isinstance(store, Store)
        name = self.lowering.map_name(store.tensor, parameter)
        w.line("tw_fence_async();")
        w.line(f"tw_group_sync({STORE_BARRIER} + member, {GROUP});")
        panel = prod(parameter.box) * dtype_of(parameter.dtype).bytes
        with w.block("if (lane == 0)"):
            for number, where in enumerate(places):
                at = f"{buffer} + {number * panel}" if number else buffer
                w.line(f"tw_tma_store_{len(where)}d(&{name}, {at}, {', '.join(where)});")
            w.line("tw_store_commit();")

    def _buffer(self) -> str:
        """Address of the next buffer of this group; they take turns across tiles too."""
        plan = self.plan
        at = plan.memory.offsets["store"]
        own = plan.memory.store_slot_bytes * plan.epilogue_slots
        start = f"smem + {at} + member * {own}"
        if plan.epilogue_slots == 1:
            return start
        turn = f"store_turn % {plan.epilogue_slots}"
        self.e.w.line("store_turn++;")
        return f"{start} + {turn} * {plan.memory.store_slot_bytes}"

    # -- panels

    def _straight(self, position: int) -> None:
        """An output that is contiguous along the columns."""
        plan, w = self.plan, self.e.w
        points = LINE // self._size(position)
        columns = plan.own_columns
        halves, blocks = self._row_digits()
        for block in range(plan.row_blocks):
            fixed = spread(blocks, block)
            with self._asking(position, fixed):
                for start in range(0, columns, points):
                    width = min(points, columns - start)
                    buffer = w.name("buffer")
                    w.line(f"const u32 {buffer} = {self._buffer()};")
                    self._begin(buffer)
                    form = self._form(position, width)
                    panel = Panel(buffer, form, start, width)
                    self._write(position, panel, halves, fixed)
                    parameter = self._parameter(position, form, width)
                    where = self._place(position, block, start)
                    self._finish(position, parameter, buffer, where)

    def _transposed(self, position: int) -> None:
        """64 rows become the lines of panels that have a line for each column."""
        plan, w = self.plan, self.e.w
        halves, blocks = self._row_digits()
        columns = plan.own_columns
        form = self._form(position, columns)
        parameter = self._parameter(position, form, columns)
        for block in range(plan.row_blocks):
            buffer = w.name("buffer")
            w.line(f"const u32 {buffer} = {self._buffer()};")
            fixed = spread(blocks, block)
            with self._asking(position, fixed):
                self._begin(buffer)
                self._write(position, Panel(buffer, form, 0, columns), halves, fixed)
            places = [
                self._place(position, block, 0, panel * ROWS // form.count)
                for panel in range(form.count)
            ]
            self._finish(position, parameter, buffer, *places)

    @contextmanager
    def _asking(self, position: int, fixed: dict[Digit, str]) -> Iterator[None]:
        """All columns of some rows, with what they load asked for ahead."""
        digit, columns = self._columns_digit(), self.plan.own_columns // self._columns
        saved, self.e.fixed = self.e.fixed, {**self.e.fixed, **fixed}
        with asking(self.e, position, digit, self.plan.ahead, columns) as late:
            self.e.fixed, self._late = saved, late
            yield
            self._late = None

    def _write(
        self, position: int, panel: Panel, halves: list[Digit], fixed: dict[Digit, str]
    ) -> None:
        """All values of a panel, as its form asks."""
        if panel.form.matrices:
            self._matrices(position, panel, halves, fixed)
        else:
            self._singles(position, panel, halves, fixed)

    def _address(self, position: int, panel: Panel, row: Expression, column: Expression) -> str:
        """Where a value of a panel lies."""
        line, point = (column, row) if self.plan.store_transposed else (row, column)
        lines = panel.width if self.plan.store_transposed else ROWS
        offset = panel.form.offset(line, scaled(point, self._size(position)), lines)
        return f"{panel.buffer} + ({offset})"

    def _matrices(
        self, position: int, panel: Panel, halves: list[Digit], fixed: dict[Digit, str]
    ) -> None:
        """Pairs of 16-bit values by stmatrix: 16 columns at a time, then 8."""
        w, transposed, digit = self.e.w, self.plan.store_transposed, self._columns_digit()
        pairs, rest = divmod(panel.width // self._columns, 2)
        held = self.plan.sums.within(1, 2 * self._columns)
        for first, count, per in ((0, pairs, 2), (2 * pairs, rest, 1)):
            if not count:
                continue
            name = w.name("c")
            with w.unrolled(name, count):
                words = []
                for part in range(per):
                    column = f"({panel.start // self._columns + first + part} + {name} * {per})"
                    words += self._pair_words(position, column, digit, halves, fixed)
                row, own = matrix_row(held, 16, 2 * per, transposed)
                steps = scaled(variable(name, count), per * self._columns)
                own = total(constant(first * self._columns), steps, own)
                at = self._address(position, panel, row, own)
                call = f"tw_stmatrix_x{2 * per}{'_trans' if transposed else ''}"
                w.line(f"{call}({at}, {', '.join(words)});")

    def _singles(
        self, position: int, panel: Panel, halves: list[Digit], fixed: dict[Digit, str]
    ) -> None:
        """32-bit values: two neighbours by one store, or one by one where each has its line."""
        w, transposed, digit = self.e.w, self.plan.store_transposed, self._columns_digit()
        name = w.name("c")
        count = panel.width // self._columns
        steps = scaled(variable(name, count), self._columns)
        with w.unrolled(name, count):
            column = f"({panel.start // self._columns} + {name})"
            for half, words in self._single_words(position, column, digit, halves, fixed):
                for number in range(self._pair.size if transposed else 1):
                    value = constant(half * self._pair.size + number)
                    row, own = place(self.plan.sums, value)
                    at = self._address(position, panel, row, total(steps, own))
                    size, stored = (4, words[number]) if transposed else (8, ", ".join(words))
                    w.line(f"tw_store_shared_{size}({at}, {stored});")

    def _pair_words(
        self, position: int, column: str, digit: Digit, halves: list[Digit],
        fixed: dict[Digit, str],
    ) -> list[str]:  # fmt: skip
        """The two packed words (upper and lower rows) of one thread in 8 columns."""
        words = []
        for values in self._neighbours(position, column, digit, halves, fixed):
            name = self.e.w.name("word")
            word = scalars.pack_word(values, self.nodes[position].dtype)
            self.e.w.line(f"const u32 {name} = {word};")
            words.append(name)
        return words

    def _neighbours(
        self, position: int, column: str, digit: Digit, halves: list[Digit],
        fixed: dict[Digit, str],
    ) -> Iterator[list[str]]:  # fmt: skip
        """The values of one thread in 8 columns, in the dtype that is stored: two neighbours of the
        upper rows, then the lower rows'."""
        e, source = self.e, self.nodes[position].args[0]
        outer = {**fixed, digit: column}
        e.fixed.update(outer)
        saved, e.values = e.values, dict(e.values)
        if self._late:
            self._late.step(column)
        e.prepare(position)
        pair = Digit(self.plan.column_axis, self._pair.size, self._pair.stride)
        for half in range(self._halves.size):
            values = []
            for side in map(str, range(pair.size)):
                point = Point({**e.fixed, **spread(halves, half), pair: side})
                value = e.scalar(source, point, {})
                dtype = self.nodes[source].dtype
                values.append(scalars.convert(value, dtype, self.nodes[position].dtype))
            yield values
        e.values = saved
        for key in outer:
            del e.fixed[key]

    def _single_words(
        self, position: int, column: str, digit: Digit, halves: list[Digit],
        fixed: dict[Digit, str],
    ) -> Iterator[tuple[int, list[str]]]:  # fmt: skip
        """The words of one thread in 8 columns, by half; each value has 32 bits."""
        dtype = self.nodes[position].dtype
        every = self._neighbours(position, column, digit, halves, fixed)
        for half, values in enumerate(every):
            yield half, [scalars.pack_word([value], dtype) for value in values]

    # -- tensor maps of outputs

    def _block_tiles(self) -> dict[str, int]:
        """How 64 rows lie along the row axes."""
        found, left = {}, ROWS
        for axis in reversed(self.plan.roles.rows):
            take = min(left, self.plan.tiles[axis])
            if left % take or self.plan.tiles[axis] % take:
                raise Refusal("store", f"64 rows do not make a box of axis {axis}")
            found[axis] = take
            left //= take
        return found

    def _parameter(self, position: int, form: Staging, width: int) -> Parameter:
        """The tensor map for boxes of one panel: its lines, by `width` columns."""
        store = self.nodes[position].op
        assert isinstance(store, Store)
        spec = self.lowering.program.scope.tensors[store.tensor]
        size = dtype_of(spec.dtype).bytes
        boxes = self._block_tiles()
        boxes[self.plan.column_axis] = width
        if self.plan.store_transposed:
            boxes[self.plan.roles.rows[-1]] = form.line // size
        own = mapped(spec)[::-1]
        dims, axes = [spec.shape[d] for d in own], [store.axes[d] for d in own]
        strides = tuple(size * prod(dims[: i + 1]) for i in range(len(dims) - 1))
        box = tuple(boxes.get(axis, 1) for axis in axes)
        extents = tuple(self.lowering.program.axes[axis] for axis in axes)
        return Parameter(spec.name, 0, spec.dtype, extents, strides, box, form.swizzle)

    def _place(self, position: int, block: int, start: int, shift: int = 0) -> list[str]:
        """Coordinates of a panel: `shift` rows behind its block's first, from column `start`."""
        store = self.nodes[position].op
        assert isinstance(store, Store)
        plan = self.plan
        own = f"member * {plan.group_rows} + " if plan.partition == "rows" else ""
        row = f"({own}{block * ROWS + shift})"
        offsets: dict[str, str] = {}
        inner = 1
        for axis in reversed(plan.roles.rows):
            tile = plan.tiles[axis]
            value = row if inner == 1 else f"{row} / {inner}"
            offsets[axis] = value if axis == plan.roles.rows[0] else f"{value} % {tile}"
            inner *= tile
        before = f"member * {plan.group_columns} + " if plan.partition == "columns" else ""
        offsets[plan.column_axis] = f"{before}{start}"
        found = []
        spec = self.lowering.program.scope.tensors[store.tensor]
        for axis in (store.axes[d] for d in reversed(mapped(spec))):
            origin = self.e.origins.get(axis, "0")
            found.append(f"{origin} + {offsets[axis]}" if axis in offsets else origin)
        return found
