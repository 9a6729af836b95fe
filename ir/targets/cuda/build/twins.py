"""Values that are equal but for the names of their axes: one of them in memory serves both.

The sums of squares of the rows and of the columns of all pairs of one set of points, the means of
both sides of a covariance: a program reads one tensor along two axes, and so says both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from ir.program import Node, Program

_AXES = {"axis", "axes", "over", "rank", "beside"}  # fields of operations that name axes


def twins_of(
    program: Program, values: Iterable[tuple[int, tuple[str, ...], bool]]
) -> dict[int, int]:
    """Of values, each with its axes in memory, those that an earlier one serves, and which one; not
    those of which it is said that they are stored anyway."""
    first: dict[str, int] = {}
    found: dict[int, int] = {}
    for position, axes, stored in values:
        twin = first.setdefault(_key(program, position, axes), position)
        if twin != position and not stored:
            found[position] = twin
    return found


@lru_cache(maxsize=1024)
def _key(program: Program, position: int, axes: tuple[str, ...]) -> str:
    """The same for values that are the same function of the same tensors, dimension by dimension of
    `axes`."""
    numbers = {axis: place for place, axis in enumerate(axes)}
    seen, pending = dict[int, None](), [position]
    while pending:
        here = pending.pop()
        if here in seen:
            continue
        seen[here] = None
        node = program.nodes[here]
        for each in (node, *(program.nodes[arg] for arg in node.args)):
            for axis in each.axes:
                numbers.setdefault(axis, len(numbers))
        pending.extend(reversed(node.args))
    keys: dict[int, str] = {}
    for here in sorted(seen):
        node = program.nodes[here]
        keys[here] = _hashed(_numbered(node, numbers), *(keys[arg] for arg in node.args))
    extents = [program.axes[axis] for axis in numbers]
    return _hashed(keys[position], str(extents))


def _numbered(node: Node, numbers: dict[str, int]) -> str:
    """An operation with numbers for its axes. What is no axis stays as it is, by whatever name."""
    op: Any = node.op
    said = {field.name: getattr(op, field.name) for field in fields(op)}
    for name in said.keys() & _AXES:
        said[name] = _places(said[name], numbers)
    if "index" in said:
        said["index"] = [
            ([(_places(axis, numbers), c) for axis, c in one.terms], one.constant, one.gather)
            for one in said["index"]
        ]
    return f"{op.name} {said} {node.dtype} {_places(node.axes, numbers)}"


def _places(value: str | Sequence[str] | None, numbers: dict[str, int]) -> object:
    if value is None or isinstance(value, str):
        return numbers.get(value or "", value)
    return [numbers.get(axis, axis) for axis in value]


def _hashed(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
