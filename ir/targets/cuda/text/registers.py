"""Values in registers: arrays of fragments, loops over their digits, coordinates of threads.

Knows frames and text; no op, no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod

from ir.errors import Refusal
from ir.layout.expressions import Expression, constant, scaled, total, variable
from ir.program import Program
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.lanes import thread_part
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.writer import Writer

SCRATCH_BYTES = 8  # of a thread for one register that crosses warps


@dataclass(frozen=True, slots=True)
class Fragment:
    """A value in registers: array `name`, its digits the fastest first.

    A fragment of a tensor core has rows: `name[index / row][index % row]`. One that is part of an
    array has `weights`, registers from one step of each digit to the next, and its `start`.
    """

    name: str
    digits: tuple[Digit, ...]
    row: int = 0
    weights: tuple[int, ...] = ()
    start: int = 0

    @property
    def count(self) -> int:
        return prod(digit.size for digit in self.digits)

    def place(self, point: Point) -> str:
        """The register of a point."""
        if not self.weights:
            return number_of(self.digits, point)
        parts = [
            times(point.digits[digit], weight)
            for digit, weight in zip(self.digits, self.weights, strict=True)
            if point.digits[digit] != "0"
        ]
        parts += [str(self.start)] if self.start or not parts else []
        return " + ".join(parts)


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
    scratch: str  # address of `size` * SCRATCH_BYTES for each register that crosses warps


class Registers:
    """State of one kernel body. `origins` gives the first point of the tile along each axis."""

    def __init__(
        self, program: Program, writer: Writer, frame: Frame, tiles: Mapping[str, int], team: Team
    ) -> None:
        self.program, self.nodes = program, program.nodes
        self.w, self.frame, self.tiles, self.team = writer, frame, tiles, team
        self.origins: dict[str, str] = {}
        self.assumed: frozenset[int] = frozenset()  # conditions that hold for the whole block
        self.inside_of: frozenset[str] = frozenset()  # axes inside of which the whole block lies
        self.full: dict[str, str] = {}  # where tiles begin that lie inside their axis, by axis
        self._alike: dict[str, frozenset[Digit]] = {}
        self.values: dict[int, Fragment] = {}
        self.fixed: dict[Digit, str] = {}
        self.looped: frozenset[str] = frozenset()
        self.scratch_registers = 0
        self.exchanges = 0  # reductions that went through shared memory
        self.shared_place = False  # whether two of them use one place
        self.looping = False  # whether what is written now is repeated
        self._thread_parts: dict[str, str] = {}
        writer.reserve("thread", *(text_name(spec.name) for spec in program.tensors))

    # -- where things are

    def declare_threads(self) -> None:
        """One constant for each axis: this thread's share of the coordinate."""
        axes = {axis for _, digit in self.frame.weights() for axis, _ in digit.strides}
        for axis in sorted(axes):
            name = self.w.name(f"{axis}_thread")
            self.w.line(f"const i32 {name} = {self.thread_part(axis)};")
            self._thread_parts[axis] = name

    def thread_part(self, axis: str) -> Expression:
        """This thread's share of the coordinate along an axis."""
        return thread_part(self.frame, axis, self.team.thread)

    def base(self, axis: str) -> str:
        """Coordinate of the thread's first point along `axis`."""
        origin, own = self.origins.get(axis, "0"), self._thread_parts.get(axis)
        if own is None:
            return origin
        return own if origin == "0" else f"({origin} + {own})"

    def step(self, axis: str, point: Point) -> str:
        """What the registers add to `base`."""
        parts = [
            times(point.digits[digit], digit.stride)
            for digit in self.frame.own((axis,))
            if point.digits[digit] != "0"
        ]
        return " + ".join(parts)

    def registers_part(self, axis: str, point: Point) -> Expression:
        """The same as an expression of what counts the digits."""
        return total(
            *(
                scaled(counted(point.digits[digit], digit.size), digit.stride)
                for digit in self.frame.own((axis,))
            )
        )

    def coordinate(self, axis: str, point: Point) -> str:
        step = self.step(axis, point)
        return f"({self.base(axis)} + {step})" if step else self.base(axis)

    def place_in_tile(self, axes: Iterable[str], point: Point) -> str:
        """Number of a point among those of the tile, the last axis fastest."""
        number = ""
        for axis in axes:
            own, step = self._thread_parts.get(axis, ""), self.step(axis, point)
            here = " + ".join(part for part in (own, step) if part) or "0"
            number = f"({number}) * {self.tiles[axis]} + {here}" if number else here
        return number or "0"

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
            self._within(axis, point)
            for axis in axes
            if self.ragged(axis) and self.full.get(axis) != self.origins.get(axis, "0")
        ]
        return " && ".join(conditions)

    def _within(self, axis: str, point: Point) -> str:
        """A condition that the point lies within one axis. Neighbours of a vector at whose
        multiples the axis ends have the same; of a tile that has all of the axis, compilers see
        which registers of no thread are outside."""
        extent, alike = self.program.axes[axis], self._alike_along(axis)
        parts = [
            times(point.digits[digit], digit.stride)
            for digit in self.frame.own((axis,))
            if point.digits[digit] != "0" and digit not in alike
        ]
        step, base = " + ".join(parts), self.base(axis)
        text = f"({base} + {step}) < {extent}" if step else f"{base} < {extent}"
        if axis in self.origins or not step:
            return text
        most = sum((digit.size - 1) * digit.stride(axis) for digit in self.frame.threads)
        return f"({step} + {most} < {extent} || {text})"

    def _alike_along(self, axis: str) -> frozenset[Digit]:
        """Digits of registers whose points are on the same side of the axis' end."""
        if axis not in self._alike:
            own, found, size = self.frame.own((axis,)), set[Digit](), 1
            across = [digit.stride(axis) for digit in self.frame.threads if digit.stride(axis)]
            for digit in sorted(own, key=lambda digit: digit.stride):
                more = size * digit.size
                others = (one.stride for one in own if one not in found and one != digit)
                ends = (self.program.axes[axis], self.tiles[axis], *across, *others)
                if digit.stride != size or any(place % more for place in ends):
                    break
                found.add(digit)
                size = more
            self._alike[axis] = frozenset(found)
        return self._alike[axis]

    def points(self, axes: Iterable[str]) -> str:
        """How many points of a tile lie within its axes."""
        counts = ["1"]
        for axis in axes:
            extent, tile = self.program.axes[axis], self.tiles[axis]
            here = f"min({extent} - {self.origins.get(axis, '0')}, {tile})"
            counts.append(here if self.ragged(axis) else str(min(tile, extent)))
        return " * ".join(counts)

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
            yield Point({**self.fixed, **digits_of(variable, digits)})

    @contextmanager
    def each_vector(self, digits: Sequence[Digit], width: int) -> Iterator[list[Point]]:
        """A loop over vectors of `width` neighbours along the first digit."""
        widths = (width, *(1 for _ in digits[1:])) if digits else ()
        with self.each_group(digits, widths) as points:
            yield points

    @contextmanager
    def each_group(self, digits: Sequence[Digit], widths: Sequence[int]) -> Iterator[list[Point]]:
        """A loop over groups of points: so many neighbours along each digit, the first fastest."""
        groups = tuple(
            digit if width == 1 else Digit(digit.axis, digit.size // width, -number)
            for number, (digit, width) in enumerate(zip(digits, widths, strict=True))
        )
        with self.each(groups) as point:
            places = [
                [point.digits[group]] if width == 1
                else [plus(point.digits[group], width, i) for i in range(width)]
                for group, width in zip(groups, widths, strict=True)
            ]  # fmt: skip
            yield [
                Point({**point.digits, **dict(zip(digits, reversed(chosen), strict=True))})
                for chosen in product(*reversed(places))
            ]

    @contextmanager
    def at(self, places: Mapping[Digit, int]) -> Iterator[None]:
        """At one point of some digits; values formed inside lack them."""
        saved, self.fixed = self.fixed, self.fixed | {d: str(n) for d, n in places.items()}
        yield
        self.fixed = saved

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

    @contextmanager
    def repeating(self, repeated: bool) -> Iterator[None]:
        """What is written inside runs more than once, if `repeated`."""
        saved, self.looping = self.looping, self.looping or repeated
        yield
        self.looping = saved

    def element(self, fragment: Fragment, point: Point) -> str:
        index = fragment.place(point)
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


def counted(text: str, size: int) -> Expression:
    """A digit's value, given as text, as an expression."""
    return constant(int(text)) if text.isdigit() else variable(text, size)


def plus(start: str, factor: int, offset: int) -> str:
    return str(offset) if start == "0" else f"({start} * {factor} + {offset})"


def times(expression: str, factor: int) -> str:
    if factor == 1:
        return expression
    simple = expression.replace("_", "").isalnum()
    return f"{expression if simple else f'({expression})'} * {factor}"


def digits_of(variable: str, digits: Sequence[Digit]) -> dict[Digit, str]:
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


def linear(digits: Sequence[Digit], values: Mapping[Digit, str]) -> str:
    """The mixed-radix number of digits that have these values."""
    parts, weight = [], 1
    for digit in digits:
        parts.append(f"{values[digit]} * {weight}" if weight > 1 else values[digit])
        weight *= digit.size
    return " + ".join(parts) or "0"


def number_of(digits: Sequence[Digit], point: Point) -> str:
    """The mixed-radix number of the digits; the loop variable itself where they are all its."""
    parts, weight = [], 1
    for digit in digits:
        if point.digits[digit] != "0":
            parts.append(times(point.digits[digit], weight))
        weight *= digit.size
    return " + ".join(parts) or "0"


def spread(digits: Sequence[Digit], number: int) -> dict[Digit, str]:
    """The values of mixed-radix digits that make `number`."""
    found = {}
    for digit in digits:
        found[digit] = str(number % digit.size)
        number //= digit.size
    return found
