"""Evaluates tiles of a program in registers, as text: loads, maps, reductions, stores.

Demand-driven: a value is formed where it is needed, in the frame that all values share. Elementwise
chains become one loop; what is reduced, multiplied or read over fewer axes is kept in registers.
Knows neither tensor cores nor how tiles are handed to blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from ir.dtypes import dtype_of, is_float
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.scalar import COMBINES, LOWEST
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda import scalars
from ir.targets.cuda.access import Access, load_access, store_access
from ir.targets.cuda.frame import WARP, Digit, Frame
from ir.targets.cuda.writer import Writer


@dataclass(frozen=True, slots=True)
class Fragment:
    """A value in registers: array `name`, its digits the fastest first.

    A fragment of a tensor core has rows: `name[index / row][index % row]`.
    """

    name: str
    digits: tuple[Digit, ...]
    row: int = 0

    @property
    def count(self) -> int:
        return prod(digit.size for digit in self.digits)


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a loop over registers: the value of every digit, as text."""

    digits: Mapping[Digit, str]


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that hold a tile: how they are numbered and how they wait for each other."""

    thread: str
    size: int
    sync: str
    scratch: str  # address of `size` * 8 bytes for each register that crosses warps


class Evaluator:
    """State of one kernel body. `origins` gives the first point of the tile along each axis."""

    def __init__(
        self, program: Program, writer: Writer, frame: Frame, tiles: Mapping[str, int], team: Team
    ) -> None:
        self.program, self.nodes = program, program.nodes
        self.w, self.frame, self.tiles, self.team = writer, frame, tiles, team
        self.origins: dict[str, str] = {}
        self.values: dict[int, Fragment] = {}
        self.fixed: dict[Digit, str] = {}
        self.looped: frozenset[str] = frozenset()
        self.scratch_registers = 0
        self._thread_parts: dict[str, str] = {}
        writer.reserve("thread", *(spec.name for spec in program.tensors))

    # -- where things are

    def declare_threads(self) -> None:
        """One constant for each axis: this thread's share of the coordinate."""
        axes = {axis for _, digit in self.frame.weights() for axis, _ in digit.strides}
        for axis in sorted(axes):
            parts = [
                _times(self._digit_of_thread(weight, digit.size), digit.stride(axis))
                for weight, digit in self.frame.weights()
                if digit.stride(axis)
            ]
            name = self.w.name(f"{axis}_thread")
            self.w.line(f"const i32 {name} = {' + '.join(parts)};")
            self._thread_parts[axis] = name

    def _digit_of_thread(self, weight: int, size: int) -> str:
        value = self.team.thread if weight == 1 else f"{self.team.thread} / {weight}"
        return value if weight * size == self.team.size else f"({value}) % {size}"

    def base(self, axis: str) -> str:
        """Coordinate of the thread's first point along `axis`."""
        origin, own = self.origins.get(axis, "0"), self._thread_parts.get(axis)
        if own is None:
            return origin
        return own if origin == "0" else f"({origin} + {own})"

    def step(self, axis: str, point: Point) -> str:
        """What the registers add to `base`."""
        parts = [
            _times(point.digits[digit], digit.stride)
            for digit in self.frame.own((axis,))
            if point.digits[digit] != "0"
        ]
        return " + ".join(parts)

    def coordinate(self, axis: str, point: Point) -> str:
        step = self.step(axis, point)
        return f"({self.base(axis)} + {step})" if step else self.base(axis)

    def placed(self, axes: Iterable[str]) -> None:
        """Refusal for axes whose points lie in no register or thread of the frame."""
        for axis in axes:
            if self.frame.tile(axis) < min(self.tiles[axis], self.program.axes[axis]):
                raise Refusal("frame", f"axis {axis} is not held in registers")

    def ragged(self, axis: str) -> bool:
        """Whether the last tile along `axis` reaches over its extent."""
        return self.program.axes[axis] % self.tiles[axis] != 0

    def inside(self, axes: Iterable[str], point: Point) -> str:
        """A condition that the point lies within ragged axes; empty if it always does."""
        conditions = [
            f"{self.coordinate(axis, point)} < {self.program.axes[axis]}"
            for axis in axes
            if self.ragged(axis)
        ]
        return " && ".join(conditions)

    # -- loops over registers

    def own(self, axes: Iterable[str]) -> tuple[Digit, ...]:
        """Digits of a value over `axes` that are not fixed by an outer loop."""
        return tuple(digit for digit in self.frame.own(axes) if digit not in self.fixed)

    @contextmanager
    def each(self, digits: Sequence[Digit]) -> Iterator[Point]:
        """An unrolled loop over all values of `digits`."""
        count = prod(digit.size for digit in digits)
        if count == 1:
            with self.w.block(""):
                yield Point({**self.fixed, **dict.fromkeys(digits, "0")})
            return
        variable = self.w.name("i")
        with self.w.unrolled(variable, count):
            yield Point({**self.fixed, **_digits_of(variable, digits)})

    @contextmanager
    def each_vector(self, digits: Sequence[Digit], width: int) -> Iterator[list[Point]]:
        """A loop over vectors of `width` neighbours along the first digit."""
        if width == 1 or not digits:
            with self.each(digits) as point:
                yield [point]
            return
        first = digits[0]
        vectors = Digit(first.axis, first.size // width, 0)
        with self.each((vectors, *digits[1:])) as point:
            start = point.digits[vectors]
            places = [_plus(start, width, i) for i in range(width)]
            yield [Point({**point.digits, first: place}) for place in places]

    @contextmanager
    def fixing(self, digit: Digit) -> Iterator[None]:
        """A loop over one digit; values formed inside lack it."""
        variable = self.w.name("c")
        saved, self.values = self.values, dict(self.values)
        with self.w.unrolled(variable, digit.size):
            self.fixed[digit] = variable
            yield
            del self.fixed[digit]
        self.values = saved

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values formed inside are forgotten after it."""
        saved, self.values = self.values, dict(self.values)
        yield
        self.values = saved

    def element(self, fragment: Fragment, point: Point) -> str:
        index = _index(fragment.digits, point)
        if fragment.row:
            return f"{fragment.name}[({index}) / {fragment.row}][({index}) % {fragment.row}]"
        return f"{fragment.name}[{index}]"

    def new(self, stem: str, axes: Iterable[str], dtype: str, start: str | None = None) -> Fragment:
        """A register array over `axes`, filled with `start` if given."""
        axes = tuple(axes)
        self.placed(axes)
        digits = self.own(axes)
        fragment = Fragment(self.w.name(stem), digits)
        self.w.line(f"{scalars.register_type(dtype)} {fragment.name}[{fragment.count}];")
        if start is not None:
            self.fill(fragment, start)
        return fragment

    def fill(self, fragment: Fragment, value: str) -> None:
        with self.each(fragment.digits) as point:
            self.w.line(f"{self.element(fragment, point)} = {value};")

    # -- values

    def label(self, position: int) -> str:
        """A readable stem for the registers of a node."""
        op = self.nodes[position].op
        if isinstance(op, Load):
            return op.tensor
        if isinstance(op, (Reduce, Carry)):
            return f"{op.kind}_{position}"
        return f"{op.function if isinstance(op, Map) else op.name}_{position}"

    def fragment(self, position: int) -> Fragment:
        """The node's value in registers."""
        if position not in self.values:
            self.values[position] = self._form(position)
        return self.values[position]

    def _form(self, position: int) -> Fragment:
        node = self.nodes[position]
        if isinstance(node.op, Load):
            return self._load(position)
        if is_reduction(node):
            return self._reduced(position)
        if isinstance(node.op, (Now, Prior)):
            raise Refusal("carried", f"node {position} is read outside its loop")
        self.prepare(position)
        fragment = self.new(self.label(position), node.axes, node.dtype)
        with self.each(fragment.digits) as point:
            value = self.scalar(position, point, {}, top=True)
            self.w.line(f"{self.element(fragment, point)} = {value};")
        return fragment

    def prepare(self, position: int) -> None:
        """Form what the elementwise expression of `position` ends at."""
        for arg in self.nodes[position].args:
            self._ready(arg, self.nodes[position].axes)

    def _ready(self, position: int, axes: Sequence[str]) -> None:
        node = self.nodes[position]
        if position in self.values or isinstance(node.op, (Constant, Iota)):
            return
        leaf = isinstance(node.op, (Load, Now, Prior)) or is_reduction(node)
        narrower = self.own(node.axes) != self.own(axes) and not self.trivial(position)
        if leaf or narrower:
            self.fragment(position)
            return
        for arg in node.args:
            self._ready(arg, axes)

    def trivial(self, position: int) -> bool:
        """Made of coordinates and constants: cheaper to repeat than to keep."""
        node = self.nodes[position]
        if isinstance(node.op, (Constant, Iota)):
            return True
        return isinstance(node.op, (Map, Cast)) and all(self.trivial(a) for a in node.args)

    def scalar(self, position: int, point: Point, memo: dict[int, str], top: bool = False) -> str:
        """The node's value at one point; what it ends at has been prepared."""
        if position in memo:
            return memo[position]
        node = self.nodes[position]
        if position in self.values and not top:
            return self.element(self.values[position], point)
        if isinstance(node.op, Constant):
            return scalars.literal(node.op.value, node.dtype)
        if isinstance(node.op, Iota):
            return self.coordinate(node.op.axis, point)
        if isinstance(node.op, Cast):
            inner = self.scalar(node.args[0], point, memo)
            return scalars.convert(inner, self.nodes[node.args[0]].dtype, node.dtype)
        assert isinstance(node.op, Map), node.op
        text = self._applied(position, [self.scalar(arg, point, memo) for arg in node.args])
        name = self.w.name("v")
        self.w.line(f"const {scalars.register_type(node.dtype)} {name} = {text};")
        memo[position] = name
        return name

    def _applied(self, position: int, arguments: list[str]) -> str:
        node = self.nodes[position]
        assert isinstance(node.op, Map)
        types = [self.nodes[arg].dtype for arg in node.args]
        operand = _operand_type(node.op.function, types, node.dtype)
        logic = node.op.function in ("and", "or", "not")
        for i, dtype in enumerate(types):
            if not logic and not (node.op.function == "where" and i == 0):
                arguments[i] = scalars.convert(arguments[i], dtype, operand)
        return scalars.apply(node.op.function, node.dtype, arguments, operand)

    # -- loads and stores

    def access(self, position: int) -> Access:
        op = self.nodes[position].op
        assert isinstance(op, (Load, Store))
        spec = self.program.scope.tensors[op.tensor]
        return load_access(op, spec) if isinstance(op, Load) else store_access(op, spec)

    def _pointer(self, access: Access, constness: str) -> str:
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
        self.w.line(f"{constness}{storage}* {name} = {access.tensor}{where};")
        return name

    def _offset(self, access: Access, point: Point) -> str:
        axes = dict.fromkeys(axis for d in access.dimensions for axis, _ in d.terms)
        parts = []
        for axis in axes:
            step = self.step(axis, point)
            if step:
                parts.append(_times(step, access.stride(axis)))
        return " + ".join(parts) or "0"

    def _load(self, position: int) -> Fragment:
        node, access = self.nodes[position], self.access(position)
        if not access.plain:
            return self._gather(position, access)
        fragment = self.new(access.tensor, node.axes, node.dtype)
        width = self._width(access, fragment.digits)
        with self.w.block(""):
            pointer = self._pointer(access, "const ")
            with self.each_vector(fragment.digits, width) as points:
                condition = self._load_condition(position, access, points[0])
                self._load_vector(position, fragment, points, pointer, condition)
        return fragment

    def _width(self, access: Access, digits: tuple[Digit, ...]) -> int:
        if any(self.ragged(d.axis) for d in digits[:1]) and digits:
            extent = self.program.axes[digits[0].axis]
            width = access.vector(self.frame, digits, self.tiles)
            while width > 1 and extent % width:
                width //= 2
            return width
        return access.vector(self.frame, digits, self.tiles)

    def _load_condition(self, position: int, access: Access, point: Point) -> str:
        op = self.nodes[position].op
        assert isinstance(op, Load)
        inside = self.inside(self.nodes[position].axes, point)
        if op.fill is None:
            return inside
        bounds = [inside] if inside else []
        for d in access.dimensions:
            low, high = _reach(d.terms, d.constant, self.program.axes)
            index = self._dimension_index(d.terms, d.constant, point)
            if low < 0:
                bounds.append(f"{index} >= 0")
            if high >= d.extent:
                bounds.append(f"{index} < {d.extent}")
        return " && ".join(bounds)

    def _dimension_index(
        self, terms: Sequence[tuple[str, int]], constant: int, point: Point
    ) -> str:
        parts = [_times(self.coordinate(axis, point), c) for axis, c in terms]
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
        once = "_stream" if self._read_once(position) else ""
        targets = [self.element(fragment, point) for point in points]
        if size < 4 or (dtype_of(node.dtype).bytes == 8):
            raw = f"{pointer}[{offset}]"
            value = scalars.from_storage(raw, node.dtype)
            for i, target in enumerate(targets):
                each = value.replace(f"[{offset}]", f"[{offset} + {i}]") if i else value
                text = f"{condition} ? {each} : {outside}" if condition else each
                self.w.line(f"{target} = {text};")
            return
        words = self.w.name("w")
        kind = {16: "tw_vec16", 8: "tw_vec8", 4: "u32"}[size]
        with self.w.block(f"if ({condition})" if condition else ""):
            self.w.line(f"const {kind} {words} = tw_load_{size}{once}({pointer} + ({offset}));")
            for i, target in enumerate(targets):
                place = i * dtype_of(node.dtype).bits // 32
                word = words if kind == "u32" else f"{words}.w[{place}]"
                self.w.line(f"{target} = {scalars.unpack(word, i, node.dtype)};")
        if condition:
            with self.w.block("else"):
                for target in targets:
                    self.w.line(f"{target} = {outside};")

    def _read_once(self, position: int) -> bool:
        """Whether no other tile reads these elements: every parallel axis is indexed."""
        stores = [set(store.axes) for _, store in self.program.stores()]
        common = set.intersection(*stores) if stores else set()
        return common <= set(self.nodes[position].axes)

    def _gather(self, position: int, access: Access) -> Fragment:
        node, op = self.nodes[position], self.nodes[position].op
        assert isinstance(op, Load)
        for arg in node.args:
            self.fragment(arg)
        fragment = self.new(access.tensor, node.axes, node.dtype)
        with self.each(fragment.digits) as point:
            parts, conditions = [], []
            inside = self.inside(node.axes, point)
            if inside:
                conditions.append(inside)
            for d in access.dimensions:
                index = self._dimension_index(d.terms, d.constant, point)
                if d.gather is not None:
                    index = f"({index} + {self.scalar(node.args[d.gather], point, {})})"
                parts.append(f"(i64){index} * {d.stride}")
                if op.fill is not None:
                    conditions += [f"{index} >= 0", f"{index} < {d.extent}"]
            value = scalars.from_storage(f"{access.tensor}[{' + '.join(parts)}]", node.dtype)
            if conditions:
                outside = scalars.literal(op.fill or 0, node.dtype)
                value = f"({' && '.join(conditions)}) ? {value} : {outside}"
            self.w.line(f"{self.element(fragment, point)} = {value};")
        return fragment

    def store(self, position: int, stream: bool = False) -> None:
        """Write an output tile; where threads hold copies, the first of them writes."""
        node, access = self.nodes[position], self.access(position)
        source = node.args[0]
        only = self.first_holder(node.axes)
        self.prepare(position)
        digits = self.own(node.axes)
        width = self._width(access, digits)
        with self.w.block(f"if ({only})" if only else ""):
            pointer = self._pointer(access, "")
            with self.each_vector(digits, width) as points:
                values = [self._stored(source, point, node.dtype) for point in points]
                condition = self.inside(node.axes, points[0])
                with self.w.block(f"if ({condition})" if condition else ""):
                    offset = self._offset(access, points[0])
                    self._store_vector(values, node.dtype, f"{pointer} + ({offset})", stream)

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
        conditions = [
            f"{self._digit_of_thread(weight, digit.size)} == 0"
            for weight, digit in self.frame.weights()
            if not any(digit.stride(axis) for axis in have)
            and (not others or any(digit.stride(axis) for axis in others))
        ]
        return " && ".join(conditions)

    # -- reductions

    def combine(self, kind: str, left: str, right: str, dtype: str) -> str:
        return scalars.apply(COMBINES[kind].function, dtype, [left, right], dtype)

    def identity(self, position: int) -> str:
        """What a reduction starts from; finite for carries, so that rescaling gives no NaN."""
        node, row = self.nodes[position], COMBINES[self.kind(position)]
        value = row.identity
        if isinstance(node.op, Carry) and is_float(node.dtype):
            value = min(max(value, LOWEST), -LOWEST)
        return scalars.literal(value, node.dtype)

    def kind(self, position: int) -> str:
        op = self.nodes[position].op
        return op.kind if isinstance(op, (Reduce, Carry)) else "sum"

    def body(self, position: int) -> tuple[int, ...]:
        """The tiles whose product (or the one tile that) is combined."""
        node = self.nodes[position]
        return node.args if isinstance(node.op, Contract) else node.args[:1]

    def _reduced(self, position: int) -> Fragment:
        """A reduction over axes that the tile holds whole."""
        over = reduced_axes(self.nodes[position])
        if self.looped & set(over):
            raise Refusal("loops", f"node {position} reduces over a loop that has not run")
        partial = self.partial(position)
        self.accumulate(position, partial)
        self.all_reduce(position, partial)
        return partial

    def partial(self, position: int) -> Fragment:
        node = self.nodes[position]
        return self.new(self.label(position), node.axes, node.dtype, self.identity(position))

    def accumulate(self, position: int, partial: Fragment) -> None:
        """Combine this tile's points into each thread's partial results."""
        node, roots = self.nodes[position], self.body(position)
        axes = dict.fromkeys(axis for root in roots for axis in self.nodes[root].axes)
        for root in roots:
            self._ready(root, tuple(axes))
        with self.each(self.own(axes)) as point:
            memo: dict[int, str] = {}
            parts = [
                scalars.convert(self.scalar(r, point, memo), self.nodes[r].dtype, node.dtype)
                for r in roots
            ]
            value = " * ".join(parts)
            inside = self.inside(axes, point)
            if inside:
                value = f"({inside} ? {value} : {self.identity(position)})"
            target = self.element(partial, point)
            if len(parts) == 2 and node.dtype == "f32" and not inside:
                self.w.line(f"{target} = fmaf({parts[0]}, {parts[1]}, {target});")
                return
            combined = self.combine(self.kind(position), target, value, node.dtype)
            self.w.line(f"{target} = {combined};")

    def gone(self, position: int) -> frozenset[str]:
        """Axes of a reduction's body that its result lacks."""
        body = {a for root in self.body(position) for a in self.nodes[root].axes}
        return frozenset(body - set(self.nodes[position].axes))

    def all_reduce(self, position: int, partial: Fragment) -> None:
        """Combine the partial results of the threads that share a point."""
        gone = self.gone(position)
        for weight, digit in self.frame.weights():
            if not any(digit.stride(axis) for axis in gone):
                continue
            if weight < WARP:
                self._shuffle(position, partial, weight, digit.size)
            else:
                self._exchange(position, partial, weight, digit.size)

    def _shuffle(self, position: int, partial: Fragment, weight: int, size: int) -> None:
        kind = scalars.register_type(self.nodes[position].dtype)
        kind = "i32" if kind == "bool" else kind
        with self.each(partial.digits) as point:
            target, mask = self.element(partial, point), weight
            while mask < weight * size:
                other = self.w.name("other")
                self.w.line(f"const {kind} {other} = tw_shuffle_{kind}({target}, {mask});")
                dtype = self.nodes[position].dtype
                text = self.combine(self.kind(position), target, other, dtype)
                self.w.line(f"{target} = {text};")
                mask *= 2

    def _exchange(self, position: int, partial: Fragment, weight: int, size: int) -> None:
        """Across warps, through shared memory."""
        kind = scalars.register_type(self.nodes[position].dtype)
        self.scratch_registers = max(self.scratch_registers, partial.count)
        team, thread = self.team, self.team.thread
        with self.w.block(""):
            scratch = self.w.name("scratch")
            self.w.line(f"{kind}* {scratch} = ({kind}*)({team.scratch});")
            self.w.line(team.sync)
            with self.each(partial.digits) as point:
                place = f"({_index(partial.digits, point)}) * {team.size} + {thread}"
                self.w.line(f"{scratch}[{place}] = {self.element(partial, point)};")
            self.w.line(team.sync)
            first = self.w.name("first")
            own = f"({thread} / {weight}) % {size}"
            self.w.line(f"const i32 {first} = {thread} - ({own}) * {weight};")
            with self.each(partial.digits) as point:
                target = self.element(partial, point)
                place = f"({_index(partial.digits, point)}) * {team.size} + {first}"
                values = [f"{scratch}[{place} + {step * weight}]" for step in range(size)]
                text = values[0]
                for value in values[1:]:
                    text = self.combine(
                        self.kind(position), text, value, self.nodes[position].dtype
                    )
                self.w.line(f"{target} = {text};")


def _plus(start: str, factor: int, offset: int) -> str:
    return str(offset) if start == "0" else f"({start} * {factor} + {offset})"


def _times(expression: str, factor: int) -> str:
    if factor == 1:
        return expression
    simple = expression.replace("_", "").isalnum()
    return f"{expression if simple else f'({expression})'} * {factor}"


def _digits_of(variable: str, digits: Sequence[Digit]) -> dict[Digit, str]:
    """Each digit of a mixed-radix number, as text."""
    found, weight = {}, 1
    total = prod(digit.size for digit in digits)
    for digit in digits:
        value = variable if weight == 1 else f"{variable} / {weight}"
        found[digit] = value if weight * digit.size == total else f"{value} % {digit.size}"
        if found[digit] != variable:
            found[digit] = f"({found[digit]})"
        weight *= digit.size
    return found


def _index(digits: Sequence[Digit], point: Point) -> str:
    """The mixed-radix number of the digits; the loop variable itself where they are all its."""
    parts, weight = [], 1
    for digit in digits:
        if point.digits[digit] != "0":
            parts.append(_times(point.digits[digit], weight))
        weight *= digit.size
    return " + ".join(parts) or "0"


def _operand_type(function: str, types: Sequence[str], result: str) -> str:
    """The dtype that a map's operands are converted to."""
    from ir.dtypes import promote

    if function == "where":
        return result
    if function in ("and", "or", "not"):
        return "bool"
    found = promote(tuple(types))
    if function in ("div", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"):
        return found if is_float(found) else result
    return found


def _reach(
    terms: Sequence[tuple[str, int]], constant: int, extents: Mapping[str, int]
) -> tuple[int, int]:
    low = high = constant
    for axis, coefficient in terms:
        reach = coefficient * (extents[axis] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high
