"""A loop of a thread that reads rows of tensors in words: several neighbours by one access.

Iterations are written out as many at a time as lie in a word; what they read of a row is loaded
before the first of them. Knows which elements those are, and their text.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.accesses import scalars_of
from ir.plain.code import (
    TENSOR,
    Assign,
    Call,
    Convert,
    Element,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.jammed import can_jam, scalar
from ir.plain.strides import Walk, elements
from ir.plain.sums import EXTREMES, is_combined, names_of
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText

WORD = 16  # bytes of an access
MOST = 64  # statements that are written out
LONG = 32  # iterations of a sum from which lanes may share it
LEAST = 2  # accesses of a loop in words, below which it stays as it is


@dataclass(frozen=True, slots=True)
class Words:
    """`count` iterations at a time, and the elements that they read in words."""

    count: int
    rows: tuple[Element, ...]


def words_of(kernel: PlainKernel, loop: Loop, held: Container[Element] = ()) -> Words | None:
    """How a loop reads in words what is not held; None where it has none, or more to do."""
    if loop.backward or not all(isinstance(s, Let | Assign | Write) for s in loop.body):
        return None
    inputs = {spec.name for spec in kernel.tensors if spec.role == "input"}
    sizes = {a.name: dtype_of(a.dtype) for a in kernel.arrays if a.name in inputs}
    lets = {s.name.name: s.value for s in loop.body if isinstance(s, Let)}
    changing = frozenset(s.name.name for s in loop.body if isinstance(s, Assign))
    walk = Walk(loop.variable.name, lets, changing)
    found = {
        element: None
        for s in loop.body
        for element in elements(scalars_of(s))
        if element not in held and element.array in sizes and sizes[element.array].bits in (16, 32)
        and walk.stride(element.index) == 1 and not {*names_of(element.index)} & set(lets)
    }  # fmt: skip
    if not found:
        return None
    count = max(WORD // sizes[element.array].bytes for element in found)
    while count > 1 and (loop.extent % count or count * len(loop.body) > MOST):
        count //= 2
    rows = tuple(
        element for element in found
        if count * sizes[element.array].bytes >= 4
        and remainder(element.index, count, loop.variable.name) == 0
    )  # fmt: skip
    return Words(count, rows) if count > 1 and rows and loop.extent >= LEAST * count else None


def remainder(scalar: Scalar, count: int, variable: str) -> int | None:
    """What is left of an index divided by `count`, where the variable is a multiple of that; None
    where that is not known."""
    if isinstance(scalar, Number):
        return int(scalar.value) % count
    if isinstance(scalar, Name):
        return 0 if scalar.name == variable else None
    if isinstance(scalar, Convert):
        return remainder(scalar.arg, count, variable) if scalar.to == "i64" else None
    if not isinstance(scalar, Call) or scalar.function not in ("add", "sub", "mul"):
        return None
    left, right = (remainder(arg, count, variable) for arg in scalar.args)
    if scalar.function == "mul":
        if 0 in (left, right):
            return 0
        return None if left is None or right is None else left * right % count
    if left is None or right is None:
        return None
    return (left + right if scalar.function == "add" else left - right) % count


class WordLoop:
    """Writes one loop."""

    def __init__(self, text: PlainText, loop: Loop, words: Words, share: int = 1) -> None:
        self.text, self.w, self.names = text, text.w, text.names
        self.loop, self.words, self.share = loop, words, share

    def write(self) -> None:
        name, count = self.names[self.loop.variable.name], self.words.count
        begin = Name(self.names.new("row"))
        first = self.names[begin.name]
        if id(self.loop) in self.text.unrolled:
            self.w.line("#pragma unroll")
        start = f"(i64)(thread % {self.share}) * {count}" if self.share > 1 else "0"
        step = count * self.share
        head = f"for (i64 {first} = {start}; {first} < {self.loop.extent}; {first} += {step})"
        held = self.text.scalars.held
        with self.w.block(head):
            loaded = self._load(begin)
            for number in range(count):
                with self.w.block(""):
                    self.w.line(f"const i64 {name} = {first} + {number};")
                    here = {element: texts[number] for element, texts in loaded.items()}
                    self.text.scalars.held = {**held, **here}
                    self.text.run(self.loop.body, False)
            self.text.scalars.held = held

    def _load(self, first: Name) -> Mapping[Element, list[str]]:
        """Declare the words of every row from an iteration on; the text of each element."""
        found = {}
        for element in self.words.rows:
            dtype = self.text.scalars.dtypes[element.array]
            size = dtype_of(dtype).bytes
            each = min(WORD, self.words.count * size)
            texts: list[str] = []
            index = scalar(element.index, {self.loop.variable.name: first.name})
            where = f"{self.names[element.array]} + {self.text.scalars.text(index)}"
            kind = {16: "tw_vec16", 8: "tw_vec8", 4: "u32"}[each]
            for start in range(0, self.words.count * size, each):
                word = self.names.fresh("word")
                more = f" + {start // size}" if start else ""
                self.w.line(f"const {kind} {word} = tw_load_{each}({where}{more});")
                for number in range(each // size):
                    part = word if each == 4 else f"{word}.w[{number * size // 4}]"
                    texts.append(scalars.unpack(part, number, dtype))
            found[element] = texts
        return found


def shares(kernel: PlainKernel, spread: Spread) -> bool:
    """Whether lanes can share the sums of an iteration: they begin with nothing, are long, and what
    they read of tensors lies side by side along them."""
    if not can_jam(spread):
        return False
    loops = list(_sums(spread.body))
    long = any(loop.extent >= LONG for loop, _ in loops)
    apart = all(_begins(loop, before) and _reads_rows(kernel, loop) for loop, before in loops)
    return long and apart


def _sums(body: Sequence[Statement]) -> Iterator[tuple[Loop, Sequence[Statement]]]:
    """Loops that add up, in others too, and what comes before each in the same one."""
    for place, statement in enumerate(body):
        if isinstance(statement, Loop):
            if is_combined(statement):
                yield statement, body[:place]
            else:
                yield from _sums(statement.body)


def _begins(loop: Loop, before: Sequence[Statement]) -> bool:
    """Whether what a loop adds to begins right before it, with nothing; the largest and smallest
    with anything."""
    begun = {s.name.name: s.value for s in before if isinstance(s, Let)}
    return all(
        (value := begun.get(s.name.name)) is not None
        and isinstance(s.value, Call)
        and (s.value.function in EXTREMES or (isinstance(value, Number) and value.value == 0))
        for s in loop.body
        if isinstance(s, Assign)
    )


def _reads_rows(kernel: PlainKernel, loop: Loop) -> bool:
    """Whether a loop reads neighbours, or the same, wherever it reads a tensor."""
    tensors = {array.name for array in kernel.arrays if array.place == TENSOR}
    lets = {s.name.name: s.value for s in loop.body if isinstance(s, Let)}
    walk = Walk(loop.variable.name, lets)
    read = [e for s in loop.body for e in elements(scalars_of(s)) if e.array in tensors]
    return all(walk.stride(element.index) in (0, 1) for element in read)


class SharedSum:
    """Writes a loop that adds up, of which each lane has a share."""

    def __init__(self, text: PlainText, loop: Loop, share: int) -> None:
        self.text, self.loop, self.share = text, loop, share

    def write(self) -> None:
        text, loop, w = self.text, self.loop, self.text.w
        words = words_of(text.kernel, loop)
        if words is not None:
            WordLoop(text, loop, words, self.share).write()
        else:
            name = text.names[loop.variable.name]
            head = f"for (i64 {name} = thread % {self.share}; {name} < {loop.extent}; "
            with w.block(f"{head}{name} += {self.share})"):
                text.run(loop.body, False)
        for s in loop.body:
            if isinstance(s, Assign):
                assert isinstance(s.value, Call)
                name, mask = text.names[s.name.name], 1
                while mask < self.share:
                    other = Name(text.names.new("other"), s.name.dtype)
                    text.declare(other, f"tw_shuffle_{s.name.dtype}({name}, {mask})", constant=True)
                    both = Call(s.value.function, (s.name, other), s.name.dtype)
                    w.line(f"{name} = {text.scalars.given(both, s.name.dtype)};")
                    mask *= 2
