"""Grids that evolve: fields, fluids, images, cells; what a step needs lies near.

`tilewright tune experiments/corpus/grids.py:NAME full ...`; what they take is in README.md.
"""

from __future__ import annotations

from ir import Graph, Tile, exp, maximum, minimum, operator, recur, where
from ir.axes import Axis
from ir.values import uniform

WAYS = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1))
WEIGHTS = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)


def beside(x: Tile, i: Axis, j: Axis) -> tuple[Tile, ...]:
    """The four neighbours of each point, 0 beyond the edges."""
    rows = x.at(i=i - 1, fill=0), x.at(i=i + 1, fill=0)
    return *rows, x.at(j=j - 1, fill=0), x.at(j=j + 1, fill=0)


@operator
def fdtd(g: Graph, m: int, n: int, steps: int) -> None:
    """An electric field and two magnetic ones in a plane, in turns (Yee's grid)."""
    i, j, t = g.axes(i=m, j=n, t=steps)
    ez, hx, hy = (g.state(t, (i, j), g.input(name, (i, j), "f32")) for name in ("E", "HX", "HY"))
    new_x = hx - 0.5 * (ez.at(j=j + 1, fill=0) - ez)
    new_y = hy + 0.5 * (ez.at(i=i + 1, fill=0) - ez)
    curl = new_y - new_y.at(i=i - 1, fill=0) - new_x + new_x.at(j=j - 1, fill=0)
    new = ez + g.input("C", (i, j), "f32") * curl
    recur(hx, new_x)
    recur(hy, new_y)
    g.output("Y", recur(ez, new), "f32", (i, j))


@operator
def lattice_boltzmann(g: Graph, m: int, n: int, steps: int) -> None:
    """A fluid on a torus: nine streams, and how they relax where they meet (D2Q9)."""
    i, j, t = g.axes(i=m, j=n, t=steps)
    f = [g.state(t, (i, j), g.input(f"F{q}", (i, j), "f32")) for q in range(len(WAYS))]
    came = []
    for stream, (down, right) in zip(f, WAYS, strict=True):
        at = {i: (g.coordinate(i) + (m - down)) % m} if down else {}
        at |= {j: (g.coordinate(j) + (n - right)) % n} if right else {}
        came.append(stream.at(at) if at else stream)
    density = sum(came[1:], came[0])
    x = sum((s * float(r) for s, (_, r) in zip(came, WAYS, strict=True) if r), came[0] * 0.0)
    y = sum((s * float(d) for s, (d, _) in zip(came, WAYS, strict=True) if d), came[0] * 0.0)
    energy = (x * x + y * y) * 1.5
    for q, ((down, right), weight) in enumerate(zip(WAYS, WEIGHTS, strict=True)):
        along = (x * float(right) + y * float(down)) * 3.0
        rest = density * weight + (along + along * along * 0.5 - energy) * weight
        g.output(f"O{q}", recur(f[q], came[q] + (rest - came[q]) * 0.6), "f32", (i, j))


@operator
def perona(g: Graph, b: int, m: int, n: int, steps: int) -> None:
    """Images whose noise spreads where there is no edge (Perona and Malik)."""
    q, i, j, t = g.axes(q=b, i=m, j=n, t=steps)
    x = g.state(t, (q, i, j), g.input("X", (q, i, j), "bf16"))
    total = x * 0.0
    for neighbour in beside(x, i, j):
        apart = neighbour - x
        total = total + apart * exp(-(apart * apart))
    g.output("Y", recur(x, x + total * 0.2), "bf16", (q, i, j))


@operator
def flood(g: Graph, m: int, n: int, steps: int) -> None:
    """What of an image of bytes is reached under a mask: dilations, one after the other."""
    i, j, t = g.axes(i=m, j=n, t=steps)
    x = g.state(t, (i, j), g.input("X", (i, j), "u8", values=uniform(0, 255)))
    top = x
    for neighbour in beside(x, i, j):
        top = maximum(top, neighbour)
    mask = g.input("M", (i, j), "u8", values=uniform(0, 255))
    g.output("Y", recur(x, minimum(top, mask)), "u8", (i, j))


@operator
def jacobi(g: Graph, n: int, steps: int) -> None:
    """Poisson's equation in a cube, relaxed from nothing."""
    i, j, k, t = g.axes(i=n, j=n, k=n, t=steps)
    u = g.state(t, (i, j, k), 0.0)
    around = g.input("F", (i, j, k), "f32")
    for axis in (i, j, k):
        around = around + u.at({axis: axis - 1}, fill=0) + u.at({axis: axis + 1}, fill=0)
    g.output("U", recur(u, around * (1 / 6)), "f32", (i, j, k))


@operator
def burgers(g: Graph, b: int, n: int, steps: int) -> None:
    """Shocks on strings whose ends go on as they are, every step of which is stored."""
    q, i, t = g.axes(q=b, i=n, t=steps)
    u = g.state(t, (q, i), g.input("U", (q, i), "f64"))
    left, right = maximum(g.coordinate(i) - 1, 0), minimum(g.coordinate(i) + 1, n - 1)
    flux = u * u * 0.5
    spread = u.at(i=left) - 2.0 * u + u.at(i=right)
    new = u - 0.1 * (flux - flux.at(i=left)) + 0.01 * spread
    g.output("H", new, "f64", (t, q, i))
    recur(u, new)


@operator
def rule_110(g: Graph, n: int, steps: int) -> None:
    """A ring of cells that are what three of them say."""
    i, t = g.axes(i=n, t=steps)
    x = g.state(t, (i,), g.input("X", (i,), "i8", values=uniform(0, 1)))
    left, right = (x.at(i=(g.coordinate(i) + step) % n) for step in (n - 1, 1))
    code = left * 4 + x * 2 + right
    dead = (code == 0) | (code == 4) | (code == 7)
    g.output("Y", recur(x, where(dead, g.constant(0, "i32"), 1)), "i8", (i,))


EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "fdtd": {
        "small": {"m": 41, "n": 70, "steps": 5},
        "full": {"m": 4096, "n": 4096, "steps": 32},
    },
    "lattice_boltzmann": {
        "small": {"m": 40, "n": 37, "steps": 3},
        "full": {"m": 2048, "n": 2048, "steps": 32},
    },
    "perona": {
        "small": {"b": 2, "m": 40, "n": 37, "steps": 4},
        "full": {"b": 4, "m": 2048, "n": 2048, "steps": 16},
    },
    "flood": {
        "small": {"m": 70, "n": 41, "steps": 6},
        "full": {"m": 8192, "n": 8192, "steps": 32},
    },
    "jacobi": {"small": {"n": 21, "steps": 3}, "full": {"n": 384, "steps": 16}},
    "burgers": {
        "small": {"b": 3, "n": 700, "steps": 5},
        "full": {"b": 16, "n": 1048576, "steps": 16},
    },
    "rule_110": {"small": {"n": 1500, "steps": 9}, "full": {"n": 16777216, "steps": 64}},
}
