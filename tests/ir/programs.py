"""Hypothesis strategies for small programs that use every op."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from ir import (
    Axis,
    Graph,
    Program,
    Tile,
    apply,
    carry,
    cast,
    contract,
    exp,
    now,
    prior,
    recur,
    reduce,
    uniform,
)
from ir.axes import as_index
from ir.schedule import Value

Step = Callable[[st.DrawFn, Graph, tuple[Axis, ...], list[Tile]], Tile]

_UNARY = ("neg", "abs", "exp", "tanh", "sigmoid", "erf", "floor")
_BINARY = ("add", "sub", "mul", "max", "min", "div")
_FLOATS = ("f32", "bf16", "f64", "f16")


def _axis_of(draw: st.DrawFn, axes: tuple[Axis, ...], tile: Tile) -> Axis | None:
    mine = [axis for axis in axes if axis.name in tile.axes]
    return draw(st.sampled_from(mine)) if mine else None


def _unary(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    return apply(draw(st.sampled_from(_UNARY)), draw(st.sampled_from(tiles)))


def _binary(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    right = draw(
        st.sampled_from(tiles) | st.floats(-4, 4) | st.sampled_from(axes).map(lambda a: a + 1)
    )
    return apply(draw(st.sampled_from(_BINARY)), draw(st.sampled_from(tiles)), right)


def _where(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    value = draw(st.sampled_from(tiles))
    first, second = draw(st.sampled_from(axes)), draw(st.sampled_from(axes))
    return apply("where", g.iota(first) <= second * 2 - 1, value, float("-inf"))


def _reduce(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    value = draw(st.sampled_from(tiles))
    axis = _axis_of(draw, axes, value)
    return value if axis is None else reduce(draw(st.sampled_from(("sum", "max"))), value, axis)


def _contract(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    left, right = draw(st.sampled_from(tiles)), draw(st.sampled_from(tiles))
    axis = _axis_of(draw, axes, left)
    return left if axis is None else contract(left, right, over=axis, acc="f32")


def _cast(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    return cast(draw(st.sampled_from(tiles)), draw(st.sampled_from(_FLOATS)))


def _load(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    name = f"T{draw(st.integers(0, 10**6))}"
    first, second = draw(st.sampled_from(axes)), draw(st.sampled_from(axes))
    index = as_index(first) * draw(st.integers(-2, 2)) + second + draw(st.integers(-3, 3))
    handle = g.tensor(name, (draw(st.integers(1, 5)), second.extent), "f32", fill=0.5)
    return handle[index, second]


def _gather(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    number = draw(st.integers(0, 10**6))
    along = draw(st.sampled_from(axes))
    rows = g.input(f"I{number}", (along,), "i32")
    return g.tensor(f"G{number}", (draw(st.integers(1, 6)), along.extent), "bf16")[rows, along]


def _stream(draw: st.DrawFn, g: Graph, axes: tuple[Axis, ...], tiles: list[Tile]) -> Tile:
    value = draw(st.sampled_from(tiles))
    axis = _axis_of(draw, axes, value)
    if axis is None:
        return value
    top = carry("max", value, axis)
    return carry("sum", exp(value - now(top)), axis, factor=exp(prior(top) - now(top)))


_STEPS: tuple[Step, ...] = (
    _unary, _binary, _where, _reduce, _contract, _cast, _load, _gather, _stream,
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program of a few steps over up to three axes, with an output or two."""
    g = Graph(draw(st.sampled_from(("p", "op_1"))))
    extents = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axes = g.axes(**dict(zip("abc", extents, strict=False)))
    tiles = [g.input("X", axes, draw(st.sampled_from(_FLOATS))), g.input("v", axes[:1], "f32")]
    used: set[str] = set()
    for step in draw(st.lists(st.sampled_from(_STEPS), max_size=8)):
        try:
            tiles.append(step(draw, g, axes, tiles))
        except Exception as error:  # a tensor drawn twice
            if "declared twice" not in str(error):
                raise
    for number, tile in enumerate(reversed(tiles[-draw(st.integers(1, 2)) :])):
        used.update(tile.axes)
        g.output(f"out{number}", tile)
    if draw(st.booleans()):
        values: tuple[Value, ...] = (4, True, "whole")
        g.pin("tile.a.1", draw(st.sampled_from(values)))
    return g.program()


def indirect() -> Program:
    """Rows of a tensor at indices that another tensor holds."""
    g = Graph("indirect")
    m, n = g.axes(m=4, n=6)
    rows = g.input("I", (m,), "i32")
    g.output("Y", g.tensor("X", (9, n.extent), "f32")[rows, n])
    return g.program()


def wrapped() -> Program:
    """A row that is read from its second element on, and its first at the end."""
    g = Graph("wrapped")
    (m,) = g.axes(m=6)
    g.output("Y", g.tensor("X", (6,), "f32")[g.coordinate(m + 1) % 6])
    return g.program()


def streamed() -> Program:
    """A sum of exponentials with the running maximum carried along."""
    g = Graph("streamed")
    m, n = g.axes(m=4, n=6)
    x = g.input("X", (m, n), "f32")
    top = carry("max", x, n)
    g.output("Y", carry("sum", exp(x - now(top)), n, factor=exp(prior(top) - now(top))))
    return g.program()


def whole_sum() -> Program:
    """Everything in one number, beside a number of the whole."""
    g = Graph("whole_sum")
    m, n = g.axes(m=4, n=6)
    x = g.input("X", (m, n), "f32")
    total = reduce("sum", x, (m, n))
    g.output("Y", total, "f32")
    g.output("Z", x * total + 1.0, "bf16")
    return g.program()


def outer() -> Program:
    """A sum over an axis that only one factor has, stored the other way round."""
    g = Graph("outer")
    m, n, k = g.axes(m=4, n=6, k=5)
    product = contract(g.input("A", (m, k), "f16"), g.input("B", (n,), "f16"), over=k)
    g.output("C", product, "f16", (n, m))
    return g.program()


def legendre(steps: int, rows: int, points: int) -> Program:
    """Sums of Legendre polynomials up to a degree, which go by their recurrence, for each row."""
    g = Graph("legendre")
    t, b, n = g.axes(l=steps, b=rows, n=points)
    x, number = g.input("x", (n,), "f32", values=uniform(-1, 1)), cast(g.iota(t), "f32")
    here, last = g.state(t, (n,), 1.0), g.state(t, (n,), 0.0)
    recur(last, here)
    recur(here, ((2 * number + 1) * x * here - number * last) / (number + 1))
    g.output("Y", reduce("sum", g.input("C", (b, t), "f32") * here, over=t))
    return g.program()
