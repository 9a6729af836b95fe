"""Every operator of the library: its meaning, and its kernels on both targets, by one contract."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ir import load_operator, operator_names, operators
from ir.phases import phases_of
from tests import operators as tables
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.operators.contract import (
    Case,
    cache_folder,
    check_cpu,
    check_cuda,
    check_meaning,
    check_tuned,
)

_LINES = 40
_SMALL_FLOPS = 20e6


def _cases() -> Iterator[Case]:
    for module in sorted(info.name for info in pkgutil.iter_modules(tables.__path__)):
        if not module.startswith("test_"):
            yield from getattr(import_module(f"{tables.__name__}.{module}"), "CASES", ())


def _extents() -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """What families say of their operators: settings by name."""
    found: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    for info in pkgutil.iter_modules(operators.__path__):
        module = import_module(f"{operators.__name__}.{info.name}")
        found.update(getattr(module, "EXTENTS", {}))
    return found


CASES = tuple(_cases())
EXTENTS = _extents()
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def _first_of_each(cases: tuple[Case, ...]) -> list[Case]:
    """Of every operator the first case."""
    return list({case.operator: case for case in reversed(cases)}.values())[::-1]


FIRST = _first_of_each(CASES)
kernels_of_cases = pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=str(c), marks=[] if c in FIRST else [pytest.mark.long]) for c in CASES],
)
every_operator = pytest.mark.parametrize("name", operator_names())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the test's own and one cache of kernels; the machine's peaks are not measured."""
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache_folder()))
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {})
    monkeypatch.setattr("explorer.finals.ROUNDS", 2)  # of five: enough to choose one
    monkeypatch.setattr("explorer.watch.Watch.wait", lambda _: None)  # what else runs is no matter


@every_case
def test_the_oracle_says_what_the_reference_says(case: Case) -> None:
    check_meaning(case)


@every_case
def test_phases_write_what_is_read(case: Case) -> None:
    program = load_operator(case.operator).build(**case.arguments)
    phases = phases_of(program)
    own = {spec.name for spec in program.outputs}
    for number, phase in enumerate(phases):
        read = {spec.name for later in phases[number + 1 :] for spec in later.program.inputs}
        assert {spec.name for spec in phase.program.outputs} <= own | read


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("case", FIRST, ids=str)
@draws(1, 3)
def test_every_operator_tunes_on_the_cpu(
    case: Case, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line; in each family the extents of some are odd."""
    check_tuned(case, capsys, count)


@pytest.mark.long
@every_case
def test_drawn_cpu_kernels_are_right(case: Case) -> None:
    check_cpu(case)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@kernels_of_cases
@draws(1, 2)
def test_cuda_kernels_are_right(case: Case, count: int) -> None:
    check_cuda(case, count)


@every_operator
def test_an_operator_has_a_reference_extents_and_a_formula(name: str) -> None:
    operator = load_operator(name)
    assert name in {case.operator for case in CASES}
    assert "small" in EXTENTS[name]
    assert len(EXTENTS[name]) > 1, "no setting of a real model"
    first = (inspect.getdoc(operator.function) or "").partition("\n")[0]
    assert "=" in first, "the first line of the docstring is the formula"
    assert len(inspect.getsource(operator.function).splitlines()) <= _LINES


@every_operator
def test_settings_build(name: str) -> None:
    for setting, arguments in EXTENTS[name].items():
        program = load_operator(name).build(**arguments)
        assert setting != "small" or program.flops <= _SMALL_FLOPS
