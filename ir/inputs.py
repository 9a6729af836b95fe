"""Random inputs for a program: what it says they are, else normal floats, ints that cannot
overflow, indices inside. The same for a seed on every array library."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ir.draws import Draws, normal_recipe
from ir.dtypes import dtype_of, is_float, whole_range
from ir.ops.base import Array, TensorSpec, volume
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter
from ir.packs import pack
from ir.program import Program
from ir.ranges import mapped_range
from ir.values import of_range

_I32_ROOM = 2**31
_ATTEMPTS = 400  # to narrow the ranges of indices


def random_inputs(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    """`drawn_inputs` for a seed that `rng` gives."""
    return drawn_inputs(program, int(rng.integers(2**62)))


def drawn_inputs(program: Program, seed: int, xp: Any = np) -> dict[str, Array]:
    """Arrays of `xp` in storage dtype for every input.

    Narrow ints fill their range unless sums of their products could overflow i32; tensors used as
    indices are drawn within the extent that they index.
    """
    return {spec.name: drawn(program, spec, seed, xp) for spec in program.inputs}


def drawn(program: Program, spec: TensorSpec, seed: int, xp: Any = np) -> Array:
    """One of `drawn_inputs`; of another shape, if `spec` has one."""
    bounds = _index_ranges(program).get(spec.name)
    return _draw(spec, bounds, _reduction_depth(program), Draws.named(seed, spec.name, xp=xp))


def _draw(spec: TensorSpec, bounds: tuple[int, int] | None, depth: int, draws: Draws) -> Array:
    if spec.packs:
        return pack(_draw(_unpacked(spec), bounds, depth, draws), spec.packs)
    if spec.values is not None:
        return spec.values.draw(spec, draws)
    if is_float(spec.dtype):
        return draws.array(spec.shape, spec.dtype, normal_recipe(spec.dtype))
    return of_range(spec, *_bounded(bounds, spec.dtype, depth), draws)


def _bounded(bounds: tuple[int, int] | None, dtype: str, depth: int) -> tuple[int, int]:
    """The range of a tensor's integers: what an index may be, as far as the type goes, or any."""
    if bounds is None:
        return _int_range(dtype, depth)
    low, high = whole_range(dtype)
    return max(low, bounds[0]), min(high, bounds[1])


def _unpacked(spec: TensorSpec) -> TensorSpec:
    """A tensor with a byte for each element of a packed one."""
    shape = (*spec.shape[:-1], spec.shape[-1] * dtype_of(spec.packs).per_byte)
    return replace(spec, shape=shape, dtype=spec.packs, packs="")


def _int_range(dtype: str, depth: int) -> tuple[int, int]:
    row = dtype_of(dtype)
    if row.kind == "bool":
        return 0, 1
    if dtype == "u32":  # i64, which it is computed in, wraps alike everywhere
        return whole_range(dtype)
    if row.bits == 16:
        most = math.isqrt((_I32_ROOM - 1) // depth)
        low, high = whole_range(dtype)
        return max(low, -most), min(high, most)
    roomy = 4**row.bits * depth <= _I32_ROOM
    if row.kind == "uint":
        return 0, 2**row.bits - 1 if roomy else 15
    half = 2 ** (row.bits - 1)
    return (-half, half - 1) if 4 ** (row.bits - 1) * depth < _I32_ROOM else (-8, 7)


def _reduction_depth(program: Program) -> int:
    """The largest number of products that one sum of the program adds up."""
    depths = [1]
    for node in program.nodes:
        if isinstance(node.op, (Contract, Reduce)):
            depths.append(math.prod(program.axes[axis] for axis in node.op.over))
        elif isinstance(node.op, (Carry, Fold)):
            depths.append(program.axes[node.op.axis])
        elif isinstance(node.op, Scatter):
            sources = node.op.sources([program.nodes[arg].type for arg in node.args])
            depths.append(volume(program.scope, sources))
    return max(depths)


def _index_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """For tensors whose elements are used as indices: the range that keeps every access inside."""
    found: dict[str, tuple[int, int]] = {}
    gathers = list(_gathers(program))
    for position, low, high in gathers:
        for tensor in _sources(program, position):
            first, last = found.get(tensor, (0, _I32_ROOM))
            first, last = max(first, low), min(last, high)
            found[tensor] = (first, max(first, last))
    for position, low, high in gathers:
        _shrink(program, position, low, high, found)
    return found


def _gathers(program: Program) -> Iterator[tuple[int, int, int]]:
    """The nodes that are used as indices, and what they may be at least and at most."""
    for node in program.nodes:
        if isinstance(node.op, Load):
            shape = program.scope.tensors[node.op.tensor].shape
        elif isinstance(node.op, Read):
            shape = program.scope.shape(program.nodes[node.args[0]].axes)
        elif isinstance(node.op, Scatter):
            shape = program.scope.shape(node.op.axes)
        else:
            continue
        for index, extent in zip(node.op.index, shape, strict=True):
            if index.gather is not None:
                low, high = index.bounds(program.scope)
                yield node.args[index.gather], -low, extent - 1 - high


def _shrink(
    program: Program, position: int, low: int, high: int, ranges: dict[str, tuple[int, int]]
) -> None:
    """Narrow the ranges of tensors until what an index makes of them is inside, if it can be."""
    names = set(_sources(program, position))
    for _ in range(_ATTEMPTS):
        found = _interval(program, position, ranges)
        if found is None or (low <= found[0] and found[1] <= high):
            return
        for name in names:
            first, last = ranges[name]
            if found[1] > high:
                ranges[name] = first, first + (last - first) * 3 // 4
            else:
                ranges[name] = min(first + max(1, (low - found[0]) // 64), last), last


def _interval(
    program: Program, position: int, ranges: dict[str, tuple[int, int]]
) -> tuple[int, int] | None:
    """What an integer expression may be at least and at most; None where that is not known."""
    found: dict[int, tuple[int, int] | None] = {}
    for here in _behind(program, position):
        parts = [found[arg] for arg in program.nodes[here].args if arg in found]
        found[here] = _interval_of(program, here, ranges, parts)
    return found[position]


def _interval_of(
    program: Program, position: int, ranges: dict[str, tuple[int, int]],
    parts: list[tuple[int, int] | None],
) -> tuple[int, int] | None:  # fmt: skip
    """The same of one node, by those of its arguments."""
    node = program.nodes[position]
    if isinstance(node.op, Load):
        return ranges.get(node.op.tensor)
    if is_float(node.dtype) or not isinstance(node.op, (Constant, Iota, Cast, Map)):
        return None
    if isinstance(node.op, Constant):
        return int(node.op.value), int(node.op.value)
    if isinstance(node.op, Iota):
        return 0, program.axes[node.op.axis] - 1
    known = [part for part in parts if part is not None]
    if isinstance(node.op, Cast):
        return _within(known[0], node.dtype) if known else None
    return mapped_range(node.op, parts)


def _within(interval: tuple[int, int], dtype: str) -> tuple[int, int]:
    """What a cast makes of integers: those that do not fit may become any."""
    low, high = whole_range(dtype)
    return interval if low <= interval[0] and interval[1] <= high else (low, high)


def _sources(program: Program, position: int) -> Iterator[str]:
    """Tensors whose elements reach a node through maps and casts."""
    for here in _behind(program, position):
        op = program.nodes[here].op
        if isinstance(op, Load):
            yield op.tensor


def _behind(program: Program, position: int) -> list[int]:
    """A node and what it is made of through maps and casts."""
    return program.behind(
        [position], lambda here: not isinstance(program.nodes[here].op, (Map, Cast))
    )
