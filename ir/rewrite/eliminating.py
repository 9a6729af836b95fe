"""Systems of several unknowns at each point of a chunk, each of all points before, solved block by
block.

    U[n] = X[n] + the sum over m of A[n, m] U[m],    n and m in the order in which a step makes them

A[n, m] is a matrix of the points of a chunk, zero above its diagonal, and on it unless m is made
before n. Block elimination (Golub and Van Loan, Matrix Computations, 2013, 3.2) solves it: with
T = (I - A[n, n])^-1 and H[n, m] = T A[n, m], what U[n] is made of stands in the rows behind,

    A[l, m] += A[l, n] H[n, m],    X[l] += A[l, n] T X[n]

and, from the last one back, U[n] = T X[n] + H[n, m] U[m]. Points and unknowns in one row would be
a triangular system as well, of R L unknowns: the products with X are the same R^2 of L by L, but
its inverse takes R^3 L^3 steps of substitution where blocks take R L^3, the rest being products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir.axes import Axis
from ir.builder import cast, contract, where
from ir.forward import solved
from ir.rewrite.affine import added
from ir.tiles import Tile

Matrix = tuple[int, int]  # rows of which unknown, columns of which


@dataclass(frozen=True)
class Solved:
    """What is added to each key of a chunk: `known`, and `queries` times the state before it."""

    known: Tile | None
    queries: Tile


@dataclass(frozen=True)
class Points:
    """The axes along which the points of a chunk are numbered: those of rows, those of columns,
    others that products are summed over, and the steps of each substitution."""

    i: Axis
    j: Axis
    column: Axis
    steps: Sequence[Axis]


class Blocks:
    """A system of blocks: `lower` are along `i` and `j`, right sides along `column`, what is found
    along `j`."""

    def __init__(
        self, lower: Mapping[Matrix, Tile], right: Mapping[int, Solved], points: Points, dtype: str
    ) -> None:
        self.lower, self.right, self.points, self.dtype = dict(lower), dict(right), points, dtype

    def solved(self) -> dict[int, Solved]:
        """Every unknown by its number."""
        order, found = tuple(self.right), dict[int, Solved]()
        held: dict[Matrix, Tile] = {}
        for place, n in enumerate(order):
            inverse = self._inverse(n, self.points.steps[place])
            turned = inverse.at({self.points.i: self.points.j})
            found[n] = self._each(turned, self.right[n], self.points.column)
            behind = order[place + 1 :]
            for m in behind:
                held[n, m] = self._product(inverse, self.lower[n, m])
            for row in behind:
                self._less(row, n, found[n], {m: held[n, m] for m in behind})
        for place in range(len(order) - 1, -1, -1):
            n = order[place]
            for m in order[place + 1 :]:
                found[n] = _both(found[n], self._behind(held[n, m], found[m]))
        return found

    def _inverse(self, n: int, step: Axis) -> Tile:
        """(I - A[n, n])^-1 along `i` and `column`."""
        i, j, column = self.points.i, self.points.j, self.points.column
        lower = self.lower[n, n]
        graph, own = lower.graph, (i.name, j.name)
        others = tuple(Axis(axis, graph.extents[axis]) for axis in lower.axes if axis not in own)
        unit = where(graph.iota(i) == graph.iota(column), 1.0, 0.0)
        return solved(-lower, cast(unit, self.dtype), (*others, i, column), j, step)

    def _less(self, row: int, n: int, found: Solved, held: Mapping[int, Tile]) -> None:
        """The rows of an unknown without that which is solved."""
        i, j, column = self.points.i, self.points.j, self.points.column
        lower = self.lower[row, n]
        more = self._each(lower.at({i: column}), found, j)
        self.right[row] = _both(self.right[row], more)
        for m, matrix in held.items():
            self.lower[row, m] = self.lower[row, m] + self._product(lower.at({j: column}), matrix)

    def _behind(self, held: Tile, found: Solved) -> Solved:
        """What an unknown that is solved later adds to one."""
        i, j, column = self.points.i, self.points.j, self.points.column
        matrix = held.at({i: j, j: column})
        known = None if found.known is None else found.known.at({j: column})
        return self._each(matrix, Solved(known, found.queries.at({j: column})), column)

    def _product(self, left: Tile, right: Tile) -> Tile:
        """Of a matrix along `i` and `column`, and one along `i` and `j`."""
        column = self.points.column
        return contract(left, right.at({self.points.i: column}), column, self.dtype)

    def _each(self, matrix: Tile, right: Solved, over: Axis) -> Solved:
        known = None if right.known is None else contract(matrix, right.known, over, self.dtype)
        return Solved(known, contract(matrix, right.queries, over, self.dtype))


def _both(left: Solved, right: Solved) -> Solved:
    return Solved(added(left.known, right.known), left.queries + right.queries)
