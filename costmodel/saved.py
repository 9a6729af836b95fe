"""A trained model as a file: trees, feature schema, what it was trained on, and a checksum.

JSON, compressed where the name ends in .xz. A file of another format or schema, a truncated or an
altered one is refused in one line.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import IDEAL, schema_hash, trait_names, traits
from costmodel.model import CostModel, Vector
from ir.errors import UsageError
from ir.printable import shortened
from ir.space import Matrix, Space
from records.packed import Unpackable, unpacked

FORMAT = 2
LARGEST = 64 << 20  # bytes of a model, unpacked
_XZ = b"\xfd7zXZ\x00"
# Of what a model depends on: the distributions that may bring it, the first of them preferred.
_LIBRARIES = {
    "tilewright": ("tilewright",),
    "xgboost": ("xgboost-cpu", "xgboost"),
    "numpy": ("numpy",),
}


@dataclass(frozen=True)
class TrainedModel:
    """A model that carries over between workloads of one target, and where it comes from.

    `data` tells the records (trials, workloads, operators, fingerprint), `versions` the libraries.
    """

    target: str
    model: CostModel
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        return schema_hash(self.target, self.model.names)

    def fits(self, space: Space) -> bool:
        """Whether the model knows the features of this space."""
        return schema_hash(space.target, trait_names(space)) == self.schema

    def require(self, space: Space) -> None:
        """Raises UsageError where the model does not fit a space."""
        if space.target != self.target:
            raise UsageError(
                f"the cost model is for target {self.target}, not {space.target}: name another"
            )
        if not self.fits(space):
            here = schema_hash(space.target, trait_names(space))
            raise UsageError(
                f"the cost model knows features of schema {self.schema}, this version has {here}: "
                "train it again"
            )

    def score(self, space: Space, matrix: Matrix) -> Vector:
        """Scores of rows of a space, higher being better."""
        return self.model.predict(traits(space, matrix))

    def seconds(self, space: Space, matrix: Matrix) -> Vector | None:
        """Predicted seconds of rows, if the model tells times."""
        features = traits(space, matrix)
        return self.model.predict_seconds(features, ideal_seconds(self.model.names, features))

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; raises UsageError."""
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is a device or a folder: name a file")
        content = json.dumps(self._content(), sort_keys=True)
        text = json.dumps({"sha256": _digest(content), "content": content})
        data = text.encode()
        if path.suffix == ".xz":
            data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            try:
                part.write_bytes(data)
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {path} ({error.strerror}): name another file") from None

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target,
            "schema": self.schema,
            "data": dict(self.data),
            "versions": dict(self.versions),
            "model": self.model.to_dict(),
        }


def ideal_seconds(names: tuple[str, ...], features: NDArray[np.float32]) -> Vector:
    """The least seconds of each row's program as its backend tells; ones if it does not."""
    if IDEAL not in names:
        return np.ones(len(features))
    return np.asarray(np.exp2(features[:, names.index(IDEAL)].astype(np.float64)))


def load_model(path: Path) -> TrainedModel:
    """Read a file that `save` wrote; UsageError, in one line, for anything else."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is no file")
        with open(path, "rb") as stream:
            packed = stream.read(len(_XZ)) == _XZ
            stream.seek(0)
            data = b"" if packed else stream.read(LARGEST + 1)
        if packed:
            data = b"".join(unpacked(path, LARGEST))
    except OSError as error:
        raise UsageError(
            f"cannot read the cost model {path} ({error.strerror}): name a file that "
            "`tilewright train` wrote, or none"
        ) from None
    except Unpackable as error:
        raise UsageError(
            f"{path} is no cost model, or a damaged one ({error}): train it again"
        ) from None
    if len(data) > LARGEST:
        raise UsageError(f"{path} is no cost model: larger than {LARGEST >> 20} MiB")
    return _parse(data, str(path))


def shipped_model(target: str) -> TrainedModel | None:
    """The model that comes with the package for a target; None if there is none.

    A thread may ask for it early: others wait for what it reads.
    """
    with _reading:
        return _shipped_model(target)


_reading = Lock()


@lru_cache(maxsize=8)
def _shipped_model(target: str) -> TrainedModel | None:
    place = files("costmodel") / "pretrained" / f"{target}.json.xz"
    if not place.is_file():
        return None
    return _parse(lzma.decompress(place.read_bytes()), str(place), trusted=True)


def _parse(data: bytes, name: str, *, trusted: bool = False) -> TrainedModel:
    """The model of a file's content; one that came with the code is trusted as the code is."""
    try:
        outer = json.loads(data)
        content = outer["content"]
        sound = outer["sha256"] == _digest(content)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{name} is no cost model, or a damaged one: train it again") from None
    if not sound:
        raise UsageError(f"{name} is damaged: its checksum does not match; train it again")
    try:
        return _trained(json.loads(content), name, trusted)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        said = shortened(f"{type(error).__name__}: {error}", 120)
        raise UsageError(f"{name} is no cost model ({said}): train it again") from None


def _trained(values: Any, name: str, trusted: bool) -> TrainedModel:
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UsageError(f"{name} is a cost model of another format than {FORMAT}: train it again")
    model = CostModel.from_dict(values["model"], trusted=trusted)
    target, data, versions = values["target"], values["data"], values["versions"]
    if not (isinstance(target, str) and isinstance(data, dict) and isinstance(versions, dict)):
        raise ValueError("its target, data or versions are missing")
    trained = TrainedModel(target, model, data, versions)
    if trained.schema != values["schema"]:
        said = shortened(str(values["schema"]), 40)
        raise UsageError(f"{name} contradicts its own schema {said}: train it again")
    return trained


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of what a model depends on."""
    return {name: _version_of(names) for name, names in _LIBRARIES.items()}


def _version_of(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"
