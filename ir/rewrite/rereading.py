"""What is read at other points is made where it is read, of what is in memory.

A tile that a program makes point by point and reads elsewhere is whole in memory before anything
reads it: `cast(x).at(j=j - 1, fill=0)` writes a copy of x. Where it is made of loads, and of what
does not vary along the axes that are read elsewhere, each read may make what it reads of its own
loads instead:

    read(f(load(x, [i, j]), r(i)), [i, j - 1])  =  f(load(x, [i, j - 1]), r(i))

and `fill` where the point lies outside; a fill of 0 is what loads give there, and what is added or
multiplied of such. It is made once for each point that is read. So halves of rows that are
normalised and turned (r is what a row's numbers are scaled by) are read where they lie. Read at the
last step of a loop, what a step makes of a state is what there is at the end, and what it is at
other steps is in no memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir.builder import Graph, cast, where
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Recur
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

NAME = "read-through"
WHY = "what is read elsewhere is made where it is read, of what is in memory"
ROUNDING = "the same roundings in the same order"

FADING = ("add", "sub", "mul", "min", "max", "abs")  # functions that are 0 where all arguments are

Places = Mapping[str, tuple[Index, Tile | None]]  # of axes: where they are read, and by which tile


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such read so made, and the first one's node; None without."""
    found = [p for p in range(len(program.nodes)) if _is_through(program, p)]
    if not found:
        return None
    graph, ends = graft(program), dict[int, Tile]()
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        if position in found:
            made.append(_Made(program, graph, made, ends).read(position))
        elif position in ends:
            made.append(ends[position])
        else:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
    return found[0], graph.program()


def through_memory(program: Program, position: int) -> int | None:
    """The tile made point by point that a read has written to memory first; None for other ops."""
    return program.nodes[position].args[0] if _is_through(program, position) else None


def _is_through(program: Program, position: int) -> bool:
    """Whether a node reads a tile that is made of loads point by point."""
    op, args = program.nodes[position].op, program.nodes[position].args
    if not isinstance(op, Read):
        return False
    places = dict(zip(program.nodes[args[0]].axes, op.index, strict=True))
    moved = _moved(places)
    if not moved:
        return True  # read where it is
    ends = _ends(program, places)
    found = program.behind(
        [args[0]], lambda p: p in ends or moved.isdisjoint(program.nodes[p].axes)
    )
    behind = [
        node for p in found
        if p not in ends and not moved.isdisjoint((node := program.nodes[p]).axes)
    ]  # fmt: skip
    ended = not ends.keys().isdisjoint(found)
    light = all(isinstance(node.op, Load | Map | Cast | Constant | Iota) for node in behind)
    return (
        bool(behind or ended)
        and light
        and all(_composes(node.op, places) for node in behind if isinstance(node.op, Load))
    )


def _ends(program: Program, places: Mapping[str, Index]) -> dict[int, int]:
    """What steps make of states, and the nodes that are the same at the end of the loop, where a
    read is at the last step and elsewhere at its own points."""
    found = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Recur):
            last = {node.op.axis: Index((), program.axes[node.op.axis] - 1)}
            if {axis: places[axis] for axis in _moved(places)} == last:
                found[node.args[1]] = position
    return found


def _moved(places: Mapping[str, Index]) -> frozenset[str]:
    """The axes that are read at other points than their own."""
    return frozenset(axis for axis, index in places.items() if index != Index(((axis, 1),)))


def _composes(op: Load, places: Mapping[str, Index]) -> bool:
    """Whether each dimension of a load is read by one tile at most, and that as it is."""
    for one in op.index:
        factors = [c for axis, c in one.terms if axis in places and places[axis].gather is not None]
        if len(factors) + (one.gather is not None) > 1 or any(factor != 1 for factor in factors):
            return False
    return True


def _fades(program: Program, position: int, moved: frozenset[str]) -> bool:
    """Whether a value is 0 outside of the axes that are moved, if its loads are: they are read
    along these as they lie, and all that is made of them is 0 where they are."""

    def ends(here: int) -> bool:
        return isinstance(program.nodes[here].op, Load)

    for here in program.behind([position], ends):
        op = program.nodes[here].op
        if program.nodes[here].dtype == "e8m0":  # which has no 0
            return False
        if isinstance(op, Load):
            if not _lies_along(program, op, moved):
                return False
        elif not isinstance(op, Cast) and not (isinstance(op, Map) and op.function in FADING):
            return False
    return True


def _lies_along(program: Program, op: Load, moved: frozenset[str]) -> bool:
    """Whether a load gives 0 exactly where one of the moved axes is left."""
    shape, own = program.scope.tensors[op.tensor].shape, set[str]()
    for one, extent in zip(op.index, shape, strict=True):
        here = moved & {axis for axis, _ in one.terms}
        plain = [axis for axis in here if one == Index(((axis, 1),))]
        if len(plain) != len(here) or own & here:
            return False
        if any(program.axes[axis] != extent for axis in here):
            return False
        own |= here
    return own == moved and op.fill in (None, 0.0)


class _Made:
    """What one read makes."""

    def __init__(
        self, program: Program, graph: Graph, made: list[Tile], ends: dict[int, Tile]
    ) -> None:
        self.program, self.graph, self.made = program, graph, made
        self.ends = ends  # of loops, made ahead of their places
        self.known: dict[int, Tile] = {}
        self.moved = frozenset[str]()
        self.outside = False  # whether points may be read that the tile lacks

    def read(self, position: int) -> Tile:
        node = self.program.nodes[position]
        op = node.op
        assert isinstance(op, Read)
        source = node.args[0]
        places = {
            axis: (index, None if index.gather is None else self.made[node.args[index.gather]])
            for axis, index in zip(self.program.nodes[source].axes, op.index, strict=True)
        }
        self.moved = _moved({axis: index for axis, (index, _) in places.items()})
        inside = None if op.fill is None else self._inside(places)
        self.outside = inside is not None
        plain = {axis: index for axis, (index, tile) in places.items() if tile is None}
        for after, end in _ends(self.program, plain).items() if len(plain) == len(places) else ():
            if after <= position:
                self.known[after] = self._end(end)
        value = self._at(source, places)
        if inside is None or op.fill is None:
            return value
        if op.fill == 0 and _fades(self.program, source, self.moved):
            return value
        filled = where(inside, value, op.fill)
        return cast(filled, node.dtype) if filled.dtype != value.dtype else filled

    def _end(self, position: int) -> Tile:
        """A state behind the last step."""
        if position < len(self.made):
            return self.made[position]
        if position not in self.ends:
            args = [self.made[arg] for arg in self.program.nodes[position].args]
            self.ends[position] = copy_node(self.graph, self.program, position, args)
        return self.ends[position]

    def _inside(self, places: Places) -> Tile | None:
        """Where all axes are read within their extents; None if they are everywhere."""
        found: Tile | None = None
        for axis, (index, tile) in places.items():
            low, high = index.bounds(self.program.scope)
            extent = self.program.axes[axis]
            if tile is None and low >= 0 and high < extent:
                continue
            at = self._coordinate(index, tile)
            sides = [at >= 0] if tile is not None or low < 0 else []
            sides += [at < extent] if tile is not None or high >= extent else []
            for side in sides:
                found = side if found is None else found & side
        return found

    def _coordinate(self, index: Index, tile: Tile | None) -> Tile:
        found = tile
        for axis, factor in index.terms:
            here = self.graph.add(Iota(axis))
            here = here * factor if factor != 1 else here
            found = here if found is None else found + here
        if found is None:
            return self.graph.add(Constant(index.constant, "i32"))
        return found + index.constant if index.constant else found

    def _at(self, position: int, places: Places) -> Tile:
        """A node's value at the places."""
        if self.moved.isdisjoint(self.program.nodes[position].axes):
            return self.made[position]
        if position not in self.known:
            node = self.program.nodes[position]
            op, args = node.op, [self._at(arg, places) for arg in node.args]
            if isinstance(op, Iota):
                self.known[position] = self._coordinate(*places[op.axis])
            elif isinstance(op, Load):
                self.known[position] = self._load(op, args, places)
            else:
                self.known[position] = self.graph.add(op, *args)
        return self.known[position]

    def _load(self, op: Load, args: list[Tile], places: Places) -> Tile:
        shape = next(s.shape for s in self.program.tensors if s.name == op.tensor)
        tiles, found, fill = list[Tile](), list[Index](), op.fill
        for one, extent in zip(op.index, shape, strict=True):
            terms, constant = dict[str, int](), one.constant
            tile = None if one.gather is None else args[one.gather]
            for axis, factor in one.terms:
                place, by = places[axis]
                tile = tile if by is None else by
                constant += factor * place.constant
                for name, own in place.terms:
                    terms[name] = terms.get(name, 0) + factor * own
            kept = tuple((name, factor) for name, factor in terms.items() if factor)
            found.append(Index(kept, constant, None if tile is None else len(tiles)))
            tiles += [] if tile is None else [tile]
            low, high = found[-1].bounds(self.program.scope)
            if self.outside and fill is None and (tile is not None or low < 0 or high >= extent):
                fill = 0.0  # instead of which the read's own is seen
        return self.graph.add(Load(op.tensor, tuple(found), fill), *tiles)
