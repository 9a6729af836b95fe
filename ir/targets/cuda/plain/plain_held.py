"""A loop of a thread whose steps follow each other: what several of them read of inputs is loaded
before the first of them, so that much of memory is under way at a time.

A step waits for the state before it, not for what it reads. Where a place is known before the loop,
but for the loop's variable and those of loops that are written out, the load need not wait either.
What does not move with the step is loaded once, before all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.accesses import every, scalars_of
from ir.plain.code import (
    Accumulate,
    Between,
    Call,
    Convert,
    Element,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
)
from ir.plain.jammed import scalar
from ir.plain.scalars import rebuilt
from ir.plain.strides import Walk, elements, statements_of
from ir.plain.sums import names_of
from ir.targets.cuda.plain.plain_ahead import LINE
from ir.targets.cuda.plain.plain_sent import Sending
from ir.targets.cuda.plain.plain_shape import loops_of_registers
from ir.targets.cuda.plain.plain_staged import Staging
from ir.targets.cuda.plain.plain_words import WORD, remainder
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText

COUNTS = (1, 2, 4, 8, 16, 32)  # steps at a time
REGISTERS = 176  # that what waits may take
FAR = 16  # steps ahead of which memory is asked
STATEMENTS = 2048  # that are written out
_GUARDED = ("where", "and", "or")  # of which the first operand alone is always evaluated

_KINDS = {16: "tw_vec16", 8: "tw_vec8", 4: "u32"}  # what loads of so many bytes give

Variables = tuple[tuple[Name, int], ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A read, the loops inside a step by whose variables its place moves, and whether it moves with
    the step. `word`: bytes of its loads along the last of those loops; 0 for one by one. `across`:
    what all steps of a turn read lies side by side, and is loaded in such words."""

    element: Element
    inside: Variables
    moves: bool
    word: int
    size: int
    across: bool = False

    @property
    def points(self) -> int:
        return prod(extent for _, extent in self.inside)

    @property
    def unit(self) -> int:
        """Neighbours that are loaded together."""
        return self.word // self.size if self.word else 1

    @property
    def registers(self) -> int:
        return self.points * self.size // 4 if self.word else self.points * -(-self.size // 4)


def held_of(kernel: PlainKernel, loop: Loop) -> tuple[Held, ...]:
    """The reads of a loop's steps that need not wait for them."""
    inputs = {spec.name for spec in kernel.tensors if spec.role == "input"}
    sizes = {a.name: dtype_of(a.dtype).bytes for a in kernel.arrays if a.name in inputs}
    outside, unrolled = {name.name for name, _ in kernel.points}, loops_of_registers(kernel)
    found: dict[Element, Held] = {}
    for element, around in _always(loop.body, (), unrolled):
        size, names = sizes.get(element.array), {*names_of(element.index)}
        inside = tuple((name, extent) for name, extent in around if name.name in names)
        known = {*outside, loop.variable.name, *(name.name for name, _ in inside)}
        if size is None or not names <= known or any(elements((element.index,))):
            continue
        moves = loop.variable.name in names
        found.setdefault(element, Held(element, inside, moves, _word(element, inside, size), size))
    return tuple(found.values())


def _always(
    statements: Iterable[Statement], around: Variables, unrolled: frozenset[int]
) -> Iterator[tuple[Element, Variables]]:
    """Reads that every step makes, with the loops around them that are written out."""
    for s in statements:
        for value in scalars_of(s):
            yield from ((element, around) for element in _unguarded(value))
        if isinstance(s, Loop) and id(s) in unrolled:
            yield from _always(s.body, (*around, (s.variable, s.extent)), unrolled)


def _unguarded(value: Scalar) -> Iterator[Element]:
    """Reads in a scalar that no condition guards."""
    match value:
        case Element():
            yield value
            yield from _unguarded(value.index)
        case Convert():
            yield from _unguarded(value.arg)
        case Call():
            for arg in value.args[:1] if value.function in _GUARDED else value.args:
                yield from _unguarded(arg)


def _word(element: Element, inside: Variables, size: int) -> int:
    """Bytes of an access along the innermost loop, where it reads neighbours."""
    if not inside or size > 4:
        return 0
    name, extent = inside[-1]
    strides = [Walk(one.name, {}).stride(element.index) for one, _ in inside]
    if strides[-1] != 1 or None in strides:
        return 0
    for word in (WORD, WORD // 2, WORD // 4):
        count = word // size
        places = scalar(element.index, {one.name: name.name for one, _ in inside})
        if extent % count == 0 and remainder(places, count, name.name) == 0:
            return word
    return 0


def across_of(one: Held, loop: Loop, count: int) -> Held:
    """The read with the words of `count` steps together, if those are longer and fit."""
    if not one.moves or loop.backward or one.size > 4:
        return one
    run = 1
    for name, extent in reversed(one.inside):
        if Walk(name.name, {}).stride(one.element.index) != run:
            return one
        run *= extent
    step = loop.variable.name
    if Walk(step, {}).stride(one.element.index) != run:
        return one
    places = scalar(one.element.index, {name.name: step for name, _ in one.inside})
    for word in (WORD, WORD // 2, WORD // 4):
        unit = word // one.size
        if word > one.word and count % unit == 0 and remainder(places, unit, step) == 0:
            return replace(one, word=word, across=True)
    return one


def counts_of(kernel: PlainKernel) -> tuple[int, ...]:
    """How many steps a thread may load for at a time; 1 alone where nothing is gained."""
    if kernel.cooperative:
        return (1,)
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    most = 1
    for loop in loops:
        held = held_of(kernel, loop)
        each = sum(one.registers for one in held if one.moves)
        once = sum(one.registers for one in held if not one.moves)
        plain = not any(isinstance(s, Between | Spread | Accumulate) for s in every(loop.body))
        fits = [
            count for count in COUNTS
            if plain and each and count * each + once <= REGISTERS and count <= loop.extent
            and count * statements_of(loop.body) <= STATEMENTS
        ]  # fmt: skip
        most = max(most, *fits) if fits else most
    return tuple(count for count in COUNTS if count <= most)


def waits_of(kernel: PlainKernel, loop: Loop) -> int:
    """How often a step of a kernel's loop that a thread has alone waits for memory: once, or once
    for each loop inside it that reads what moves with the step."""
    if not any(one is loop for one in kernel.body):
        return 0
    held = [one for one in held_of(kernel, loop) if one.moves]
    return len({one.inside for one in held if one.inside}) or min(1, len(held))


@lru_cache(maxsize=256)
def asks_of(kernel: PlainKernel, count: int) -> float:
    """How often a point asks memory ahead of its loops' turns of so many steps."""
    found = 0.0
    for loop in (s for s in kernel.body if isinstance(s, Loop)):
        for one in (across_of(one, loop, count) for one in held_of(kernel, loop) if one.moves):
            line = LINE // one.size
            turn = -(-count * one.points // line) if one.across else 0
            each = turn / count if one.across else one.points / _steps_of_line(one, loop)
            found += loop.extent * each
    return found


def _steps_of_line(one: Held, loop: Loop) -> int:
    """How many steps read of a line, as far as that is known."""
    stride = Walk(loop.variable.name, {}).stride(one.element.index)
    return max(1, LINE // (abs(stride) * one.size)) if stride else 1


class HeldLoop:
    """Writes one loop, of so many steps at a time."""

    def __init__(self, text: PlainText, loop: Loop, count: int, fetch: bool) -> None:
        self.fetch = fetch
        held = held_of(text.kernel, loop)
        self.text, self.w, self.names = text, text.w, text.names
        self.loop, self.count = loop, min(count, loop.extent)
        self.moving = [across_of(one, loop, self.count) for one in held if one.moves]
        self.fixed = [one for one in held if not one.moves]
        self.sending = Sending(text, loop, self.count)
        self.staging: Staging | None = None
        if text.pitch:
            self.staging = Staging(
                text, loop, self.count, self.moving, [*self.sending.sent.values()]
            )

    def write(self) -> None:
        w, extent, outer = self.w, self.loop.extent, self.text.scalars.held
        number, whole = self.names.fresh("step_at"), extent // self.count * self.count
        with w.block(""):
            fixed = self._load(self.fixed, 0, "0")
            first = self.names.fresh("first_at")
            if self.staging:
                self.staging.start(whole)
            with w.block(f"for (i64 {first} = 0; {first} < {whole}; {first} += {self.count})"):
                if self.fetch:
                    self._ask(first, number)
                moving = self._declared(self.moving, self.count)
                if self.staging:
                    last = whole - self.count
                    self.staging.take(moving, f"min({first} + {self.count}, (i64){last})")
                self._fill_across(moving, first)
                with w.unrolled(number, self.count), w.block(""):
                    self._at(f"{first} + {number}")
                    self._fill(moving, number)
                texts = self._texts(moving, number)
                with self.sending.steps(number), w.unrolled(number, self.count), w.block(""):
                    self._at(f"{first} + {number}")
                    self._step({**outer, **fixed, **texts})
                if self.sending.sent:
                    with w.block(""):
                        self._at(first)
                        self.sending.send(first, self.staging)
            if whole < extent:
                with w.block(f"for (i64 {first} = {whole}; {first} < {extent}; {first}++)"):
                    self._at(first)
                    self._step({**outer, **fixed})
        self.text.scalars.held = outer

    def _ask(self, first: str, number: str) -> None:
        """Ask memory for what the steps of a later turn read, a line at a time: the loads that
        then come for it wait for L2."""
        w, ahead = self.w, max(FAR, self.count)
        apart = [one for one in self.moving if not one.across]
        together = [one for one in self.moving if one.across]
        if together:
            with w.block(""):
                self._at(f"min({first} + {ahead}ll, {self.loop.extent - self.count}ll)")
                for one in together:
                    begin = self._begin(one)
                    for at in range(0, self.count * one.points, LINE // one.size):
                        w.line(f"tw_prefetch({begin} + {at});")
        if not apart:
            return
        with w.unrolled(number, self.count), w.block(""):
            self._at(f"min({first} + {number} + {ahead}ll, {self.loop.extent - 1}ll)")
            for one in apart:
                with ExitStack() as blocks:
                    each = _steps_of_line(one, self.loop)
                    if each > 1:
                        blocks.enter_context(w.block(f"if ({number} % {each} == 0)"))
                    self._loops(one, LINE // one.size, blocks)
                    place = self.text.scalars.text(one.element.index)
                    w.line(f"tw_prefetch({self.names[one.element.array]} + {place});")

    def _loops(self, one: Held, unit: int, blocks: ExitStack) -> None:
        """Loops over the points of a read, the last of them by `unit`."""
        for variable, extent in one.inside:
            by = unit if (variable, extent) == one.inside[-1] else 1
            at = self.names[variable.name]
            self.w.line("#pragma unroll")
            head = f"for (i64 {at} = 0; {at} < {extent}; {at} += {by})"
            blocks.enter_context(self.w.block(head))

    def _step(self, held: dict[Element, str]) -> None:
        self.text.scalars.held = held
        self.text.run(self.loop.body, False)

    def _at(self, step: str) -> None:
        """Declare the loop's variable."""
        at = f"{self.loop.extent - 1} - ({step})" if self.loop.backward else step
        self.w.line(f"const i64 {self.names[self.loop.variable.name]} = {at};")

    def _load(self, held: list[Held], count: int, number: str) -> dict[Element, str]:
        """Declare what is read once, and read it."""
        named = self._declared(held, count)
        self._fill(named, number)
        return self._texts(named, number)

    def _declared(self, held: list[Held], count: int) -> dict[str, Held]:
        named = {self.names.fresh("held"): one for one in held}
        for name, one in named.items():
            dtype = self.text.scalars.dtypes[one.element.array]
            kind = "u32" if one.word else scalars.STORAGE[dtype]
            length = max(1, count) * (one.registers if one.word else one.points)
            if one.across:
                length = count * one.points * one.size // 4
            self.w.line(f"{kind} {name}[{length}];")
        return named

    def _fill_across(self, named: dict[str, Held], first: str) -> None:
        """Load what lies side by side for all steps of a turn."""
        for name, one in named.items():
            if not one.across or (self.staging and one in self.staging.reads):
                continue
            with self.w.block(""):
                self._at(first)
                begin = self._begin(one)
                for number in range(self.count * one.points // one.unit):
                    with self.w.block(""):
                        to, at = number * one.word // 4, number * one.unit
                        self._word(name, one, f"{begin} + {at}", str(to))

    def _begin(self, one: Held) -> str:
        """Where a read's first point of a step lies."""
        inside = {name for name, _ in one.inside}
        index = rebuilt(one.element.index, lambda s: Number(0, "i64") if s in inside else None)
        return f"{self.names[one.element.array]} + {self.text.scalars.text(index)}"

    def _word(self, name: str, one: Held, place: str, to: str) -> None:
        """Load one word."""
        kind = _KINDS[one.word]
        self.w.line(f"const {kind} word = tw_load_{one.word}({place});")
        for piece in range(one.word // 4):
            value = "word" if kind == "u32" else f"word.w[{piece}]"
            self.w.line(f"{name}[{to} + {piece}] = {value};")

    def _fill(self, named: dict[str, Held], number: str) -> None:
        """Load all of one step into its part."""
        w = self.w
        for name, one in named.items():
            if one.across:
                continue
            array, part = self.names[one.element.array], self._part(one, number)
            with ExitStack() as blocks:
                self._loops(one, one.unit, blocks)
                place, flat = self.text.scalars.text(one.element.index), self._flat(one)
                if not one.word:
                    w.line(f"{name}[{part} + {flat}] = {array}[{place}];")
                    continue
                with w.block(""):
                    to = f"{part} + {flat} * {one.size} / 4"
                    self._word(name, one, f"{array} + {place}", to)

    def _texts(self, named: dict[str, Held], number: str) -> dict[Element, str]:
        """How each read is written where it is held."""
        found = {}
        for name, one in named.items():
            dtype = self.text.scalars.dtypes[one.element.array]
            part, flat = self._part(one, number), self._flat(one)
            if one.word and one.size == 4:
                found[one.element] = scalars.unpack(f"{name}[{part} + {flat}]", 0, dtype)
                continue
            raw = f"{name}[{part} + {flat}]"
            if one.across:
                raw = _part_of(f"({part} + {flat})", one.size, f"{name}[{{}}]")
            elif one.word:
                raw = _part_of(flat, one.size, f"{name}[{part} + {{}}]")
            found[one.element] = scalars.from_storage(raw, dtype)
        return found

    def _part(self, one: Held, number: str) -> str:
        """Where a step's elements begin."""
        length = one.registers if one.word and not one.across else one.points
        return f"{number} * {length}" if one.moves else "0"

    def _flat(self, one: Held) -> str:
        """The number of an element among those of its step."""
        text = "0"
        for variable, extent in one.inside:
            text = f"({text} * {extent} + {self.names[variable.name]})"
        return text


def _part_of(number: str, size: int, word: str) -> str:
    """An element of fewer bytes than a word has, `word` being the text of one by its number."""
    each, bits = 4 // size, 8 * size
    found = word.format(f"{number} / {each}")
    return f"(({found} >> ({number} % {each} * {bits})) & {(1 << bits) - 1:#x}u)"
