"""A stranger's model file ends in one line or is a model; it never ends the process."""

from __future__ import annotations

import base64
import json
import lzma
import os
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.dataset import train
from costmodel.features import traits
from costmodel.model import Settings
from costmodel.saved import TrainedModel, load_model
from costmodel.trees import Unsound, sound
from costmodel.ubjson import Malformed, decode, encode
from ir.errors import UsageError
from tests.costmodel.groups import groups, told_space


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return train(groups(), settings=Settings(rounds=8, depth=3), seed=1)


def _written(path: Path, content: dict[str, Any], head: bytes) -> Path:
    """A file with this head alone, and a checksum that is right."""
    heads = {"rank": [base64.b64encode(head).decode()], "validity": None, "time": None}
    text = json.dumps(content | {"model": content["model"] | heads})
    digest = sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({"content": text, "sha256": digest}))
    return path


def _loaded(path: Path) -> TrainedModel | str:
    try:
        return load_model(path)
    except UsageError as error:
        return str(error)


def test_300_flips_and_cuts_of_the_trees(trained: TrainedModel, tmp_path: Path) -> None:
    """Each is refused in one line, or is a model that scores every row."""
    trained.save(tmp_path / "model.json")
    content = json.loads(json.loads((tmp_path / "model.json").read_bytes())["content"])
    whole = base64.b64decode(content["model"]["rank"][0])
    space, rng = told_space(), np.random.default_rng(0)
    features = traits(space, space.sample(rng, 20))
    refused = 0
    for number in range(300):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 1 + number % 3):
            data[place] ^= 1 << int(rng.integers(8))
        if number % 6 == 0:
            del data[int(rng.integers(len(data))) :]
        path = _written(tmp_path / "model.json", content, bytes(data))
        found = _loaded(path)
        if isinstance(found, str):
            refused += 1
            assert "\n" not in found
        else:
            assert found.model.predict(features).shape == (20,)
    assert refused > 100


def _with(trees: bytes, **columns: list[int] | list[float]) -> bytes:
    """The same trees, the first one's columns replaced from their beginning on."""
    found = decode(trees)
    first = found["learner"]["gradient_booster"]["model"]["trees"][0]
    for name, values in columns.items():
        column = first[name].copy()
        column[: len(values)] = values
        first[name] = column
    return encode(found)


@pytest.mark.parametrize(
    "columns",
    [
        {"left_children": [0]},
        {"left_children": [2]},
        {"right_children": [10**6]},
        {"right_children": [-1]},
        {"parents": [0, 1]},
        {"split_indices": [10**6]},
        {"split_indices": [-1]},
        {"split_type": [1]},
        {"default_left": [2]},
        {"split_conditions": [float("nan")]},
        {"base_weights": [float("inf")]},
    ],
)
def test_a_tree_that_is_none_is_refused(trained: TrainedModel, columns: dict[str, Any]) -> None:
    width = len(trained.model.names)
    head = base64.b64decode(trained.model.to_dict()["rank"][0])
    assert sound(_with(head), width)
    with pytest.raises(Unsound):
        sound(_with(head, **columns), width)
    with pytest.raises(Unsound, match="a split by none of 0 features"):
        sound(head, 0)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[" * 40, b"[$l#L" + b"\x7f" * 8, b"[#L" + b"\x7f" * 8, b"SL" + b"\xff" * 8],
)
def test_lengths_and_depths_that_bytes_do_not_fill(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_what_xgboost_reads_is_the_same_model(trained: TrainedModel) -> None:
    head = base64.b64decode(trained.model.to_dict()["rank"][0])
    again = sound(head, len(trained.model.names))
    assert sound(again, len(trained.model.names)) == again


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_shipped_models_are_sound(target: str) -> None:
    """They are loaded unexamined, for the sake of a search's start."""
    place = files("costmodel") / "pretrained" / f"{target}.json.xz"
    content = json.loads(json.loads(lzma.decompress(place.read_bytes()))["content"])
    model = content["model"]
    heads = [*model["rank"], model["time"]]
    heads += [model["validity"]] if model["validity"] is not None else []  # None: nothing failed
    for head in heads:
        assert sound(base64.b64decode(head), model["width"])


def test_what_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.json.xz"
    bomb.write_bytes(lzma.compress(bytes(65 << 20), preset=0))
    with pytest.raises(UsageError, match="unpacks to more than 64 MiB"):
        load_model(bomb)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no file"):
        load_model(tmp_path / "pipe")
