"""Shape and dtype rules: each refusal names the op and the numbers."""

from __future__ import annotations

import pytest

from ir import (
    Graph,
    ProgramError,
    UsageError,
    cast,
    contract,
    exp,
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
        ("g.axes(j=0)", "op: axis j=0; an extent is a whole number >= 1"),
        ("g.tensor('Z', (0, 3), 'f32')", "op: input Z has shape (0, 3)"),
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
