"""The rows that a warp's threads have, one each, pass through shared memory.

Where the points of neighbouring threads lie a row apart, each word that a thread reads is a line of
its own: a warp asks for 32 lines and takes 16 bytes of each. Here lanes beside each other read the
words of one row, lay them down in shared memory, and each thread takes up its own; what steps write
goes the other way. While the steps of a turn are made, what the next one reads is under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.code import GROUP, Loop, Number, PlainKernel, Scalar
from ir.plain.scalars import rebuilt
from ir.plain.strides import Walk
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_sent import Sent, sent_of
from ir.targets.cuda.plain.plain_words import WORD
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_held import Held
    from ir.targets.cuda.plain.plain_text import PlainText

_LINE = 128  # bytes that one request brings at most


def words_of(kernel: PlainKernel, one: Held, count: int) -> int:
    """Words of a row that `count` steps read, where each thread of a warp has a row and its lanes
    can share out the words; else 0."""
    many = count * one.points * one.size // WORD
    able = one.across and one.word == WORD and _shares(many)
    return many if able and _apart(kernel, one.element.index, one.size) else 0


def words_sent(kernel: PlainKernel, one: Sent, count: int) -> int:
    """The same of what they write."""
    size = dtype_of(one.dtype).bytes
    many = count * size // WORD
    able = one.word == WORD and _shares(many)
    return many if able and _apart(kernel, one.write.index, size) else 0


def _apart(kernel: PlainKernel, index: Scalar, size: int) -> bool:
    """Whether threads beside each other are at least a word apart."""
    last = next((name for name, extent in reversed(kernel.points) if extent > 1), None)
    stride = None if last is None else Walk(last.name, {}).stride(index)
    return stride is not None and abs(stride) * size >= WORD


def _shares(words: int) -> bool:
    return 1 < words <= WARP


def pitch_of(kernel: PlainKernel, count: int) -> int:
    """Bytes from a row to the next in shared memory, where turns of `count` steps go there; 0 where
    none do. An odd number of words: rows of one warp meet no bank twice."""
    from ir.targets.cuda.plain.plain_held import REGISTERS

    lone = not kernel.cooperative and all(array.place != GROUP for array in kernel.arrays)
    if not lone or prod(extent for _, extent in kernel.points) % WARP:
        return 0
    turns = [_turn(kernel, loop, count) for loop in kernel.body if isinstance(loop, Loop)]
    if any(turn.registers > REGISTERS for turn in turns):
        return 0
    most = max((words for turn in turns for words in turn.words), default=0)
    return (most + 1 - most % 2) * WORD if most else 0


def requests_of(kernel: PlainKernel, count: int, staged: bool) -> float:
    """How many lines, or parts of one, a point's turns of `count` steps ask memory for, of what can
    pass through shared memory."""
    found, most = 0.0, _LINE // WORD
    for loop in (s for s in kernel.body if isinstance(s, Loop)):
        words = _turn(kernel, loop, count).words
        each = sum(n / min(n, most) if staged else n for n in words)
        found += each * loop.extent / min(count, loop.extent)
    return found


@dataclass(frozen=True, slots=True)
class _Turn:
    """The words of each array of which a warp shares out those of a turn, and the registers that
    this turn and what is asked for of the next one take."""

    words: tuple[int, ...]
    registers: int


def _turn(kernel: PlainKernel, loop: Loop, count: int) -> _Turn:
    from ir.targets.cuda.plain.plain_held import across_of, held_of

    count = min(count, loop.extent)
    read = [across_of(one, loop, count) for one in held_of(kernel, loop) if one.moves]
    sent = sent_of(kernel, loop, count)
    words = [words_of(kernel, one, count) for one in read]
    words += [words_sent(kernel, one, count) for one in sent]
    taken = 2 * sum(count * one.points * one.size // 4 for one in read) + count * len(sent)
    return _Turn(tuple(filter(None, words)), taken)


@dataclass(frozen=True, slots=True)
class _Row:
    """What goes through shared memory of an array: how many words of a row in a turn, and what
    lanes call the places in memory of those that they move."""

    words: int
    places: str
    got: str = ""


class Staging:
    """The rows of one loop's turns."""

    def __init__(
        self, text: PlainText, loop: Loop, count: int, held: Sequence[Held], sent: Sequence[Sent]
    ) -> None:
        self.text, self.w, self.loop, self.count = text, text.w, loop, count
        self.reads = {one: many for one in held if (many := words_of(text.kernel, one, count))}
        self.writes = {
            one.write: many for one in sent if (many := words_sent(text.kernel, one, count))
        }
        fresh = text.names.fresh
        self.lane, self.base = fresh("own_lane"), fresh("rows_at")
        self._in = {one: _Row(n, fresh("row_of"), fresh("got")) for one, n in self.reads.items()}
        self._out = {id(one): _Row(n, fresh("row_of")) for one, n in self.writes.items()}

    def start(self, whole: int) -> None:
        """Find where the rows of others begin, and ask for what the first turn reads."""
        w, pitch = self.w, self.text.pitch
        w.line(f"const i32 {self.lane} = thread % {WARP};")
        room = f"thread / {WARP} * {WARP * pitch}"
        w.line(f"const u32 {self.base} = tw_shared_address(tw_shared_base()) + {room};")
        for one, row in self._in.items():
            inside: dict[Scalar, Number] = {name: Number(0, "i64") for name, _ in one.inside}
            self._found(row, one.element.array, one.element.index, "const ", inside)
            w.line(f"tw_vec16 {row.got}[{row.words}];")
        for write in self.writes:
            self._found(self._out[id(write)], write.array, write.index, "", {})
        if whole:
            self._ask("0")

    def _found(
        self, row: _Row, array: str, index: Scalar, constness: str, inside: Mapping[Scalar, Number]
    ) -> None:
        w, own = self.w, self.text.names.fresh("begins")
        step, words = self.loop.variable, row.words
        at_first = rebuilt(index, lambda s: Number(0, "i64") if s == step else inside.get(s))
        dtype = self.text.scalars.dtypes[array]
        kind, unit = scalars.STORAGE[dtype], WORD // dtype_of(dtype).bytes
        w.line(f"const i64 {own} = {self.text.scalars.text(at_first)};")
        w.line(f"{constness}{kind}* {row.places}[{words}];")
        for turn in range(words):
            there = f"tw_lane_i64({own}, {self._row_at(turn, words)})"
            more = f"{self._word_at(turn, words)} * {unit}"
            w.line(f"{row.places}[{turn}] = {self.text.names[array]} + {there} + {more};")

    def _row_at(self, turn: int, words: int) -> str:
        """The row of which a lane moves a word: all of a warp's words go round."""
        return f"({turn * WARP} + {self.lane}) / {words}"

    def _word_at(self, turn: int, words: int) -> str:
        """The word."""
        return f"({turn * WARP} + {self.lane}) % {words}"

    def _beside(self, turn: int, words: int) -> str:
        """Where it is in shared memory."""
        row, word = self._row_at(turn, words), self._word_at(turn, words)
        return f"{self.base} + ({row}) * {self.text.pitch} + {word} * {WORD}"

    def _own(self, word: int) -> str:
        """Where a word of a lane's own row is."""
        return f"{self.base} + {self.lane} * {self.text.pitch} + {word * WORD}"

    def _ask(self, step: str) -> None:
        for one, row in self._in.items():
            far = f"({step}) * {one.points}" if one.points > 1 else f"({step})"
            for turn in range(row.words):
                self.w.line(f"{row.got}[{turn}] = tw_load_16({row.places}[{turn}] + {far});")

    def take(self, named: Mapping[str, Held], following: str) -> None:
        """What was asked for, to registers of the threads whose it is; ask for the turn that begins
        with the step `following`."""
        w = self.w
        for name, one in named.items():
            row = self._in.get(one)
            if row is None:
                continue
            w.line("tw_sync_warp();")
            for turn in range(row.words):
                w.line(f"tw_store_shared_16({self._beside(turn, row.words)}, {row.got}[{turn}]);")
            w.line("tw_sync_warp();")
            for word in range(row.words):
                with w.block(""):
                    w.line(f"const tw_vec16 word = tw_load_shared_16({self._own(word)});")
                    for part in range(4):
                        w.line(f"{name}[{4 * word + part}] = word.w[{part}];")
        self._ask(following)

    def send(self, one: Sent, words: Sequence[str], first: str) -> None:
        """Write a turn's words of all rows of the warp, from step `first` on."""
        w, row = self.w, self._out[id(one.write)]
        w.line("tw_sync_warp();")
        for number in range(row.words):
            value = ", ".join(words[4 * number : 4 * number + 4])
            w.line(f"tw_store_shared_16({self._own(number)}, tw_vec16{{{{{value}}}}});")
        w.line("tw_sync_warp();")
        for turn in range(row.words):
            word = f"tw_load_shared_16({self._beside(turn, row.words)})"
            w.line(f"tw_store_16({row.places}[{turn}] + {first}, {word});")
