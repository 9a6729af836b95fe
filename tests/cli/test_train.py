"""train, evaluate, tune --model: on a store of made-up times, and on real small kernels."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from costmodel.features import trait_names, traits
from explorer import cli
from explorer.outcome import Outcome
from explorer.recall import open_store, to_record
from explorer.search import Search
from explorer.workload import Workload
from records import export_records
from tests.job.device import ScriptedDevice

CASES = (
    ("matmul", {"m": 64, "n": 64, "k": 64}),
    ("matmul", {"m": 96, "n": 64, "k": 128}),
    ("softmax", {"m": 64, "n": 128}),
    ("column_sum", {"m": 128, "n": 64}),
)


def _fill(store: Path, rows: int = 40) -> None:
    """Trials whose times follow the analytic estimate; a tenth failed."""
    with open_store(store) as records:
        for operator, arguments in CASES:
            workload = Workload.of(operator, arguments)
            space = workload.space()
            matrix = space.sample(np.random.default_rng(0), rows)
            names = trait_names(space)
            estimate = traits(space, matrix)[:, names.index("total.estimate")]
            for number, row in enumerate(matrix):
                seconds = float(1e-5 * 2.0 ** estimate[number])
                status = "crash" if number % 10 == 9 else "ok"
                outcome = Outcome(status, seconds, (seconds, seconds), 5, kernel_key=str(number))  # type: ignore[arg-type]
                records.add(to_record(workload, space.schedule(row), outcome, "", "random"))


def test_train_evaluate_and_tune_with_it(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.json.xz"
    assert cli.invoke(["train", "--out", str(out)]) == cli.EXIT_USAGE
    assert f"no records at {store}" in capsys.readouterr().err
    _fill(store)
    assert cli.invoke(["train", "--out", str(out)]) == cli.EXIT_DONE
    text = capsys.readouterr().out
    assert "160 kernels (144 valid) of 4 workloads, 3 operators, target cpu" in text
    assert f"wrote {out}" in text

    evaluate = ["evaluate", str(out), "--format", "json"]  # of the record store
    assert cli.invoke(evaluate) == cli.EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["model"]["correlation"] > 0.8
    assert len(found["scores"]) == 3 * len(CASES)

    command = ["tune", "matmul", "m=32", "n=32", "k=48", "--trials", "8", "--format", "json"]
    assert cli.invoke([*command, "--model", str(out)]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["trials"] == 8


def test_cross_validation_of_an_export(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(store, 30)
    plain, packed = tmp_path / "records.jsonl", tmp_path / "records.jsonl.xz"
    with open_store(store) as records:
        export_records(records, plain)
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    told = []
    for source in (plain, packed):
        words = ["evaluate", "--cross-validate", "--records", str(source), "--split", "operator"]
        assert cli.invoke(words) == cli.EXIT_DONE
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    lines = told[0].splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["model", "traffic", "neighbour", "random"]
    assert "failures; Brier score" in told[0]


def _refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.invoke(words) == cli.EXIT_USAGE, words
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_what_cannot_be_trained_or_evaluated_is_refused_in_one_line(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, out = str(tmp_path / "no.db"), str(tmp_path / "model.json")
    assert "no records at" in _refusal(["train", "--records", missing, "--out", out], capsys)
    assert not Path(missing).exists()
    with open_store(store):
        pass
    assert "no trial" in _refusal(["train", "--records", str(store), "--out", out], capsys)
    assert "a folder is in the way" in _refusal(
        ["train", "--records", str(store), "--out", str(tmp_path)], capsys
    )
    assert "one of the two" in _refusal(["evaluate", "--records", str(store)], capsys)
    both = ["evaluate", out, "--cross-validate", "--records", str(store)]
    assert "one of the two" in _refusal(both, capsys)
    bad = tmp_path / "bad.jsonl.xz"
    bad.write_bytes(b"\xfd7zXZ\x00 cut short")
    assert "cannot unpack" in _refusal(["train", "--records", str(bad), "--out", out], capsys)


def test_tune_refuses_a_model_that_is_none_before_it_touches_the_store(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "matmul", "m=32", "n=32", "k=32", "--trials", "4"]
    assert "cannot read the cost model" in _refusal([*command, "--model", "no.json"], capsys)
    (tmp_path / "bad.json").write_text("{")
    bad = [*command, "--model", str(tmp_path / "bad.json")]
    assert "is no cost model" in _refusal(bad, capsys)
    assert not store.exists()


def test_a_search_starts_with_the_model_that_is_asked_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    _fill(store)
    out = tmp_path / "model.json"
    cli.invoke(["train", "--records", str(store), "--out", str(out)])
    workload = Workload.of("matmul", {"m": 48, "n": 48, "k": 48})
    with open_store(tmp_path / "fresh.db") as records:
        with Search(workload, records, trials=32, model=out) as search:
            assert search.prior is not None
            list(search.step(8))
            assert {quality.prior for quality in search.model_quality} == {1.0}
            options = json.loads(search.job.options)
            assert options["model"] == search.prior.data["fingerprint"]
        with Search(workload, records, trials=32, model="none") as search:
            assert search.prior is None
        with Search(workload, records, trials=32, strategy="random", model=out) as search:
            assert search.prior is None
            assert search.model_quality == ()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "none is installed for target cpu"),
        (("--model", "none"), "none was asked for"),
        (("--strategy", "random"), "the strategy uses none"),
    ],
)
def test_a_search_without_a_model_says_so(
    options: tuple[str, ...],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    command = ["tune", "matmul", "m=32", "n=32", "k=32", "--trials", "2", *options]
    if not options:
        assert cli.invoke(command) == cli.EXIT_DONE
        assert "no cost model" not in capsys.readouterr().out
        monkeypatch.setattr("explorer.training.shipped_model", lambda _: None)
    assert cli.invoke(command) == cli.EXIT_DONE
    assert capsys.readouterr().out.count(f"no cost model to start with: {why}\n") == 1
    assert cli.invoke([*command, "--format", "json"]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["model"] == {"source": "", "why": why}
