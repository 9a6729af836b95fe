"""How an author folds along an axis (scans, argmax, any pair given by its merge), picks the top,
scatters, and carries a state from step to step. Knows no target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ir.axes import Axis, as_index, axis_names, described
from ir.builder import Graph
from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.given import given_tile
from ir.merges import CAST, MOST_STATES, NAMED, merge_of
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Map
from ir.ops.recur import Recur
from ir.ops.scatter import Scatter
from ir.ops.top import Top
from ir.tiles import LOGICAL, Operand, Tile, counted

_MOST_PLACES = 1 << 31  # that argmax counts
Pair = tuple[Tile, ...]
_INTO = "give where each axis' elements go, as in scatter(kind, x, {axis: index})"
Merging = str | Callable[[Pair, Pair], Tile | Pair]


def fold(
    merge: Merging, values: Tile | Pair, over: Axis, *, backward: bool = False
) -> tuple[Tile, ...]:
    """The states that are left of `values`, one tile for each state, along `over`.

    `merge` is associative: a name (sum, prod, max, min, and, or, affine, argmax, argmin) or a
    function of two tuples of tiles, the states of what comes before and of what comes after.
    """
    return _folded(merge, values, over, False, backward)


def scan(
    merge: Merging, values: Tile | Pair, along: Axis, *, backward: bool = False
) -> tuple[Tile, ...]:
    """As `fold`, with the states up to each point (`backward`: from each point on).

    `scan("affine", (a, b), t)[1]` is h of h = a h + b, beginning at 0.
    """
    return _folded(merge, values, along, True, backward)


def _folded(
    merge: Merging, values: Tile | Pair, axis: Axis, keep: bool, backward: bool
) -> tuple[Tile, ...]:
    tiles = values if isinstance(values, tuple) else (values,)
    if not tiles or not all(isinstance(tile, Tile) for tile in tiles):
        found = ", ".join(described(value) for value in tiles)
        raise ProgramError(f"fold: ({found}): the values are a tile, or a tuple of tiles")
    (name,) = axis_names("fold", (axis,))
    graph = tiles[0].graph
    truth = tiles[0].dtype == "bool"
    if isinstance(merge, str) and truth and merge in LOGICAL:
        merge = LOGICAL[merge]
    elif isinstance(merge, str) and truth and merge not in LOGICAL.values():
        tiles = (counted(tiles[0]), *tiles[1:])
    try:
        text = merge_text(merge, [tile.dtype for tile in tiles])
    except ProgramError as error:
        raise ProgramError(f"{graph.name}: fold over {name}: {error}") from None
    return tuple(
        graph.add(Fold(name, text, part, keep, backward), *tiles) for part in range(len(tiles))
    )


def cumulative(kind: str, value: Tile, along: Axis, *, backward: bool = False) -> Tile:
    """Sums (products, maxima, ...) up to each point of `along`."""
    return scan(kind, value, along, backward=backward)[0]


def recurrence(factor: Tile, addend: Tile, along: Axis, *, backward: bool = False) -> Tile:
    """h of h = factor * h + addend along an axis, beginning at 0."""
    return scan("affine", (factor, addend), along, backward=backward)[1]


def argmax(value: Tile, over: Axis | Sequence[Axis]) -> Tile:
    """Where the largest element stands (i32): the first of equals, or the first NaN.

    Over several axes as their points are counted together, the last one fastest.
    """
    return _arg("argmax", value, over)


def argmin(value: Tile, over: Axis | Sequence[Axis]) -> Tile:
    """Where the smallest element stands (i32): the first of equals, or the first NaN.

    Over several axes as their points are counted together, the last one fastest.
    """
    return _arg("argmin", value, over)


def _arg(merge: str, value: Tile, over: Axis | Sequence[Axis]) -> Tile:
    """Along the fastest axis first: what comes first of equals then has the smaller place."""
    names = axis_names(merge, over)
    graph = given_tile(merge, value).graph
    axes = tuple(over) if isinstance(over, Sequence) else (over,)
    if not names or len(set(names)) < len(names):
        raise ProgramError(
            f"{graph.name}: {merge} over {names}: give one axis or several, each once"
        )
    for name in names:
        if name not in value.axes:
            raise ProgramError(
                f"{graph.name}: {merge}: {name!r} is not an axis of the operand {value.axes}"
            )
    if math.prod(axis.extent for axis in axes) > _MOST_PLACES:
        raise ProgramError(
            f"{graph.name}: {merge} over {names}: i32 counts {_MOST_PLACES:,} places"
        )
    best, place = fold(merge, (value, graph.iota(axes[-1])), axes[-1])
    count = axes[-1].extent
    for axis in reversed(axes[:-1]):
        best, place = fold(merge, (best, graph.iota(axis) * count + place), axis)
        count *= axis.extent
    return place


def top(value: Tile, over: Axis, rank: Axis, *, least: bool = False) -> tuple[Tile, Tile]:
    """The `rank.extent` largest (smallest) elements in order, and where they stand (i32)."""
    axis, ranks = axis_names("top", (over, rank))
    graph = given_tile(f"top over {axis}", value).graph
    value = counted(value)
    values = graph.add(Top(axis, ranks, least), value)
    return values, graph.add(Top(axis, ranks, least, where=True), value)


def scatter(kind: str, value: Tile, into: Mapping[Axis, Operand]) -> Tile:
    """The tile over the axes of `into` whose elements combine (sum, max, min, or) what is sent.

    `into` gives for each axis where an element is sent: the axis itself, an index expression or a
    tile of whole numbers. Elements sent outside are dropped.
    """
    graph = given_tile(f"scatter {kind}", value).graph
    if not isinstance(into, Mapping) or not into:
        raise ProgramError(f"{graph.name}: scatter {kind}: into {described(into)}: {_INTO}")
    axes = axis_names(f"scatter {kind}", tuple(into))
    index: list[Index] = []
    tiles: list[Tile] = []
    for place in into.values():
        if isinstance(place, Tile):
            index.append(Index(gather=1 + len(tiles)))
            tiles.append(place)
        else:
            expression = as_index(place)  # type: ignore[arg-type]
            index.append(Index(expression.terms, expression.constant))
    return graph.add(Scatter(kind, axes, tuple(index)), value, *tiles)


def recur(state: Tile, step: Tile) -> Tile:
    """Say what `state` (of `g.state`) is after each step; gives the state after the last one."""
    axes = given_tile("recur", state).axes
    axis = axes[0] if axes else ""
    return state.graph.add(Recur(axis), state, step)


def merge_text(merge: Merging, dtypes: Sequence[str]) -> str:
    """A merge as text; a function is called with tiles of a graph of its own."""
    if isinstance(merge, str):
        text = NAMED.get(merge, merge)
        merge_of(text)
        return text
    if not callable(merge):
        raise ProgramError(f"{described(merge)} is no merge: {', '.join(NAMED)}, or a function")
    if len(dtypes) > MOST_STATES:
        raise ProgramError(f"fold of {len(dtypes)} states; {MOST_STATES} are the most")
    graph = Graph("merge")
    sides = tuple(
        tuple(
            graph.tensor(f"{side}{n}", (), compute_dtype(dtype))[()]
            for n, dtype in enumerate(dtypes)
        )
        for side in "ab"
    )
    found = merge(*sides)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(dtypes):
        raise ProgramError(f"the merge gives {len(results)} states for {len(dtypes)}")
    terms = [_traced(graph, result, dtypes) for result in results]
    text = terms[0] if len(terms) == 1 else f"({', '.join(terms)})"
    merge_of(text)
    return text


def _traced(graph: Graph, result: Operand, dtypes: Sequence[str]) -> str:
    if not isinstance(result, Tile):
        if isinstance(result, int | float) and not isinstance(result, bool):
            return repr(result)
        raise ProgramError(f"the merge gives {described(result)}, which is no tile")
    if result.graph is not graph:
        raise ProgramError("the merge reads a tile of the program; states and numbers are all")
    op, args = graph.node(result)
    if isinstance(op, Load):
        return op.tensor
    if isinstance(op, Constant):
        return repr(op.value)
    terms = [_traced(graph, Tile(graph, arg), dtypes) for arg in args]
    if isinstance(op, Cast):
        return f"{CAST}{op.dtype}({', '.join(terms)})"
    if not isinstance(op, Map):
        raise ProgramError(f"the merge holds a {op.name}; elementwise functions are all it may")
    if op.dtype is not None:
        raise ProgramError(f"the merge holds a {op.function}, which no merge can; cast it can")
    return f"{op.function}({', '.join(terms)})"
