"""Training on rows that stay on the disk: the same rows, as good a model, and bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from costmodel.dataset import Group, described, fit_groups
from costmodel.evaluate import spearman
from costmodel.model import CostModel, Settings
from costmodel.shelf import Blocks, OnDisk, Shelf
from explorer import cli
from explorer.outcome import Outcome
from explorer.recall import to_record
from explorer.training import read_groups
from explorer.workload import Workload
from records import Store, export_records
from tests.cli.recorded import recorded

QUICK = Settings(rounds=12, depth=4, time_rounds=6, validity_rounds=6)


def made(shelf: Shelf | None, count: int = 6, rows: int = 300, width: int = 20) -> list[Group]:
    """Groups whose times follow two features; one in ten fails."""
    rng = np.random.default_rng(0)
    names = tuple(f"f{number}" for number in range(width))
    found = []
    for number in range(count):
        features = rng.normal(size=(rows, width)).astype(np.float32)
        seconds = 1e-3 * np.exp(features[:, 0] + 0.5 * features[:, 1]).astype(np.float64)
        seconds[features[:, 2] > 1.3] = np.nan
        held = features if shelf is None else shelf.put(features)
        found.append(Group("rows", str(number), "cpu", names, held, seconds))
    return found


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.mark.parametrize("page", [1, 80, 4000, 1 << 20])
def test_blocks_are_the_rows_in_order(page: int, shelf: Shelf) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=(rows, 5)).astype(np.float32) for rows in (7, 1, 60, 3)]
    blocks = Blocks([shelf.put(part) for part in parts], shelf)
    whole = np.concatenate(parts)
    assert blocks.shape == whole.shape
    kept = rng.random(len(whole)) < 0.5
    for some, expected in ((blocks, whole), (blocks.only(kept), whole[kept])):
        batches = list(some.batches(page))
        assert some.shape == expected.shape
        assert all(len(batch) for batch in batches)
        assert max(len(batch) for batch in batches) <= max(1, page // 20)
        assert (np.concatenate(batches) == expected).all()


def test_a_matrix_on_disk_is_that_matrix(shelf: Shelf) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    held = shelf.put(matrix)
    assert (held.shape, len(held), held.nbytes) == ((3, 4), 3, 48)
    assert (np.asarray(held) == matrix).all()
    assert (held[:, 1] == matrix[:, 1]).all()
    assert np.asarray(held, dtype=np.float64).dtype == np.float64


def test_a_model_of_the_disk_ranks_as_one_of_memory(shelf: Shelf) -> None:
    """Bins are found in pages, so trees differ a little; both know the same."""
    kept = fit_groups(made(None), settings=QUICK)
    groups = made(shelf)
    models = [fit_groups(groups, settings=QUICK, shelf=shelf, ram=0) for _ in range(2)]
    fresh = made(None, 1)[0].features[:]
    fresh = np.random.default_rng(5).normal(size=fresh.shape).astype(np.float32)
    one, two = (model.predict(fresh) for model in models)
    assert (one == two).all()
    assert spearman(one, kept.predict(fresh)) > 0.95
    assert spearman(one, -(fresh[:, 0] + 0.5 * fresh[:, 1]).astype(np.float64)) > 0.6
    failing = fresh[:, 2] > 1.3
    odds = models[0].validity(fresh)
    assert odds[failing].mean() < odds[~failing].mean() - 0.3
    assert models[0].predict_seconds(fresh, np.ones(len(fresh))) is not None
    assert described(groups) == described(made(None))


def test_such_a_model_is_saved_and_read_as_any(shelf: Shelf) -> None:
    model = fit_groups(made(shelf), settings=QUICK, shelf=shelf, ram=0)
    read = CostModel.from_dict(json.loads(json.dumps(model.to_dict())))
    fresh = np.random.default_rng(3).normal(size=(50, 20)).astype(np.float32)
    assert (read.predict(fresh) == model.predict(fresh)).all()


def test_features_within_the_limit_are_taken_into_memory(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the model is the very one that it would be without a shelf."""
    monkeypatch.setattr("costmodel.model.paged", None)
    fresh = np.random.default_rng(3).normal(size=(50, 20)).astype(np.float32)
    held = fit_groups(made(shelf), settings=QUICK, shelf=shelf).predict(fresh)
    assert (held == fit_groups(made(None), settings=QUICK).predict(fresh)).all()


def stored(path: Path, workloads: int) -> Path:
    rng = np.random.default_rng(0)
    with Store(path) as store:
        for number in range(workloads):
            workload = Workload.of("matmul", {"m": 32 + 16 * number, "n": 32, "k": 32}, "cpu")
            store.keep_texts([str(workload.program)])
            space = workload.space()
            store.add_all(
                to_record(workload, space.schedule(row), Outcome("ok", 1e-3), "", "random")
                for row in space.sample(rng, 250)
            )
    return path


@pytest.mark.usefixtures("collecting")
def test_records_are_read_a_group_at_a_time(tmp_path: Path) -> None:
    """Of five times as many workloads the peak of Python's and numpy's memory is about the same."""
    peaks = []
    for count in (1, 5):
        store = stored(tmp_path / f"{count}.db", count)
        shelf = Shelf(tmp_path)
        read_groups([store], "cpu", (), shelf)  # what is loaded once is loaded now
        tracemalloc.start()
        groups = read_groups([store], "cpu", (), shelf)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(groups) == count
        assert all(isinstance(group.features, OnDisk) for group in groups)
    assert peaks[1] < 2.0 * peaks[0]


_FITTED = """
import resource, sys
import costmodel.shelf
from pathlib import Path
from costmodel.dataset import fit_groups
from costmodel.model import Settings
from costmodel.shelf import Shelf
from tests.costmodel.test_shelf import made

costmodel.shelf.PAGE_BYTES = 1 << 20
shelf = Shelf(Path(sys.argv[1]))
few = Settings(rounds=1, depth=2, time_rounds=1, validity_rounds=1)
for count in (2, 14):
    groups = made(shelf, count, 4_000, 80)
    fit_groups(groups, settings=few, shelf=shelf, ram=0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_training_takes_little_more_memory_for_many_more_rows(tmp_path: Path) -> None:
    """15 MiB of features more, of which pages of 1 are in memory. Otherwise six times as much is
    kept: them, the rows that are right of them, and XGBoost's own."""
    words = [sys.executable, "-c", _FITTED, str(tmp_path)]
    done = subprocess.run(
        words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    few, many = map(float, done.stdout.split())
    assert many - few < 75


def test_the_verb_trains_from_the_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "records.db"
    recorded(store)
    with Store(store) as records:
        export_records(records, tmp_path / "more.jsonl")
    words = ["train", "--records", str(store), "--records", str(tmp_path / "more.jsonl")]
    told = []
    for ram in ("1GB", "0"):
        out = tmp_path / f"model{ram}.json"
        assert cli.invoke([*words, "--ram", ram, "--out", str(out), "--format", "json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["data"])
    assert told[0] == told[1]
    assert told[0]["workloads"] == 2
    assert cli.invoke([*words, "--ram", "much", "--out", str(out)]) == cli.EXIT_USAGE
    assert "--ram much: not a size; write 500MB or 4GB" in capsys.readouterr().err
