"""Programs drawn at random of every dtype and scalar function."""

from __future__ import annotations

import numpy as np

from ir import Graph, Program, Tile, cast, cumulative, reduce, where
from ir.errors import ProgramError
from ir.scalar import FUNCTIONS
from ir.tiles import apply

DTYPES = (
    "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "bf16", "f16", "f32", "f64", "e4m3",
    "e5m2",
)  # fmt: skip
NAMED = tuple(name for name in FUNCTIONS if name not in ("philox", "unit", "lookup", "bitcast"))


def typed(seed: int) -> Program | None:
    """The program of a seed; None where nothing came of it."""
    rng = np.random.default_rng(seed)
    g = Graph(f"typed_{seed}")
    i, j = g.axes(i=int(rng.choice([1, 3, 17, 40])), j=int(rng.choice([8, 16, 33, 64])))
    inputs = [(i, j), (i,), (j,), (i, j)]
    values = [
        g.input(f"X{n}", inputs[rng.integers(4)], str(rng.choice(DTYPES)))
        for n in range(rng.integers(2, 5))
    ]

    def one() -> Tile:
        return values[int(rng.integers(len(values)))]

    def made() -> Tile:
        way, x = int(rng.integers(9)), one()
        axis = {"i": i, "j": j}[x.axes[int(rng.integers(len(x.axes)))]] if x.axes else j
        if way < 4:
            name = str(rng.choice(NAMED))
            return apply(name, *(one() for _ in range(FUNCTIONS[name].arity)))
        if way == 4:
            return cast(x, str(rng.choice(DTYPES)))
        if way == 5:
            return reduce(str(rng.choice(["sum", "max", "min"])), x, over=axis)
        if way == 6:
            return where(one() != 0, x, one())
        if way == 7:
            return cumulative(str(rng.choice(["sum", "max"])), x, axis)
        return x.at({j: j - 1}, fill=0)

    for _ in range(rng.integers(3, 9)):
        try:
            values.append(made())
        except ProgramError:
            continue
    for number, value in enumerate(values[::-1][:3]):
        try:
            dtype = str(rng.choice(DTYPES)) if rng.integers(2) else value.dtype
            g.output(f"Y{number}", value, dtype)
        except ProgramError:
            continue
    try:
        return g.program()
    except ProgramError:
        return None
