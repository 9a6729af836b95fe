"""Trees of integers: the nested tuples that shapes, strides and coordinates are.

Knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ir.layout.errors import LayoutError

IntTree = int | tuple["IntTree", ...]


def flatten(tree: IntTree) -> tuple[int, ...]:
    """The leaves from left to right."""
    if not isinstance(tree, tuple):
        return (tree,)
    found: list[int] = []
    for part in tree:
        if isinstance(part, tuple):
            found.extend(flatten(part))
        else:
            found.append(part)
    return tuple(found)


def product(tree: IntTree) -> int:
    """Product of the leaves."""
    return prod(flatten(tree))


def rank(tree: IntTree) -> int:
    """Top modes; a bare integer has one."""
    return len(tree) if isinstance(tree, tuple) else 1


def congruent(left: IntTree, right: IntTree) -> bool:
    """Whether two trees have the same form."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(congruent, left, right))
    return not isinstance(left, tuple) and not isinstance(right, tuple)


def like(profile: IntTree, leaves: Iterator[int]) -> IntTree:
    """A tree of the form of `profile` with `leaves` in order."""
    if isinstance(profile, tuple):
        return tuple(like(part, leaves) for part in profile)
    return next(leaves)


def compact(shape: IntTree) -> IntTree:
    """Colexicographic strides: the leftmost leaf varies fastest."""
    steps, step = [], 1
    for extent in flatten(shape):
        steps.append(step)
        step *= extent
    return like(shape, iter(steps))


def index_of(place: IntTree, shape: IntTree) -> int:
    """The colexicographic index of a coordinate; its parts may be indices into their modes.

    Raises LayoutError (coordinate) when the form is another.
    """
    if not isinstance(place, tuple):
        return place
    if not isinstance(shape, tuple) or len(place) != len(shape):
        raise LayoutError(
            "coordinate", f"coordinate {text(place)} does not fit shape {text(shape)}"
        )
    total, step = 0, 1
    for part, extent in zip(place, shape, strict=True):
        total += index_of(part, extent) * step
        step *= product(extent)
    return total


def text(tree: IntTree) -> str:
    """As CuTe writes it: `(4,(2,3))`, without spaces."""
    if isinstance(tree, tuple):
        return f"({','.join(map(text, tree))})"
    return str(tree)
