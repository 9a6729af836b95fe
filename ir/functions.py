"""Elementwise functions of tiles by name: what `ir.scalar` has rows for, and what is made of these.

The surface that operators import, beside `ir.builder`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real

from ir.axes import described
from ir.dtypes import dtype_of, is_float
from ir.errors import ProgramError
from ir.given import given_number, given_tile
from ir.ops.map import Map
from ir.tiles import Operand, Tile, apply


def maximum(left: Operand, right: Operand) -> Tile:
    return apply("max", left, right)


def minimum(left: Operand, right: Operand) -> Tile:
    return apply("min", left, right)


def _unary(function: str) -> Callable[[Tile], Tile]:
    def call(value: Tile) -> Tile:
        return apply(function, value)

    call.__name__ = function
    call.__doc__ = f"Elementwise {function}."
    return call


exp, log, sqrt, rsqrt = _unary("exp"), _unary("log"), _unary("sqrt"), _unary("rsqrt")
tanh, sigmoid, erf, absolute = _unary("tanh"), _unary("sigmoid"), _unary("erf"), _unary("abs")
expm1, log1p, sin, cos = _unary("expm1"), _unary("log1p"), _unary("sin"), _unary("cos")
floor, ceil, trunc = _unary("floor"), _unary("ceil"), _unary("trunc")


def relu(value: Tile) -> Tile:
    return maximum(value, 0.0)


def silu(value: Tile) -> Tile:
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
    counter: Operand, stream: Operand = 0, seed: Operand = 0, word: Operand = 0
) -> Tile:
    """f32 numbers of [0, 1) made of the upper 24 bits of `philox`: exactly the same everywhere."""
    return apply("unit", philox(counter, stream, seed, word))


def _signed(value: Operand) -> Operand:
    """A number of 64 bits, from 2^63 on as the negative one of the same bits."""
    if not isinstance(value, int) or -(1 << 63) <= value < 1 << 63:
        return value
    if not 0 <= value < 1 << 64:
        raise ProgramError(f"philox: {value} has no room in 64 bits")
    return value - (1 << 64)
