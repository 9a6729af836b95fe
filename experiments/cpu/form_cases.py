"""Programs as one writes them, and the best equal ones that we know by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ir import Graph, Operator, cast, contract, exp, operator, reduce, rsqrt, where
from ir.axes import Axis
from ir.tiles import Tile
from ir.values import decay, positive


@dataclass(frozen=True, slots=True)
class Pair:
    """`plain` is searched as it is; `hand` with its form and residence as they are written."""

    name: str
    plain: Operator
    hand: Operator


def _matrix(g: Graph, name: str, rows: Axis, columns: Axis) -> Tile:
    return g.input(name, (rows, columns), "f32")


def _three(g: Graph, right: bool) -> None:
    m, k, n, p = g.axes(m=1024, k=1024, n=1024, p=8)
    a, b, c = _matrix(g, "A", m, k), _matrix(g, "B", k, n), _matrix(g, "C", n, p)
    if right:
        g.output("D", contract(a, contract(b, c, over=n), over=k), "f32", (m, p))
    else:
        g.output("D", contract(contract(a, b, over=k), c, over=n), "f32", (m, p))


def _normal(g: Graph, behind: bool) -> None:
    m, n, k = g.axes(m=64, n=1024, k=1024)
    x, w, gain = _matrix(g, "X", m, k), _matrix(g, "W", k, n), g.input("g", (k,), "f32")
    root = rsqrt(reduce("sum", x * x, over=k) * (1.0 / 1024) + 1e-6)
    if behind:
        g.output("Y", contract(x * gain, w, over=k) * root, "f32", (m, n))
    else:
        g.output("Y", contract(x * root * gain, w, over=k), "f32", (m, n))


def _scaled(g: Graph, first: bool) -> None:
    m, nb, ni, kb, ki = g.axes(m=64, nb=8, ni=128, kb=8, ki=128)
    a, b = g.input("A", (m, kb, ki), "e4m3"), g.input("B", (nb, ni, kb, ki), "e4m3")
    rows = g.input("sa", (m, kb), "f32", values=positive())
    columns = g.input("sb", (nb, kb), "f32", values=positive())
    if first:
        left, right = cast(a, "f32") * rows, cast(b, "f32") * columns
        g.output("C", contract(left, right, over=(kb, ki)), "f32", (m, nb, ni))
    else:
        parts = contract(a, b, over=ki) * rows * columns
        g.output("C", reduce("sum", parts, over=kb), "f32", (m, nb, ni))


LENGTHS = {
    3: (1000, 40, 900, 16),
    4: (300, 800, 60, 700, 200),
    5: (40, 900, 300, 700, 50, 600),
    6: (600, 700, 300, 100, 200, 400, 500),
}


def best_order(extents: tuple[int, ...]) -> tuple[int, dict[tuple[int, int], int]]:
    """Multiplications of the best grouping, and where it parts (Godbole 1973)."""
    count = len(extents) - 1
    cost = {(n, n): 0 for n in range(count)}
    parts: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for low in range(count - width):
            high = low + width
            options = {
                mid: cost[low, mid] + cost[mid + 1, high]
                + extents[low] * extents[mid + 1] * extents[high + 1]
                for mid in range(low, high)
            }  # fmt: skip
            parts[low, high] = min(options, key=lambda mid: options[mid])
            cost[low, high] = options[parts[low, high]]
    return cost[0, count - 1], parts


def _chain(g: Graph, extents: tuple[int, ...], best: bool) -> None:
    axes = g.axes(**{f"a{n}": extent for n, extent in enumerate(extents)})
    tiles = [_matrix(g, f"T{n}", *pair) for n, pair in enumerate(pairwise(axes))]
    parts = best_order(extents)[1]

    def grouped(low: int, high: int) -> Tile:
        if low == high:
            return tiles[low]
        mid = parts[low, high] if best else high - 1
        return contract(grouped(low, mid), grouped(mid + 1, high), over=axes[mid + 1])

    g.output("Y", grouped(0, len(tiles) - 1), "f32", (axes[0], axes[-1]))


def _linear(g: Graph, state: bool) -> None:
    b, i, j, d, e = g.axes(b=4, i=1024, j=1024, d=64, e=64)
    q, k = g.input("Q", (b, i, d), "f32"), g.input("K", (b, j, d), "f32")
    v = g.input("V", (b, j, e), "f32")
    if state:
        g.output("O", contract(q, contract(k, v, over=j), over=d), "f32", (b, i, e))
    else:
        g.output("O", contract(contract(q, k, over=d), v, over=j), "f32", (b, i, e))


def _retained(g: Graph, chunk: int) -> None:
    """Retention, quadratic or by chunks."""
    length = 2048
    if not chunk:
        b, i, j, d, e = g.axes(b=4, i=length, j=length, d=64, e=64)
        q, k = g.input("Q", (b, i, d), "f32"), g.input("K", (b, j, d), "f32")
        v, rate = g.input("V", (b, j, e), "f32"), g.input("rate", (b,), "f32", decay(0.1))
        apart = rate * cast(g.iota(i), "f32") - rate * cast(g.iota(j), "f32")
        weights = contract(q, k, over=d) * exp(where(g.iota(j) <= i, apart, -math.inf))
        g.output("O", contract(weights, v, over=j), "f32", (b, i, e))
        return
    from ir.folding import recurrence

    b, c, i, j, d, e = g.axes(b=4, c=length // chunk, i=chunk, j=chunk, d=64, e=64)
    q, k = g.input("Q", (b, c, i, d), "f32"), g.input("K", (b, c, j, d), "f32")
    v, rate = g.input("V", (b, c, j, e), "f32"), g.input("rate", (b,), "f32", decay(0.1))
    apart = rate * cast(g.iota(i) - j, "f32")
    weights = contract(q, k, over=d) * exp(where(g.iota(j) <= i, apart, -math.inf))
    ends = exp(rate * cast(g.iota(j) * -1 + (chunk - 1), "f32"))
    added = contract(k * ends, v, over=j)
    before = recurrence(exp(rate * float(chunk)), added, c).at(c=c - 1, fill=0)
    past = contract(q, before, over=d) * exp(rate * cast(g.iota(i) + 1, "f32"))
    g.output("O", contract(weights, v, over=j) + past, "f32", (b, c, i, e))


def _pair(name: str, plain: Callable[[Graph], None], hand: Callable[[Graph], None]) -> Pair:
    return Pair(name, _named(f"{name}_plain", plain), _named(f"{name}_hand", hand))


def _named(name: str, function: Callable[[Graph], None]) -> Operator:
    def build(g: Graph) -> None:
        function(g)

    build.__name__ = name
    return operator(build)


PAIRS: tuple[Pair, ...] = (
    _pair("three_matrices", lambda g: _three(g, False), lambda g: _three(g, True)),
    _pair("rmsnorm_linear", lambda g: _normal(g, False), lambda g: _normal(g, True)),
    _pair("block_scales", lambda g: _scaled(g, False), lambda g: _scaled(g, True)),
    *(
        _pair(
            f"chain_{count}",
            lambda g, lengths=lengths: _chain(g, lengths, False),
            lambda g, lengths=lengths: _chain(g, lengths, True),
        )
        for count, lengths in LENGTHS.items()
    ),
    _pair("linear_attention", lambda g: _linear(g, False), lambda g: _linear(g, True)),
    _pair("retention", lambda g: _retained(g, 0), lambda g: _retained(g, 64)),
)
