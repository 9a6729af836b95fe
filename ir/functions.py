"""Elementwise functions of tiles by name: what `ir.scalar` has rows for, and what is made of these.

The surface that operators import, beside `ir.builder`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real

from ir.axes import Axis, IndexExpression, described
from ir.dtypes import dtype_of, is_float
from ir.errors import ProgramError
from ir.given import given_number, given_tile
from ir.ops.map import Map
from ir.tiles import Operand, Tile, apply


def maximum(left: Operand, right: Operand) -> Tile:
    """The larger of two, element by element; NaN where either is."""
    return apply("max", left, right)


def minimum(left: Operand, right: Operand) -> Tile:
    """The smaller of two, element by element; NaN where either is."""
    return apply("min", left, right)


def exp(value: Tile) -> Tile:
    """e to the power of each element."""
    return apply("exp", value)


def expm1(value: Tile) -> Tile:
    """exp(x) - 1 of each element, exact also near 0."""
    return apply("expm1", value)


def log(value: Tile) -> Tile:
    """The natural logarithm of each element: -inf of 0, NaN below."""
    return apply("log", value)


def log1p(value: Tile) -> Tile:
    """log(1 + x) of each element, exact also near 0."""
    return apply("log1p", value)


def sqrt(value: Tile) -> Tile:
    """The square root of each element: NaN below 0."""
    return apply("sqrt", value)


def rsqrt(value: Tile) -> Tile:
    """One over the square root of each element."""
    return apply("rsqrt", value)


def tanh(value: Tile) -> Tile:
    """The hyperbolic tangent of each element."""
    return apply("tanh", value)


def sigmoid(value: Tile) -> Tile:
    """1 / (1 + exp(-x)) of each element."""
    return apply("sigmoid", value)


def erf(value: Tile) -> Tile:
    """The error function of each element."""
    return apply("erf", value)


def sin(value: Tile) -> Tile:
    """The sine of each element, in radians."""
    return apply("sin", value)


def cos(value: Tile) -> Tile:
    """The cosine of each element, in radians."""
    return apply("cos", value)


def absolute(value: Tile) -> Tile:
    """The absolute value of each element; `abs(x)` is the same."""
    return apply("abs", value)


def floor(value: Tile) -> Tile:
    """The largest whole number that is not above each element."""
    return apply("floor", value)


def ceil(value: Tile) -> Tile:
    """The smallest whole number that is not below each element."""
    return apply("ceil", value)


def trunc(value: Tile) -> Tile:
    """Each element without what is behind the point, towards 0."""
    return apply("trunc", value)


def relu(value: Tile) -> Tile:
    """max(x, 0) of each element."""
    return maximum(value, 0.0)


def silu(value: Tile) -> Tile:
    """x * sigmoid(x) of each element."""
    return value * sigmoid(value)


def gelu(value: Tile) -> Tile:
    """The exact GELU: x / 2 * (1 + erf(x / sqrt 2))."""
    return value * 0.5 * (1.0 + erf(value * 0.7071067811865476))


def popcount(value: Tile) -> Tile:
    """How many bits of each whole number are set, of as many as its dtype has."""
    value = given_tile("popcount", value)
    narrow = dtype_of(value.dtype).kind == "int" and dtype_of(value.dtype).bits < 32
    return apply("popcount", value & ((1 << dtype_of(value.dtype).bits) - 1) if narrow else value)


def bitcast(value: Tile, dtype: str) -> Tile:
    """The bits of `value` read as `dtype`, which has as many."""
    return given_tile("bitcast", value).graph.add(Map("bitcast", dtype_of(dtype).name), value)


def lookup(table: Sequence[float], index: Tile, dtype: str = "f32") -> Tile:
    """The entry at each index of a table of up to 256 numbers, which is a part of the program.

    An index below 0 reads the first entry, one beyond the end the last.
    """
    what = f"{given_tile('lookup', index).graph.name}: lookup"
    if isinstance(table, (str, bytes, Mapping)) or not isinstance(table, Iterable):
        raise ProgramError(f"{what}: {described(table)} is no table; a list of numbers is")
    entries = tuple(
        _entry(f"{what}: entry {number}", entry, dtype) for number, entry in enumerate(table)
    )
    return index.graph.add(Map("lookup", dtype, entries), index)


def _entry(what: str, entry: float, dtype: str) -> float:
    """An entry of a table as a number of Python's."""
    if isinstance(entry, bool) or not isinstance(entry, Real):
        raise ProgramError(f"{what} is {described(entry)}; entries are numbers")
    if is_float(dtype):
        return given_number(what, entry, dtype)
    whole = isinstance(entry, Integral) or (math.isfinite(entry) and entry == int(entry))
    return int(entry) if whole else float(entry)


def philox(counter: Operand, stream: Operand = 0, seed: Operand = 0, word: Operand = 0) -> Tile:
    """32 random bits for each counter: the same on every target, whatever the schedule.

    Word `word` (0 to 3) of Philox 4x32-10 at the 128-bit counter (counter, stream) under the key
    `seed`; all three are 64-bit numbers, of which a negative one stands for its bits. One of them
    is a tile at least: `g.coordinate(i * n + j)` makes one of an index.
    """
    if isinstance(word, Integral) and not 0 <= word <= 3:
        raise ProgramError(f"philox: word={word}; a counter has words 0 to 3")
    return apply("philox", counter, *map(_signed, (stream, seed, word)))


def philox_uniform(
    counter: Operand, stream: Operand = 0, seed: Operand = 0, word: Operand | None = None
) -> Tile:
    """f32 numbers of [0, 1) made of the upper 24 bits of `philox`: exactly the same everywhere.

    Number i of a stream is made of word i mod 4 at the counter i div 4, so that four neighbours
    cost one counter's rounds; with `word` given, of that word at the counter i.
    """
    if word is None:
        counter, word = _numbered(counter, stream, seed)
    return apply("unit", philox(counter, stream, seed, word))


def _numbered(number: Operand, *others: Operand) -> tuple[Operand, Operand]:
    """Counter and word of a number of a stream; what is none is left for `philox` to refuse."""
    tiles = [one for one in (number, *others) if isinstance(one, Tile)]
    if isinstance(number, int) and not isinstance(number, bool):
        return number >> 2, number & 3
    if isinstance(number, (Axis, IndexExpression)) and tiles:
        number = tiles[0].graph.coordinate(number)
    if not isinstance(number, Tile) or is_float(number.dtype):
        return number, 0
    return number >> 2, apply("bitand", number, 3)


def _signed(value: Operand) -> Operand:
    """A number of 64 bits, from 2^63 on as the negative one of the same bits."""
    if not isinstance(value, int) or -(1 << 63) <= value < 1 << 63:
        return value
    if not 0 <= value < 1 << 64:
        raise ProgramError(f"philox: {value} has no room in 64 bits")
    return value - (1 << 64)
