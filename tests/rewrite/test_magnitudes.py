"""Rewritten programs mean the same on numbers of any size, with NaN, infinities and zeros in them.

The room for rounding is what a change of the inputs by a few last places makes of the outputs.
"""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ir.dtypes import from_float, is_float, to_float
from ir.inputs import random_inputs
from ir.ops.base import Array
from ir.oracle import evaluate, reduced_axes
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.split import split
from ir.rewrite.streaming import stream
from tests.rewrite.chains import chains
from tests.targets.hostile import KINDS, OPERATORS, hostile_inputs

Arrays = dict[str, Array]
SIZES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
_LITTLE = {"float64": 1e-13, "float32": 1e-7}
NAMES = [f"{name.rpartition(':')[2]}-{i}" for i, (name, _, _) in enumerate(OPERATORS)]


def scaled(program: Program, inputs: Arrays, size: float) -> Arrays:
    found = dict(inputs)
    for spec in program.inputs:
        if is_float(spec.dtype):
            wide = to_float(inputs[spec.name], spec.dtype) * size
            found[spec.name] = from_float(wide, spec.dtype)
    return found


def small(number: int) -> Program:
    """An operator on some 17 points an axis, of doubles where it takes a dtype."""
    name, arguments, _ = OPERATORS[number]
    chosen = {k: min(v, 17) if type(v) is int else v for k, v in arguments.items()}
    operator = load_operator(name)
    if "dtype" in signature(operator.function).parameters:
        chosen["dtype"] = "f64"
    return operator.build(**chosen)


def rewritten(program: Program) -> list[tuple[Program, int]]:
    """Carried, split, and both, with the block that carries advance by."""
    found = [(stream(program), block) for block in (1, 5)]
    stored = {axis for _, store in program.stores() for axis in store.axes}
    for axis in sorted(reduced_axes(program) - stored):
        if program.axes[axis] > 3:
            parted = split(program, axis, 3)
            found += [(parted, 0), (stream(parted, frozenset({f"{axis}_part"})), 4)]
    return found


def room_for(program: Program, inputs: Arrays, plain: Arrays) -> Arrays:
    """How far outputs move when inputs do by a little of themselves, with something to spare."""
    rng = np.random.default_rng(9)
    room = {name: 1e-11 * np.abs(array) + 1e-300 for name, array in plain.items()}
    for _ in range(2):
        moved = {
            name: (a * (1 + _LITTLE[a.dtype.name] * rng.standard_normal(a.shape))).astype(a.dtype)
            if a.dtype.name in _LITTLE
            else a
            for name, a in inputs.items()
        }
        for name, array in evaluate(program, moved).items():
            with np.errstate(invalid="ignore"):
                off = np.nan_to_num(np.abs(array - plain[name]), nan=0.0, posinf=0.0)
            room[name] = room[name] + 1e3 * (off + off.mean())
    return room


def apart(found: Arrays, plain: Arrays, room: Arrays) -> list[str]:
    """Outputs that are not the same number, infinity or NaN."""
    problems = []
    for name, want in plain.items():
        have = found[name]
        with np.errstate(invalid="ignore"):
            same = (have == want) | (np.abs(have - want) <= room[name])
        same |= np.isnan(have) & np.isnan(want)
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            problems.append(f"{name}{list(at)}: {have[at]} instead of {want[at]}")
    return problems


CASES = [(size, None) for size in SIZES] + [(1.0, kind) for kind in KINDS]


@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=NAMES)
@pytest.mark.alike(2)
def test_operators(number: int) -> None:
    program, keep = small(number), OPERATORS[number][2]
    ways = rewritten(program)
    for size, kind in CASES:
        if kind is None:
            inputs = random_inputs(program, np.random.default_rng(number))
        else:
            inputs = hostile_inputs(program, kind, number, keep)
        inputs = scaled(program, inputs, size)
        plain = evaluate(program, inputs)
        room = room_for(program, inputs, plain)
        for way, (other, block) in enumerate(ways):
            found = evaluate(other, inputs, block=block)
            if kind == "row of -inf":  # see docs/numerics.md
                found, plain = finite_or_nan(found), finite_or_nan(plain)
            assert apart(found, plain, room) == [], (size, kind, way)


def finite_or_nan(arrays: Arrays) -> Arrays:
    return {name: np.where(np.isfinite(a), a, np.nan) for name, a in arrays.items()}


@given(
    program=chains(keep=False), size=st.sampled_from(SIZES), block=st.integers(1, 9),
    kind=st.sampled_from((None, "nan", "zero")), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_drawn_chains(
    program: Program, size: float, block: int, kind: str | None, seed: int
) -> None:
    inputs = random_inputs(program, np.random.default_rng(seed))
    if kind is not None:
        inputs = hostile_inputs(program, kind, seed)
    inputs = scaled(program, inputs, size)
    plain = evaluate(program, inputs)
    assume(kind == "nan" or all(np.isfinite(array).all() for array in plain.values()))
    room = room_for(program, inputs, plain)
    parted = split(program, "k", 2)
    for other in (stream(program), parted, stream(parted, frozenset({"k_part"}))):
        found = evaluate(other, inputs, block=block)
        wanted = finite_or_nan(plain)
        for name, array in plain.items():  # a mask may take out a NaN that is multiplied with 0
            found[name] = np.where(np.isfinite(array), found[name], np.nan)
            if kind == "nan":  # or may not, where a state is corrected by it (docs/numerics.md)
                wanted[name] = np.where(np.isnan(found[name]), np.nan, wanted[name])
        assert apart(found, wanted, room) == []
