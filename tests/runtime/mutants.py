"""Wrong kernels, made of right ones: what they would leave in the outputs.

A mutant takes a program, its operands, the outputs of a right kernel (storage, by name) and the
exact ones, and gives the outputs of a wrong one; None where there is nothing to get wrong so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from explorer.check import poison_bits
from ir.dtypes import from_float, is_float, to_float
from ir.ops.map import Constant, Map
from ir.ops.reduce import Carry, Contract, Reduce
from ir.oracle import evaluate
from ir.program import Node, Program

Arrays = Mapping[str, Any]
Mutant = Callable[[Program, Arrays, Arrays, Arrays], Arrays | None]


def _floats(program: Program, outputs: Arrays) -> dict[str, Any]:
    return {
        spec.name: to_float(outputs[spec.name], spec.dtype)
        for spec in program.outputs
        if is_float(spec.dtype)
    }


def _stored(program: Program, values: Arrays, outputs: Arrays) -> Arrays:
    dtypes = {spec.name: spec.dtype for spec in program.outputs}
    with np.errstate(all="ignore"):
        found = {
            name: from_float(np.asarray(value), dtypes[name])
            if is_float(dtypes[name])
            else value.astype(outputs[name].dtype)
            for name, value in values.items()
        }
    return dict(outputs) | found


def too_large(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """All outputs are 1.5 % too large."""
    names = [s.name for s in program.outputs if is_float(s.dtype) and np.any(exact[s.name])]
    with np.errstate(all="ignore"):
        changed = {name: exact[name] * 1.015 for name in names}
    return _stored(program, changed, outputs) if changed else None


def _changed_element(outputs: Arrays, change: Callable[[Any, int], None]) -> Arrays:
    """The outputs, with the element of the largest size in the first of them changed."""
    name = next(iter(outputs))
    copy = np.array(outputs[name], order="C")
    flat = copy.reshape(-1)
    change(flat, flat.size // 2)
    return dict(outputs) | {name: copy}


def stale_element(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays:
    """One element is what memory held before."""

    def change(flat: Any, place: int) -> None:  # outputs are poisoned before each call
        dtype = program.outputs[0].dtype
        flat.view(f"u{flat.dtype.itemsize}")[place] = poison_bits(dtype)

    return _changed_element(outputs, change)


def out_of_place(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """The first output is written one element further on."""
    spec = program.outputs[0]
    if outputs[spec.name].size < 2:
        return None
    moved = np.roll(outputs[spec.name].reshape(-1), 1).reshape(outputs[spec.name].shape)
    return None if np.array_equal(moved, outputs[spec.name]) else {**outputs, spec.name: moved}


def lane_wrong(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """Every 32nd element is its neighbour's."""
    spec = program.outputs[0]
    copy = np.array(outputs[spec.name], order="C")
    flat = copy.reshape(-1)
    if flat.size < 8:
        return None
    flat[5::32] = flat[4::32][: flat[5::32].size]
    return None if np.array_equal(copy, outputs[spec.name]) else {**outputs, spec.name: copy}


def added_twice(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """Two threads add to one element."""
    floats = _floats(program, outputs)
    if not floats:
        return None
    name, value = next(iter(floats.items()))
    flat = np.array(value, order="C").reshape(-1)
    place = int(np.argmax(np.abs(np.nan_to_num(flat, nan=0, posinf=0, neginf=0))))
    if not flat[place]:
        return None
    flat[place] *= 2
    return _stored(program, {name: flat.reshape(value.shape)}, outputs)


def infinite(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """One element is infinite."""
    floats = [s for s in program.outputs if is_float(s.dtype) and s.dtype != "e4m3"]
    if not floats:
        return None
    copy = np.array(outputs[floats[0].name], order="C")
    copy.reshape(-1)[-1] = from_float(np.array([np.inf]), floats[0].dtype)[0]
    return {**outputs, floats[0].name: copy}


# --- mutants of the program -----------------------------------------------------------------------


def _without(program: Program, position: int, place: int) -> Program:
    """The program in which operand `place` of a node stands for the node."""
    node = program.nodes[position]
    kept = Node(Map("max"), (node.args[place],) * 2, node.type)
    nodes = (*program.nodes[:position], kept, *program.nodes[position + 1 :])
    return replace(program, nodes=nodes)


def _dropped(function: str) -> Mutant:
    """The first `function` with an operand of fewer axes than its result is left out."""

    def mutant(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
        for position, node in enumerate(program.nodes):
            if not (isinstance(node.op, Map) and node.op.function == function):
                continue
            whole = [n for n, arg in enumerate(node.args) if program.nodes[arg].type == node.type]
            if len(whole) != 1 or _neutral(program, node, whole[0]):
                continue
            wrong = evaluate(_without(program, position, whole[0]), inputs)
            return _different(program, wrong, exact, outputs)
        return None

    return mutant


def _neutral(program: Program, node: Node, kept: int) -> bool:
    """Whether the other operand is a constant, so that it is no bias and no scale."""
    others = (program.nodes[arg].op for n, arg in enumerate(node.args) if n != kept)
    return all(isinstance(op, Constant) for op in others)


def _different(program: Program, wrong: Arrays, exact: Arrays, outputs: Arrays) -> Arrays | None:
    """Stored, unless what was changed had no bearing on any output."""
    close = all(
        np.allclose(wrong[name], exact[name], rtol=2e-2, atol=0, equal_nan=True) for name in exact
    )
    return None if close else _stored(program, wrong, outputs)


def no_mask(program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays) -> Arrays | None:
    """The first selection takes its first branch everywhere."""
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Map) and node.op.function == "where":
            if program.nodes[node.args[1]].type != node.type:
                continue
            wrong = evaluate(_without(program, position, 1), inputs)
            return _different(program, wrong, exact, outputs)
    return None


def last_block_missing(
    program: Program, inputs: Arrays, outputs: Arrays, exact: Arrays
) -> Arrays | None:
    """The last quarter of the first sum is left out, by operands that are 0 there."""
    for node in program.nodes:
        if not isinstance(node.op, Contract | Reduce | Carry):
            continue
        axis = node.op.axis if isinstance(node.op, Carry) else node.op.over[-1]
        cut = _zeroed(program, inputs, axis)
        if cut is not None:
            return _different(program, evaluate(program, cut), exact, outputs)
    return None


def _zeroed(program: Program, inputs: Arrays, axis: str) -> Arrays | None:
    for node in program.nodes:
        index = getattr(node.op, "index", ())
        for dim, entry in enumerate(index):
            tensor = getattr(node.op, "tensor", "")
            if tensor in inputs and entry.terms == ((axis, 1),) and entry.gather is None:
                copy = np.array(inputs[tensor])
                start = program.axes[axis] * 3 // 4
                copy[(slice(None),) * dim + (slice(start, None),)] = 0
                return {**inputs, tensor: copy}
    return None


MUTANTS: dict[str, Mutant] = {
    "outputs times 1.015": too_large,
    "a stale element": stale_element,
    "an element written by two threads": added_twice,
    "out of place": out_of_place,
    "a lane of each warp": lane_wrong,
    "an infinite element": infinite,
    "no bias": _dropped("add"),
    "no scale": _dropped("mul"),
    "no divisor": _dropped("div"),
    "no mean": _dropped("sub"),
    "no mask": no_mask,
    "the last block of a sum": last_block_missing,
}
