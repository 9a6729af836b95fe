"""`tilewright compare`: decisions that differ, recorded times, times in turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from explorer import cli
from explorer.comparison import half_interval
from explorer.outcome import Outcome
from explorer.workload import Workload
from ir.schedule import Schedule
from tests.cli.recorded import TUNED, recorded
from tests.job.device import ScriptedDevice

WORDS = ("matmul", "m=32", "n=32", "k=32")


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = cli.EXIT_DONE) -> str:
    assert cli.invoke(["compare", *words]) == code
    heard = capsys.readouterr()
    return heard.out if code == cli.EXIT_DONE else heard.err


def neighbour(schedule: Schedule) -> Schedule:
    """A legal schedule that differs in one decision."""
    space = Workload.of("matmul", TUNED).space()
    row = space.neighbours(space.encode(schedule))[0]
    return space.schedule(row)


def in_turns(schedule: Schedule, seconds: float, apart: float = 0.001) -> Outcome:
    spread = (seconds * (1 - apart), seconds * (1 + apart))
    return Outcome("ok", seconds, spread, 9, kernel_key=schedule.key, notes=(("turns", 9),))


def test_two_jobs_by_their_records(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, _ = recorded(store)
    out = said(capsys, names[0], names[1])
    assert "seed: A 0, B 1" in out
    assert "decisions that differ" in out
    assert "measured in turns" not in out.replace("not measured in turns", "")
    assert out.splitlines()[-1] == f"A is 1.10x job {names[1]}, not measured in turns"


def test_two_jobs_of_different_workloads(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, _ = recorded(store)
    assert "not known: different workloads" in said(capsys, names[0], names[2])
    refused = said(capsys, names[0], names[2], "--measure", code=cli.EXIT_USAGE)
    assert "of different workloads" in refused


def test_two_schedules_in_turns(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, best = recorded(store)
    other = neighbour(best)
    file = tmp_path / "other.json"
    file.write_text(other.to_json())
    times = {best.key: 1e-3, other.key: 2e-3}
    device = ScriptedDevice(lambda schedule: in_turns(schedule, times[schedule.key]))
    monkeypatch.setattr("explorer.measure.Measurer", device)
    found = json.loads(said(capsys, "best", f"@{file}", *WORDS, "--format", "json"))
    (row,) = found["decisions"]
    assert (row["a"], row["b"]) == (best.get(row["name"]), other.get(row["name"]))
    assert found["verdict"]["ratio"] == pytest.approx(2.0)
    assert not found["verdict"]["within_noise"]
    assert found["a"]["recorded"]["seconds"] == pytest.approx(9e-4)
    assert found["b"]["recorded"] is None
    out = said(capsys, "best", other.to_json(), *WORDS)
    assert "no record of it" in out
    assert "A is 2.00x schedule" in out


def test_a_small_gap_is_within_noise(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, best = recorded(store)
    other = neighbour(best)
    outcomes = {best.key: in_turns(best, 1e-3, 0.2), other.key: in_turns(other, 1.05e-3, 0.2)}
    assert half_interval(outcomes[best.key]) > 0
    device = ScriptedDevice(lambda schedule: outcomes[schedule.key])
    monkeypatch.setattr("explorer.measure.Measurer", device)
    assert "within noise" in said(capsys, "best", other.to_json(), *WORDS)


def test_a_wrong_kernel_ends_with_3(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, best = recorded(store)
    device = ScriptedDevice(lambda _: Outcome("wrong_result", detail="off by one"))
    monkeypatch.setattr("explorer.measure.Measurer", device)
    error = said(capsys, "best", best.to_json(), *WORDS, code=cli.EXIT_NOTHING)
    assert "best ends as wrong_result: off by one" in error


def test_two_exports_on_this_machine(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Really built and timed; a manifest of another generator is told."""
    _, best = recorded(store)
    schedules = (best, neighbour(best))
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, schedule in zip(folders, schedules, strict=True):
        words = ["export", *WORDS, "--schedule", schedule.to_json(), "--out", str(folder)]
        assert cli.invoke(words) == cli.EXIT_DONE
    capsys.readouterr()
    out = said(capsys, *map(str, folders))
    assert out.count("measured in turns: ") == 2
    assert "A is " in out
    manifest = folders[1] / "matmul.json"
    told = json.loads(manifest.read_text())
    told["facts"]["generator"] = "cpu-0"
    manifest.write_text(json.dumps(told))
    device_free = said(capsys, *map(str, folders), "--no-measure")
    assert 'generator: A "cpu-' in device_free
    assert 'B "cpu-0"' in device_free


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("best", "best"), cli.EXIT_USAGE, "best is a schedule: say of what"),
        (("{", "best", *WORDS), cli.EXIT_USAGE, "schedule"),
        (("@none.json", "best", *WORDS), cli.EXIT_USAGE, "none.json"),
        (("nosuchjob", "best", *WORDS), cli.EXIT_USAGE, "no such job"),
        ((".", "best", *WORDS), cli.EXIT_USAGE, "no manifest of an export"),
        (("best", "best", "softmax", "m=8", "n=8"), cli.EXIT_NOTHING, "no valid record"),
        (("best",), cli.EXIT_USAGE, "B"),
    ],
)
def test_what_is_neither_is_told(
    words: tuple[str, ...],
    code: int,
    told: str,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded(store)
    error = said(capsys, *words, code=code)
    assert told in error
    assert error.count("\n") == 1


def test_manifests_that_lack_something(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(store)
    wrong = ("[]", "{", "{}", '{"facts": {}, "kernel_key": "", "target": "cpu"}', '{"facts": 3}')
    for number, text in enumerate(wrong):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "x.json").write_text(text)
        assert "manifest" in said(capsys, str(folder), "best", *WORDS, code=cli.EXIT_USAGE)
