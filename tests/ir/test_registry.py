"""Finding operators and checking their arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from ir import UsageError, load_operator, operator_names

_GOOD = """
from ir import Graph, operator, relu
from neighbour import SLOPE

@operator
def leaky(g: Graph, m: int, n: int, slope: float = SLOPE) -> None:
    a, b = g.axes(m=m, n=n)
    x = g.input("X", (a, b), "f32")
    g.output("Y", relu(x) - slope * relu(-x))

@operator
def plain(g, m, n=4, name="f32", on=False):
    a, b = g.axes(m=m, n=n)
    g.output("Y", g.input("X", (a, b), name) + (1 if on else 0))

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("SLOPE = 0.25\n")
    path = tmp_path / "mine.py"
    path.write_text(_GOOD)
    return path


def test_built_in_operators_are_found_by_listing_their_modules() -> None:
    names = operator_names()
    assert names == tuple(sorted(names))
    assert {"matmul", "softmax", "attention", "gaussian", "conv2d", "row_sum"} <= set(names)
    assert all(load_operator(name).name == name for name in names)


def test_a_users_operator_is_as_good_as_a_built_in(file: Path) -> None:
    program = load_operator(f"{file}:leaky").build(m="2", n="3", slope="0.5")
    assert program.axes == {"m": 2, "n": 3}
    assert "value=0.5" in str(program)


def test_undeclared_parameters_are_read_by_their_default_or_their_looks(file: Path) -> None:
    program = load_operator(f"{file}:plain").build(m="2", n="5", name="bf16", on="true")
    assert program.axes == {"m": 2, "n": 5}
    assert program.inputs[0].dtype == "bf16"


def _message(spec: str, **arguments: object) -> str:
    with pytest.raises(UsageError) as caught:
        load_operator(spec).build(**arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unknown_operators_name_the_nearest() -> None:
    assert "did you mean 'matmul'?" in _message("matmull")
    assert "`tilewright operators` lists all" in _message("nothing_like_it")


def test_files_that_do_not_give_an_operator(file: Path, tmp_path: Path) -> None:
    assert "did you mean 'leaky'?" in _message(f"{file}:leeky")
    assert "leaky, plain" in _message(str(file))
    assert "known are leaky, plain" in _message(f"{file}:number")
    assert "no such operator file" in _message(f"{tmp_path}/absent.py:x")
    broken = tmp_path / "broken.py"
    broken.write_text("import nowhere_at_all\n")
    assert "does not import: ModuleNotFoundError" in _message(f"{broken}:x")
    broken.write_text("def f(:\n")
    assert "does not import: SyntaxError" in _message(f"{broken}:x")
    broken.write_text("x = 1\n")
    assert "decorate a function with @operator" in _message(f"{broken}:x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 4, "n": 4}, "matmul: missing k; it takes m, n, k, dtype='f32'"),
        (
            {"m": 4, "n": 4, "k": 4, "dtpye": "f32"},
            "unknown argument 'dtpye' (did you mean 'dtype'",
        ),
        (
            {"m": 4, "n": 4, "k": 4, "records": "r.db"},
            "unknown argument 'records' (the command line has --records, Python store); it takes m",
        ),
        ({"m": "four", "n": 4, "k": 4}, "matmul: m='four' is not a whole number"),
        ({"m": 4.5, "n": 4, "k": 4}, "matmul: m=4.5 is not a whole number"),
        ({"m": True, "n": 4, "k": 4}, "matmul: m=True is not a whole number"),
        ({"m": -1, "n": 4, "k": 4}, "matmul: axis m=-1; an extent is a whole number >= 0"),
        ({"m": -3, "n": 4, "k": 4}, "matmul: axis m=-3"),
        ({"m": 4, "n": 4, "k": 4, "ta": "maybe"}, "matmul: ta='maybe' is neither true nor false"),
        ({"m": 4, "n": 4, "k": 4, "dtype": 32}, "matmul: dtype=32 is not a string"),
        ({"m": 4, "n": 4, "k": 4, "dtype": "f33"}, "matmul: input A: unknown dtype 'f33'"),
        ({"m": 4, "n": 4, "k": 4, "out": "f33"}, "unknown dtype 'f33'"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], message: str) -> None:
    assert message in _message("matmul", **arguments)


def test_strings_are_parsed() -> None:
    built = load_operator("matmul").build(m="4", n="5", k="6", ta="true", tb="False")
    assert built == load_operator("matmul").build(m=4, n=5, k=6, ta=True)
