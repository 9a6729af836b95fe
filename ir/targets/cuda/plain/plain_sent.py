"""What the steps of a thread's loop write side by side leaves in words.

Such a thread has no neighbour that writes beside it: one by one, its elements are a sector each on
the way to memory. Here several steps keep what they write in registers, and words go behind the
last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.accesses import every, read
from ir.plain.code import Claim, Combine, Loop, PlainKernel, Write
from ir.plain.strides import Walk, elements
from ir.plain.sums import names_of
from ir.targets.cuda.plain.plain_words import WORD, remainder
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_staged import Staging
    from ir.targets.cuda.plain.plain_text import PlainText


@dataclass(frozen=True, slots=True)
class Sent:
    """A write that every step makes, beside that of the step before; `word`: bytes of a store."""

    write: Write
    dtype: str
    word: int

    @property
    def unit(self) -> int:
        """Elements of a word."""
        return self.word // dtype_of(self.dtype).bytes


def sent_of(kernel: PlainKernel, loop: Loop, count: int) -> tuple[Sent, ...]:
    """The writes of `count` steps at a time that can leave in words."""
    outputs = {spec.name for spec in kernel.tensors if spec.role == "output"}
    dtypes = {a.name: a.dtype for a in kernel.arrays if a.name in outputs}
    known = {*(name.name for name, _ in kernel.points), loop.variable.name}
    inside = [s for s in every(loop.body) if isinstance(s, Write | Combine | Claim)]
    seen, found = read(loop.body), []
    for write in loop.body:
        if not isinstance(write, Write) or write.array not in dtypes or write.array in seen:
            continue
        alone = sum(s.array == write.array for s in inside) == 1
        if not alone or not {*names_of(write.index)} <= known or any(elements((write.index,))):
            continue
        word = _word(write, loop, count, dtype_of(dtypes[write.array]).bytes)
        if word:
            found.append(Sent(write, dtypes[write.array], word))
    return tuple(found)


def _word(write: Write, loop: Loop, count: int, size: int) -> int:
    """Bytes of the longest store of neighbours that lie at a multiple of it; 0 for none."""
    step = loop.variable.name
    if loop.backward or size not in (1, 2, 4) or Walk(step, {}).stride(write.index) != 1:
        return 0
    for word in (WORD, WORD // 2, WORD // 4):
        unit = word // size
        if unit > 1 and count % unit == 0 and remainder(write.index, unit, step) == 0:
            return word
    return 0


class Sending:
    """Takes the writes of one loop's steps, `count` at a time."""

    def __init__(self, text: PlainText, loop: Loop, count: int) -> None:
        self.text, self.w, self.loop, self.count = text, text.w, loop, count
        self.sent = {text.names.fresh("sent"): one for one in sent_of(text.kernel, loop, count)}

    @contextmanager
    def steps(self, number: str) -> Iterator[None]:
        """What steps write inside goes to registers: that of step `number` of the turn."""
        for name, one in self.sent.items():
            self.w.line(f"{scalars.register_type(one.dtype)} {name}[{self.count}];")
        before = self.text.sent
        places = {id(one.write): f"{name}[{number}]" for name, one in self.sent.items()}
        self.text.sent = {**before, **places}
        yield
        self.text.sent = before

    def send(self, first: str, staging: Staging | None) -> None:
        """Write all, where the loop's variable is that of the turn's `first` step."""
        for name, one in self.sent.items():
            each = one.unit * 4 // one.word
            words = [
                scalars.pack_word([f"{name}[{n}]" for n in range(at, at + each)], one.dtype)
                for at in range(0, self.count, each)
            ]
            if staging is not None and one.write in staging.writes:
                staging.send(one, words, first)
                continue
            begin = (
                f"{self.text.names[one.write.array]} + {self.text.scalars.text(one.write.index)}"
            )
            many = one.word // 4
            for number in range(0, len(words), many):
                value = ", ".join(words[number : number + many])
                value = f"tw_vec16{{{{{value}}}}}" if many > 2 else value
                self.w.line(f"tw_store_{one.word}({begin} + {number * each}, {value});")
