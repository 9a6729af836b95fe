"""Model files: what is saved is loaded; what is damaged, foreign or out of date is refused."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodel.dataset import train
from costmodel.model import Settings
from costmodel.saved import TrainedModel, load_model, shipped_model
from ir.errors import UsageError
from tests.costmodel.groups import groups, told_space
from tests.space.toy import tiling_space

QUICK = Settings(rounds=20, depth=4, label="ratio")


def _train() -> TrainedModel:
    return train(groups(), settings=QUICK, seed=1)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return _train()


@pytest.mark.parametrize("name", ["model.json", "model.json.xz"])
def test_what_is_saved_is_loaded(trained: TrainedModel, tmp_path: Path, name: str) -> None:
    trained.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    again = load_model(tmp_path / name)
    space = told_space()
    rows = space.sample(np.random.default_rng(3), 50)
    assert np.array_equal(again.score(space, rows), trained.score(space, rows))
    told, wanted = again.seconds(space, rows), trained.seconds(space, rows)
    assert told is not None
    assert wanted is not None
    assert np.array_equal(told, wanted)
    assert again.schema == trained.schema
    assert again.data["workloads"] == 6
    assert again.data["operators"] == ["op0", "op1", "op2"]
    assert again.data == trained.data
    assert set(again.versions) >= {"xgboost", "numpy"}


def test_the_same_data_and_seed_make_the_same_file(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "a.json")
    _train().save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("name", ["model.json", "model.json.xz"])
def test_every_truncation_and_flipped_bit_is_refused(
    trained: TrainedModel, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    trained.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for end in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(UsageError, match="train it again"):
            load_model(path)
    for place in rng.integers(0, len(whole), 20).tolist():
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(flipped))
        refusal = _refusal(path)
        if refusal is None:  # a bit that the container does not use
            assert load_model(path).model.to_dict() == trained.model.to_dict()
        else:
            assert "\n" not in refusal


def _refusal(path: Path) -> str | None:
    try:
        load_model(path)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 2}', '{"content": 3}'])
def test_what_is_no_model_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no cost model, or a damaged one"):
        load_model(path)
    with pytest.raises(UsageError, match="cannot read the cost model"):
        load_model(tmp_path / "missing.json")


def test_another_format_is_refused_in_words(trained: TrainedModel, tmp_path: Path) -> None:
    from hashlib import sha256

    path = tmp_path / "model.json"
    content = json.dumps({"format": 99})
    path.write_text(
        json.dumps({"content": content, "sha256": sha256(content.encode()).hexdigest()})
    )
    with pytest.raises(UsageError, match="another format than 2"):
        load_model(path)


def test_another_schema_or_target_is_refused_in_words(trained: TrainedModel) -> None:
    trained.require(told_space())
    assert not trained.fits(tiling_space())
    with pytest.raises(UsageError, match="knows features of schema"):
        trained.require(tiling_space())
    with pytest.raises(UsageError, match="for target toy, not cuda"):
        trained.require(replace(told_space(), target="cuda"))


def test_where_it_cannot_be_written_it_says_so(trained: TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        trained.save(tmp_path / "no" / "model.json")


def test_a_target_without_a_shipped_model_has_none() -> None:
    assert shipped_model("toy") is None


def test_a_compressed_file_is_compressed(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "m.json")
    trained.save(tmp_path / "m.json.xz")
    assert (
        lzma.decompress((tmp_path / "m.json.xz").read_bytes()) == (tmp_path / "m.json").read_bytes()
    )
