"""What an author gives wrongly to an op is one line with the op, the axis and the numbers."""

# mypy: disable-error-code="arg-type,dict-item,operator,return-value"
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ir import (
    Axis,
    Graph,
    ProgramError,
    Tile,
    UsageError,
    argmax,
    argmin,
    ascending,
    bitcast,
    carry,
    cast,
    contract,
    cumulative,
    evaluate,
    fold,
    indices,
    lookup,
    near_identity,
    now,
    offsets,
    parse,
    philox,
    popcount,
    prior,
    random_inputs,
    recur,
    recurrence,
    reduce,
    scatter,
    top,
    uniform,
    where,
)


class Given(NamedTuple):
    """A graph with axes i = 6, j = 4, k = 3, tiles x over (i, j) and whole n over (i)."""

    g: Graph
    i: Axis
    j: Axis
    k: Axis
    x: Tile
    n: Tile


def given() -> Given:
    g = Graph("t")
    i, j, k = g.axes(i=6, j=4, k=3)
    return Given(g, i, j, k, g.input("X", (i, j), "f32"), g.input("N", (i,), "i32"))


def _of_another() -> Tile:
    g = Graph("other")
    (i,) = g.axes(i=6)
    return g.input("X", (i,), "f32")


def _far_apart(a: Given) -> Tile:
    long = a.g.axis("l", 2**29)
    return argmax(a.x + a.g.iota(long), (a.i, long))


OTHER = _of_another()
FAR = 10**400
ZZ = Axis("zz", 3)

# what an author writes, and what the one line has to say
CASES: list[tuple[Callable[[Given], Any], str]] = [
    # folds, scans
    (lambda a: fold("sum", a.x, a.k), "t: fold over k: 'k' is not an axis of the operands"),
    (lambda a: fold("sum", a.x, "i"), "fold: 'i' is not an axis; g.axes(...) makes them"),
    (lambda a: fold("sum", a.x, (a.i, a.j)), "fold: a tuple is not an axis"),
    (lambda a: fold("sum", (a.x, a.x), a.i), "fold over i: 2 tiles for 1 states"),
    (lambda a: fold("sum", (a.x, 1.0), a.i), "fold: (a Tile, 1.0): the values are a tile"),
    (lambda a: fold("affine", a.x, a.i), "fold over i: 1 tiles for 2 states"),
    (lambda a: fold("affine", (a.x, OTHER), a.i), "fold: an operand is a tile of another graph"),
    (lambda a: fold("add(a0", a.x, a.i), "t: fold over i: merge 'add(a0' is not understood"),
    (lambda a: fold("frob(a0)", a.x, a.i), "fold over i: merge: unknown function 'frob'"),
    (lambda a: fold("add(a0)", a.x, a.i), "fold over i: merge: add has 1 arguments, needs 2"),
    (lambda a: fold("add(a0, b7)", a.x, a.i), "fold over i: merge 'add(a0, b7)': state 7"),
    (lambda a: fold(f"add(a0, {2**40})", a.n, a.i), "fold over i: merge: 1099511627776 has no"),
    (lambda a: fold("neg(" * 70 + "a0", a.x, a.i), "fold over i: merge: terms 64 deep"),
    (lambda a: fold("lt(a0, b0)", a.x, a.i), "fold over i: state 0 is f32, its merge gives bool"),
    (lambda a: fold("mul(a0, 0.5)", a.n, a.i), "state 0 is i32, its merge gives f32"),
    (lambda a: fold(3, a.x, a.i), "t: fold over i: 3 is no merge"),
    (lambda a: fold(lambda a, b: None, a.x, a.i), "fold over i: the merge gives None"),
    (lambda a: fold(lambda b, c: b[0] + a.x, a.x, a.i), "fold over i: merge: map: an operand is"),
    (lambda a: fold(lambda b, c: (b[0], c[0]), a.x, a.i), "the merge gives 2 states for 1"),
    (lambda a: fold(lambda b, c: lookup([1], b[0]), a.n, a.i), "the merge holds a lookup"),
    (lambda a: fold(lambda b, c: b[0] + a.i, a.x, a.i), "fold over i: merge: iota: unknown axis"),
    (lambda a: cumulative("median", a.x, a.i), "fold over i: merge 'median' is not understood"),
    (lambda a: cumulative("sum", 3.0, a.i), "fold: (3.0): the values are a tile"),
    (lambda a: recurrence(a.x, a.n, a.i), "fold over i: state 1 is i32, its merge gives f32"),
    (lambda a: argmax(a.x, a.k), "t: argmax: 'k' is not an axis of the operand ('i', 'j')"),
    (lambda a: argmax(3, a.i), "argmax: 3 is no tile"),
    (lambda a: argmax(a.x, (a.i, a.k)), "t: argmax: 'k' is not an axis of the operand ('i', 'j')"),
    (lambda a: argmax(a.x, ()), "t: argmax over (): give one axis or several, each once"),
    (lambda a: argmin(a.x, (a.j, a.j)), "t: argmin over ('j', 'j'): give one axis or several"),
    (lambda a: _far_apart(a), "t: argmax over ('i', 'l'): i32 counts 2,147,483,648 places"),
    # the largest
    (lambda a: top(a.x, a.k, a.i), "top over k: 'k' is not an axis of the operand"),
    (lambda a: top(a.x, a.i, a.j), "top over i: 'j' has to be an axis that the operand lacks"),
    (lambda a: top(a.x, a.j, a.g.axis("r", 5)), "t: top over j: 5 of 4 elements"),
    (lambda a: top(a.x, a.j, 2), "top: 2 is not an axis"),
    (lambda a: top(1.0, a.j, a.k), "top over j: 1.0 is no tile"),
    # scatters
    (lambda a: scatter("sum", a.x, {a.k: a.n * 0.5}), "scatter sum to k: the index tile is f32"),
    (lambda a: scatter("sum", a.x, {a.k: a.x < 0}), "scatter sum to k: the index tile is bool"),
    (lambda a: scatter("mean", a.x, {a.k: a.n}), "scatter mean: unknown kind: known are sum,"),
    (lambda a: scatter("or", a.x, {a.k: a.n}), "scatter or: of f32; or is for bool"),
    (lambda a: scatter("sum", a.x, {}), "t: scatter sum: into a dict: give where each axis'"),
    (lambda a: scatter("sum", a.x, a.n), "t: scatter sum: into a Tile: give where each axis'"),
    (lambda a: scatter("sum", a.x, {"k": a.n}), "scatter sum: 'k' is not an axis"),
    (lambda a: scatter("sum", a.x, {a.k: 1.5}), "1.5 is no index"),
    (lambda a: scatter("sum", a.x, {ZZ: a.n}), "scatter sum to zz: unknown axis"),
    (lambda a: scatter("sum", a.x, {a.k: OTHER}), "scatter: an operand is a tile of another"),
    (lambda a: scatter("sum", 1.0, {a.k: a.n}), "scatter sum: 1.0 is no tile"),
    (lambda a: scatter("sum", a.x, {a.k: a.i * 2**70}), "scatter sum to k: index 1180591620717411"),
    # reads of computed tiles
    (lambda a: a.x.at(k=a.i), "t: read at k: no axis of the tile, whose axes are i, j"),
    (lambda a: a.x.at(i=a.i + 1), "read at i: index i + 1 spans 1..6, the extent is 6"),
    (lambda a: a.x.at(i=1.5), "1.5 is no index"),
    (lambda a: a.x.at(i=a.x), "read at i: the index tile is f32, not whole"),
    (lambda a: a.x.at(i=ZZ), "read at i: unknown axis 'zz'"),
    (lambda a: a.x.at({a.i: 0}, i=1), "read at i: the axis is given twice"),
    (lambda a: a.x.at([a.i]), "read at a list: x.at(i=place), or x.at({axis: place})"),
    (lambda a: a.x.at(i=a.n, fill="a"), "t: read: fill: 'a' is no number"),
    (lambda a: a.n.at(i=a.i, fill=0.5), "read: fill: 0.5 is no whole number, which i32 holds"),
    (lambda a: a.n.at(i=a.i, fill=2**40), "1099511627776 has no room in i32, which has -"),
    (lambda a: a.x.at(i=2**70, fill=0), "read at i: index 1180591620717411303424 spans"),
    (lambda a: a.x[a.i], "a computed tile has no subscripts"),
    (lambda a: a.g.output("O", fold("sum", a.x, a.i), "f32"), "output O: a tuple is no tile"),
    # what an index is not
    (lambda a: a.i // 2, "axis i // 2: an index is a sum of multiples of axes; g.coordinate"),
    (lambda a: (a.i + 1) % 2, "an index % 2: an index is a sum of multiples"),
    (lambda a: a.i < a.j, "axis i < axis j: an index is a sum of multiples"),
    (lambda a: a.i * 2 >= 3, "an index >= 3: an index is a sum of multiples"),
    # states and carries
    (lambda a: a.g.state(a.i, (a.i,)), "state s1 along i: a state is over other axes"),
    (lambda a: a.g.state(a.i, ("j",)), "t: state along i: 'j' is not an axis"),
    (lambda a: a.g.state(ZZ, (a.j,)), "t: state: unknown axis 'zz'"),
    (lambda a: a.g.state(a.i, (a.j,), first=a.x), "state s1 along i: at first over ('i', 'j')"),
    (lambda a: a.g.state(a.i, (a.j,), first="a"), "constant: 'a' is no number"),
    (lambda a: a.g.state(a.i, (a.j,), first=0.5, dtype="i32"), "0.5 is no whole number"),
    (lambda a: a.g.state(a.i, (a.j,)), "state s1 along i has no step: recur(state,"),
    (lambda a: recur(a.x, a.x), "recur takes a state, and each state once"),
    (lambda a: recur(a.g.state(a.i, (a.k,)), a.x), "recur along i: the state is over ('i', 'k')"),
    (lambda a: recur(a.g.state(a.i, (a.j,)), a.n), "recur along i: the state is f32, its step i32"),
    (lambda a: recur(a.g.state(a.i, (a.j,)), 1.0), "t: recur: 1.0 is no tile"),
    (lambda a: recur(1.0, a.x), "recur: 1.0 is no tile"),
    (lambda a: carry("mean", a.x, a.i), "carry: unknown kind 'mean': known are sum, prod"),
    (lambda a: carry("sum", a.x, a.k), "carry sum: axis 'k' is not an axis of the operands"),
    (lambda a: carry("sum", a.x, a.i, factor=2.0), "carry: 2.0 is no tile"),
    (lambda a: now(a.x), "now: takes what carry(...) returns, not load"),
    (lambda a: prior(1.0), "prior: 1.0 is no tile"),
    # tables, bits, random and whole numbers
    (lambda a: lookup([1] * 257, a.n), "lookup: 257 entries; a table has 1 to 256"),
    (lambda a: lookup(3, a.n), "t: lookup: 3 is no table"),
    (lambda a: lookup({1: 2}, a.n), "t: lookup: a dict is no table"),
    (lambda a: lookup([math.inf], a.n, "i8"), "lookup: entry 0 is inf, which is no i8"),
    (lambda a: lookup([FAR], a.n), "lookup: entry 0: 1000"),
    (lambda a: lookup([1], 3), "lookup: 3 is no tile"),
    (lambda a: bitcast(a.x, "i64"), "bitcast: f32 has 32 bits, i64 has 64"),
    (lambda a: bitcast(1.0, "i32"), "bitcast: 1.0 is no tile"),
    (lambda a: philox(a.n, word=4), "philox: word=4; a counter has words 0 to 3"),
    (lambda a: philox(a.x), "philox: operand 0 is f32; it takes whole numbers"),
    (lambda a: popcount(3), "popcount: 3 is no tile"),
    (lambda a: a.n % a.x, "mod: operand 1 is f32; it takes whole numbers"),
    (lambda a: a.n << 1.5, "shl: operand 1 is f32"),
    (lambda a: a.n & None, "None is no operand"),
    (lambda a: a.x**0.5, "tile ** 0.5: only positive whole exponents; write sqrt(tile)"),
    (lambda a: a.x**-1, "tile ** -1: only positive whole exponents; write 1 / tile"),
    (lambda a: a.x**-2.0, "only positive whole exponents; write 1 / tile ** 2"),
    (lambda a: a.x**1.5, "only positive whole exponents; write exp(log(tile) * 1.5)"),
    (lambda a: a.x**a.x, "only positive whole exponents; write exp(log(tile) * exponent)"),
    (lambda a: a.x ** float("nan"), "tile ** nan: only positive whole exponents"),
    (lambda a: a.x**True, "tile ** True: only positive whole exponents"),
    (lambda a: 2.0**a.x, "2.0 ** tile: only whole numbers are exponents; write exp(tile * math"),
    (lambda a: (-2) ** a.x, "-2 ** tile: only whole numbers are exponents"),
    (lambda a: a.i * 0.5, "an index times 0.5: indices are whole"),
    (lambda a: cast(1.0, "f32"), "cast: 1.0 is no tile"),
    (lambda a: cast(a.x, "f33"), "cast: unknown dtype 'f33'"),
    (lambda a: where(a.x, a.x, 1), "where: the condition is f32, not bool"),
    # reductions
    (lambda a: contract(a.x, a.x, (a.j, a.j)), "contract: over ('j', 'j'); an axis is reduced"),
    (lambda a: contract(a.x, 2.0, a.j), "contract: 2.0 is no tile"),
    (lambda a: reduce("sum", a.x, (a.j, a.j)), "reduce sum: over ('j', 'j'); an axis is reduced"),
    (lambda a: reduce("mean", a.x, a.j), "reduce: unknown kind 'mean'"),
    (lambda a: reduce("sum", 1.0, a.j), "reduce sum: 1.0 is no tile"),
    # axes, tensors, constants, outputs
    *((lambda a, e=e: a.g.axes(z=e), f"t: axis z={e!r}") for e in (-1, True, 1.0, "3", None)),
    (lambda a: a.g.axes(z=2**31), "axis z has extent 2147483648"),
    (lambda a: a.g.axes(i=6), "axis i declared twice"),
    (lambda a: a.g.axis(3, 3), "axis 3: its name is no text"),
    (lambda a: a.g.axis("a b", 3), "'a b' is not a name"),
    (lambda a: a.g.input("W", (Axis("i", 9),), "f32"), "input W: axis i of extent 9 is another"),
    (lambda a: a.g.input("W", (ZZ,), "f32"), "input W: unknown axis 'zz'"),
    (lambda a: a.g.input(3, (a.i,), "f32"), "input 3: its name is no text"),
    (lambda a: a.g.input("W", (a.i,), "f33"), "input W: unknown dtype 'f33'"),
    (lambda a: a.g.input("W", (a.k,), "u4"), "2 elements of u4 share a byte"),
    (lambda a: a.g.input("W", (a.k,), "f32", values=3), "input W: values=3; uniform(0, 1)"),
    (lambda a: a.g.input("W", (a.k,), "f32", values=uniform(2, 1)), "ends the wrong way round"),
    (lambda a: a.g.input("W", (a.k,), "i8", values=indices(300)), "has 299; i8 has -128 to 127"),
    (lambda a: a.g.input("W", (a.k,), "i32", values=offsets(-1)), "W: offsets(-1, 0) has a total"),
    (lambda a: a.g.input("W", (a.k,), "f32", values=ascending(3, 1)), "ends the wrong way round"),
    (lambda a: a.g.input("W", (a.k,), "f32", values=near_identity()), "is for matrices; it has"),
    (lambda a: a.g.tensor("W", 5, "f32"), "input W: shape 5 is no tuple"),
    (lambda a: a.g.tensor("W", (5,), "i32", fill=math.inf), "fill: inf is no whole number"),
    (lambda a: a.g.tensor("W", (6,), "i4", fill=9), "fill: 9 has no room in i4, which has -8 to 7"),
    (lambda a: a.g.tensor("W", (5,), "f32")[a.i * 2**60], "load W: dimension 0: index"),
    (lambda a: a.g.tensor("W", (5,), "f32")[a.x], "load W: index tile of dimension 0 is not int"),
    (lambda a: a.g.iota((a.i, a.j)), "iota: 2 axes; it takes one"),
    (lambda a: a.g.coordinate("i"), "'i' is no index"),
    (lambda a: a.g.constant(1.5, "i32"), "constant: 1.5 is no whole number, which i32 holds"),
    (lambda a: a.g.constant(FAR, "f32"), "constant: 1000"),
    (lambda a: a.g.constant(3, "i2"), "constant: 3 has no room in i2, which has -2 to 1"),
    (lambda a: a.g.output("Y", 1.0), "output Y: 1.0 is no tile"),
    (lambda a: a.g.output("Y", OTHER), "store: an operand is a tile of another graph, other"),
    (lambda a: a.g.output("Y", a.x, dims=(a.i, ZZ)), "output Y: unknown axis 'zz'"),
    (lambda a: a.g.output("Y", a.x, dims=(a.i,)), "store Y: value varies over ('i', 'j')"),
    (lambda a: a.g.pin(3, 4), "pin 3: its name is no text"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda case: CASES[case][1][:40])
def test_a_wrong_value_is_one_line(case: int) -> None:
    wrong, message = CASES[case]
    with pytest.raises(UsageError) as caught:
        _finished(wrong)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def _finished(wrong: Callable[[Given], Any]) -> None:
    """Build what is written wrongly; some of it only the whole program can tell."""
    values = given()
    made = wrong(values)
    if isinstance(made, Tile):
        values.g.output("Z", made)
    values.g.output("Q", values.x)
    values.g.program()


def test_a_program_is_finished_once_and_its_tiles_go_nowhere_else() -> None:
    first = given()
    first.g.output("Y", first.x)
    assert parse(str(first.g.program())) == first.g.program()
    second = given()
    with pytest.raises(ProgramError, match="t: map: an operand is a tile of another graph, t"):
        second.x + first.x


def test_numbers_of_other_libraries_are_numbers() -> None:
    a = given()
    read = a.n.at(i=a.i - np.int64(1), fill=np.int32(-1))
    a.g.output("Y", lookup(np.arange(4.0), read) + a.g.constant(np.float32(0.5), "f32"))
    a.g.output("Z", a.g.coordinate(a.j) + a.g.coordinate(np.int64(3)))
    program = a.g.program()
    found = evaluate(program, random_inputs(program, np.random.default_rng(0)))
    assert found["Y"][0] == 0.5
    assert found["Z"].tolist() == [3, 4, 5, 6]
