"""A range is found by what its programs are, however the operator is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.errors import NothingValid
from explorer.recall import best_winner
from explorer.shapes.known import OPTION
from explorer.shapes.result import FamilyResult
from ir import Graph, Operator, load_operator, operator
from ir.sources import OperatorLike
from records import Store
from tests.job.device import ScriptedDevice

_FILE = """
from ir import Graph, operator

@operator
def grown(g: Graph, m: int, n: int, by: float = {by}) -> None:
    rows, columns = g.axes(m=m, n=n)
    g.output("Y", g.input("X", (rows, columns), "f32") * by)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with an operator of one name, and a store beside them."""
    made = tmp_path_factory.mktemp("spellings")
    for name, by in (("here", 2.0), ("there", 3.0)):
        (made / name).mkdir()
        (made / name / "ops.py").write_text(_FILE.format(by=by))
    return made


@pytest.fixture(autouse=True)
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(folder / "records.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder / "here")
    return folder / "records.db"


@pytest.fixture(scope="module")
def found(folder: Path) -> Iterator[FamilyResult]:
    """A range that was tuned under one of the spellings."""
    device = ScriptedDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
        patch.setattr("explorer.search.Measurer", device)
        patch.setattr("explorer.shapes.tuning.Measurer", device)
        patch.chdir(folder / "here")
        yield explorer.tune_range(
            "../here/ops.py:grown", m=range(1, 301), n=31, trials=20, strategy="random",
            store=folder / "records.db",
        )  # fmt: skip


def _unmeasured(found: FamilyResult) -> int:
    """An extent of the range that no record has."""
    points = {row.point[0] for row in found.table.rows}
    return next(m for m in range(77, 300) if m not in points | {r.point[0] for r in found.regrets})


@pytest.mark.parametrize("spelling", ["ops.py", "../here/ops.py", "./../here/ops.py", "whole"])
def test_every_spelling_of_a_path_finds_it(
    spelling: str, folder: Path, found: FamilyResult
) -> None:
    path = str(folder / "here/ops.py") if spelling == "whole" else spelling
    m = _unmeasured(found)
    winner = best_winner(explorer.load(f"{path}:grown", m=m, n=31))
    assert winner.job == found.job
    assert winner.schedule == found.winner(m=m).schedule


def test_so_do_a_file_of_one_operator_another_folder_and_what_a_default_was(
    folder: Path, found: FamilyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = _unmeasured(found)
    assert best_winner(explorer.load("ops.py", m=m, n=31)).job == found.job
    assert best_winner(explorer.load("ops.py", m=m, n=31, by=2.0)).job == found.job
    monkeypatch.chdir(folder)
    assert best_winner(explorer.load("here/ops.py:grown", m=m, n=31)).job == found.job


def test_so_does_the_operator_itself(found: FamilyResult) -> None:
    m = _unmeasured(found)
    itself: Operator = load_operator("ops.py:grown")
    winner = best_winner(explorer.load(itself, m=m, n=31))
    assert winner.job == found.job
    assert winner.schedule == found.winner(m=m).schedule

    @operator
    def grown(g: Graph, m: int, n: int) -> None:
        rows, columns = g.axes(m=m, n=n)
        g.output("Y", g.input("X", (rows, columns), "f32") * 2.0)

    others: tuple[OperatorLike, ...] = (grown, lambda m, n: itself.build(m=m, n=n))
    for other in others:
        assert best_winner(explorer.load(other, m=m, n=31)).job == found.job


def test_another_program_of_that_spelling_does_not(
    folder: Path, found: FamilyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "there")
    m = _unmeasured(found)
    given: dict[str, dict[str, Any]] = {
        "ops.py:grown": {"m": m, "n": 31},
        "../here/ops.py:grown": {"m": m, "n": 31, "by": 3.0},
        "./../here/ops.py:grown": {"m": 301, "n": 31},
        "../here/../here/ops.py:grown": {"m": m, "n": 32},
    }
    for spelling, arguments in given.items():
        with pytest.raises(NothingValid):
            best_winner(explorer.load(spelling, **arguments))


@pytest.mark.parametrize("kept", ["all", "trials", "neither"])
def test_ranges_of_earlier_versions_are_found(
    kept: str, found: FamilyResult, place: Path, tmp_path: Path
) -> None:
    """Their jobs may not tell the program; then the trials do; without these the spelling does."""
    m, earlier = _unmeasured(found), tmp_path / "earlier.db"
    with Store(place) as old, Store(earlier) as new:
        job = old.job(found.job)
        options = json.loads(job.options)
        if kept != "all":
            del options["program"]
        assert OPTION in options
        made = new.new_job(job.operator, job.extents, job.target, json.dumps(options))
        for record in old.records(job=job.id) if kept == "trials" else ():
            new.add(record.__class__.from_dict(json.loads(record.to_json()) | {"job": made.id}))
    same = explorer.load("../here/ops.py:grown", m=m, n=31)
    assert best_winner(same, earlier).job == made.id
    other = explorer.load("ops.py:grown", m=m, n=31)
    if kept == "neither":
        with pytest.raises(NothingValid):
            best_winner(other, earlier)
    else:
        assert best_winner(other, earlier).job == made.id
