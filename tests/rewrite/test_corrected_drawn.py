"""Drawn steps that scale and correct a state at several places: by chunks, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Axis, Graph, Tile, contract, exp, recur
from ir.program import Program
from ir.values import normal, uniform
from tests.rewrite.test_chunks import LONG, same

KEYS, VALUES = ("K", "A", "C"), ("V", "W")
SEEDS = (*range(40), 42, 116)  # of the last two: a product twice, and a state read in the midst


def drawn(seed: int) -> Program:
    """One to three corrections, given products and decays in any order, read at any place."""
    rng = np.random.default_rng(seed)
    g = Graph("drawn")
    b, t, k, v = g.axes(b=2, t=LONG, k=3, v=int(rng.integers(1, 5)))
    given = {name: g.input(name, (b, t, k), "f64", normal(0.4)) for name in KEYS}
    given |= {name: g.input(name, (b, t, v), "f64") for name in VALUES}
    given |= {name: g.input(name, (b, t), "f64", uniform(0, 1)) for name in ("beta", "part")}
    given["gate"] = g.input("gate", (b, t), "f64", uniform(-1, 0))
    given["gates"] = g.input("gates", (b, t, k), "f64", uniform(-1, 0))
    start = g.input("S0", (b, k, v), "f64") if rng.random() < 0.3 else 0.0
    before = g.state(t, (b, k, v), start, "f64")
    places, corrections = [before], 0
    for _ in range(int(rng.integers(2, 6))):
        kind = rng.choice(["decay", "correct", "correct", "give"])
        corrections += kind == "correct"
        if kind != "correct" or corrections <= 3:
            places.append(_changed(rng, str(kind), places, given, k))
    q = g.input("Q", (b, t, k), "f64")
    for number in {len(places) - 1, int(rng.integers(len(places)))}:
        g.output(f"O{number}", contract(q, places[number], over=k), "f64", (b, t, v))
    g.output("S", recur(before, places[-1]), "f64", (b, k, v))
    return g.program()


def _changed(
    rng: np.random.Generator, kind: str, places: list[Tile], given: dict[str, Tile], k: Axis
) -> Tile:
    """The state after one change more; what it is corrected by is read there or at a place before,
    once or of two keys."""
    state, key = places[-1], given[str(rng.choice(KEYS))]
    if kind == "decay":
        return state * exp(given[str(rng.choice(["gate", "gates"]))])
    value = given[str(rng.choice(VALUES))]
    if kind == "correct":
        asked = given[str(rng.choice(KEYS))] if rng.random() < 0.4 else key
        seen = places[int(rng.integers(len(places)))] if rng.random() < 0.3 else state
        value = value - contract(asked, seen, over=k)
        if rng.random() < 0.3:
            value = value + 0.5 * contract(given[str(rng.choice(KEYS))], state, over=k)
    scale = rng.choice(["beta", "half", "none"])
    value = value * given["beta"] if scale == "beta" else value / 2.0 if scale == "half" else value
    return state + key * value if rng.random() < 0.7 else state - value * (key * given["part"])


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_steps(seed: int) -> None:
    program = drawn(seed)
    same(program, 1, rtol=1e-6)
