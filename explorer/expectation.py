"""What a right kernel must compute: two sets of random inputs, and the oracle's outputs, on disk.

Made once per job in a worker process; every later worker maps the files. Knows programs and numpy;
no kernel, schedule or device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.check import Bounds
from ir.dtypes import NARROW, is_float
from ir.ops.base import Rounding, TensorSpec
from ir.ops.load import Load
from ir.ops.map import Cast
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.store import Store
from ir.program import Node, Program

Array = NDArray[Any]
SETS = 2
_ORACLE_FLOPS = 8e9  # what numpy does in about half a second, in float64, on one core
_ORACLE_BYTES = 1 << 30
_FEWEST = 32


@dataclass(frozen=True, slots=True)
class Expectation:
    """Where the files are, and how each output is to be judged."""

    folder: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    length: int
    roundings: int
    picks: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]

    def input(self, number: int, name: str) -> Array:
        """One input of set `number`, mapped from its file."""
        loaded: Array = np.load(_file(self.folder, number, name), mmap_mode="r")
        return loaded

    def bounds(self, number: int, spec: TensorSpec) -> Bounds:
        """What output `spec` may be for set `number`."""
        exact, *others = (
            np.load(_file(self.folder, number, spec.name, turn))
            for turn in range(1 + self.roundings)
        )
        picks = dict(self.picks).get(spec.name)
        return Bounds.around(exact, spec.dtype, self.length, picks, others)


class ExpectationMaker:
    """The worker's object: `make` writes the files."""

    def __init__(self, program: Program, seed: int, folder: str) -> None:
        self._program = program
        self._seed = seed
        self._folder = folder

    def make(self) -> Expectation:
        """Draw inputs, ask the oracle, save both."""
        from ir.oracle import random_inputs  # only here: the other users read files

        rng = np.random.default_rng(self._seed)
        picked = sample_axes(self._program, rng)
        for number in range(SETS):
            inputs = random_inputs(self._program, rng)
            self._save(number, inputs)
            for turn, outputs in enumerate(references(self._program, inputs, picked)):
                self._save(number, outputs, turn)
        return Expectation(
            self._folder,
            self._program.inputs,
            self._program.outputs,
            reduction_length(self._program),
            len(roundings(self._program)),
            _picks(self._program, picked),
        )

    def _save(self, number: int, arrays: Mapping[str, Array], turn: int = 0) -> None:
        for name, array in arrays.items():
            np.save(_file(self._folder, number, name, turn), array)


def _file(folder: str, number: int, name: str, turn: int = 0) -> Path:
    return Path(folder) / (f"{number}.{turn}.{name}.npy" if turn else f"{number}.{name}.npy")


def references(
    program: Program, inputs: Mapping[str, Array], picked: Mapping[str, Array] | None = None
) -> list[dict[str, Array]]:
    """The exact outputs, and those with the roundings that the program asks for on the way."""
    from ir.oracle import evaluate

    ways = (None, *roundings(program))
    return [evaluate(program, inputs, picked or None, rounding=way) for way in ways]


def roundings(program: Program) -> tuple[Rounding, ...]:
    """The ways in which values inside a program may differ from the exact ones.

    What only outputs see is their own rounding, which `tolerance` admits. A value just beside a
    whole number may be truncated to either side, so there it is moved both ways.
    """
    nodes, ways = program.nodes, set()
    for position, node in enumerate(nodes):
        if isinstance(node.op, Load) and node.dtype == "tf32":
            ways.add(0.0)
        if not isinstance(node.op, Cast):
            continue
        source = nodes[node.args[0]].dtype
        if is_float(source) and not is_float(node.dtype):
            step = 2e-13 if source == "f64" else 2e-6  # some ulps for a term of a sum
            ways |= {way * step * sqrt(reduction_length(program)) for way in (1, -1)}
        elif node.dtype in NARROW and source != node.dtype and not _stored(program, position):
            ways.add(0.0)
    return tuple(Rounding(shift) for shift in sorted(ways) if shift or len(ways) == 1)


def _stored(program: Program, position: int) -> bool:
    """Whether only outputs read a value."""
    return all(isinstance(program.nodes[user].op, Store) for user in program.users(position))


def output_axes(program: Program) -> tuple[str, ...]:
    """Axes along which every output varies and nothing is summed: those that can be sampled."""
    stores = [store.axes for _, store in program.stores()]
    summed = {axis for node in program.nodes for axis in _summed(node)}
    shared = (axis for axis in stores[0] if all(axis in axes for axes in stores))
    return tuple(axis for axis in shared if axis not in summed)


def reduction_length(program: Program) -> int:
    """Terms of the longest sum in the program."""
    return max(prod(program.axes[axis] for axis in _summed(node)) for node in program.nodes)


def _summed(node: Node) -> tuple[str, ...]:
    """The axes that one node combines over."""
    if isinstance(node.op, Contract | Reduce):
        return tuple(node.op.over)
    return (node.op.axis,) if isinstance(node.op, Carry) else ()


def sample_axes(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    """Coordinates to check along output axes; empty when the oracle can afford all of them.

    Axes are thinned evenly until the oracle's work fits. A sample holds both edges of its axis and
    one random point of every stretch in between, so no tile of that length goes unseen.
    """
    doubles = 8 * sum(prod(spec.shape) for spec in program.tensors)
    excess = max(program.flops / _ORACLE_FLOPS, doubles / _ORACLE_BYTES)
    if excess <= 1:
        return {}
    keep = {axis: program.axes[axis] for axis in output_axes(program)}
    while excess > 1 and any(count > _FEWEST for count in keep.values()):
        widest = max(keep, key=lambda axis: keep[axis])
        factor = min(2.0, excess, keep[widest] / _FEWEST)
        keep[widest] = max(_FEWEST, int(keep[widest] / factor))
        excess /= factor
    return {
        axis: _stratified(program.axes[axis], count, rng)
        for axis, count in keep.items()
        if count < program.axes[axis]
    }


def _stratified(extent: int, count: int, rng: np.random.Generator) -> Array:
    edges = np.linspace(0, extent, count + 1)
    inner = (edges[:-1] + rng.random(count) * np.diff(edges)).astype(np.int64)
    ends = np.array([0, 1, extent - 2, extent - 1])
    return np.unique(np.clip(np.concatenate([inner, ends]), 0, extent - 1))


def _picks(
    program: Program, picked: Mapping[str, Array]
) -> tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]:
    """The sampled indices along each dimension of each output that is sampled."""
    if not picked:
        return ()
    return tuple(
        (
            store.tensor,
            tuple(
                tuple(int(i) for i in picked.get(axis, np.arange(program.axes[axis])))
                for axis in store.axes
            ),
        )
        for _, store in program.stores()
    )
