"""Layouts: functions from coordinates to offsets, written as nested shape:stride.

The leftmost mode varies fastest (colexicographic), as in CuTe (NVIDIA CUTLASS documentation, "CuTe
layouts"; C. Cecka, arXiv 2603.02298). Owns the value; `algebra.py` and its neighbours combine them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout import tree
from ir.layout.errors import LayoutError
from ir.layout.tree import IntTree

_TOKEN = re.compile(r"\s*(-?\d+|[(),:])")
_LARGEST = 1 << 62
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Layout:
    """`shape` and `stride` are congruent trees of extents (>= 1) and strides (any sign).

    Without strides the layout is compact, the leftmost mode fastest. Raises LayoutError
    (congruence, extent).
    """

    shape: IntTree
    stride: IntTree = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _checked(self.shape, "shape"))
        if self.stride is None:
            object.__setattr__(self, "stride", tree.compact(self.shape))
        object.__setattr__(self, "stride", _checked(self.stride, "stride"))
        if not tree.congruent(self.shape, self.stride):
            raise LayoutError(
                "congruence",
                f"shape {tree.text(self.shape)} and stride {tree.text(self.stride)} "
                f"are of different form",
            )
        pairs = self.flat()
        least = min([extent for extent, _ in pairs], default=1)
        if least < 1:
            raise LayoutError("extent", f"extent {least} in {tree.text(self.shape)}: at least 1")
        widest = max(math.prod([extent for extent, _ in pairs]), _reach(pairs))
        if widest > _LARGEST:
            raise LayoutError("extent", f"size or reach of {widest} is above {_LARGEST}")

    # -- text

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read `shape:stride`, or a shape alone; raises LayoutError (parse and what init says)."""
        return _parse(text)

    def __str__(self) -> str:
        return f"{tree.text(self.shape)}:{tree.text(self.stride)}"

    # -- facts

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return tree.product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset (of negative strides: the span of all offsets)."""
        return _reach(self.flat())

    @property
    def rank(self) -> int:
        """How many top modes there are."""
        return tree.rank(self.shape)

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The top modes; a layout of one bare mode is its own."""
        if not isinstance(self.shape, tuple):
            return (self,)
        assert isinstance(self.stride, tuple)
        return tuple(map(Layout, self.shape, self.stride))

    def mode(self, number: int) -> Layout:
        """Top mode `number`; raises LayoutError (rank)."""
        if not 0 <= number < self.rank:
            raise LayoutError("rank", f"{self} has {self.rank} modes, not mode {number}")
        return self.modes[number]

    def flat(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of every leaf, the fastest first."""
        return tuple(zip(tree.flatten(self.shape), tree.flatten(self.stride), strict=True))

    # -- the function

    def __call__(self, place: IntTree) -> int:
        """Offset of a coordinate: an index, or a tuple whose parts may be indices of modes.

        Indices beyond the size go on along the last mode. Raises LayoutError (coordinate).
        """
        index = tree.index_of(place, self.shape)
        total = 0
        pairs = self.flat()
        for extent, stride in pairs[:-1]:
            total += index % extent * stride
            index //= extent
        return total + index * pairs[-1][1] if pairs else 0

    def at(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        """Offsets of many indices."""
        rest = np.asarray(indices, dtype=np.int64)
        total = np.zeros_like(rest)
        pairs = self.flat()
        for extent, stride in pairs[:-1]:
            total += rest % extent * stride
            rest = rest // extent
        return total + rest * pairs[-1][1] if pairs else total

    def offsets(self) -> NDArray[np.int64]:
        """The whole function as a table: offset of index 0, 1, ... size - 1."""
        table = np.zeros(1, dtype=np.int64)
        for extent, stride in self.flat():
            steps = np.arange(extent, dtype=np.int64) * stride
            table = (steps[:, None] + table[None, :]).reshape(-1)
        return table

    @property
    def injective(self) -> bool:
        """Whether no two coordinates share an offset."""
        pairs = sorted((abs(stride), extent) for extent, stride in self.flat() if extent > 1)
        reach = 0
        for stride, extent in pairs:
            if stride <= reach:
                table = self.offsets()
                return bool(np.unique(table).size == table.size)
            reach += stride * (extent - 1)
        return True


def concat(*layouts: Layout) -> Layout:
    """A layout whose top modes are the given ones."""
    return Layout(tuple(a.shape for a in layouts), tuple(a.stride for a in layouts))


def _reach(pairs: Iterable[tuple[int, int]]) -> int:
    """Offsets from the least to the largest, both counted."""
    return 1 + sum([abs((extent - 1) * stride) for extent, stride in pairs])


def _checked(value: Any, what: str) -> IntTree:
    if type(value) is int:  # most are
        return value
    if isinstance(value, (tuple, list)):
        if not value:
            raise LayoutError("congruence", f"{what} holds an empty tuple: at least one mode")
        return tuple(_checked(part, what) for part in value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise LayoutError("congruence", f"{what} holds {value!r}: integers and tuples of them only")


@lru_cache(maxsize=4096)
def _parse(text: str) -> Layout:
    reader = _Reader(text)
    shape = reader.tree()
    stride = reader.tree() if reader.take(":") else None
    reader.end()
    return Layout(shape) if stride is None else Layout(shape, stride)


class _Reader:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if not found or len(found.group(1)) > 19:
                raise LayoutError("parse", f"{_short(text)}: {_short(text[at:])} at {at}")
            self.tokens.append(found.group(1))
            at = found.end()
        self.place = 0

    def take(self, token: str) -> bool:
        if self.place < len(self.tokens) and self.tokens[self.place] == token:
            self.place += 1
            return True
        return False

    def end(self) -> None:
        if self.place < len(self.tokens):
            raise self.wrong("nothing more")

    def wrong(self, wanted: str) -> LayoutError:
        found = self.tokens[self.place] if self.place < len(self.tokens) else "the end"
        return LayoutError("parse", f"{_short(self.text)}: {found!r} where {wanted} was due")

    def tree(self, level: int = 0) -> IntTree:
        if level > _DEEPEST:
            raise LayoutError("parse", f"nested {level} levels deep: at most {_DEEPEST}")
        if not self.take("("):
            if self.place < len(self.tokens) and self.tokens[self.place][-1].isdigit():
                self.place += 1
                return int(self.tokens[self.place - 1])
            raise self.wrong("a number or '('")
        parts = [self.tree(level + 1)]
        while self.take(","):
            parts.append(self.tree(level + 1))
        if not self.take(")"):
            raise self.wrong("',' or ')'")
        return tuple(parts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
