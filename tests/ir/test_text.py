"""Programs as text: exact round trips, and errors with the line."""

from __future__ import annotations

import pickle
import random
import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings

import ir.ops
from ir import Graph, Program, ProgramError, load_operator, parse, to_text
from ir.ops.base import Environment, Scope, TileArray, TileType
from ir.ops.load import Index
from ir.program import Node
from ir.text import _read_index
from tests.ir.programs import programs


@given(programs())
@settings(max_examples=45, deadline=None)
def test_every_program_round_trips(program: Program) -> None:
    text = to_text(program)
    again = parse(text)
    assert again == program
    assert to_text(again) == text
    assert again.key == program.key


def test_a_pickled_program_has_nothing_that_was_derived() -> None:
    """Another thread may be deriving it: what pickles a growing dictionary fails."""
    program = load_operator("softmax").build(m=7, n=65)
    bare = pickle.dumps(program)
    assert program.flops
    assert program.graph
    assert program.key
    assert len(pickle.dumps(program)) == len(bare)
    assert pickle.loads(bare) == program


def test_the_text_is_what_the_page_says() -> None:
    program = load_operator("matmul").build(m=2, n=3, k=4)
    assert to_text(program) == (
        "program matmul\naxis m = 2\naxis n = 3\naxis k = 4\n"
        "input A f32[2, 4]\ninput B f32[4, 3]\noutput C f32[2, 3]\n"
        "%0 = load(tensor=A, index=[m, k]) -> f32(m, k)\n"
        "%1 = load(tensor=B, index=[k, n]) -> f32(k, n)\n"
        "%2 = contract(%0, %1, over=[k], acc=f32) -> f32(m, n)\n"
        "%3 = store(%2, tensor=C, axes=[m, n]) -> f32(m, n)\n"
    )


def test_key_follows_extents_and_dtypes() -> None:
    matmul = load_operator("matmul")
    keys = {
        matmul.build(m=2, n=3, k=4).key,
        matmul.build(m=2, n=3, k=5).key,
        matmul.build(m=2, n=3, k=4, dtype="bf16").key,
    }
    assert len(keys) == 3
    assert matmul.build(m=2, n=3, k=4).key in keys


@pytest.mark.parametrize(
    "index",
    [
        Index((("h", 2), ("r", 1)), -1),
        Index((("h", -1), ("r", -3)), 7),
        Index((), 0),
        Index((), -4),
        Index((("p", 16),), 2, 0),
        Index((("p", 0),), 0, 1),
    ],
)
def test_an_index_reads_as_it_prints(index: Index) -> None:
    assert _read_index(str(index)) == index


def _changed(old: str, new: str) -> str:
    text = to_text(load_operator("matmul").build(m=2, n=3, k=4))
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_changed("contract(", "contrast("), "line 10: unknown op 'contrast'"),
        (_changed("over=[k]", "over=[j]"), "line 10: contract: axis 'j'"),
        (_changed("over=[k]", "under=[k]"), "line 10: contract: unknown attribute 'under=[k]'"),
        (_changed("over=[k], ", ""), "line 10: contract: attributes missing"),
        (_changed("%2 =", "%5 ="), "line 10: %5 where %2 is next"),
        (_changed("contract(%0", "contract(%7"), "line 10: %7 is used before"),
        (_changed("-> f32(m, n)\n%3", "-> f64(m, n)\n%3"), "line 10: contract: says f64(m, n)"),
        (_changed("axis k = 4", "axis k = four"), "line 4: not understood"),
        (_changed("axis k = 4", "axis m = 4"), "line 4: axis m declared twice"),
        (_changed("input B", "input A"), "line 6: tensor A declared twice"),
        (_changed("tensor=B", "tensor=Q"), "line 9: load Q: no such tensor"),
        (_changed("index=[k, n]", "index=[k, n*]"), "line 9: 'n*' is not an index"),
        ("", "line 1: no program"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_comments_and_blank_lines_are_skipped() -> None:
    program = load_operator("row_sum").build(m=2, n=3)
    spaced = "# a comment\n\n" + to_text(program).replace("\n", "\n\n  # another\n")
    assert parse(spaced) == program


@dataclass(frozen=True, slots=True)
class _Shift:
    """A toy op, as an extension would add it."""

    axis: str
    by: int = 1
    names: tuple[str, ...] = ()
    name: ClassVar[str] = "shift"

    def infer(self, args: list[TileType], scope: Scope) -> TileType:
        return args[0]

    def meaning(self, args: list[TileArray], env: Environment) -> TileArray:
        return args[0]

    def flops(self, args: list[TileType], result: TileType, scope: Scope) -> int:
        return 0


def test_a_new_op_prints_and_parses_without_an_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ir.ops.OPS, "shift", _Shift)
    g = Graph("toy")
    (m,) = g.axes(m=4)
    g.output("Y", g.add(_Shift("m", -2, ("a b", "c")), g.input("X", (m,), "f32")))  # type: ignore[arg-type]
    program = g.program()
    assert 'shift(%0, axis=m, by=-2, names=["a b", c])' in to_text(program)
    assert parse(to_text(program)) == program
    assert isinstance(program.nodes[1], Node)


_ESCAPE = "\x1b[31m"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_changed("axis k = 4", "axis k = 4\naxis j = 99999999999"), "coordinates are i32"),
        (_changed("axis m = 2", f"axis m = {'9' * 5000}"), "line 2"),
        (_changed("program matmul", f"program {'m' * 101}"), "is not a name"),
        (_changed("program matmul", 'program m"; system("id'), "line 1: not understood"),
        (_changed("input A f32[2, 4]", "input A f32[2, 4]; int x"), "line 5: not understood"),
        (_changed("input A", f"input A{_ESCAPE}"), "line 5: not understood"),
        (_changed("-> f32(m, n)\n%3", f"-> f32({_ESCAPE})\n%3"), "line 10"),
        (_changed("output C f32[2, 3]", "output C f32[2, 2]"), "store C"),
        (_changed("output C f32[2, 3]", "output C f32[2, 4]"), "(2, 3) elements into (2, 4)"),
        (_changed("output C f32[2, 3]", "output C f32[3, 3]"), "(2, 3) elements into (3, 3)"),
        (_changed("output C f32[2, 3]", "output C f32[6]"), "(2, 3) elements into (6,)"),
        (_changed("output C f32[2, 3]", "output C f32[2, 3]\noutput D f32[2]"), "stored once"),
        (_changed("input B", "output B"), "load B: no such input"),
        (_changed("input A f32", "input A f33"), "line 5"),
        (_changed("%2, tensor=C", ""), "line 11"),
        (_changed("index=[m, k]", "index=[" * 500), "line 8"),
        (_changed("index=[m, k]", "index=[m, k + [7]]"), "line 8"),
        (_changed("%0 = load(tensor=A", '%0 = load(tensor="A'), "line 8"),
        (_changed("axis k = 4", f"axis k = 4\npin tile.m = {'[' * 5000}"), "line 5"),
        (_changed("axis k = 4", "axis k = 4\npin tile.m = [1]"), "is no text"),
        (_changed("axis k = 4", f"axis k = 4\n# {'x' * (1 << 18)}"), "are the most"),
        (_changed("program matmul", "program matmul\nprogram again"), "a second program"),
    ],
)
def test_a_strangers_text_ends_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_texts_with_changed_words_are_programs_or_refused() -> None:
    """Words exchanged and numbers made large: a sound program or a line, nothing else."""
    rng = random.Random(5)
    text = to_text(load_operator("softmax").build(m=8, n=8))
    parts = re.findall(r"\w+|\s+|[^\w\s]", text)
    words = [*set(parts), "9" * 20, "-1", "0", "[[[", "nan", _ESCAPE, '"', "carry", "now", "%9"]
    for _ in range(400):
        old, new = rng.choice(parts), rng.choice(words)
        some = [new if part == old and rng.random() < 0.8 else part for part in parts]
        try:
            program = parse("".join(some))
        except ProgramError as error:
            assert str(error).isprintable()  # noqa: PT017
        else:
            assert program.flops >= 0
