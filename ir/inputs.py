"""Random inputs for a program: normal floats, ints that cannot overflow, indices inside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ir.dtypes import dtype_of, from_float, numpy_dtype
from ir.ops.base import Array, TensorSpec
from ir.ops.load import Load
from ir.ops.map import Cast, Map
from ir.ops.reduce import Carry, Contract, Reduce
from ir.program import Program

_I32_ROOM = 2**31
_PIECE = 1 << 18  # numbers that one thread draws at a time: they stay in its cache


def random_inputs(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    """Arrays in storage dtype for every input.

    Narrow ints fill their range unless sums of their products could overflow i32; tensors used as
    indices are drawn within the extent that they index.
    """
    ranges = _index_ranges(program)
    depth = _reduction_depth(program)
    return {spec.name: _draw(spec, ranges.get(spec.name), depth, rng) for spec in program.inputs}


def _draw(
    spec: TensorSpec, bounds: tuple[int, int] | None, depth: int, rng: np.random.Generator
) -> Array:
    kind = dtype_of(spec.dtype).kind
    if kind == "float":
        return _normal(spec, rng)
    low, high = bounds or _int_range(spec.dtype, depth)
    return rng.integers(low, high, spec.shape, endpoint=True).astype(numpy_dtype(spec.dtype))


def _normal(spec: TensorSpec, rng: np.random.Generator) -> Array:
    """Normal numbers; many of them in pieces by threads, the same ones for any number of these."""
    if math.prod(spec.shape) <= _PIECE:
        return from_float(rng.standard_normal(spec.shape), spec.dtype)
    found = np.empty(math.prod(spec.shape), numpy_dtype(spec.dtype))
    starts = range(0, found.size, _PIECE)

    def fill(start: int, own: np.random.Generator) -> None:
        piece = found[start : start + _PIECE]
        piece[:] = from_float(own.standard_normal(piece.size), spec.dtype)

    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, starts, rng.spawn(len(starts))))
    return found.reshape(spec.shape)


def _int_range(dtype: str, depth: int) -> tuple[int, int]:
    row = dtype_of(dtype)
    if row.kind == "bool":
        return 0, 1
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
        elif isinstance(node.op, Carry):
            depths.append(program.axes[node.op.axis])
    return max(depths)


def _index_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """For tensors whose elements are used as indices: the range that keeps every access inside."""
    found: dict[str, tuple[int, int]] = {}
    for node in program.nodes:
        if not isinstance(node.op, Load):
            continue
        shape = program.scope.tensors[node.op.tensor].shape
        for index, extent in zip(node.op.index, shape, strict=True):
            if index.gather is None:
                continue
            low, high = index.bounds(program.scope)
            for tensor in _sources(program, node.args[index.gather]):
                before = found.get(tensor, (0, _I32_ROOM))
                first, last = max(before[0], -low), min(before[1], extent - 1 - high)
                found[tensor] = (first, max(first, last))
    return found


def _sources(program: Program, position: int) -> Iterator[str]:
    """Tensors whose elements reach a node through maps and casts."""
    node = program.nodes[position]
    if isinstance(node.op, Load):
        yield node.op.tensor
    elif isinstance(node.op, (Map, Cast)):
        for arg in node.args:
            yield from _sources(program, arg)
