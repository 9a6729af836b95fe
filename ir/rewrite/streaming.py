"""Makes chains of reductions along one axis single-pass: carried state, corrected as it moves.

Let r2 = sum_k f(k, r1), where r1 is itself reduced over k. While k is walked, only a running r1 is
known. If f(k, r1') can be written with f(k, r1) and finitely many functions of k alone, the sums of
these are corrected whenever r1 moves, and one pass is enough. `ir.rewrite.algebra` finds the form:
f is a sum of products h(k, r) e1(k, r) e2(k, r) ..., where h scales, h(k, r') = h(k, r) ratio, and
every e is affine, e(k, r') = e(k, r) + sum_p delta_p b_p(k). Multiplied out, the sum of h e1 e2 at
r' is the ratio times sums of h over every choice of either e_i or one b_p for each factor, so these
are the states. Online softmax (h alone; Milakov and Gimelshein, 2018) and the running variance
(e1 = e2; Chan, Golub and LeVeque, 1979) are two cases, neither looked for by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

from ir.builder import Graph, cast
from ir.dtypes import compute_dtype
from ir.ops.map import Cast, Iota, Map
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.program import Node, Program
from ir.rewrite.algebra import Rules, Term
from ir.rewrite.analysis import Analysis
from ir.rewrite.graft import graft
from ir.tiles import Tile, apply

View = Callable[[int, str, str], Tile]
Amounts = dict[int | None, Tile]  # coefficient -> what it is multiplied with


def stream(
    program: Program, keep: frozenset[str] = frozenset(), joint: tuple[str, ...] = ()
) -> Program:
    """The program with every derivable chain of reductions carried; unchanged if there is none.

    Chains along the axes in `keep` stay as they are. Axes that are walked together (`joint`) are
    one: reductions along them are carried if they go along all of them.
    """
    plan = Analysis(program, keep, joint).run()
    if not plan.carried:
        return program
    return Rebuild(program, plan).run()


def why_not(program: Program) -> dict[int, str]:
    """Reductions (by node) that depend on another along their axis but stay a pass of their own."""
    return dict(Analysis(program).run().refused)


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of a reduction's value: `sign` * state, times what was moved behind the sum."""

    sign: int
    state: Tile
    hoisted: tuple[tuple[str, int], ...]


class Rebuild:
    """Writes the carried program. Node values exist in three views: final, now and prior.

    Bodies are evaluated in `body_view`. `ir.rewrite.split` writes merges of partial results with
    the same rules, by saying what the views and a state are there.
    """

    body_view = "now"

    def __init__(self, program: Program, analysis: Analysis) -> None:
        self.program, self.a = program, analysis
        self.nodes = program.nodes
        self.graph: Graph = graft(program)
        self.memo: dict[tuple[int, str, str], Tile] = {}
        self.parts: dict[int, tuple[Part, ...]] = {}
        self.counts: dict[tuple[str, tuple[str, ...]], Tile] = {}

    def run(self) -> Program:
        for node in self.nodes:
            if node.op.name == "store":
                self.graph.add(node.op, self.final(node.args[0]))
        return self.graph.program()

    # -- views

    def final(self, position: int) -> Tile:
        return self.view(position, "final", "")

    def view(self, position: int, view: str, axis: str) -> Tile:
        """The node with reductions over `axis` read as final, running or prior values."""
        if not (axis and self.a.moves(position, axis)):
            view, axis = "final", ""
        key = (position, view, axis)
        if key not in self.memo:
            self.memo[key] = self._build(position, view, axis)
        return self.memo[key]

    def _build(self, position: int, view: str, axis: str) -> Tile:
        node = self.nodes[position]
        if position in self.a.carried:
            if view == "final" or self.a.carried[position] != axis:
                return self.result(position)
            return self.running(position, view)
        args = [self.view(arg, view, axis) for arg in node.args]
        return self.graph.add(node.op, *args)

    def result(self, position: int) -> Tile:
        """The final value: the state, then what was moved behind the sum."""
        return self.combined(position, lambda state: state, "final")

    def running(self, position: int, view: str) -> Tile:
        """The value so far ("now") or before this block ("prior")."""
        op = Now() if view == "now" else Prior()
        return self.combined(position, lambda state: self.graph.add(op, state), view)

    def combined(self, position: int, read: Callable[[Tile], Tile], view: str) -> Tile:
        """A reduction's value from its states, read by `read`, all else seen in `view`."""
        total: Tile | None = None
        for part in self.parts_of(position):
            value = read(part.state)
            for function, factor in part.hoisted:
                value = apply(function, value, self.view(factor, view, self.a.carried[position]))
            if total is None:
                total = value if part.sign > 0 else apply("neg", value)
            else:
                total = apply("add" if part.sign > 0 else "sub", total, value)
        assert total is not None
        return cast(total, self.nodes[position].dtype)

    # -- states

    def parts_of(self, position: int) -> tuple[Part, ...]:
        if position not in self.parts:
            self.parts[position] = self._parts(position)
        return self.parts[position]

    def _parts(self, position: int) -> tuple[Part, ...]:
        node, axis = self.nodes[position], self.a.carried[position]
        terms = self.a.forms.get(position)
        if terms is None:
            return (Part(1, self.independent(position), ()),)
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind != "sum":
            return (Part(1, self._extreme(kind, axis, terms[0]), terms[0].hoisted),)
        return tuple(
            Part(term.sign, Family(self, axis, term, node.dtype).state(), term.hoisted)
            for term in terms
        )

    def independent(self, position: int) -> Tile:
        """The state of a reduction whose body does not move."""
        node, axis = self.nodes[position], self.a.carried[position]
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        args = [self.final(arg) for arg in node.args]
        if isinstance(node.op, Contract):
            return self.carry("sum", axis, self.product(args, node.dtype), None, None)
        return self.carry(kind, axis, args[0], None, None)

    def _extreme(self, kind: str, axis: str, term: Term) -> Tile:
        """A max or min: the ratio is positive and a shift keeps the order, so the state follows."""
        if term.affine:
            body = self.view(term.affine[0], self.body_view, axis)
            shift = self.amounts(term.affine[0], axis, self.view).get(None)
            return self.carry(kind, axis, body, None, shift)
        body = self.product(self.scaling(term, axis))
        return self.carry(kind, axis, body, self.ratio_of(term, axis), None)

    def carry(
        self, kind: str, axis: str, body: Tile, factor: Tile | None, addend: Tile | None
    ) -> Tile:
        extra = [tile for tile in (factor, addend) if tile is not None]
        beside = self.a.over(axis)[:-1] or None
        op = Carry(kind, axis, factor is not None, addend is not None, beside)
        return self.graph.add(op, body, *extra)

    def product(self, factors: list[Tile], dtype: str = "") -> Tile:
        """The product, formed so that summing it accumulates in `dtype` if given."""
        result = factors[0]
        for factor in factors[1:]:
            result = apply("mul", result, factor)
        if dtype and compute_dtype(result.dtype) != dtype:
            return self.product([cast(factor, dtype) for factor in factors])
        return result

    # -- factors that scale

    def scaling(self, term: Term, axis: str) -> list[Tile]:
        """The factors of a term that scale, as the body reads them."""
        found = []
        for factor in term.scaling:
            tile = self.view(factor.node, self.body_view, axis)
            tile = cast(tile, factor.cast) if factor.cast else tile
            found.append(apply("div", 1.0, tile) if factor.inverse else tile)
        return found

    def ratio_of(self, term: Term, axis: str) -> Tile | None:
        """By what the scaling factors of a term change together; None for one."""
        result: Tile | None = None
        for factor in term.scaling:
            ratio = self.ratio(factor.node, axis)
            if ratio is not None:
                ratio = apply("div", 1.0, ratio) if factor.inverse else ratio
                result = ratio if result is None else apply("mul", result, ratio)
        return result

    def ratio(self, position: int, axis: str) -> Tile | None:
        """f(now) / f(prior); None for one."""
        node = self.nodes[position]
        if not self.a.moves(position, axis):
            return None
        if isinstance(node.op, Cast):
            return self.ratio(node.args[0], axis)
        assert isinstance(node.op, Map)
        if node.op.function in ("mul", "div"):
            left, right = (self.ratio(arg, axis) for arg in node.args)
            if left is None and right is not None and node.op.function == "div":
                return apply("div", 1.0, right)
            if left is None or right is None:
                return left if right is None else right
            return apply(node.op.function, left, right)
        if node.op.function == "where":
            return self.ratio(self._chosen(node, axis), axis)
        if node.op.function == "neg":
            return self.ratio(node.args[0], axis)
        shift = self.amounts(self._exponent(node.args[0], axis), axis, self.view).get(None)
        return None if shift is None else apply("exp", shift)

    def _exponent(self, position: int, axis: str) -> int:
        """What is exponentiated where no mask forbids."""
        node = self.nodes[position]
        masked = isinstance(node.op, Map) and node.op.function == "where"
        if masked and self.a.moves(position, axis):
            return self._exponent(self._chosen(node, axis), axis)
        return position

    def _chosen(self, node: Node, axis: str) -> int:
        """What a mask chooses where it does not forbid: what moves of its two values."""
        return next(arg for arg in node.args[1:] if self.a.moves(arg, axis))

    # -- factors that are affine

    def amounts(self, position: int, axis: str, view: View) -> Amounts:
        """e(now) - e(prior), seen through `view`, as multiples of what does not move."""
        node = self.nodes[position]
        if not self.a.moves(position, axis):
            return {}
        if not self.a.varies(position, axis):
            return {None: apply("sub", view(position, "now", axis), view(position, "prior", axis))}
        if isinstance(node.op, Cast):
            return self.amounts(node.args[0], axis, view)
        assert isinstance(node.op, Map)
        parts = [self.amounts(arg, axis, view) for arg in node.args]
        function = node.op.function
        if function == "neg":
            return {key: apply("neg", tile) for key, tile in parts[0].items()}
        if function in ("add", "sub"):
            return _merged(function, parts[0], parts[1])
        moved, other = (parts[0], node.args[1]) if parts[0] else (parts[1], node.args[0])
        if self.a.varies(other, axis):
            return {other: moved[None]}
        left = bool(parts[0])
        return {
            key: apply(function, tile, self.final(other))
            if left
            else apply(function, self.final(other), tile)
            for key, tile in moved.items()
        }

    def prior(self, state: Tile) -> Tile:
        return self.graph.add(Prior(), state)

    def scale_to_whole(self, axis: str, domain: tuple[str, ...], view: str) -> Tile | float:
        """By how much a running sum falls short of the whole axis: extent / points seen."""
        op = Now() if view == "now" else Prior()
        seen = self.graph.add(op, self.count(axis, domain))
        return float(prod(self.program.axes[name] for name in self.a.over(axis))) / seen

    def count(self, axis: str, axes: tuple[str, ...]) -> Tile:
        """Points of the axis seen so far, as a carried sum of ones over the domain `axes`."""
        key = (axis, axes)
        if key not in self.counts:
            self.counts[key] = self.carry("sum", axis, self.spread(1.0, axes), None, None)
        return self.counts[key]

    def spread(self, value: Tile | float, axes: tuple[str, ...]) -> Tile:
        """A value that has at least these axes.

        Sums that go together have the same axes, so that one loop can carry them together.
        """
        result = value
        missing = [a for a in axes if not isinstance(value, Tile) or a not in value.axes]
        for name in missing:
            zero = self.graph.add(Iota(name)) * 0.0
            result = result + zero if isinstance(result, Tile) else zero + result
        assert isinstance(result, Tile)
        return result


def _merged(function: str, left: Amounts, right: Amounts) -> Amounts:
    """The amounts of a sum or difference."""
    found = dict(left)
    for key, tile in right.items():
        if key in left:
            found[key] = apply(function, left[key], tile)
        else:
            found[key] = apply("neg", tile) if function == "sub" else tile
    return found


class Family:
    """The states of one term: a sum over its scaling factors for every choice, for each affine
    factor, of the factor itself (0) or one of the coefficients in its change (1, 2, ...).
    """

    def __init__(self, rebuild: Rebuild, axis: str, term: Term, dtype: str) -> None:
        self.r, self.axis, self.term, self.dtype = rebuild, axis, term, dtype
        nodes = [f.node for f in term.scaling] + [*term.affine] + [m for m, _ in term.masks]
        self.domain = tuple(dict.fromkeys(a for n in nodes for a in rebuild.nodes[n].axes))
        self.known: dict[tuple[int, ...], Tile] = {}

    def state(self) -> Tile:
        """The state of the term itself."""
        self.ratio = self.r.ratio_of(self.term, self.axis)
        self.factors = self.r.scaling(self.term, self.axis)
        if not self.term.affine:
            body = self._masked(self.r.product(self.factors or [self._one()], self.dtype))
            return self.r.carry("sum", self.axis, body, self.ratio, None)
        if self._counted(self.term):
            self.r.prior(self.r.count(self.axis, self.domain))
        centred = Centred(self.r, self.axis, self.domain)
        rules = Rules(self.r.a, self.axis)
        self.bases = [rules.basis(e) or () for e in self.term.affine]
        self.moved = [self.r.amounts(e, self.axis, centred.view) for e in self.term.affine]
        self.values = [centred.body(e) for e in self.term.affine]
        return self._state((0,) * len(self.values))

    def _counted(self, term: Term) -> bool:
        return not term.scaling and not term.masks

    def _one(self) -> Tile:
        return self.r.spread(1.0, self.domain or (self.axis,))

    def _masked(self, body: Tile) -> Tile:
        for condition, value in reversed(self.term.masks):
            mask = self.r.final(condition)
            body = apply("where", mask, body, 0.0) if value else apply("where", mask, 0.0, body)
        return body

    def _state(self, choice: tuple[int, ...]) -> Tile:
        if choice not in self.known:
            self.known[choice] = self._made(choice)
        return self.known[choice]

    def _made(self, choice: tuple[int, ...]) -> Tile:
        chosen = sorted(self._chosen(choice), key=lambda tile: tile.position)
        values = [*self.factors, *chosen]
        if not values and self._counted(self.term):
            return self.r.count(self.axis, self.domain)
        addend = self._addend(choice)
        body = self._masked(self.r.product(values or [self._one()], self.dtype))
        body = self.r.spread(body, self.domain)
        return self.r.carry("sum", self.axis, body, self.ratio, addend)

    def _chosen(self, choice: tuple[int, ...]) -> list[Tile]:
        found = []
        for pick, value, basis in zip(choice, self.values, self.bases, strict=True):
            coefficient = basis[pick - 1] if pick else None
            if not pick:
                found.append(value)
            elif coefficient is not None:
                found.append(self.r.final(coefficient))
        return found

    def _addend(self, choice: tuple[int, ...]) -> Tile | None:
        """What the affine factors left in `choice` add when they move, from the other states."""
        values = [self._gained(choice, other) for other in self._below(choice)]
        return reduce(lambda total, value: apply("add", total, value), values) if values else None

    def _gained(self, before: tuple[int, ...], after: tuple[int, ...]) -> Tile:
        """What the state of choice `before` gains from that of choice `after`."""
        amount = self.ratio
        for old, new, basis, moved in zip(before, after, self.bases, self.moved, strict=True):
            if old != new:
                delta = moved[basis[new - 1]]
                amount = delta if amount is None else apply("mul", amount, delta)
        state = self.r.prior(self._state(after))
        return state if amount is None else apply("mul", amount, state)

    def _below(self, choice: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Choices in which some factors of `choice` gave way to a coefficient; fewest first."""
        options = [
            range(1 + len(basis)) if pick == 0 else (pick,)
            for pick, basis in zip(choice, self.bases, strict=True)
        ]
        found = [other for other in product(*options) if other != choice]
        changes = {o: [a != b for a, b in zip(choice, o, strict=True)] for o in found}
        return sorted(found, key=lambda o: (sum(changes[o]), [not c for c in changes[o]], o))


class Centred:
    """Values relative to running sums scaled up to the whole axis.

    Any reference is right in exact arithmetic, as long as it ends at the final value. A running sum
    times extent / count is near it from the first block on, so differences stay small.
    """

    def __init__(self, rebuild: Rebuild, axis: str, domain: tuple[str, ...]) -> None:
        self.r = rebuild
        self.axis = axis
        self.domain = domain
        self.memo: dict[tuple[int, str], Tile] = {}

    def body(self, position: int) -> Tile:
        return self.view(position, self.r.body_view, self.axis)

    def view(self, position: int, view: str, axis: str) -> Tile:
        """As `Rebuild.view`, at the scaled running values."""
        r = self.r
        if not r.a.moves(position, axis):
            return r.final(position)
        key = (position, view)
        if key not in self.memo:
            node = r.nodes[position]
            if r.a.carried.get(position) == axis:
                self.memo[key] = self._scaled(position, view)
            else:
                args = [self.view(arg, view, axis) for arg in node.args]
                self.memo[key] = r.graph.add(node.op, *args)
        return self.memo[key]

    def _scaled(self, position: int, view: str) -> Tile:
        r = self.r
        value = r.running(position, view)
        node = r.nodes[position]
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind != "sum":
            return value
        scale = r.scale_to_whole(self.axis, self.domain, view)
        whole = not isinstance(scale, Tile) and scale == 1.0
        return value if whole else value * scale
