"""The models that ship: they load, fit the spaces of this version, and know good from bad."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from costmodel.saved import TrainedModel, load_model, shipped_model
from ir.registry import load_operator
from ir.space import Space
from ir.target import get_backend
from tests.costmodel.test_traits import MACHINES

MATMUL = {"m": 640, "n": 896, "k": 768}
UNSEEN: dict[str, tuple[str, dict[str, Any]]] = {
    "cpu": ("matmul", MATMUL),
    "cuda": ("matmul", MATMUL | {"dtype": "bf16", "tb": True}),
}


def _space(target: str) -> Space:
    operator, arguments = UNSEEN[target]
    program = load_operator(operator).build(**arguments)
    return get_backend(target).space(program, MACHINES[target])


def _model(target: str) -> TrainedModel:
    model = shipped_model(target)
    assert model is not None
    return model


@pytest.mark.parametrize("target", sorted(UNSEEN))
class TestShipped:
    def test_it_fits_this_version(self, target: str) -> None:
        _model(target).require(_space(target))

    def test_it_is_small_and_says_what_it_was_trained_on(self, target: str) -> None:
        place = files("costmodel") / "pretrained" / f"{target}.json.xz"
        assert len(place.read_bytes()) <= 3 << 20
        data = _model(target).data
        assert data["trials"] > 1000
        assert data["workloads"] >= 20
        assert len(data["operators"]) >= 6
        assert len(data["fingerprint"]) == 64

    def test_extents_it_never_saw_are_ranked_with_sense(self, target: str) -> None:
        """What engineers start from stands above nearly all that is drawn at random."""
        space, rng = _space(target), np.random.default_rng(0)
        drawn = _model(target).score(space, space.sample(rng, 500))
        seeds = _model(target).score(space, space.seed_rows(rng))
        assert np.median(seeds) > np.quantile(drawn, 0.9)

    @pytest.mark.alike(2)
    def test_a_copy_of_its_file_is_the_same_model(self, target: str, tmp_path: Any) -> None:
        _model(target).save(tmp_path / "copy.json.xz")
        place = files("costmodel") / "pretrained" / f"{target}.json.xz"
        assert load_model(tmp_path / "copy.json.xz").data == _model(target).data
        assert (tmp_path / "copy.json.xz").read_bytes() == place.read_bytes()
