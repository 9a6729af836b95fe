"""How consumers write a tile: straight from registers, or by stmatrix and TMA through buffers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.store import Store
from ir.targets.cuda import scalars
from ir.targets.cuda.frame import Digit
from ir.targets.cuda.launch import Parameter
from ir.targets.cuda.registers import Point
from ir.targets.cuda.tensor_plan import GROUP, LINE, ROWS

if TYPE_CHECKING:
    from ir.targets.cuda.tensor_consumer import TensorEvaluator
    from ir.targets.cuda.tensor_lower import TensorLowering

STORE_BARRIER = 5
CHUNK = 16  # bytes of a swizzle's unit


class TensorStore:
    """Emits the stores of one tile."""

    def __init__(self, lowering: TensorLowering, evaluator: TensorEvaluator) -> None:
        self.lowering, self.e, self.plan = lowering, evaluator, lowering.plan
        self.nodes = lowering.program.nodes
        self.used = False

    def store(self, position: int) -> None:
        self.e.form_without(position, self.plan.roles.columns)
        axes = self.nodes[position].axes
        full = {*self.plan.roles.rows, self.plan.column_axis} <= set(axes)
        if self.plan.epilogue == "tma" and full:
            self.used = True
            if self.plan.store_turned:
                self._turned(position)
            else:
                self._straight(position)
            return
        digits = [d for d in self.e.own((self.plan.column_axis,)) if d.stride == 8 and d.size > 1]
        if digits and self.plan.column_axis in axes:
            with self.e.fixing(digits[0]):
                self.e.store(position)
        else:
            self.e.store(position)

    # -- geometry

    def _size(self, position: int) -> int:
        return dtype_of(self.nodes[position].dtype).bytes

    def _columns_digit(self) -> Digit:
        found = [d for d in self.e.frame.own((self.plan.column_axis,)) if d.stride == 8]
        return found[0] if found else Digit(self.plan.column_axis, 1, 8)

    def _row_digits(self) -> tuple[list[Digit], list[Digit]]:
        """Digits of the row half, and of the blocks of 64 rows."""
        plan = self.plan
        return plan.row_digits(2, 8), plan.row_digits(plan.row_blocks, ROWS)

    def _begin(self, buffer: str) -> None:
        """Wait until the buffer's last store has read it."""
        w, slots = self.e.w, self.plan.epilogue_slots
        w.line(f"if (lane == 0) tw_store_wait_read<{slots - 1}>();")
        w.line(f"tw_group_sync({STORE_BARRIER} + member, {GROUP});")

    def _finish(self, position: int, parameter: Parameter, buffer: str, where: list[str]) -> None:
        w = self.e.w
        store = self.nodes[position].op
        assert isinstance(store, Store)
        name = self.lowering.map_name(store.tensor, parameter)
        w.line("tw_fence_async();")
        w.line(f"tw_group_sync({STORE_BARRIER} + member, {GROUP});")
        with w.block("if (lane == 0)"):
            place = ", ".join(where)
            w.line(f"tw_tma_store_{len(where)}d(&{name}, {buffer}, {place});")
            w.line("tw_store_commit();")

    def _buffer(self) -> str:
        """Address of the next buffer of this group; they take turns across tiles too."""
        plan = self.plan
        at = plan.offsets["store"]
        own = plan.store_slot_bytes * plan.epilogue_slots
        start = f"smem + {at} + member * {own}"
        if plan.epilogue_slots == 1:
            return start
        turn = f"store_turn % {plan.epilogue_slots}"
        self.e.w.line("store_turn++;")
        return f"{start} + {turn} * {plan.store_slot_bytes}"

    # -- outputs that are contiguous along the columns

    def _straight(self, position: int) -> None:
        plan, w = self.plan, self.e.w
        size = self._size(position)
        points = LINE // size
        columns = plan.group_columns
        halves, blocks = self._row_digits()
        digit = self._columns_digit()
        for block in range(plan.row_blocks):
            for start in range(0, columns, points):
                width = min(points, columns - start)
                buffer = w.name("buffer")
                w.line(f"const u32 {buffer} = {self._buffer()};")
                self._begin(buffer)
                fixed = _spread(blocks, block)
                if size == 2:
                    self._words16(position, buffer, start, width, digit, halves, fixed)
                else:
                    self._words32(position, buffer, start, width, digit, halves, fixed)
                parameter = self._parameter(position, width)
                where = self._place(position, block, start)
                self._finish(position, parameter, buffer, where)

    def _words16(
        self, position: int, buffer: str, start: int, width: int, digit: Digit,
        halves: list[Digit], fixed: dict[Digit, str],
    ) -> None:  # fmt: skip
        """Pairs of 16-bit values by stmatrix: 16 columns at a time, then 8."""
        w = self.e.w
        pairs, rest = divmod(width // 8, 2)
        w.line(f"const u32 line_{buffer} = {buffer} + (lane / 32 * 16 + lane % 16) * {LINE};")
        for first, count, per in ((0, pairs, 2), (2 * pairs, rest, 1)):
            if not count:
                continue
            variable = w.name("c")
            with w.unrolled(variable, count):
                words = []
                for part in range(per):
                    column = f"({start // 8 + first + part} + {variable} * {per})"
                    words += self._pair_words(position, column, digit, halves, fixed)
                chunk = f"({first} + {variable} * {per} + lane / 16 % 2)"
                if per == 1:
                    chunk = f"({first} + {variable})"
                address = f"line_{buffer} + (({chunk} ^ lane % 8) * {CHUNK})"
                w.line(f"tw_stmatrix_x{2 * per}({address}, {', '.join(words)});")

    def _pair_words(
        self, position: int, column: str, digit: Digit, halves: list[Digit],
        fixed: dict[Digit, str],
    ) -> list[str]:  # fmt: skip
        """The two packed words (upper and lower rows) of one thread in 8 columns."""
        e, source = self.e, self.nodes[position].args[0]
        dtype = self.nodes[position].dtype
        outer = {**fixed, digit: column}
        e.fixed.update(outer)
        saved, e.values = e.values, dict(e.values)
        e.prepare(position)
        words = []
        pair = Digit(self.plan.column_axis, 2, 1)
        for half in range(2):
            values = []
            for place in ("0", "1"):
                point = Point({**e.fixed, **_spread(halves, half), pair: place})
                value = e.scalar(source, point, {})
                values.append(scalars.convert(value, self.nodes[source].dtype, dtype))
            name = e.w.name("word")
            e.w.line(f"const u32 {name} = {scalars.pack_word(values, dtype)};")
            words.append(name)
        e.values = saved
        for key in outer:
            del e.fixed[key]
        return words

    def _words32(
        self, position: int, buffer: str, start: int, width: int, digit: Digit,
        halves: list[Digit], fixed: dict[Digit, str],
    ) -> None:  # fmt: skip
        """Pairs of 32-bit values by 8-byte stores, swizzled by hand."""
        e, w, source = self.e, self.e.w, self.nodes[position].args[0]
        dtype = self.nodes[position].dtype
        variable = w.name("c")
        with w.unrolled(variable, width // 8):
            outer = {**fixed, digit: f"({start // 8} + {variable})"}
            e.fixed.update(outer)
            saved, e.values = e.values, dict(e.values)
            e.prepare(position)
            pair = Digit(self.plan.column_axis, 2, 1)
            for half in range(2):
                words = []
                for place in ("0", "1"):
                    point = Point({**e.fixed, **_spread(halves, half), pair: place})
                    value = e.scalar(source, point, {})
                    value = scalars.convert(value, self.nodes[source].dtype, dtype)
                    words.append(scalars.pack_word([value], dtype))
                row = f"(lane / 32 * 16 + lane % 32 / 4 + {8 * half})"
                chunk = f"({variable} * 2 + lane % 4 / 2)"
                address = f"{buffer} + {row} * {LINE} + (({chunk} ^ {row} % 8) * {CHUNK})"
                w.line(f"tw_store_shared_8({address} + lane % 2 * 8, {words[0]}, {words[1]});")
            e.values = saved
            for key in outer:
                del e.fixed[key]

    # -- outputs that are contiguous along the rows

    def _turned(self, position: int) -> None:
        """64 rows become the 128-byte lines of a panel that has a line for each column."""
        plan, w = self.plan, self.e.w
        halves, blocks = self._row_digits()
        digit = self._columns_digit()
        columns = plan.group_columns
        for block in range(plan.row_blocks):
            buffer = w.name("buffer")
            w.line(f"const u32 {buffer} = {self._buffer()};")
            self._begin(buffer)
            fixed = _spread(blocks, block)
            pairs, rest = divmod(columns // 8, 2)
            for first, count, per in ((0, pairs, 2), (2 * pairs, rest, 1)):
                if not count:
                    continue
                variable = w.name("c")
                with w.unrolled(variable, count):
                    words = []
                    for part in range(per):
                        column = f"({first + part} + {variable} * {per})"
                        words += self._pair_words(position, column, digit, halves, fixed)
                    line = f"(({first} + {variable} * {per} + lane / 16 % 2) * 8 + lane % 8)"
                    if per == 1:
                        line = f"(({first} + {variable}) * 8 + lane % 8)"
                    chunk = "((lane / 32 * 2 + lane / 8 % 2) ^ lane % 8)"
                    address = f"{buffer} + {line} * {LINE} + {chunk} * {CHUNK}"
                    w.line(f"tw_stmatrix_x{2 * per}_trans({address}, {', '.join(words)});")
            parameter = self._parameter(position, ROWS)
            self._finish(position, parameter, buffer, self._place(position, block, 0))

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

    def _parameter(self, position: int, width: int) -> Parameter:
        store = self.nodes[position].op
        assert isinstance(store, Store)
        spec = self.lowering.program.scope.tensors[store.tensor]
        boxes = self._block_tiles()
        if self.plan.store_turned:
            boxes[self.plan.column_axis] = self.plan.group_columns
        else:
            boxes[self.plan.column_axis] = width
        size = dtype_of(spec.dtype).bytes
        dims = tuple(reversed(spec.shape))
        strides = tuple(size * prod(dims[: i + 1]) for i in range(len(dims) - 1))
        box = tuple(boxes.get(axis, 1) for axis in reversed(store.axes))
        extents = tuple(self.lowering.program.axes[axis] for axis in reversed(store.axes))
        return Parameter(spec.name, 0, spec.dtype, extents, strides, box, LINE)

    def _place(self, position: int, block: int, start: int) -> list[str]:
        store = self.nodes[position].op
        assert isinstance(store, Store)
        plan = self.plan
        own = f"member * {plan.group_rows} + " if plan.partition == "rows" else ""
        row = f"({own}{block * ROWS})"
        offsets: dict[str, str] = {}
        inner = 1
        for axis in reversed(plan.roles.rows):
            tile = plan.tiles[axis]
            value = row if inner == 1 else f"{row} / {inner}"
            offsets[axis] = value if axis == plan.roles.rows[0] else f"{value} % {tile}"
            inner *= tile
        shift = f"member * {plan.group_columns} + " if plan.partition == "columns" else ""
        offsets[plan.column_axis] = f"{shift}{start}"
        found = []
        for axis in reversed(store.axes):
            origin = self.e.origins.get(axis, "0")
            found.append(f"{origin} + {offsets[axis]}" if axis in offsets else origin)
        return found


def _spread(digits: list[Digit], number: int) -> dict[Digit, str]:
    """The values of mixed-radix digits that make `number`."""
    found = {}
    for digit in digits:
        found[digit] = str(number % digit.size)
        number //= digit.size
    return found
