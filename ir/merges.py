"""Merges: how two partial results of a fold, each a few numbers, become one.

A merge is text, as it stands in a program: `(mul(a0, b0), add(mul(a1, b0), b1))` makes of the
states a0, a1 (what came before) and b0, b1 (what comes after) those of both. It has to be
associative; it need not be commutative. Knows no array and no target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from ir.dtypes import DTYPES
from ir.errors import ProgramError
from ir.printable import shortened
from ir.scalar import FUNCTIONS

T = TypeVar("T")
MOST_STATES = 8
CAST = "cast_"  # and the dtype: a conversion among the functions of a merge

NAMED: dict[str, str] = {
    "sum": "add(a0, b0)",
    "prod": "mul(a0, b0)",
    "max": "max(a0, b0)",
    "min": "min(a0, b0)",
    "and": "and(a0, b0)",
    "or": "or(a0, b0)",
    "affine": "(mul(a0, b0), add(mul(a1, b0), b1))",
    "argmax": "(where({0}, b0, a0), where({0}, b1, a1))".format(
        "or(lt(a0, b0), and(not(eq(b0, b0)), eq(a0, a0)))"
    ),
    "argmin": "(where({0}, b0, a0), where({0}, b1, a1))".format(
        "or(lt(b0, a0), and(not(eq(b0, b0)), eq(a0, a0)))"
    ),
}


@dataclass(frozen=True, slots=True)
class State:
    """State `number` of what came before (`side` 0) or comes after (1)."""

    side: int
    number: int


@dataclass(frozen=True, slots=True)
class Number:
    """f32, or i32 where it is whole."""

    value: float | int


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar function, or a conversion (`cast_f32`), of terms."""

    function: str
    args: tuple[Term, ...]


Term = State | Number | Apply


@dataclass(frozen=True, slots=True)
class Merge:
    """One term for each state."""

    results: tuple[Term, ...]

    @property
    def states(self) -> int:
        return len(self.results)

    def merged(
        self,
        left: Sequence[T],
        right: Sequence[T],
        apply: Callable[[str, list[T]], T],
        number: Callable[[float | int], T],
    ) -> list[T]:
        """The states of both, by `apply` of functions to what stands for their arguments."""
        known: dict[Term, T] = {}

        def made(term: Term) -> T:
            if term not in known:
                if isinstance(term, State):
                    known[term] = (left, right)[term.side][term.number]
                elif isinstance(term, Number):
                    known[term] = number(term.value)
                else:
                    known[term] = apply(term.function, [made(arg) for arg in term.args])
            return known[term]

        return [made(term) for term in self.results]


@cache
def merge_of(text: str) -> Merge:
    """Read a merge's text; raises ProgramError."""
    reader = _Reader(text)
    results = reader.several() if text.startswith("(") else (reader.term(),)
    reader.end()
    states = len(results)
    if not 1 <= states <= MOST_STATES:
        raise ProgramError(f"merge of {states} states; 1 to {MOST_STATES} are possible")
    if reader.highest >= states:
        raise ProgramError(f"merge {text!r}: state {reader.highest} where there are {states}")
    return Merge(results)


_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d*)?(?:e[-+]?\d+)?|-?inf)|(?P<word>[a-z_]\w*)|(?P<sign>[(),]))"
)
_LIKE = "it is one term, or (term, ...), of functions of a0, b0, a1, b1, ... and numbers"
_DEEPEST = 64


class _Reader:
    """Reads terms from left to right; `highest` is the largest number of a state so far."""

    def __init__(self, text: str) -> None:
        self._text, self._place, self._depth = text, 0, 0
        self.highest = 0

    def _next(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._place)
        if match is None:
            raise self._wrong()
        self._place = match.end()
        return match

    def _wrong(self) -> ProgramError:
        return ProgramError(f"merge {self._text!r} is not understood: {_LIKE}")

    def end(self) -> None:
        if self._text[self._place :].strip():
            raise self._wrong()

    def several(self) -> tuple[Term, ...]:
        """Terms in brackets."""
        if self._next()["sign"] != "(":
            raise self._wrong()
        found = [self.term()]
        while (sign := self._next()["sign"]) == ",":
            found.append(self.term())
        if sign != ")":
            raise self._wrong()
        return tuple(found)

    def term(self) -> Term:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ProgramError(f"merge: terms {_DEEPEST} deep are the most")
        found = self._term(self._next())
        self._depth -= 1
        return found

    def _term(self, token: re.Match[str]) -> Term:
        number, word = token["number"], token["word"]
        if number is not None:
            whole = number.lstrip("-").isdigit()
            found = Number(int(number) if whole else float(number))
            if whole and not -(1 << 31) <= found.value < 1 << 31:
                raise ProgramError(f"merge: {shortened(number)} has no room in i32")
            return found
        if word is None:
            raise self._wrong()
        if word[0] in "ab" and word[1:].isdigit():
            state = State("ab".index(word[0]), int(word[1:]))
            self.highest = max(self.highest, state.number)
            return state
        return _apply(word, self.several())


def _apply(function: str, args: tuple[Term, ...]) -> Apply:
    if function.startswith(CAST) and function[len(CAST) :] in DTYPES:
        arity = 1
    elif function in FUNCTIONS:
        arity = FUNCTIONS[function].arity
    else:
        raise ProgramError(f"merge: unknown function {function!r}: known are {_known()}")
    if len(args) != arity:
        raise ProgramError(f"merge: {function} has {len(args)} arguments, needs {arity}")
    return Apply(function, args)


def _known() -> str:
    return ", ".join((*FUNCTIONS, f"{CAST}DTYPE"))
