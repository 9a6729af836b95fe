"""Makes chains of reductions along one axis single-pass: carried state, rescaled as it moves.

Let r2 = sum_k f(k, r1), where r1 is itself reduced over k. While k is walked, only a running r1 is
known. If f(k, r1') can be written with f(k, r1) and terms that do not depend on k, the sum so far
can be corrected whenever r1 moves, and one pass is enough. Two forms are derived from the
expression itself, by structural rules:

- separable: f(k, r') = f(k, r) * ratio(r, r'), so the state is multiplied by the ratio;
- a product of two factors that each shift by a k-independent amount, e(k, r') = e(k, r) + d(r, r'):
  the state needs the sums of the factors and a count beside it (Chan, Golub and LeVeque's update
  of a running variance is the case of equal factors).

Factors that do not vary over k are moved behind the sum first. Milakov and Gimelshein (2018)
describe the first form for softmax; here it is not looked for by name.
"""

from __future__ import annotations

from collections.abc import Callable

from ir.builder import Graph, Tile, apply
from ir.ops.map import Cast, Iota, Map
from ir.ops.reduce import Carry, Now, Prior, Reduce
from ir.program import Program
from ir.rewrite.analysis import Analysis, Rules
from ir.rewrite.graft import graft

View = Callable[[int, str, str], Tile]


def stream(program: Program, keep: frozenset[str] = frozenset()) -> Program:
    """The program with every derivable chain of reductions carried; unchanged if there is none.

    Chains along the axes in `keep` stay as they are.
    """
    plan = Analysis(program, keep).run()
    if not plan.carried:
        return program
    return Rebuild(program, plan).run()


def why_not(program: Program) -> dict[int, str]:
    """Reductions (by node) that depend on another along their axis but stay a pass of their own."""
    return dict(Analysis(program).run().refused)


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
        self.states: dict[int, Tile] = {}
        self.counts: dict[tuple[str, tuple[str, ...]], Tile] = {}

    def run(self) -> Program:
        for _position, node in enumerate(self.nodes):
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
            return self._running(position, view)
        args = [self.view(arg, view, axis) for arg in node.args]
        return self.graph.add(node.op, *args)

    def _running(self, position: int, view: str) -> Tile:
        """Now or Prior of a carry, with its hoisted factors at the same view."""
        axis = self.a.carried[position]
        value = self.graph.add(Now() if view == "now" else Prior(), self.state(position))
        for function, factor in self._hoisted(position):
            value = apply(function, value, self.view(factor, view, axis))
        return value

    def _hoisted(self, position: int) -> tuple[tuple[str, int], ...]:
        body = self.a.bodies.get(position)
        return body.hoisted if body else ()

    def result(self, position: int) -> Tile:
        """The final value: the state, then what was moved behind the sum."""
        value = self.state(position)
        for function, factor in self._hoisted(position):
            value = apply(function, value, self.final(factor))
        return value

    # -- states

    def state(self, position: int) -> Tile:
        if position not in self.states:
            self.states[position] = self._state(position)
        return self.states[position]

    def _state(self, position: int) -> Tile:
        node, axis = self.nodes[position], self.a.carried[position]
        body = self.a.bodies.get(position)
        if body is None:
            whole = self._product_state(position, axis)
            if whole is not None:
                return whole
            kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
            return self._carry(
                kind, axis, self._product([self.final(arg) for arg in node.args]), None, None
            )
        rules = Rules(self.a, axis)
        if rules.separable(body.factors):
            ratio = self._all_ratios(body.factors, axis)
            factors = [self.view(f, self.body_view, axis) for f in body.factors]
            return self._carry("sum", axis, self._product(factors), ratio, None)
        return self._shifted(body.factors, axis)

    def _product_state(self, position: int, axis: str) -> Tile | None:
        """A state of another form for an independent product; None for the ordinary one."""
        return None

    def _carry(
        self, kind: str, axis: str, body: Tile, factor: Tile | None, addend: Tile | None
    ) -> Tile:
        extra = [tile for tile in (factor, addend) if tile is not None]
        op = Carry(kind, axis, factor is not None, addend is not None)
        return self.graph.add(op, body, *extra)

    def _product(self, factors: list[Tile]) -> Tile:
        result = factors[0]
        for factor in factors[1:]:
            result = apply("mul", result, factor)
        return result

    # -- separable bodies

    def _all_ratios(self, factors: tuple[int, ...], axis: str) -> Tile | None:
        result: Tile | None = None
        for factor in factors:
            ratio = self.ratio(factor, axis)
            if ratio is not None:
                result = ratio if result is None else apply("mul", result, ratio)
        return result

    def ratio(self, position: int, axis: str) -> Tile | None:
        """f(now) / f(prior); None for one."""
        node = self.nodes[position]
        if not self.a.moves(position, axis):
            return None
        if not self.a.varies(position, axis):
            now, prior = self.view(position, "now", axis), self.view(position, "prior", axis)
            return apply("div", now, prior)
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
            return self.ratio(node.args[1], axis)
        shift = None
        if node.op.function == "exp":
            shift = self.shift(node.args[0], axis)
            return None if shift is None else apply("exp", shift)
        return self.ratio(node.args[0], axis)

    def shift(self, position: int, axis: str, view: View | None = None) -> Tile | None:
        """e(now) - e(prior), seen through `view`; None for zero."""
        node = self.nodes[position]
        view = view or self.view
        if not self.a.moves(position, axis):
            return None
        if not self.a.varies(position, axis):
            return apply("sub", view(position, "now", axis), view(position, "prior", axis))
        if isinstance(node.op, Cast):
            return self.shift(node.args[0], axis, view)
        assert isinstance(node.op, Map)
        shifts = [self.shift(arg, axis, view) for arg in node.args]
        function = node.op.function
        if function == "neg":
            return None if shifts[0] is None else apply("neg", shifts[0])
        left, right = shifts
        if function in ("add", "sub"):
            if right is None:
                return left
            if left is None:
                return apply("neg", right) if function == "sub" else right
            return apply(function, left, right)
        if left is not None:
            return apply(function, left, self.final(node.args[1]))
        return None if right is None else apply("mul", self.final(node.args[0]), right)

    # -- products of shifting factors

    def _shifted(self, factors: tuple[int, ...], axis: str) -> Tile:
        """Sum of e1 * e2: addend d1 S2 + d2 S1 + d1 d2 n, all relative to running values."""
        domain = tuple(dict.fromkeys(a for f in factors for a in self.nodes[f].axes))
        centred = _Centred(self, axis, domain)
        count = self._prior(self.count(axis, domain))
        shifts = [centred.shift(f) for f in factors]
        values = [centred.body(f) for f in factors]
        if len(factors) == 1:
            return self._first_moment(values[0], shifts[0], axis, count)
        sums = [self._first_moment(v, d, axis, count) for v, d in zip(values, shifts, strict=True)]
        addend: Tile | None = None
        for value in (
            self._times(shifts[0], self._prior(sums[1])),
            self._times(shifts[1], self._prior(sums[0])),
            self._times(self._times(shifts[0], shifts[1]), count),
        ):
            if value is not None:
                addend = value if addend is None else apply("add", addend, value)
        return self._carry("sum", axis, self._product(values), None, addend)

    def _first_moment(self, value: Tile, shift: Tile | None, axis: str, count: Tile) -> Tile:
        addend = self._times(shift, count)
        return self._carry("sum", axis, value, None, addend)

    def _times(self, left: Tile | None, right: Tile | None) -> Tile | None:
        return None if left is None or right is None else apply("mul", left, right)

    def _prior(self, state: Tile) -> Tile:
        return self.graph.add(Prior(), state)

    def scale_to_whole(self, axis: str, domain: tuple[str, ...], view: str) -> Tile | float:
        """By how much a running sum falls short of the whole axis: extent / points seen."""
        op = Now() if view == "now" else Prior()
        seen = self.graph.add(op, self.count(axis, domain))
        return float(self.program.axes[axis]) / seen

    def count(self, axis: str, axes: tuple[str, ...]) -> Tile:
        """Points of the axis seen so far, as a carried sum of ones over the domain `axes`.

        It has the axes of the sums that it goes with, so that one loop can carry them together.
        """
        key = (axis, axes)
        if key not in self.counts:
            one: Tile | None = None
            for name in axes:
                zero = self.graph.add(Iota(name)) * 0.0
                one = zero + 1.0 if one is None else one + zero
            assert one is not None
            self.counts[key] = self._carry("sum", axis, one, None, None)
        return self.counts[key]


class _Centred:
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
        return self._view(position, self.r.body_view)

    def _view(self, position: int, view: str) -> Tile:
        r = self.r
        if not r.a.moves(position, self.axis):
            return r.final(position)
        key = (position, view)
        if key not in self.memo:
            node = r.nodes[position]
            if r.a.carried.get(position) == self.axis:
                self.memo[key] = self._scaled(position, view)
            else:
                args = [self._view(arg, view) for arg in node.args]
                self.memo[key] = r.graph.add(node.op, *args)
        return self.memo[key]

    def _scaled(self, position: int, view: str) -> Tile:
        r = self.r
        value = r._running(position, view)
        node = r.nodes[position]
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind != "sum":
            return value
        scale = r.scale_to_whole(self.axis, self.domain, view)
        return value if scale == 1.0 else value * scale

    def shift(self, position: int) -> Tile | None:
        """As `Rebuild.shift`, at the scaled running values."""
        return self.r.shift(position, self.axis, lambda p, view, axis: self._view(p, view))
