"""Extents that threads do not divide, made wider: the points added are not there.

Owns the choice of the wider extent. Without it, digits of a thread number that find none in a tile
would hold its elements over and over. Knows no instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from ir.layout.synthesis.digits import radices, thread_digits
from ir.layout.synthesis.problem import Tile, TileProgram

WIDEST = 128
"""Bits of the widest access."""
TRIED = 3
"""Axes of which wider extents are tried together."""


def extended(program: TileProgram) -> TileProgram:
    """The problem with `bounds`: its axes as wide as lets a thread do the least, in accesses.

    Only axes of the tile that moves most bytes to or from global memory are widened. A problem of
    which a layout is pinned, or a copy as TMA's, whose boxes are there as a whole, that has bounds,
    or that has products, whose instructions divide their extents themselves, is as it was.
    """
    boxes = any(name.startswith("tma") for _, name in program.pins.instructions)
    fixed = program.bounds or boxes or any(tile.layout for tile in program.tiles)
    tile = None if fixed else _largest(program)
    if tile is None or any(op.kind == "gemm" for op in program.ops):
        return program
    extents = _widened(tile, program.threads)
    bounds = tuple((axis, own) for axis, own in tile.axes if extents[axis] != own)
    if not bounds:
        return program
    tiles = tuple(
        replace(each, axes=tuple((axis, extents.get(axis, own)) for axis, own in each.axes))
        for each in program.tiles
    )
    return replace(program, tiles=tiles, bounds=bounds)


def _largest(program: TileProgram) -> Tile | None:
    """The global tile that moves most bytes."""
    found = [
        tile
        for op in program.ops
        if op.kind == "copy"
        for tile in map(program.tile, (*op.inputs, *op.outputs))
        if tile.scope == "global"
    ]
    return max(found, key=lambda tile: tile.size * tile.bits, default=None)


def _widened(tile: Tile, threads: int) -> dict[str, int]:
    """Extents of the tile's axes; of more than a few axes, the largest ones' are tried."""
    run = next((a for a, step in zip(tile.names, tile.strides, strict=True) if step == 1), "")
    vector = vector_points(tile, run)
    tried = sorted(tile.axes, key=lambda axis: -axis[1])[:TRIED]
    options = [
        [(axis, extent) for extent in _options(own, threads, vector if axis == run else 1)]
        for axis, own in tried
    ]
    own = dict(tile.axes)
    return min(
        (own | dict(each) for each in product(*options)),
        key=lambda extents: _work(extents, run, vector, threads),
    )


def vector_points(tile: Tile, run: str) -> int:
    """Points along the axis `run` that one aligned access takes, wholly inside the tile."""
    steps = [step for axis, step in zip(tile.names, tile.strides, strict=True) if axis != run]
    count = max(1, min(WIDEST, tile.alignment * 8) // tile.bits) if run else 1
    while count > 1 and any(each % count for each in (*steps, dict(tile.axes)[run])):
        count //= 2
    return count


def _options(extent: int, threads: int, vector: int) -> list[int]:
    """The extent, and the next ones that powers of two and odd factors of the threads divide."""
    odd = [radix for _, radix in thread_digits(threads) if radix != 2]
    found = {extent}
    for factor in {prod(odd[:n]) for n in range(len(odd) + 1)}:
        step = factor
        while step <= threads * vector:
            found.add(-(-extent // step) * step)
            step *= 2
    return sorted(found)


def _work(extents: Mapping[str, int], run: str, vector: int, threads: int) -> tuple[int, int]:
    """Accesses of one thread, and all points."""
    digits = Counter(radix for extent in extents.values() for radix in radices(extent))
    taken = 1
    while run and taken < vector and extents[run] % (2 * taken) == 0:
        taken *= 2
        digits[2] -= 1
    spread = 1
    for _, radix in thread_digits(threads):
        if digits[radix]:
            digits[radix] -= 1
            spread *= radix
    size = prod(extents.values())
    return size // taken // spread, size
