"""Shape and dtype rules: each refusal names the op and the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ir import (
    Graph,
    ProgramError,
    TilewrightError,
    UsageError,
    carry,
    cast,
    contract,
    evaluate,
    exp,
    now,
    prior,
    reduce,
    where,
)


def test_axes_broadcast_by_name() -> None:
    g = Graph("op")
    m, n = g.axes(m=4, n=5)
    row, column = g.input("r", (n,), "f32"), g.input("c", (m,), "bf16")
    total = column + row
    assert set(total.axes) == {"m", "n"}
    assert total.dtype == "f32"


def test_identical_nodes_are_shared_and_dead_ones_dropped() -> None:
    g = Graph("op")
    (m,) = g.axes(m=4)
    x = g.input("X", (m,), "f32")
    exp(x - 1.0)
    g.output("Y", exp(x) + exp(x))
    assert [node.op.name for node in g.program().nodes] == ["load", "map", "map", "store"]


def test_flops_and_bytes_of_a_matmul() -> None:
    from ir import load_operator

    program = load_operator("matmul").build(m=4, n=5, k=6, dtype="bf16", out="f32")
    assert program.flops == 2 * 4 * 5 * 6
    assert program.bytes == 2 * (4 * 6 + 6 * 5) + 4 * 4 * 5


def _refusal(build: str) -> str:
    g = Graph("op")
    m, n, k = g.axes(m=4, n=5, k=6)
    names = {
        "g": g, "m": m, "n": n, "k": k, "contract": contract, "reduce": reduce, "where": where,
        "cast": cast, "exp": exp, "x": g.input("X", (m, n), "f32"),
        "i": g.input("I", (m,), "i32"), "t": g.tensor("T", (8, 5), "f32"),
    }  # fmt: skip
    with pytest.raises((ProgramError, UsageError)) as caught:
        eval(build, names)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("contract(x, x, over=k)", "op: contract: axis 'k' is not an axis of the operands"),
        ("contract(x, x, over=n, acc='i32')", "op: contract: f32 x f32 does not accumulate in i32"),
        ("reduce('sum', x, over=k)", "op: reduce sum: axis 'k'"),
        ("reduce('median', x, over=n)", "op: reduce: unknown kind 'median'"),
        ("where(x, x, 0.0)", "op: where: the condition is f32, not bool"),
        ("cast(x, 'f33')", "op: cast: unknown dtype 'f33'"),
        ("g.input('Z', (m,), 'float')", "op: input Z: unknown dtype 'float'"),
        ("g.input('X', (m,), 'f32')", "op: tensor X declared twice"),
        ("g.axes(m=3)", "op: axis m declared twice"),
        ("g.axes(j=-1)", "op: axis j=-1; an extent is a whole number >= 0"),
        ("g.tensor('Z', (-1, 3), 'f32')", "op: input Z has shape (-1, 3)"),
        ("t[m * 2 + 2, n]", "load T: index 2*m + 2 of dimension 0 spans 2..8, the extent is 8"),
        ("t[m - 1, n]", "spans -1..2"),
        ("t[m]", "op: load T: 1 indices for 2 dimensions"),
        ("t[x, n]", "op: load T: index tile of dimension 0 is not int"),
        ("g.output('Y', x, 'f32', (m,))", "op: store Y: value varies over"),
        ("g.program()", "op: no output"),
    ],
)
def test_refusals(build: str, message: str) -> None:
    assert message in _refusal(build)


def test_the_last_index_inside_is_accepted() -> None:
    g = Graph("op")
    m, n = g.axes(m=4, n=5)
    assert g.tensor("T", (8, 5), "f32")[m + n, n].axes == ("m", "n")


def test_names_are_words() -> None:
    g = Graph("op")
    axis = g.axis("a b", 3)
    g.output("Y", g.input("X", (axis,), "f32"))
    with pytest.raises(ProgramError, match="'a b' is not a name"):
        g.program()


WORD: Any = "m"


def anything(value: object) -> Any:
    """What a type checker would refuse."""
    return value


MISUSES: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "a tile as a dimension": (
        lambda g, m, x: g.input("B", (x, m), "f32"),
        "input B: a Tile is not an axis",
    ),
    "a number as a dimension": (lambda g, m, x: g.input("B", (3, m), "f32"), "3 is not an axis"),
    "an index as a dimension": (
        lambda g, m, x: g.input("B", (m + 1,), "f32"),
        "an index is not an axis",
    ),
    "a tile as an extent": (lambda g, m, x: g.tensor("B", (x, 3), "f32"), "shape (a Tile, 3)"),
    "a tile as an output's dimension": (
        lambda g, m, x: g.output("Y", x, dims=(x,)),
        "output Y: a Tile is not an axis",
    ),
    "a sum over a tile": (lambda g, m, x: reduce("sum", x, over=x), "reduce sum: a Tile"),
    "a product over a name": (lambda g, m, x: contract(x, x, over=WORD), "contract: 'm' is not"),
    "a coordinate along a tile": (lambda g, m, x: g.iota(x), "iota: a Tile is not an axis"),
    "a subscript of a tile": (lambda g, m, x: (x * 2.0)[m + 1], "has no subscripts"),
    "a loop over a tile": (lambda g, m, x: list(x), "has no subscripts"),
    "a branch on a tile": (lambda g, m, x: x if x > 0 else -x, "neither true nor false"),
    "a chain of comparisons": (lambda g, m, x: 0 < x < 1, "neither true nor false"),
    "a truth value": (lambda g, m, x: where(anything(m == 3), x, 0.0), "False is no operand"),
    "a word": (lambda g, m, x: x + "1", "'1' is no operand"),
    "a float as an index": (lambda g, m, x: g.tensor("B", (3,), "f32")[1.5], "1.5 is no index"),
    "a power of a tile": (lambda g, m, x: x**x, "tile ** a Tile"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_misuse_is_one_line(case: str) -> None:
    write, words = MISUSES[case]
    g = Graph("misuse")
    (m,) = g.axes(m=4)
    with pytest.raises(TilewrightError) as told:
        write(g, m, g.input("A", (m,), "f32"))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_tiles_compare_element_by_element() -> None:
    g = Graph("compared")
    (m,) = g.axes(m=5)
    x = g.input("A", (m,), "f32")
    g.output("Y", where(x == 2.0, 10.0, where(anything(m + 0 * m != x), x, -1.0)))
    g.output("Z", m + x)
    found = evaluate(g.program(), {"A": np.array([0, 2, 2, 5, 4], np.float32)})
    assert found["Y"].tolist() == [-1, 10, 10, 5, -1]
    assert found["Z"].tolist() == [0, 3, 4, 8, 8]


RUNNING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "along its own axis": lambda x, n, total: x * now(total),
    "after its axis": lambda x, n, total: prior(total) + 0.0,
    "summed without a carry": lambda x, n, total: reduce("sum", x * now(total), over=n),
    "in a product": lambda x, n, total: contract(x, exp(now(total)), over=n),
    "of no carry": lambda x, n, total: now(x),
}


@pytest.mark.parametrize("case", RUNNING)
def test_a_running_value_stays_in_its_loop(case: str) -> None:
    """What would depend on how an axis is cut into blocks is no program."""
    g = Graph("escape")
    (n,) = g.axes(n=8)
    x = g.input("A", (n,), "f32")
    g.output("Y", RUNNING[case](x, n, carry("sum", x, n)))
    with pytest.raises(ProgramError, match=r"depends on the blocks|takes what carry") as told:
        g.program()
    assert str(told.value).startswith("escape: ")


def test_an_input_that_is_read_elsewhere_is_a_load_there() -> None:
    graph = Graph("elsewhere")
    i, j, k = graph.axes(i=4, j=5, k=3)
    x, place = graph.input("x", (i, j), "f32"), graph.input("place", (k,), "i32")
    graph.output("shifted", x.at(j=j - 1, fill=7), "f32", (i, j))
    graph.output("picked", x.at(j=place), "f32", (i, k))
    graph.output("kept", (x * 2).at(j=j - 1, fill=7), "f32", (i, j))
    program = graph.program()
    assert sum(node.op.name == "read" for node in program.nodes) == 1  # of what is computed
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    found = evaluate(program, {"x": values, "place": np.array([4, 0, 2], np.int32)})
    shifted = np.concatenate([np.full((4, 1), 7), values[:, :-1]], axis=1)
    np.testing.assert_array_equal(found["shifted"], shifted)
    np.testing.assert_array_equal(found["picked"], values[:, [4, 0, 2]])
    np.testing.assert_array_equal(found["kept"][:, 1:], 2 * values[:, :-1])


def test_reading_outside_of_an_empty_input_finds_what_fills_it() -> None:
    graph = Graph("empty")
    i, j = graph.axes(i=3, j=0)
    x = graph.input("x", (i, j), "f32")
    graph.output("y", x.at(j=i, fill=2), "f32", (i,))
    found = evaluate(graph.program(), {"x": np.zeros((3, 0), np.float32)})
    np.testing.assert_array_equal(found["y"], np.full(3, 2))
