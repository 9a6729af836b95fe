"""What of a program's outputs the oracle can afford: its means, and the sample that they allow.

Knows programs; no inputs, kernel or device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.recur import Recur
from ir.ops.reduce import Contract
from ir.program import Program

Array = NDArray[Any]
_FEWEST = 32
_FEWER = ((8, 3.0), (2, 3.0), (1, 8.0))  # points that an axis keeps where work is so many times
# what fits
_MOST = 1 << 22
_ENDS = 4  # points of a sample at the ends of an axis
_SHARE, _PIECES = 6, 256  # parts of a device's memory for an evaluation, and for a piece of it
SMALLEST = 8 << 20
_READ = 0.25  # of the passes over what is made, those over what a sum of products reads
_WINDOW = 0.125  # and those over what a window reads again


@dataclass(frozen=True, slots=True)
class Means:
    """What the oracle may take: operations of products, elements that other ops make, bytes of a
    whole evaluation and of a piece. A set that is not the first may take the part `again`. An axis
    of which not all can be afforded keeps `fewest` points. An op that waits for the one before
    takes `turn` seconds however small it is, its error included."""

    flops: float
    elements: float
    bytes: int
    piece: int
    again: float = 1 / 8
    fewest: int = _FEWEST
    turn: float = 3e-4

    def of_set(self, number: int) -> Means:
        """What a set of operands may take: of the first one as much as can be afforded is known."""
        if not number:
            return self
        part = self.again
        return replace(self, flops=part * self.flops, elements=part * self.elements)

    def within(self, room: int) -> Means:
        """The same on a device that has so many bytes left, which others may want as well."""
        return replace(
            self, bytes=min(self.bytes, room // _SHARE),
            piece=max(SMALLEST, min(self.piece, room // _PIECES)),
        )  # fmt: skip


HOST = Means(8e9, 2.5e7, 1 << 30, 2 << 20)  # a second of one core, whose cache holds a piece
DEVICE = Means(2e13, 7e9, 24 << 30, 1 << 28, turn=2e-3)  # as long of an H200
STEPPED = replace(HOST, piece=1 << 30, fewest=2)  # of the host, for what goes step by step


def output_axes(program: Program) -> tuple[str, ...]:
    """Axes of outputs along which each point stands alone: they can be sampled. What does not vary
    along one is not made of what does."""
    from ir.oracle import reduced_axes

    summed = reduced_axes(program)
    stored = dict.fromkeys(axis for _, store in program.stores() for axis in store.axes)
    return tuple(axis for axis in stored if axis not in summed)


def sample_axes(
    program: Program, rng: np.random.Generator, means: Means, forms: tuple[Program, ...] = ()
) -> dict[str, Array]:
    """Coordinates to check along output axes; empty when the oracle can afford all of them, those
    of `forms` too.

    Axes are thinned evenly until the oracle's work fits, and to _MOST points, since drawing more
    takes longer than it finds; below `means.fewest` only where it is far beyond what fits, down to
    one point. A sample of more than two holds both edges of its axis and one random point of every
    stretch in between, so no tile of that length goes unseen; of two the last one and, of an axis
    that is not short, a random one.
    """
    doubles = sum(
        prod(spec.shape) * (dtype_of(spec.dtype).bytes if spec.role == "input" else 16)
        for spec in program.tensors
    )

    def excess(keep: Mapping[str, int]) -> float:
        part = prod(count / program.axes[axis] for axis, count in keep.items())
        parts = part * program.flops / means.flops, part * doubles / means.bytes
        made = sum(elements_of(one, keep) for one in (program, *forms))
        return max(*parts, made / means.elements)

    keep = {axis: program.axes[axis] for axis in output_axes(program)}
    for fewest, most in ((means.fewest, 1.0), *_FEWER):
        keep = _thinned(keep, min(fewest, means.fewest), most, excess)
    return {
        axis: _stratified(program.axes[axis], min(count, _MOST), rng)
        for axis, count in keep.items()
        if count < program.axes[axis]
    }


def _thinned(
    keep: dict[str, int], fewest: int, most: float, excess: Callable[[Mapping[str, int]], float]
) -> dict[str, int]:
    """The longest axes halved, down to `fewest` points, while the excess is above `most`."""
    while (over := excess(keep)) > most:
        shorter = [
            keep | {axis: max(fewest, int(count / min(2.0, over)))}
            for axis, count in sorted(keep.items(), key=lambda item: -item[1])
            if count > fewest
        ]
        best = min(shorter, key=excess, default=keep)
        if excess(best) >= over:
            break
        keep = best
    return keep


def afforded(
    program: Program, means: Means, seed: int, forms: tuple[Program, ...]
) -> tuple[Means, dict[str, Array]]:
    """The means by which the oracle ends sooner, those given or the host's a step at a time, and
    the sample that it evaluates by them."""
    from ir.loops import one_by_one
    from ir.oracle import pieces_of

    turns = one_by_one(program)
    found: list[tuple[float, int, Means, dict[str, Array]]] = []
    for one in (means, *((STEPPED,) if turns else ())):
        picked = sample_axes(program, np.random.default_rng(seed), one, forms)
        lengths = {axis: len(points) for axis, points in picked.items()}
        pieces = pieces_of(program, picked, one.piece) if turns else 1
        made = elements_of(program, lengths) + _READ * stepped_products(program, lengths)
        took = turns * pieces * one.turn + made / one.elements
        found.append((took, len(found), one, picked))
    _, _, means, picked = min(found)
    return means, picked


def first_steps(program: Program, share: float) -> tuple[dict[str, Array], frozenset[str]]:
    """The first points of axes along which states go step by step, a share of all; and the outputs
    that these say nothing of, since they are made of what is left at the end. No share where that
    is all of them, or one that has a single number."""
    from ir.oracle import stepped_axes

    steps = {
        axis: np.arange(max(_FEWEST, int(share * program.axes[axis])))
        for axis in stepped_axes(program)
    }
    behind = {
        store.tensor: program.behind([position], lambda _: False)
        for position, store in program.stores()
    }
    unknown = frozenset(
        name
        for name, nodes in behind.items()
        if any(isinstance(program.nodes[node].op, Recur) for node in nodes)
    )
    numbers = any(not spec.shape for spec in program.outputs if spec.name in unknown)
    if share >= 1.0 or numbers or len(unknown) == len(behind):
        return {}, frozenset()
    shorter = {axis: points for axis, points in steps.items() if len(points) < program.axes[axis]}
    return shorter, unknown if shorter else frozenset()


def elements_of(program: Program, lengths: Mapping[str, int]) -> int:
    """How many numbers the ops of a program make, of so many points along some axes, those that
    are gathered or merged among them, the states of a fold at once; the oracle passes over each
    some fifty times, over what windows read again some six."""
    from ir.oracle_parts import states_of

    extents, total = {**program.axes, **lengths}, 0.0
    sizes = {spec.name: prod(spec.shape) for spec in program.tensors}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Fold):
            if states_of(program, position)[0] < position:
                continue
            axes = {axis for arg in node.args for axis in program.nodes[arg].axes}
            total += prod(extents[a] for a in axes) * node.op.passes(extents[node.op.axis])
            continue
        made = prod(extents[axis] for axis in node.axes)
        if node.args or not isinstance(node.op, Load):
            total += made
        elif prod(program.axes[axis] for axis in node.axes) > sizes[node.op.tensor]:
            total += made * _WINDOW
    return int(total)


def stepped_products(program: Program, lengths: Mapping[str, int]) -> int:
    """How many numbers the sums of products in all steps of loops read: the oracle squares them,
    weighs their errors by them, and more, at every step."""
    from ir.loops import loops_of

    extents, total = {**program.axes, **lengths}, 0
    for loop in loops_of(program):
        for position in loop.inside:
            node = program.nodes[position]
            if isinstance(node.op, Contract):
                read = ({*program.nodes[arg].axes} - {loop.axis} for arg in node.args)
                each = sum(prod(extents[axis] for axis in axes) for axes in read)
                total += extents[loop.axis] * each
    return total


def _stratified(extent: int, count: int, rng: np.random.Generator) -> Array:
    """One point of each of so many stretches, and both ends, in order; a single point if one; the
    last one and another if two."""
    if count == 1:
        return rng.integers(extent, size=1)
    if extent <= count + (_ENDS if count > 2 else 0):
        return np.arange(extent)
    if count == 2:
        return np.array([rng.integers(extent - 1) if extent > 2 * _ENDS else 0, extent - 1])
    inner = ((np.arange(count) + rng.random(count)) * (extent / count)).astype(np.int64)
    ends = [0, 1, extent - 2, extent - 1] if count >= _FEWEST else [0, extent - 1]
    inner = np.clip(inner, ends[0], ends[-1])
    found = np.sort(np.concatenate([inner, ends]))
    sample: Array = found[np.concatenate([[True], np.diff(found) > 0])]
    return sample


def picks_of(
    program: Program, picked: Mapping[str, Array], xp: Any
) -> dict[str, tuple[Array, ...]]:
    """The sampled indices of each output, shaped as a subscript of it; none without a sample."""
    if not picked:
        return {}
    return {
        store.tensor: tuple(
            xp.asarray(array)
            for array in np.ix_(
                *(picked.get(axis, np.arange(program.axes[axis])) for axis in store.axes)
            )
        )
        for _, store in program.stores()
        if any(axis in picked for axis in store.axes)
    }
