"""Every program of the catalogue: synthesised, performed by the checker, held to its bounds."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.layout.errors import LayoutError
from ir.layout.synthesis import TileProgram, synthesise
from tests.layout.catalogue import Entry, Gemm, catalogue
from tests.layout.checker import check
from tests.layout.checker.bounds import conflicts, copies_of, too_narrow
from tests.layout.plain import as_data

ENTRIES = {entry.program.name: entry for entry in catalogue()}


@cache
def solved(name: str) -> dict[str, Any]:
    """The best solution's plain form."""
    plain: dict[str, Any] = as_data(synthesise(ENTRIES[name].program, limit=1)[0])
    return plain


def instructions(plain: dict[str, Any]) -> list[str]:
    """Every instruction of the solution."""
    products = [step["instruction"] for step in plain["steps"] if step["kind"] == "gemm"]
    return products + [name for copy in copies_of(plain) for name in copy["instructions"]]


def test_the_catalogue_is_large_enough() -> None:
    assert len(ENTRIES) == len(catalogue()) >= 60


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.alike(2)
def test_the_best_solution_computes_what_the_oracle_does(name: str) -> None:
    found = check(ENTRIES[name].program, solved(name))
    assert not found, str(found)


@pytest.mark.parametrize("name", ENTRIES)
def test_no_swizzle_has_fewer_bank_conflicts(name: str) -> None:
    assert conflicts(solved(name)) == {}


@pytest.mark.parametrize("name", ENTRIES)
def test_vectors_are_as_wide_as_strides_and_owners_allow(name: str) -> None:
    entry = ENTRIES[name]
    excused = dict(entry.narrow)
    narrow = too_narrow(entry.program, solved(name))
    assert {op: seen for op, seen in narrow.items() if excused.get(op) != seen[0]} == {}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_solution_uses_what_the_program_is_made_for(name: str) -> None:
    entry, plain = ENTRIES[name], solved(name)
    used = instructions(plain)
    missing = [prefix for prefix in entry.uses if not any(one.startswith(prefix) for one in used)]
    assert not missing, f"{missing} not among {sorted(set(used))}"
    assert not [one for one in used if entry.avoids and one.startswith(entry.avoids)]
    converted = [step["price_class"] for step in plain["steps"] if step["kind"] == "convert"]
    assert tuple(converted) == entry.converts
    assert _says(entry, plain)


def _says(entry: Entry, plain: dict[str, Any]) -> bool:
    """Whether a refusal or fallback names what the program rules out, with a number."""
    told = [
        f"{reason['code']} {reason['text']}"
        for reason in plain["reasons"]
        if reason["verdict"] in ("refused", "fallback")
    ]
    numbered = [text for text in told if any(letter.isdigit() for letter in text)]
    return not entry.says or any(word in text for word in entry.says for text in numbered)


SMALL = [
    name
    for name, entry in ENTRIES.items()
    if sum(tile.size for tile in entry.program.tiles) <= 40_000
]


@pytest.mark.parametrize("name", SMALL[::3])
def test_lower_ranked_solutions_are_right_too(name: str) -> None:
    program = ENTRIES[name].program
    solutions = synthesise(program, limit=4)
    assert [one.cycles for one in solutions] == sorted(one.cycles for one in solutions)
    for solution in solutions:
        found = check(program, as_data(solution))
        assert not found, str(found)


GEMMS = st.builds(
    Gemm,
    dtype=st.sampled_from(("f16", "bf16", "tf32", "e4m3", "i8")),
    m=st.sampled_from((16, 32, 48, 64, 96, 128, 192)),
    n=st.sampled_from((8, 16, 24, 40, 64, 72, 96, 136)),
    k=st.sampled_from((16, 32, 48, 64, 96)),
    family=st.sampled_from(("mma", "wgmma")),
    a=st.sampled_from(("k", "mn")),
    b=st.sampled_from(("k", "mn")),
    threads=st.sampled_from((32, 64, 96, 128, 256, 384)),
    register_a=st.booleans(),
    swapped=st.booleans(),
    pitch=st.sampled_from((4096, 4100, 4098)),
    alignment=st.sampled_from((16, 8, 4)),
    epilogue=st.sampled_from(("store", "cast", "staged")),
    stages=st.sampled_from((1, 3)),
    turned=st.booleans(),
)


def answered(gemm: Gemm) -> tuple[TileProgram, dict[str, Any]] | LayoutError:
    """The program and its best solution, or the refusal."""
    try:
        program = gemm.program()
        return program, as_data(synthesise(program, limit=1)[0])
    except LayoutError as refusal:
        return refusal


@settings(max_examples=35, deadline=None, derandomize=True)
@given(GEMMS)
def test_any_product_is_right_or_refused_with_numbers(gemm: Gemm) -> None:
    """What the catalogue does not name is computed rightly too, or refused with a reason."""
    answer = answered(gemm)
    if isinstance(answer, LayoutError):
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", answer.code)
        assert re.search(r"\d", str(answer))
        return
    found = check(*answer)
    assert not found, str(found)
