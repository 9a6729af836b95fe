"""The plain numpy meaning of a tile program: every tile a whole array, no layouts, no threads.

Arrays have one dimension per axis in the tile's own order and hold float64; flattened in Fortran
order they are indexed by tile index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf
from typing import Any

import numpy as np

from ir.layout.synthesis.problem import Tile, TileOp, TileProgram
from tests.layout.checker.values import Values, rounded, sample

NAMESPACE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "abs": np.abs,
    "floor": np.floor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "where": np.where,
}
FOLDS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}


def evaluated(expression: str, operands: Mapping[str, Values]) -> Values:
    """The expression over arrays that broadcast against each other."""
    code = compile(expression, "<map>", "eval")
    with np.errstate(all="ignore"):
        result = eval(code, {"__builtins__": {}, **NAMESPACE}, dict(operands))
    return np.asarray(result, np.float64)


def aligned(array: Values, tile: Tile, axes: tuple[str, ...]) -> Values:
    """`array` of `tile` with dimensions in the order of `axes`, extent 1 where it lacks one."""
    order = [tile.names.index(name) for name in axes if name in tile.names]
    missing = tuple(at for at, name in enumerate(axes) if name not in tile.names)
    return np.expand_dims(array.transpose(order), missing)


class Oracle:
    """State of every tile, changed op by op."""

    def __init__(self, program: TileProgram, seed: int = 0) -> None:
        self.program = program
        generator = np.random.default_rng(seed)
        self.tiles: dict[str, Values] = {}
        written = {name for op in program.ops for name in op.outputs}
        for tile in program.tiles:
            repeated = _repeated(tile, sample(tile.dtype, tile.size, generator))
            if tile.name not in written or _adds_before_writing(program, tile.name):
                self.tiles[tile.name] = repeated

    def step(self, op: TileOp) -> Values:
        """Perform one op; returns the array of its output."""
        output = self.program.tile(op.outputs[0])
        inputs = [self.program.tile(name) for name in op.inputs]
        result = _MEANING[op.kind](self, op, inputs, output)
        self.tiles[output.name] = rounded(
            np.broadcast_to(result, output.shape).copy(), output.dtype
        )
        return self.tiles[output.name]

    def operand(self, tile: Tile, axes: tuple[str, ...]) -> Values:
        return aligned(self.tiles[tile.name], tile, axes)


def _repeated(tile: Tile, flat: Values) -> Values:
    """Elements that a stride of 0 repeats are one and the same."""
    array = flat.reshape(tile.shape, order="F")
    for at, stride in enumerate(tile.strides):
        if stride == 0:
            array = np.repeat(np.take(array, [0], axis=at), tile.shape[at], axis=at)
    return array


def _adds_before_writing(program: TileProgram, name: str) -> bool:
    """Whether the first op that writes the tile also reads it (gemm, a map on itself)."""
    for op in program.ops:
        if name in op.outputs:
            return op.kind == "gemm" or name in op.inputs
    return False


def _move(oracle: Oracle, op: TileOp, inputs: list[Tile], output: Tile) -> Values:
    return oracle.operand(inputs[0], output.names)


def _gemm(oracle: Oracle, op: TileOp, inputs: list[Tile], output: Tile) -> Values:
    m, n, k = (str(op.attribute(letter)) for letter in "mnk")
    a, b = oracle.operand(inputs[0], (m, k)), oracle.operand(inputs[1], (k, n))
    product = a @ b if output.names == (m, n) else (a @ b).T
    result: Values = oracle.tiles[output.name] + product
    return result


def _map(oracle: Oracle, op: TileOp, inputs: list[Tile], output: Tile) -> Values:
    operands = {tile.name: oracle.operand(tile, output.names) for tile in inputs}
    return evaluated(str(op.attribute("expression")), operands)


def _reduce(oracle: Oracle, op: TileOp, inputs: list[Tile], output: Tile) -> Values:
    array = oracle.operand(inputs[0], (*output.names, str(op.attribute("axis"))))
    return np.asarray(FOLDS[str(op.attribute("fn"))](array, axis=-1))


def _fill(oracle: Oracle, op: TileOp, inputs: list[Tile], output: Tile) -> Values:
    return np.full(output.shape, float(op.attribute("value", 0)))


_MEANING = {
    "copy": _move,
    "cast": _move,
    "gemm": _gemm,
    "map": _map,
    "reduce": _reduce,
    "fill": _fill,
}
