"""Records that come from elsewhere say what was tuned; nothing that they name is run or opened."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import cli, job
from explorer.rebuilding import of_record, rebuilt
from explorer.training import read_groups
from ir.errors import UsageError
from records import Store, export_records, import_records
from records.canonical import content_key
from tests.job.device import ScriptedDevice

_OPERATOR = """
from pathlib import Path
from ir import Graph, operator, relu

@operator
def leaky(g: Graph, m: int, n: int) -> None:
    a, b = g.axes(m=m, n=n)
    x = g.input("X", (a, b), "f32")
    g.output("Y", relu(x) - 0.25 * relu(-x))
"""
_TRAP = "from pathlib import Path\nPath(__file__).with_name('sprung').write_text('')\n"


class Imported:
    """A store that holds another one's export, beside a trap where the operator's file was."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        self.file, self.store = folder / "mine.py", folder / "here.db"
        self.file.write_text(_OPERATOR)
        there = folder / "there.db"
        given: Any = {"trials": 24, "store": there, "model": "none", "baseline": False}
        job.tune(f"{self.file}:leaky", {"m": 64, "n": 48}, **given)
        job.tune(f"{self.file}:leaky", {"m": 64, "n": 64}, progress=_stop, **given)
        with Store(there) as store:
            export_records(store, folder / "all.jsonl")
        with Store(self.store) as store:
            import_records(store, folder / "all.jsonl")
            self.done, self.stopped = (job.id for job in store.jobs())
        self.file.write_text(_TRAP + _OPERATOR)

    @property
    def sprung(self) -> bool:
        return self.file.with_name("sprung").exists()

    def forget_texts(self) -> None:
        """As a version left it that kept none."""
        with closing(sqlite3.connect(self.store)) as connection, connection:
            connection.execute("DELETE FROM facts WHERE text LIKE 'program %'")


def _stop(_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: ScriptedDevice) -> Imported:
    return Imported(tmp_path, monkeypatch)


def _verbs(imported: Imported) -> list[list[str]]:
    return [
        ["top"],
        ["report", imported.done, "--out", "page.html"],
        ["explain", "--job", imported.done],
        ["train", "--out", "model.json"],
        ["tune", "--resume", imported.stopped, "--plain"],
    ]


def test_every_verb_takes_the_program_from_the_records(
    imported: Imported, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in _verbs(imported):
        assert cli.invoke([*verb, "--records", str(imported.store)]) == cli.EXIT_DONE, verb
        assert not imported.sprung, verb
    assert "GFLOP/s" in capsys.readouterr().out


def test_records_without_a_program_say_how_to_name_the_file(
    imported: Imported, capsys: pytest.CaptureFixture[str]
) -> None:
    imported.forget_texts()
    records = ["--records", str(imported.store)]
    for verb in _verbs(imported)[1:]:
        assert cli.invoke([*verb, *records]) == cli.EXIT_USAGE, verb
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "--operators FILE.py" in said or verb[0] == "train"
    assert cli.invoke(["top", *records]) == cli.EXIT_DONE  # they note what a run computes
    assert "GFLOP/s" in capsys.readouterr().out
    assert not imported.sprung
    imported.file.write_text(_OPERATOR.replace("leaky", "renamed"))
    for verb in _verbs(imported):
        named = [*verb, *records, "--operators", str(imported.file)]
        assert cli.invoke(named) == (cli.EXIT_USAGE if verb[0] != "top" else cli.EXIT_DONE)
    capsys.readouterr()
    imported.file.write_text(_OPERATOR)
    for verb in _verbs(imported):
        named = [*verb, *records, "--operators", str(imported.file)]
        assert cli.invoke(named) == cli.EXIT_DONE, (verb, capsys.readouterr().err)


def test_a_text_of_another_program_is_refused(imported: Imported) -> None:
    with Store(imported.store) as store:
        record = next(store.records())
        text = store.text(record.workload)
        assert text is not None
        hostile = text.replace("output Y", 'output Y"; system("id")')
        store.keep_texts((hostile, " " + text))
        for other in (hostile, " " + text):
            named = replace(of_record(record), key=content_key(other))
            with pytest.raises(UsageError) as caught:
                rebuilt(store, named)
            assert str(caught.value).isprintable()


def test_a_target_of_a_record_is_no_way_to_name_code(imported: Imported) -> None:
    with Store(imported.store) as store:
        named = of_record(next(store.records()))
        for target in ("os:abort", "explorer.runtime.cpu:CpuRuntime", "none"):
            with pytest.raises(UsageError, match="there are cpu"):
                rebuilt(store, replace(named, target=target))


def test_a_built_in_operator_is_found_by_name(path: Path, device: ScriptedDevice) -> None:
    job.tune("row_sum", {"m": 64, "n": 64}, trials=24, store=path, model="none", baseline=False)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM facts WHERE text LIKE 'program %'")
    assert read_groups([str(path)])
    with Store(path) as store:
        record = next(store.records())
        assert rebuilt(store, of_record(record)).program.key == record.workload


def test_what_a_run_started_from_is_in_its_store(
    path: Path, tmp_path: Path, device: ScriptedDevice
) -> None:
    """A resumed run reads no records that its job names: what it took of them is kept."""
    given: Any = {"trials": 24, "model": "none", "baseline": False}
    before = tmp_path / "before.db"
    job.tune("row_sum", {"m": 64, "n": 64}, store=before, **given)
    more: Any = {"store": path, "start_from": before, "progress": _stop}
    job.tune("row_sum", {"m": 64, "n": 64}, **more, **given)
    before.unlink()
    found = job.resume(store=path)
    assert found.trials == 24
    with Store(path) as store:
        options = json.loads(store.jobs()[0].options)
    assert options["seeds"]
