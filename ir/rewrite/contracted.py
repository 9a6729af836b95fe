"""Sums of products as contractions, however their factors are written.

    sum over k of a[m, k] s[k] b[n, k]  =  contract over k of a[m, k] and (s b)[n, k]

Whoever writes a sum of products means one of matrices where factors vary along axes of their own:
then each element is multiplied with many others, and what is made of one factor's axes alone need
not be made again for each point of the other's. The factors of a sum are found through products,
quotients, signs and masks, down to what is rounded or is no product; those that vary along no axis
of the sum are factors of it, the others go to two sides so that there is least to multiply before.
In the steps of a loop a product with what is made of its state is one read of that, whatever the
axes are: a row of the product of matrices that many steps together are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ir.builder import Graph, cast, where
from ir.ops.base import volume
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.patterns import WIDE
from ir.rewrite.work import in_steps
from ir.tiles import Tile, apply

NAME = "contracted"
WHY = "a sum of products of what varies along axes of its own is a product of matrices"
ROUNDING = "products are rounded in another grouping, or not by themselves"
OWN = 4  # points of axes of its own that each side has at least
MOST = 8  # factors of a sum
_FINITE = (
    "add", "sub", "mul", "neg", "abs", "max", "min", "where", "sigmoid", "tanh", "erf", "sin",
    "cos", "not", "and", "or", "eq", "lt", "le",
)  # functions of what is finite that are  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Factor:
    """A node that a product is multiplied with, or divided by; or a condition, under which a
    product is turned round, or without which it is 0."""

    node: int
    divides: bool = False
    turns: bool = False
    masks: bool = False

    @property
    def chooses(self) -> bool:
        return self.turns or self.masks


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two operands of a product, what its sum is multiplied with, and whether it is negated."""

    left: tuple[_Factor, ...]
    right: tuple[_Factor, ...]
    behind: tuple[_Factor, ...]
    negative: bool


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such sum as a contraction, and the first one's node; None without."""
    steps = in_steps(program)
    found = {p: sides for p in _sums(program) if (sides := _sides(program, p, steps)) is not None}
    if not found:
        return None
    graph, made = graft(program), list[Tile]()
    for position, node in enumerate(program.nodes):
        sides = found.get(position)
        if sides is None:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
            continue
        assert isinstance(node.op, Reduce)
        operands = [_product(graph, made, side, node.dtype) for side in (sides.left, sides.right)]
        tile = graph.add(Contract(node.op.over, node.dtype), *operands)
        tile = _times(made, tile, sides.behind, node.dtype)
        made.append(apply("neg", tile) if sides.negative else tile)
    return min(found), graph.program()


def _sums(program: Program) -> Iterator[int]:
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Reduce) and node.op.kind == "sum" and node.dtype in WIDE:
            yield position


def _sides(program: Program, position: int, steps: set[int]) -> _Sides | None:
    """How the factors of a sum are shared out; None where it is no product of matrices."""
    op, value = program.nodes[position].op, program.nodes[position].args[0]
    assert isinstance(op, Reduce)
    factors, negative = _factors(program, value, program.nodes[position].dtype)
    over = frozenset(op.over)
    inside = tuple(one for one in factors if over & _axes(program, one))
    behind = tuple(one for one in factors if not over & _axes(program, one))
    if len(inside) > MOST or not over <= _all(program, inside):
        return None
    if position in steps:
        states = tuple(one for one in inside if one.node in steps)
        others = tuple(one for one in inside if one.node not in steps)
        whole = over <= _all(program, states) & _all(program, others)
        apart = len(states) == 1 and not any(one.divides for one in (*states, *others[:1]))
        return _Sides(states, others, behind, negative) if apart and others and whole else None
    best: tuple[tuple[int, int], _Sides] | None = None
    for left, right in _halves(inside):
        if any(_hides(program, *sides) for sides in ((left, right), (right, left))):
            continue
        work = _work(program, left, right, over)
        if work is not None and (best is None or work < best[0]):
            best = work, _Sides(left, right, behind, negative)
    return best[1] if best else None


def _factors(program: Program, position: int, dtype: str) -> tuple[list[_Factor], bool]:
    """What a value is the product of, and whether that is negated; itself where it is of many."""
    known: dict[int, tuple[list[_Factor], bool]] = {}
    for here in program.behind([position], lambda p: not _is_product(program, p, dtype)):
        args = program.nodes[here].args
        function = getattr(program.nodes[here].op, "function", "")
        found, negative = [_Factor(here)], False
        if _is_product(program, here, dtype):
            found, negative = known[args[0]]
            if function == "mul":
                found, negative = found + known[args[1]][0], negative != known[args[1]][1]
            elif function == "neg":
                negative = not negative
            elif function == "where":
                chosen = _chosen(program, here)
                assert chosen is not None
                condition, of, is_negative = chosen
                found, negative = known[of]
                found, negative = [*found, condition], negative != is_negative
            else:
                found = [*found, _Factor(args[1], divides=True)]
        known[here] = (found, negative) if len(found) <= MOST else ([_Factor(here)], False)
    return known[position]


def _is_product(program: Program, position: int, dtype: str) -> bool:
    node = program.nodes[position]
    is_one = isinstance(node.op, Map) and node.op.function in ("mul", "div", "neg")
    return node.dtype == dtype and (is_one or _chosen(program, position) is not None)


def _chosen(program: Program, position: int) -> tuple[_Factor, int, bool] | None:
    """The condition of a value that is turned round under it (-x or x), or is 0 without it; the
    value, and whether the whole is negative then. A mask of a plain value is a part of that."""
    node = program.nodes[position]
    if node.op != Map("where"):
        return None
    condition, yes, no = node.args
    if program.nodes[yes].op == Map("neg") and program.nodes[yes].args[0] == no:
        return _Factor(condition, turns=True), no, False
    if program.nodes[no].op == Map("neg") and program.nodes[no].args[0] == yes:
        return _Factor(condition, turns=True), yes, True
    nothing, product = program.nodes[no].op, program.nodes[yes].op
    is_masked = isinstance(nothing, Constant) and nothing.value == 0
    if is_masked and isinstance(product, Map) and product.function == "mul":
        return _Factor(condition, masks=True), yes, False
    return None


def _halves(factors: Sequence[_Factor]) -> Iterator[tuple[tuple[_Factor, ...], ...]]:
    """Every way to share factors out to two sides, each with a factor that multiplies."""
    for count in range(1, len(factors)):
        for chosen in combinations(range(len(factors)), count):
            left = tuple(factors[n] for n in chosen)
            right = tuple(one for n, one in enumerate(factors) if n not in chosen)
            if all(any(not one.divides for one in side) for side in (left, right)):
                yield left, right


def _hides(program: Program, masked: Sequence[_Factor], others: Sequence[_Factor]) -> bool:
    """Whether a mask on one side may hide what is infinite on the other: 0 times that is no 0."""
    if not any(one.masks for one in masked):
        return False
    return not all(not one.divides and _is_finite(program, one.node) for one in others)


def _is_finite(program: Program, position: int) -> bool:
    """Whether a value is made of loads, which are taken to be finite, by nothing that divides or
    grows."""
    nodes = program.nodes
    found = program.behind([position], lambda p: not isinstance(nodes[p].op, Map | Cast))
    return all(_stays_finite(nodes[one]) for one in found)


def _stays_finite(node: Node) -> bool:
    if isinstance(node.op, Map):
        return node.op.function in _FINITE
    if isinstance(node.op, Constant):
        return math.isfinite(node.op.value)
    return isinstance(node.op, Load | Iota | Cast)


def _work(
    program: Program, left: Sequence[_Factor], right: Sequence[_Factor], over: frozenset[str]
) -> tuple[int, int] | None:
    """Operations that make both sides, and points of both; None where one has no own axes."""
    sides = _all(program, left), _all(program, right)
    for one, other in (sides, sides[::-1]):
        own = tuple(one - other - over)
        if not own or volume(program.scope, own) < OWN:
            return None
    sizes = [volume(program.scope, tuple(axes)) for axes in sides]
    made = sum((len(side) - 1) * size for side, size in zip((left, right), sizes, strict=True))
    return made, sum(sizes)


def _axes(program: Program, factor: _Factor) -> frozenset[str]:
    return frozenset(program.nodes[factor.node].axes)


def _all(program: Program, factors: Sequence[_Factor]) -> frozenset[str]:
    return frozenset[str]().union(*(_axes(program, one) for one in factors))


def _product(graph: Graph, made: Sequence[Tile], factors: Sequence[_Factor], dtype: str) -> Tile:
    """The product of factors in the sum's type, the first that multiplies first."""
    rest = list(factors)  # of which one may be there several times
    number = next((n for n, one in enumerate(rest) if not (one.divides or one.chooses)), None)
    if number is None:
        return _times(made, graph.constant(1.0, dtype), rest, dtype)
    first = rest.pop(number)
    return _times(made, cast(made[first.node], dtype), rest, dtype)


def _times(made: Sequence[Tile], tile: Tile, factors: Sequence[_Factor], dtype: str) -> Tile:
    for one in factors:
        if one.turns:
            tile = where(made[one.node], -tile, tile)
        elif one.masks:
            tile = where(made[one.node], tile, 0)
        else:
            tile = apply("div" if one.divides else "mul", tile, cast(made[one.node], dtype))
    return tile
