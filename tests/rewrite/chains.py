"""Hypothesis strategies for chains of reductions along one axis, all of them derivable."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from ir import Graph, Program, Tile, apply, cast, contract, exp, reduce, where

Factor = Callable[[st.DrawFn, "Chain"], Tile]


class Chain:
    """A program under construction: x[i, k], y[k], z[k, j] and the reductions over k so far."""

    def __init__(self, i: int, k: int, j: int) -> None:
        self.graph = Graph("chain")
        self.i, self.k, self.j = self.graph.axes(i=i, k=k, j=j)
        self.x = self.graph.input("x", (self.i, self.k), "f64")
        self.y = self.graph.input("y", (self.k,), "f64")
        self.z = self.graph.input("z", (self.k, self.j), "f64")
        self.reduced: list[Tile] = []

    def mask(self, draw: st.DrawFn) -> Tile:
        causal = self.graph.iota(self.k) <= self.i + draw(st.integers(-2, 3))
        return draw(st.sampled_from((causal, self.y < 0.3)))

    def value(self, draw: st.DrawFn) -> Tile:
        """Something that moves and is of moderate size."""
        tile = draw(st.sampled_from(self.reduced))
        return apply("tanh", tile) if draw(st.booleans()) else apply("tanh", tile * 0.1) * 2.0


def _exponential(draw: st.DrawFn, c: Chain) -> Tile:
    return exp((c.x - c.value(draw)) * draw(st.sampled_from((0.5, 1.0, -1.0))))


def _masked_exponential(draw: st.DrawFn, c: Chain) -> Tile:
    inside = (c.y - c.value(draw)) / 2.0
    return exp(where(c.mask(draw), inside, float("-inf")))


def _shifted(draw: st.DrawFn, c: Chain) -> Tile:
    return c.x - c.value(draw) * draw(st.sampled_from((1.0, 0.5)))


def _residual(draw: st.DrawFn, c: Chain) -> Tile:
    return c.value(draw) * c.y - c.x


def _still(draw: st.DrawFn, c: Chain) -> Tile:
    return draw(st.sampled_from((c.y, c.x, apply("sigmoid", c.y))))


def _quotient(draw: st.DrawFn, c: Chain) -> Tile:
    return _shifted(draw, c) / exp((c.x - c.value(draw)) * 0.5)


def _scaled(draw: st.DrawFn, c: Chain) -> Tile:
    return c.x / (c.value(draw) + 3.0)


def _selected(draw: st.DrawFn, c: Chain) -> Tile:
    other = c.y if draw(st.booleans()) else 0.0
    return where(c.mask(draw), _shifted(draw, c), other)


def _sum(draw: st.DrawFn, c: Chain) -> Tile:
    return cast(_exponential(draw, c) - c.y * c.value(draw), "f64")


_MOVING: tuple[Factor, ...] = (
    _exponential, _masked_exponential, _shifted, _residual, _quotient, _scaled, _selected, _sum,
)  # fmt: skip


def _first(draw: st.DrawFn, c: Chain) -> Tile:
    kind = draw(st.sampled_from(("max", "min", "sum", "contract")))
    if kind == "contract":
        left, right = draw(st.sampled_from(((c.x, c.y), (exp(c.x), c.y + 1.0))))
        return contract(left, right, c.k) / float(c.k.extent)
    value = reduce(kind, draw(st.sampled_from((c.x, c.y + c.x, c.y))), c.k)
    return value / float(c.k.extent) if kind == "sum" else value


def _next(draw: st.DrawFn, c: Chain) -> Tile:
    if draw(st.integers(0, 4)) == 0:
        kind = draw(st.sampled_from(("max", "min")))
        return reduce(kind, draw(st.sampled_from((_shifted, _exponential)))(draw, c), c.k)
    body = draw(st.sampled_from(_MOVING))(draw, c)
    for factor in draw(st.lists(st.sampled_from((*_MOVING, _still)), max_size=2)):
        body = body * factor(draw, c)
    if draw(st.booleans()):
        return contract(body, c.z, c.k)
    return reduce("sum", body, c.k)


@st.composite
def chains(draw: st.DrawFn, keep: bool = True) -> Program:
    """Two to four reductions over k, each reading earlier ones; `keep` may store values along k."""
    c = Chain(draw(st.integers(1, 3)), draw(st.integers(2, 17)), draw(st.integers(1, 2)))
    c.reduced.append(_first(draw, c))
    for _ in range(draw(st.integers(1, 3))):
        c.reduced.append(_next(draw, c))
    for number, tile in enumerate(c.reduced):
        c.graph.output(f"r{number}", tile)
    if keep and draw(st.booleans()):
        c.graph.output("kept", c.x - c.value(draw))
    return c.graph.program()
