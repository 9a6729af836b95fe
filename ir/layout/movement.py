"""Which kinds of bits a conversion between two register layouts moves, and along which map.

Owns the classification (register, lane, warp). Knows neither prices nor instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout import f2
from ir.layout.errors import LayoutError
from ir.layout.linear import Dimensions, Linear

KINDS = ("register", "lane", "warp")


@dataclass(frozen=True, slots=True)
class Movement:
    """What it takes to turn a tile held as `source` into one held as `target`.

    `kind`: the outermost kind of bit that must move: "none", or one of the kinds asked for
    ("register": renaming within a thread; "lane": shuffles within a warp; "warp": a round trip
    through shared memory). `exchanges`: register bits of the target whose values lie in other
    lanes or warps of the source; each is one exchange of a register bit with a thread bit, and
    all of them together send (1 - 2^-exchanges) of the values through shuffles. `map`: target
    location -> source location that holds the element.
    """

    kind: str
    exchanges: int
    map: Linear


def movement(source: Linear, target: Linear, kinds: Sequence[str] = KINDS) -> Movement:
    """The least conversion between two layouts location -> tile index (arXiv 2505.23819).

    `kinds` are the inputs from the innermost outwards; an input that one side lacks, or has fewer
    bits of, replicates there. The kind is exact: no map that moves fewer kinds exists.
    LayoutError "linear-mismatch" where the tiles differ, "unknown-dimension" for an input that is
    no kind, "no-solution" where the source does not hold every element of the target.
    """
    if source.outputs != target.outputs:
        raise LayoutError("linear-mismatch", f"{source.outputs} converted to {target.outputs}")
    dimensions = _common(source, target, kinds)
    have, want = _padded(source, dimensions), _padded(target, dimensions)
    if have == want:
        identity = tuple(1 << bit for bit in range(len(have)))
        return Movement("none", 0, Linear.from_columns(identity, dimensions, dimensions))
    columns = tuple(_sources(have, want, dimensions))
    registers = dimensions[0][1]
    own = f2.rank(have[:registers])
    return Movement(
        _outermost(columns, dimensions),
        f2.rank(have[:registers] + want[:registers]) - own,
        Linear.from_columns(columns, dimensions, dimensions),
    )


def table_movement(source: NDArray[Any], target: NDArray[Any], lanes: int = 32) -> str:
    """The same kind for tables [thread, value] -> tile index of any extents, by looking.

    LayoutError "linear-mismatch" for different numbers of threads, "no-solution" for an element
    that no thread of the source holds.
    """
    threads = len(source)
    if threads != len(target):
        raise LayoutError("linear-mismatch", f"{threads} threads converted to {len(target)}")
    if source.shape == target.shape and np.array_equal(source, target):
        return "none"
    missing = np.setdiff1d(target, source)
    if missing.size:
        raise LayoutError(
            "no-solution", f"{missing.size} elements, the first {missing[0]}, are not in the source"
        )
    if all(np.isin(target[row], source[row]).all() for row in range(threads)):
        return "register"
    warps = range(0, threads, lanes)
    within = (
        np.isin(target[warp : warp + lanes], source[warp : warp + lanes]).all() for warp in warps
    )
    return "lane" if all(within) else "warp"


def _common(source: Linear, target: Linear, kinds: Sequence[str]) -> Dimensions:
    bits = dict.fromkeys(kinds, 0)
    for name, own in source.dimensions + target.dimensions:
        if name not in bits:
            raise LayoutError("unknown-dimension", f"{name!r} is none of {', '.join(kinds)}")
        bits[name] = max(bits[name], own)
    return tuple(bits.items())


def _padded(layout: Linear, dimensions: Dimensions) -> f2.Columns:
    own = dict(layout.inputs)
    return tuple(
        column
        for name, bits in dimensions
        for column in own.get(name, ()) + (0,) * (bits - len(own.get(name, ())))
    )


def _sources(have: f2.Columns, want: f2.Columns, dimensions: Dimensions) -> Iterator[int]:
    """For each bit of the target its image in the source, unmoved as far as possible.

    A bit keeps its own place where the difference can be made up by inner kinds alone.
    """
    everything = f2.Span(have)
    start = 0
    for name, bits in dimensions:
        inner = f2.Span(have[:start])
        for position in range(start, start + bits):
            made_up = inner.express(want[position] ^ have[position])
            if made_up is not None:
                yield made_up | 1 << position
                continue
            found = everything.express(want[position])
            if found is None:
                raise LayoutError(
                    "no-solution",
                    f"{name}[{position - start}] = {want[position]}: the source holds none of it",
                )
            yield found
        start += bits


def _outermost(columns: f2.Columns, dimensions: Dimensions) -> str:
    """The outermost kind whose own part of the map is not the identity."""
    kind, start = dimensions[0][0], 0
    for name, bits in dimensions:
        mask = (1 << bits) - 1 << start
        for position, column in enumerate(columns):
            unmoved = 1 << position & mask
            if column & mask != unmoved:
                kind = name
        start += bits
    return kind
