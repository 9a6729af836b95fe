"""Wrong kernels by what they leave in the outputs: an element, a lane, all of them, a sum.

A mutant gives the outputs (storage, by name) of a wrong kernel for a subject's operands; None where
there is nothing to get wrong so. Knows no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ir.dtypes import from_float, is_float, rounded, to_float
from ir.ops.base import Environment, Scope, TileArray, TileType
from ir.ops.reduce import Contract, Reduce
from ir.oracle import evaluate
from ir.program import Node, Program
from tests.mutants.programs import without_terms
from tests.mutants.subject import Arrays, Subject, stored

Mutant = Callable[[Subject], Arrays | None]
_STEP = 16  # terms that one instruction adds


def too_large(subject: Subject) -> Arrays | None:
    """All outputs are 1.5 % too large."""
    specs = subject.program.outputs
    if not any(is_float(s.dtype) and np.any(subject.exact[s.name]) for s in specs):
        return None
    with np.errstate(all="ignore"):
        more = {s.name: subject.exact[s.name] * 1.015 for s in specs if is_float(s.dtype)}
    return stored(specs, {**subject.exact, **more})


# --- single elements ------------------------------------------------------------------------------


def _changed(subject: Subject, change: Callable[[Any, Any], bool]) -> Arrays | None:
    """`change` edits the storage of the first output that it says it can."""
    for spec in subject.program.outputs:
        copy = subject.stored[spec.name].copy()
        if change(copy.reshape(-1), spec):
            return {**subject.stored, spec.name: copy}
    return None


def _numbers(flat: Any, spec: Any) -> Any:
    """The finite ones; 0 for others."""
    value = to_float(flat, spec.dtype) if is_float(spec.dtype) else flat.astype(np.float64)
    return np.nan_to_num(np.asarray(value, np.float64), nan=0, posinf=0, neginf=0)


def added_twice(subject: Subject) -> Arrays | None:
    """Two threads add to one element."""

    def change(flat: Any, spec: Any) -> bool:
        value = _numbers(flat, spec)
        place = int(np.argmax(np.abs(value)))
        if spec.dtype == "bool" or not value[place]:
            return False
        twice = np.array([2 * value[place]])
        whole = twice.astype(np.int64).astype(flat.dtype)
        flat[place] = (from_float(twice, spec.dtype) if is_float(spec.dtype) else whole)[0]
        return True

    return _changed(subject, change)


def written_twice(subject: Subject) -> Arrays | None:
    """A second thread writes its result over that of another."""

    def change(flat: Any, spec: Any) -> bool:
        others = np.flatnonzero(flat != flat[0])
        if not others.size:
            return False
        flat[int(others[others.size // 2])] = flat[0]
        return True

    return _changed(subject, change)


def elsewhere(subject: Subject) -> Arrays | None:
    """Two elements have changed places."""

    def change(flat: Any, spec: Any) -> bool:
        value = _numbers(flat, spec)
        low, high = int(np.argmin(value)), int(np.argmax(value))
        flat[[low, high]] = flat[[high, low]]
        return bool(value[low] != value[high])

    return _changed(subject, change)


def moved(subject: Subject) -> Arrays | None:
    """An output is written one element further on."""

    def change(flat: Any, spec: Any) -> bool:
        before = flat.copy()
        flat[...] = np.roll(flat, 1)
        return not np.array_equal(flat, before)

    return _changed(subject, change)


def lane_wrong(subject: Subject) -> Arrays | None:
    """One lane of one warp has its neighbour's result; of the warps, where that differs most."""

    def change(flat: Any, spec: Any) -> bool:
        value = _numbers(flat, spec)
        differs = np.abs(np.diff(value))[4::32]
        if not differs.size or not differs.max():
            return False
        lane = 32 * int(np.argmax(differs)) + 5
        flat[lane] = flat[lane - 1]
        return True

    return _changed(subject, change)


def lanes_wrong(subject: Subject) -> Arrays | None:
    """One lane of every warp has its neighbour's result."""

    def change(flat: Any, spec: Any) -> bool:
        before = flat.copy()
        flat[5::32] = flat[4::32][: flat[5::32].size]
        return not np.array_equal(flat, before)

    return _changed(subject, change)


def swapped_specials(subject: Subject) -> Arrays | None:
    """NaN where an infinity should be, and the other way round."""

    def change(flat: Any, spec: Any) -> bool:
        if not is_float(spec.dtype) or spec.dtype == "e4m3":
            return False
        value = np.asarray(to_float(flat, spec.dtype), np.float64)
        nan, infinite = np.isnan(value), np.isinf(value)
        value[nan], value[infinite] = np.inf, np.nan
        flat[...] = from_float(value, spec.dtype)
        return bool(nan.any() or infinite.any())

    return _changed(subject, change)


def _last(special: float) -> Mutant:
    def mutant(subject: Subject) -> Arrays | None:
        def change(flat: Any, spec: Any) -> bool:
            known = is_float(spec.dtype) and (spec.dtype != "e4m3" or np.isnan(special))
            if not known or not np.isfinite(to_float(flat[-1:], spec.dtype)[0]):
                return False
            flat[-1] = from_float(np.array([special]), spec.dtype)[0]
            return True

        return _changed(subject, change)

    return mutant


# --- sums -----------------------------------------------------------------------------------------


def terms_missing(subject: Subject) -> Arrays | None:
    """A sum of one element lacks eight terms: of all elements, one that this moves as most do."""
    for cut in without_terms(subject.program, 8):
        wrong = evaluate(cut, subject.inputs)
        if (found := _one_element(subject, wrong)) is not None:
            return found
    return None


def _one_element(subject: Subject, wrong: Arrays) -> Arrays | None:
    """The right outputs, but for the element in the middle of those that `wrong` changes."""
    for spec in subject.program.outputs:
        exact, other = subject.exact[spec.name], wrong[spec.name]
        with np.errstate(all="ignore"):
            off = np.abs(other.astype(float) - exact).reshape(-1)
        order = np.argsort(np.nan_to_num(off, posinf=0))
        order = order[off[order] > 0]
        if order.size:
            value = exact.copy()
            place = order[order.size // 2]
            value.reshape(-1)[place] = other.reshape(-1)[place]
            return stored(subject.program.outputs, {**subject.exact, spec.name: value})
    return None


@dataclass(frozen=True, slots=True)
class NarrowSum(Contract):
    """A sum of products, or of a single tile, of which every partial sum is rounded to `narrow`."""

    narrow: str = "bf16"
    name: ClassVar[str] = "narrow_sum"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        axes = dict.fromkeys(axis for arg in args for axis in arg.axes)
        return TileType(tuple(axis for axis in axes if axis not in self.over), self.acc)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        axes = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
        kept = tuple(axis for axis in axes if axis not in self.over)
        lengths = {a: n for arg in args for a, n in zip(arg.axes, arg.array.shape, strict=True)}
        full = [
            np.broadcast_to(arg.aligned(kept + self.over), [lengths[a] for a in kept + self.over])
            for arg in args
        ]
        shape = tuple(lengths[axis] for axis in kept)
        parts = [array.reshape(*shape, -1) for array in full]
        total = np.zeros(shape)
        for start in range(0, parts[0].shape[-1], _STEP):
            terms = [part[..., start : start + _STEP] for part in parts]
            product = terms[0] * terms[1] if len(terms) == 2 else terms[0]
            total = rounded(total + product.sum(axis=-1), self.narrow)
        return TileArray(kept, total)


def narrow_sums(subject: Subject) -> Arrays | None:
    """Sums are accumulated in the type of the outputs."""
    narrow = {s.dtype for s in subject.program.outputs} & {"bf16", "f16", "e4m3"}
    if len(narrow) != 1 or not (program := _narrowed(subject.program, narrow.pop())):
        return None
    return stored(subject.program.outputs, evaluate(program, subject.inputs))


def _narrowed(program: Program, dtype: str) -> Program | None:
    nodes = tuple(_narrow_node(program, node, dtype) for node in program.nodes)
    return None if nodes == program.nodes else replace(program, nodes=nodes)


def _narrow_node(program: Program, node: Node, dtype: str) -> Node:
    if not isinstance(node.op, Contract | Reduce) or not is_float(node.dtype):
        return node
    over = tuple(node.op.over)
    longer = prod(program.axes[axis] for axis in over) > _STEP
    sums = isinstance(node.op, Contract) or node.op.kind == "sum"
    return replace(node, op=NarrowSum(over, node.dtype, dtype)) if sums and longer else node


RESULTS: dict[str, Mutant] = {
    "outputs times 1.015": too_large,
    "accumulated in the output's type": narrow_sums,
    "eight terms missing in one element": terms_missing,
    "an element added twice": added_twice,
    "an element written by two threads": written_twice,
    "an element out of place": elsewhere,
    "all elements out of place": moved,
    "one lane of one warp": lane_wrong,
    "one lane of every warp": lanes_wrong,
    "NaN and infinity swapped": swapped_specials,
    "an infinite element": _last(np.inf),
    "an element that is NaN": _last(np.nan),
}


def wrong_results(subject: Subject) -> Iterator[tuple[str, Arrays]]:
    """The mutants that differ from what a right kernel stores."""
    for what, mutant in RESULTS.items():
        wrong = mutant(subject)
        if wrong is not None and _differs(subject, wrong):
            yield what, wrong


def _differs(subject: Subject, wrong: Arrays) -> bool:
    return any(
        subject.stored[name].tobytes() != np.ascontiguousarray(array).tobytes()
        for name, array in wrong.items()
    )
