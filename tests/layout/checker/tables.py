"""Layout text read into integer tables: the checker's own reader, shared with nobody.

A layout is `shape:stride`, two congruent trees of integers, the left mode fastest; a composed one
is `S(bits,base,shift) o offset o shape:stride`. Everything is expanded to arrays; no algebra here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

Tree = int | tuple["Tree", ...]
Table = NDArray[np.int64]

_SWIZZLE = re.compile(r"\s*S\((\d+),\s*(\d+),\s*(-?\d+)\)\s*o\s*")
_OFFSET = re.compile(r"\s*(\d+)\s*o\s*")
_TOKEN = re.compile(r"\s*(-?\d+|[(),:])")


class TextError(ValueError):
    """Text that is no layout."""


@dataclass(frozen=True, slots=True)
class LayoutText:
    """What one layout text says: swizzles outermost first, an offset, flat modes by top mode."""

    swizzles: tuple[tuple[int, int, int], ...]
    offset: int
    modes: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def size(self) -> int:
        return prod(extent for mode in self.modes for extent, _ in mode)


@lru_cache(maxsize=4096)
def read(text: str) -> LayoutText:
    """Read layout text; raises TextError."""
    rest, swizzles, offset = text, [], 0
    while match := _SWIZZLE.match(rest):
        swizzles.append((int(match[1]), int(match[2]), int(match[3])))
        rest = rest[match.end() :]
    while match := _OFFSET.match(rest):
        offset += int(match[1])
        rest = rest[match.end() :]
    shape, stride = _trees(rest)
    return LayoutText(tuple(swizzles), offset, _top_modes(shape, stride, text))


def _trees(text: str) -> tuple[Tree, Tree]:
    tokens = _tokens(text)
    shape, at = _tree(tokens, 0)
    if at >= len(tokens) or tokens[at] != ":":
        raise TextError(f"no ':' in {text!r}")
    stride, at = _tree(tokens, at + 1)
    if at != len(tokens):
        raise TextError(f"{tokens[at]!r} left over in {text!r}")
    return shape, stride


def _tokens(text: str) -> list[str]:
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TextError(f"{text[at:]!r} is no part of a layout")
        tokens.append(match[1])
        at = match.end()
    return tokens


def _tree(tokens: list[str], at: int) -> tuple[Tree, int]:
    if at >= len(tokens):
        raise TextError("layout ends early")
    if tokens[at] != "(":
        return int(tokens[at]), at + 1
    children: list[Tree] = []
    at += 1
    while at < len(tokens) and tokens[at] != ")":
        child, at = _tree(tokens, at)
        children.append(child)
        if at < len(tokens) and tokens[at] == ",":
            at += 1
    if at >= len(tokens):
        raise TextError("unclosed parenthesis")
    return tuple(children), at + 1


def _top_modes(shape: Tree, stride: Tree, text: str) -> tuple[tuple[tuple[int, int], ...], ...]:
    if isinstance(shape, int) or isinstance(stride, int):
        return (_flat(shape, stride, text),)
    if len(shape) != len(stride):
        raise TextError(f"{len(shape)} extents, {len(stride)} strides in {text!r}")
    return tuple(_flat(*pair, text) for pair in zip(shape, stride, strict=True))


def _flat(shape: Tree, stride: Tree, text: str) -> tuple[tuple[int, int], ...]:
    if isinstance(shape, int) and isinstance(stride, int):
        return ((shape, stride),)
    if isinstance(shape, int) or isinstance(stride, int) or len(shape) != len(stride):
        raise TextError(f"shape {shape} and stride {stride} differ in form in {text!r}")
    return tuple(flat for pair in zip(shape, stride, strict=True) for flat in _flat(*pair, text))


def swizzled(values: Table, bits: int, base: int, shift: int) -> Table:
    """XOR `bits` bits from position base + shift into position base (shift < 0: the other way)."""
    mask = (1 << bits) - 1
    source = base + max(shift, 0)
    target = base + max(-shift, 0)
    return values ^ (((values >> source) & mask) << target)


def _mode_table(mode: tuple[tuple[int, int], ...]) -> Table:
    table = np.zeros(1, np.int64)
    for extent, stride in mode:
        step = np.arange(extent, dtype=np.int64) * stride
        table = (step[:, None] + table[None, :]).reshape(-1)
    return table


@lru_cache(maxsize=4096)
def offsets(text: str) -> Table:
    """The layout as a table: colexicographic index -> offset."""
    layout = read(text)
    table = _mode_table(tuple(flat for mode in layout.modes for flat in mode)) + layout.offset
    for swizzle in reversed(layout.swizzles):
        table = swizzled(table, *swizzle)
    table.setflags(write=False)
    return table


def grid(text: str, rank: int) -> Table:
    """A layout of `rank` top modes as an array with one dimension per mode; raises TextError."""
    modes = read(text).modes
    if len(modes) != rank:
        raise TextError(f"{text!r} has {len(modes)} modes, {rank} are wanted")
    sizes = tuple(prod(extent for extent, _ in mode) for mode in modes)
    return offsets(text).reshape(sizes, order="F")
