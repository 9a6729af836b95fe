"""Loads and stores of tiles: vectors where neighbours lie in one thread, guards at ragged ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.targets.cuda.build.readers import read_once
from ir.targets.cuda.layouts.access import Access, load_access, store_access
from ir.targets.cuda.layouts.bent import plain_access
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.lanes import digits_part
from ir.targets.cuda.layouts.windows import Window, accesses_of, width_of, windows
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.looking_up import look_up
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.registers import Fragment, Point, Registers, Team, number_of, times
from ir.targets.cuda.text.windows import load_window
from ir.targets.cuda.text.writer import Writer

LEAST_COPY = 4  # bytes of the smallest asynchronous copy


@dataclass(frozen=True, slots=True)
class Staged:
    """Where a load's tile waits for its step: in shared memory, or, with `words`, in registers.

    `address` is that of the first thread's first part, `words` a name of an array.
    """

    address: str = ""
    words: str = ""


class Transfers(Registers):
    """Moves values between memory and registers.

    `staged` are loads whose tiles wait somewhere, each thread's part for itself.
    """

    def __init__(
        self, program: Program, writer: Writer, frame: Frame, tiles: Mapping[str, int], team: Team
    ) -> None:
        super().__init__(program, writer, frame, tiles, team)
        self.staged: dict[int, Staged] = {}
        self.alike: tuple[tuple[int, ...], ...] = ()  # loads that may be read together
        self._windows: dict[tuple[int, ...], tuple[Window, ...]] = {}

    def fragment(self, position: int) -> Fragment:
        """The node's value in registers."""
        raise NotImplementedError

    def prepare(self, position: int) -> None:
        """Form what the elementwise expression of `position` ends at."""
        raise NotImplementedError

    def scalar(self, position: int, point: Point, memo: dict[int, str], top: bool = False) -> str:
        """The node's value at one point."""
        raise NotImplementedError

    # -- loads and stores

    def access(self, position: int) -> Access:
        op = self.nodes[position].op
        assert isinstance(op, (Load, Store))
        spec = self.program.scope.tensors[op.tensor]
        return load_access(op, spec) if isinstance(op, Load) else store_access(op, spec)

    def pointer(self, access: Access, constness: str) -> str:
        """Declares a pointer to the thread's first element; returns its name."""
        storage = scalars.STORAGE[access.dtype]
        parts = [
            f"(i64){self.base(axis)} * {d.stride * coefficient}"
            for d in access.dimensions
            for axis, coefficient in d.terms
            if self.base(axis) != "0"
        ]
        if access.constant:
            parts.append(str(access.constant))
        name = self.w.name(f"{access.tensor}_at")
        where = f" + ({' + '.join(parts)})" if parts else ""
        self.w.line(f"{constness}{storage}* {name} = {self.w.pointer(access.tensor)}{where};")
        return name

    def _offset(self, access: Access, point: Point) -> str:
        axes = dict.fromkeys(axis for d in access.dimensions for axis, _ in d.terms)
        parts = []
        for axis in axes:
            step = self.step(axis, point)
            if step:
                parts.append(times(step, access.stride(axis)))
        return " + ".join(parts) or "0"

    def _load(self, position: int) -> Fragment:
        node, access = self.nodes[position], self.access(position)
        window = self._window(position)
        if window is not None:
            fragments = load_window(self, window)
            self.values |= fragments
            return fragments[position]
        if not access.plain:
            fragments = look_up(self, position)
            self.values |= fragments
            return fragments[position]
        fragment = self.new(access.tensor, node.axes, node.dtype)
        if position in self.staged:
            self._take(position, fragment)
            return fragment
        digits, op = access.row_first(fragment.digits), node.op
        assert isinstance(op, Load)
        width, ragged = self._widths(access, digits, op.fill is None)
        with self.w.block(""):
            pointer = self.pointer(access, "const ")
            with self.each_vector(digits, width) as points:
                last = points[-1] if ragged else points[0]
                condition = self._load_condition(position, access, last)
                parted = ragged and bool(condition)
                with self.w.block(f"if ({condition})") if parted else nullcontext():
                    whole = "" if parted else condition
                    self._load_vector(position, fragment, points, pointer, whole)
                if parted:
                    self._load_each(position, fragment, points, pointer)
        return fragment

    def _load_each(
        self, position: int, fragment: Fragment, points: Sequence[Point], pointer: str
    ) -> None:
        """Elements of a vector of which some lie outside."""
        access, dtype = self.access(position), self.nodes[position].dtype
        with self.w.block("else"):
            for point in points:
                condition = self._load_condition(position, access, point)
                value = scalars.from_storage(f"{pointer}[{self._offset(access, point)}]", dtype)
                text = f"{condition} ? {value} : {scalars.literal(0, dtype)}"
                self.w.line(f"{self.element(fragment, point)} = {text};")

    def _window(self, position: int) -> Window | None:
        """What reads a load and others together, if that is less than one by one."""
        together = next((loads for loads in self.alike if position in loads), ())
        digits = self.frame.own(self.nodes[position].axes)
        if position in self.staged or not together or self.fixed.keys() & {*digits}:
            return None
        if not self.window_access(position).plain:
            return None
        if together not in self._windows:
            self.placed(self.nodes[position].axes)
            loads = {p: self.window_access(p) for p in together}
            self._windows[together] = windows(loads, digits, self._pays)
        return next((one for one in self._windows[together] if position in one.loads), None)

    def window_access(self, position: int) -> Access:
        """A load's access as one of a window."""
        op, access = self.nodes[position].op, plain_access(self.program, position)
        assert isinstance(op, Load)
        return access.joined if op.fill is None else access

    def applied(self, position: int, arguments: list[str]) -> str:
        """A map's function of texts."""
        raise NotImplementedError

    def _pays(self, window: Window) -> bool:
        """Whether a window that saves no element takes fewer accesses, at most half of what they
        bring for nothing."""
        first = window.loads[0]
        if not window.sides:
            return False  # a number
        width = width_of(window, self.window_access(first), self.frame, self.tiles)
        each = prod(digit.size for digit in self._row_first(first))
        alone = sum(each // self.width(load) for load in window.loads)
        bringing = 2 * each * len(window.loads)
        return 2 * accesses_of(window, width) <= alone and window.count < bringing

    def width(self, position: int) -> int:
        """Neighbours that a load takes at a time."""
        return self._width(self.access(position), self._row_first(position))

    def _row_first(self, position: int) -> tuple[Digit, ...]:
        """The digits of what a node loads or stores, those of a row of memory first."""
        return self.access(position).row_first(self.own(self.nodes[position].axes))

    def copy_ahead(self, position: int, staged: Staged) -> None:
        """Copy a load's tile to shared memory asynchronously, each thread its own part."""
        node, access = self.nodes[position], self.access(position)
        digits, width = self._row_first(position), self.width(position)
        size = width * dtype_of(node.dtype).bytes
        with self.w.block(""):
            pointer = self.pointer(access, "const ")
            with self.each_vector(digits, width) as points:
                condition = self._load_condition(position, access, points[0])
                source = f"{pointer} + ({self._offset(access, points[0])})"
                bytes_ = f"{condition} ? {size} : 0" if condition else str(size)
                place = self._place_of(staged, digits, points[0], width, size)
                self.w.line(f"tw_copy_async_{size}({place}, {source}, {bytes_});")

    def declare_words(self, position: int, times: str = "") -> Staged:
        """Registers for a load's tile as it lies in memory, or for as many as `times` says."""
        node = self.nodes[position]
        digits, width = self._row_first(position), self.width(position)
        name = self.w.name(f"{self.label_of(position)}_ahead")
        count = prod(digit.size for digit in digits) // width
        kind = scalars.vector_type(width * dtype_of(node.dtype).bytes)
        self.w.line(f"{kind} {name}{times}[{count}];")
        return Staged(words=name)

    def fetch_ahead(self, position: int, staged: Staged) -> None:
        """Load a tile into registers as it lies in memory, with zeros outside."""
        node, access = self.nodes[position], self.access(position)
        digits, width = self._row_first(position), self.width(position)
        size = width * dtype_of(node.dtype).bytes
        once = "_stream" if self.read_once(position) else ""
        with self.w.block(""):
            pointer = self.pointer(access, "const ")
            with self.each_vector(digits, width) as points:
                condition = self._load_condition(position, access, points[0])
                target = f"{staged.words}[({number_of(digits, points[0])}) / {width}]"
                offset = self._offset(access, points[0])
                value = f"tw_load_{size}{once}({pointer} + ({offset}))"
                if condition:
                    value = f"{condition} ? {value} : {scalars.vector_type(size)}{{}}"
                self.w.line(f"{target} = {value};")

    def label_of(self, position: int) -> str:
        op = self.nodes[position].op
        assert isinstance(op, Load)
        return text_name(op.tensor)

    def _place_of(
        self, staged: Staged, digits: tuple[Digit, ...], point: Point, width: int, size: int
    ) -> str:
        """Shared address of one vector: those of all threads lie side by side."""
        number = f"({number_of(digits, point)}) / {width}"
        thread = times(self.team.thread, size)
        return f"{staged.address} + {number} * {self.team.size * size} + {thread}"

    def _take(self, position: int, fragment: Fragment) -> None:
        """Registers from what was copied; what lies outside was filled with zeros."""
        node, op = self.nodes[position], self.nodes[position].op
        assert isinstance(op, Load)
        width = self.width(position)
        size = width * dtype_of(node.dtype).bytes
        staged, digits = self.staged[position], self._row_first(position)
        with self.each_vector(digits, width) as points:
            words = self.w.name("w")
            if staged.words:
                number = number_of(digits, points[0])
                value = f"{staged.words}[({number}) / {width}]"
            else:
                place = self._place_of(staged, digits, points[0], width, size)
                value = f"tw_load_shared_{size}({place})"
            self.w.line(f"const {scalars.vector_type(size)} {words} = {value};")
            condition = ""
            if op.fill:
                condition = self._load_condition(position, self.access(position), points[0])
            for i, point in enumerate(points):
                value = scalars.element_of(words, size, i, node.dtype)
                if condition:
                    value = f"{condition} ? {value} : {scalars.literal(op.fill or 0, node.dtype)}"
                self.w.line(f"{self.element(fragment, point)} = {value};")

    def _width(self, access: Access, digits: tuple[Digit, ...]) -> int:
        if not access.plain:
            return 1
        return access.vector(self.frame, digits, self.tiles, self.program.axes)

    def _widths(
        self, access: Access, digits: tuple[Digit, ...], plain: bool = True
    ) -> tuple[int, bool]:
        """Neighbours that an access takes at a time, and whether some of the last may lie outside:
        where that is more, and a word at least."""
        width = self._width(access, digits)
        size = dtype_of(access.dtype).bytes
        if not plain or not access.plain or size == 8:
            return width, False
        most = access.vector(self.frame, digits, self.tiles, self.program.axes, ragged=True)
        return (most, True) if most > width and most * size >= 4 else (width, False)

    def _load_condition(self, position: int, access: Access, point: Point) -> str:
        op = self.nodes[position].op
        assert isinstance(op, Load)
        inside = self.inside(self.nodes[position].axes, point)
        if op.fill is None:
            return inside
        bounds = [inside] if inside else []
        for d in access.dimensions:
            low, high = reach(d.terms, d.constant, self.program.axes)
            index = self.dimension_index(d.terms, d.constant, point)
            if low < 0:
                bounds.append(f"{index} >= 0")
            if high >= d.extent:
                bounds.append(f"{index} < {d.extent}")
        return " && ".join(bounds)

    def dimension_index(self, terms: Sequence[tuple[str, int]], constant: int, point: Point) -> str:
        parts = [times(self.coordinate(axis, point), c) for axis, c in terms]
        if constant or not parts:
            parts.append(str(constant))
        return f"({' + '.join(parts)})"

    def _load_vector(
        self, position: int, fragment: Fragment, points: list[Point], pointer: str, condition: str
    ) -> None:
        node, op = self.nodes[position], self.nodes[position].op
        assert isinstance(op, Load)
        offset = self._offset(self.access(position), points[0])
        size = len(points) * dtype_of(node.dtype).bytes
        outside = scalars.literal(op.fill or 0, node.dtype)
        once = "_stream" if self.read_once(position) else ""
        targets = [self.element(fragment, point) for point in points]
        if size < 4 or (dtype_of(node.dtype).bytes == 8):
            raw = f"{pointer}[{offset}]"
            value = scalars.from_storage(raw, node.dtype)
            for i, target in enumerate(targets):
                each = value.replace(f"[{offset}]", f"[{offset} + {i}]") if i else value
                text = f"{condition} ? {each} : {outside}" if condition else each
                self.w.line(f"{target} = {text};")
            return
        value = f"tw_load_{size}{once}({pointer} + ({offset}))"
        self.unpacked(dict(enumerate(targets)), node.dtype, size, value, condition, outside)

    def unpacked(
        self, targets: Mapping[int, str], dtype: str, size: int, value: str, condition: str,
        outside: str,
    ) -> None:  # fmt: skip
        """Elements of `size` loaded bytes by their places; `outside` where a condition fails."""
        words, kind = self.w.name("w"), scalars.vector_type(size)
        with self.w.block(f"if ({condition})" if condition else ""):
            self.w.line(f"const {kind} {words} = {value};")
            for place, target in targets.items():
                self.w.line(f"{target} = {scalars.element_of(words, size, place, dtype)};")
        if condition:
            with self.w.block("else"):
                for target in targets.values():
                    self.w.line(f"{target} = {outside};")

    def read_shared(
        self, fragment: Fragment, dtype: str, width: int, address: Callable[[Point], str],
        pairs: Callable[[Point], str] | None = None,
    ) -> None:  # fmt: skip
        """Fill a fragment from shared memory, `width` neighbours at once. `pairs`: where two bytes
        are kept as they lie there, by the first of them."""
        each = dtype_of(dtype).bytes
        size = width * each
        with self.each_vector(fragment.digits, width) as points:
            start = address(points[0])
            word = self.w.name("raw")
            self.w.line(
                f"const {scalars.vector_type(size)} {word} = tw_load_shared_{size}({start});"
            )
            for i, point in enumerate(points):
                value = scalars.element_of(word, size, i, dtype)
                self.w.line(f"{self.element(fragment, point)} = {value};")
                if pairs and i % 2 == 0:
                    part = f"{word}.w[{i * each // 4}]" if size > 4 else word
                    both = f"{part} >> {8 * (i % 4)}" if i % 4 else part
                    self.w.line(f"{pairs(point)} = {both};")

    def prefetch(self, position: int) -> None:
        """Ask the L2 cache for a load's tile."""
        access = self.access(position)
        if not access.plain:
            return
        digits = self._row_first(position)
        with self.w.block(""):
            pointer = self.pointer(access, "const ")
            with self.each_vector(digits, self._width(access, digits)) as points:
                condition = self._load_condition(position, access, points[0])
                ask = f"tw_prefetch({pointer} + ({self._offset(access, points[0])}));"
                self.w.line(f"if ({condition}) {ask}" if condition else ask)

    def read_once(self, position: int) -> bool:
        """Whether no other tile reads these elements: every parallel axis is indexed."""
        return read_once(self.program, position)

    def store(self, position: int, stream: bool = False) -> None:
        """Write an output tile; where threads hold copies, the first of them writes."""
        node, access = self.nodes[position], self.access(position)
        source = node.args[0]
        only = self.first_holder(node.axes)
        self.prepare(position)
        digits = self._row_first(position)
        width, ragged = self._widths(access, digits)
        with self.w.block(f"if ({only})" if only else ""):
            pointer = self.pointer(access, "")
            with self.each_vector(digits, width) as points:
                values = [self._stored(source, point, node.dtype) for point in points]
                condition = self.inside(node.axes, points[-1] if ragged else points[0])
                with self.w.block(f"if ({condition})" if condition else ""):
                    offset = self._offset(access, points[0])
                    self._store_vector(values, node.dtype, f"{pointer} + ({offset})", stream)
                if ragged and condition:
                    self._store_each(position, points, values, pointer)

    def _store_each(
        self, position: int, points: Sequence[Point], values: Sequence[str], pointer: str
    ) -> None:
        """Elements of a vector of which some lie outside."""
        node, access = self.nodes[position], self.access(position)
        with self.w.block("else"):
            for point, value in zip(points, values, strict=True):
                with self.w.block(f"if ({self.inside(node.axes, point)})"):
                    stored = scalars.to_storage(value, node.dtype)
                    self.w.line(f"{pointer}[{self._offset(access, point)}] = {stored};")

    def _stored(self, source: int, point: Point, dtype: str) -> str:
        value = self.scalar(source, point, {})
        return scalars.convert(value, self.nodes[source].dtype, dtype)

    def _store_vector(self, values: list[str], dtype: str, address: str, stream: bool) -> None:
        size = len(values) * dtype_of(dtype).bytes
        once = "_stream" if stream else ""
        if size < 4 or dtype_of(dtype).bytes == 8:
            for i, value in enumerate(values):
                self.w.line(f"({address})[{i}] = {scalars.to_storage(value, dtype)};")
            return
        per_word = 4 // dtype_of(dtype).bytes
        words = [
            scalars.pack_word(values[i : i + per_word], dtype)
            for i in range(0, len(values), per_word)
        ]
        if size == 16:
            self.w.line(f"tw_store_16{once}({address}, tw_vec16{{{{{', '.join(words)}}}}});")
        else:
            self.w.line(f"tw_store_{size}{once}({address}, {', '.join(words)});")

    def first_holder(self, axes: Iterable[str], among: Iterable[str] = ()) -> str:
        """A condition that picks one of the threads that hold copies of a value over `axes`.

        With `among`, only threads that differ along those axes count as copies.
        """
        others, have = tuple(among), tuple(axes)
        spare = [
            digit
            for digit in self.frame.threads
            if not any(digit.stride(axis) for axis in have)
            and (not others or any(digit.stride(axis) for axis in others))
        ]
        copies = digits_part(self.frame, spare, self.team.thread)
        return f"({copies}) == 0" if spare else ""


def reach(
    terms: Sequence[tuple[str, int]], constant: int, extents: Mapping[str, int]
) -> tuple[int, int]:
    low = high = constant
    for axis, coefficient in terms:
        reach = coefficient * (extents[axis] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high
