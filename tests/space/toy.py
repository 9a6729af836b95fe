"""A made-up tiling space and the time it would take: for tests of all that walks spaces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ir.schedule import Value
from ir.space import Columns, Constraint, Decision, Matrix, Space

EXTENT = 1024
CACHE = 1 << 20


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range(low, high + 1))


def _block(values: Mapping[str, Value]) -> str:
    need = int(values["tile.m.1"]) * int(values["tile.k.1"]) * 4
    return f"block of A: {need:,} B needed, {CACHE // 2:,} B there"


def tiling_space() -> Space:
    """Twelve decisions, 5e8 schedules, of which some 0.3 percent are legal."""
    ways = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")
    decisions = (
        Decision("tile.m.1", _powers(4, 10), "tile", "m", "rows of a block", 128),
        Decision("tile.n.1", _powers(4, 10), "tile", "n", "columns of a block", 128),
        Decision("tile.k.1", _powers(4, 10), "tile", "k", "depth of a block", 128),
        Decision("tile.m.2", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16), "tile", "m", "rows", 4),
        Decision("tile.n.2", (1, 2, 3, 4, 5, 6, 8), "tile", "n", "vectors", 2),
        Decision("unroll.k", (1, 2, 4, 8, 16), "pipeline", "k", "steps a turn", 4),
        Decision("pack.A", (False, True), "layout", "A", "copy A to panels"),
        Decision("pack.B", (False, True), "layout", "B", "copy B to panels"),
        Decision("order", ways, "order", "nest", "order of the outer loops", "nkm"),
        Decision("threads.m", (1, 2, 4, 8, 16), "binding", "m", "threads over rows", 4),
        Decision("threads.n", (1, 2, 4, 8, 16), "binding", "n", "threads over columns", 4),
        Decision("prefetch", (0, 1, 2, 4, 8, 16), "pipeline", "B", "lines ahead", 0),
    )
    return Space("toy", decisions, _constraints())


def _constraints() -> tuple[Constraint, ...]:
    def rule(name: str, needs: str, check: object) -> Constraint:
        return Constraint(name, needs, check, lambda values: f"{len(values)} decisions")  # type: ignore[arg-type]

    return (
        rule("threads", "16 threads in all", lambda c: c["threads.m"] * c["threads.n"] == 16),
        rule("registers", "32 at most", lambda c: (c["tile.m.2"] + 1) * c["tile.n.2"] < 32),
        rule("latency", "8 chains at least", lambda c: c["tile.m.2"] * c["tile.n.2"] >= 8),
        rule("m-divides", "whole tiles", lambda c: c["tile.m.1"] % c["tile.m.2"] == 0),
        rule("n-divides", "whole tiles", lambda c: c["tile.n.1"] % (16 * c["tile.n.2"]) == 0),
        Constraint(
            "cache",
            "a block of A in half of the cache",
            lambda c: c["tile.m.1"] * c["tile.k.1"] * 4 <= CACHE // 2,
            _block,
        ),
        rule("panel", "16 KiB", lambda c: c["tile.k.1"] * c["tile.n.2"] * 64 <= 1 << 14),
        rule("parallel", "a block for each thread", _parallel),
        rule(
            "pack-order",
            "packing of B outside of the row loop",
            lambda c: ~(c["pack.B"].astype(bool) & c.among("order", ("mnk", "mkn"))),
        ),
    )


def _parallel(columns: Columns) -> NDArray[np.bool_]:
    rows = columns["tile.m.1"] * columns["threads.m"] <= EXTENT
    return np.asarray(rows & (columns["tile.n.1"] * columns["threads.n"] <= EXTENT))


def toy_seconds(space: Space, matrix: Matrix) -> NDArray[np.float64]:
    """A smooth but interacting model of a blocked matrix product."""
    c = space.columns(matrix)
    rows, columns = c["tile.m.2"], c["tile.n.2"]
    chains = rows * columns
    speed = np.minimum(1, chains / 12) * np.minimum(1, chains / (rows + columns) / 2.4)
    blocks = np.log2(c["tile.m.1"] * c["tile.k.1"] / 2**15)
    speed /= 1 + 8 / c["tile.k.1"] + 64 / c["tile.n.1"] + 0.02 * np.abs(blocks)
    unroll = c["unroll.k"]
    speed *= np.where(unroll * chains > 120, 0.82, 1) * np.where(unroll < 4, 0.9, 1)
    speed *= np.where(c["pack.B"] == 1, 1, 0.75) * np.where(c["pack.A"] == 1, 0.97, 0.9)
    order = {"mnk": 0.8, "mkn": 0.85, "nmk": 0.93, "nkm": 1.0, "kmn": 0.9, "knm": 0.95}
    speed *= c.lookup("order", order)
    speed *= 1 - 0.02 * np.abs(np.log2(c["prefetch"] + 1) - 2)
    speed *= np.where(c["threads.m"] > c["threads.n"], 0.97, 1)
    return np.asarray(1e-3 / speed, dtype=np.float64)


def small_space() -> Space:
    """Few enough schedules to list: 60 in all, 31 legal."""
    decisions = (
        Decision("x", (1, 2, 3, 4, 5), "tile", "x", "a size"),
        Decision("y", (1, 2, 3, 4), "tile", "y", "another"),
        Decision("mode", ("slow", "fast", "odd"), "order", "nest", "how"),
    )
    rules = (
        Constraint("sum", "x + y at most 6", lambda c: c["x"] + c["y"] <= 6, lambda v: "sum"),
        Constraint(
            "odd", "odd mode needs x of 3", lambda c: ~c.is_("mode", "odd") | (c["x"] == 3), str
        ),
    )
    return Space("toy", decisions, rules)
