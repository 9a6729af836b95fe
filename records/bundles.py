"""Records that people share: one file with a part for each workload and device, a manifest with
their checksums, and its signature.

A bundle is a zip archive, nothing in it packed twice: `manifest.json`, `manifest.sig`, and parts,
each an export in JSON Lines, packed as .xz. Jobs stay at home: they tell of files and options.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from records import jsonl, signing
from records.canonical import canonical_json
from records.errors import DamagedExport, InvalidRecord, UntrustedBundle, UnusableLocation
from records.files import Outgoing, replacing
from records.packed import Unpackable, unpacked
from records.record import Job, Record, utc_now
from records.refused import unreadable
from records.rows import Selection
from records.schema import VERSION
from records.store import Store
from records.tellings import MachineCount

FORMAT = 1
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
LARGEST_MANIFEST = 16 << 20
LARGEST = 4 << 30  # bytes of a bundle
_DOMAIN = b"tilewright bundle 1\n"  # so that a signature means nothing elsewhere
_ORIGIN = '{"manifest":'  # how the text begins that is kept of a bundle: names are sorted
_PIECE = 1 << 20
_DATE = (1980, 1, 1, 0, 0, 0)  # of the archive's members: the same records make the same bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which parts: of a workload whose key or operator is, or begins, so; of a device whose key is,
    or whose name holds, this; of a target."""

    workload: str | None = None
    device: str | None = None
    target: str | None = None

    def has(self, part: Part) -> bool:
        """Whether a part is wanted."""
        known = self.workload is None or (
            part.workload.startswith(self.workload) or part.operator == self.workload
        )
        device = self.device is None or (
            part.hardware == self.device or self.device.lower() in part.device.lower()
        )
        return known and device and self.target in (None, part.target)


@dataclass(frozen=True, slots=True)
class Part:
    """The trials of one workload on one machine: what they are, and the file that holds them."""

    file: str
    sha256: str  # of the file as it is, packed
    size: int  # bytes of it
    trials: int
    workload: str
    operator: str
    extents: str
    target: str
    hardware: str
    device: str  # the machine's name

    def holds(self, record: Record) -> bool:
        """Whether a trial is what the part says that its trials are."""
        mine = (self.workload, self.target, self.hardware)
        return (record.workload, record.target, record.hardware) == mine


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle holds, who made it and when; `schema` is that of the store it came from."""

    signer: str
    created: str
    schema: int
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        return canonical_json({"tilewright": "bundle", "format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Raises InvalidRecord for what is no manifest, or one of another format."""
        try:
            values = dict(json.loads(data))
            kind, form = values.pop("tilewright"), values.pop("format")
            parts = tuple(Part(**part) for part in values.pop("parts"))
            found = cls(**values, parts=parts)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise InvalidRecord(f"its manifest is none ({type(error).__name__})") from None
        if (kind, form) != ("bundle", FORMAT):
            raise InvalidRecord(f"its format {form!r} is not known here; upgrade Tilewright")
        if found.to_json().encode() != data:
            raise InvalidRecord("its manifest is not in the one form that there is")
        return found

    @property
    def trials(self) -> int:
        return sum(part.trials for part in self.parts)


@dataclass(frozen=True, slots=True)
class Pulled:
    """What came of a pull: who signed, the parts taken, trials read and those new to the store."""

    signer: str
    created: str
    parts: tuple[Part, ...]
    read: int
    added: int


# --- out ----------------------------------------------------------------------------------------


def publish(store: Store, path: Path, key: Path, wanted: Wanted | None = None) -> Manifest:
    """Write the wanted records as a bundle signed by the private key in a file.

    Raises UnusableLocation where nothing is wanted, DamagedStore where what is wanted is damaged.
    """
    signing.sign(key, b"")  # refuses what is no key before any work
    with tempfile.TemporaryDirectory() as folder:
        parts = tuple(_written(store, Path(folder), wanted or Wanted()))
        if not parts:
            raise UnusableLocation(f"{store.location}: no trial is of what is to be published")
        signer = signing.sign(key, b"")[1]
        manifest = Manifest(signer, utc_now(), VERSION, parts)
        data = manifest.to_json().encode()
        signature, _ = signing.sign(key, _DOMAIN + data)
        with replacing(path) as goal, zipfile.ZipFile(goal, "x", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST, _DATE), data)
            archive.writestr(zipfile.ZipInfo(SIGNATURE, _DATE), signature)
            for part in parts:
                with archive.open(zipfile.ZipInfo(part.file, _DATE), "w") as stream:
                    _copy(Path(folder) / part.file, stream)
    return manifest


def _written(store: Store, folder: Path, wanted: Wanted) -> Iterator[Part]:
    """The wanted parts, each once its file is there; a machine's name is in its facts."""
    names = {row.hardware: _name(store, row) for row in store.tally(MachineCount)}
    groups = dict.fromkeys(
        (row.workload, row.operator, row.extents, row.target, row.hardware)
        for row in store.workloads()
    )
    for workload, operator, extents, target, hardware in groups:
        told = (workload, operator, extents, target, hardware, names[hardware])
        part = Part("", "", 0, 0, *told)
        if wanted.has(part):
            name = f"{hashlib.sha256(repr(told).encode()).hexdigest()[:24]}.jsonl.xz"
            trials = _pack(store, folder / name, part)
            data = _digest(folder / name)
            yield Part(name, data, (folder / name).stat().st_size, trials, *told)


def _name(store: Store, row: MachineCount) -> str:
    text = store.text(row.facts)
    model = json.loads(text).get("model") if text else None
    return model if isinstance(model, str) else row.hardware


class _OfOne(Outgoing):
    """The trials of one workload with its program, without jobs."""

    def __init__(self, store: Store, workload: str) -> None:
        super().__init__(store, salvage=False)
        self._workload = workload

    def jobs(self) -> tuple[Job, ...]:
        return ()

    def texts(self) -> Iterator[str]:
        found = self.text(self._workload)
        return iter(() if found is None else (found,))


def _pack(store: Store, goal: Path, part: Part) -> int:
    """Write the trials of a part; returns how many."""
    selection: Selection = {"workload": part.workload, "target": part.target}
    selection |= {"hardware": part.hardware, "operator": part.operator}
    plain = goal.with_suffix("")
    trials = jsonl.write(_OfOne(store, part.workload), plain, selection)
    with lzma.open(goal, "wb") as stream:
        _copy(plain, cast("IO[bytes]", stream))
    plain.unlink()
    return trials


def _copy(source: Path, goal: IO[bytes]) -> None:
    with open(source, "rb") as stream:
        while piece := stream.read(_PIECE):
            goal.write(piece)


def _digest(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- in -----------------------------------------------------------------------------------------


def pull(store: Store, path: Path, trusted: Sequence[str], wanted: Wanted | None = None) -> Pulled:
    """Add what is new of a bundle that one of the `trusted` (public keys as text) has signed.

    Its signature, its checksums and every record wanted of it are examined before the first one is
    stored. Raises UntrustedBundle, DamagedExport.
    """
    with _opened(path) as archive, tempfile.TemporaryDirectory() as folder:
        data, manifest = _signed(path, archive, trusted)
        parts = tuple(part for part in manifest.parts if (wanted or Wanted()).has(part))
        files = [_unpacked(path, archive, part, Path(folder)) for part in parts]
        for part, file in zip(parts, files, strict=True):
            _examine(path, part, file)
        done = [jsonl.read(store, file, salvage=False) for file in files]
        if parts:
            store.keep_texts((_origin(data, archive, parts),))
    read, added = (sum(getattr(one, name) for one in done) for name in ("read", "added"))
    return Pulled(manifest.signer, manifest.created, parts, read, added)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        if not path.is_file():
            raise OSError(0, "there is no such file")
        if path.stat().st_size > LARGEST:
            raise _broken(path, f"it is larger than {LARGEST >> 30} GiB")
        return zipfile.ZipFile(path)
    except OSError as error:
        raise unreadable(path, error) from None
    except zipfile.BadZipFile:
        raise _broken(path, "it is no bundle, or ends early") from None


def _signed(path: Path, archive: zipfile.ZipFile, trusted: Sequence[str]) -> tuple[bytes, Manifest]:
    """The manifest, once its signature is found to be one of those that are trusted."""
    data = _member(path, archive, MANIFEST, LARGEST_MANIFEST)
    signature = _member(path, archive, SIGNATURE, 64)
    owner = next((key for key in trusted if signing.is_signed(key, signature, _DOMAIN + data)), "")
    if not owner:
        raise UntrustedBundle(
            f"{path}: none of the keys that are trusted has signed it, or it was altered; nothing "
            "was imported"
        )
    try:
        manifest = Manifest.from_json(data)
    except InvalidRecord as error:
        raise _broken(path, str(error)) from None
    if manifest.signer != owner:
        raise UntrustedBundle(f"{path}: it names another signer than its own; nothing was imported")
    return data, manifest


def _member(path: Path, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The content of a small member; raises DamagedExport."""
    try:
        with archive.open(name) as stream:
            data = stream.read(most + 1)
    except (KeyError, zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError):
        raise _broken(path, f"it has no sound {name}") from None
    if len(data) > most:
        raise _broken(path, f"its {name} is larger than {most:,} bytes")
    return data


def _unpacked(path: Path, archive: zipfile.ZipFile, part: Part, folder: Path) -> Path:
    """A part's lines in a file, once its checksum is found right. Names of members are not used."""
    packed = folder / f"{part.sha256[:24]}.jsonl.xz"
    try:
        with archive.open(part.file) as source, open(packed, "wb") as goal:
            left = part.size
            while left and (piece := source.read(min(_PIECE, left))):
                goal.write(piece)
                left -= len(piece)
    except (KeyError, zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise _broken(path, f"part {part.file} cannot be read ({error})") from None
    if left or _digest(packed) != part.sha256:
        raise _broken(path, f"the checksum of part {part.file} does not match")
    plain = packed.with_suffix("")
    try:
        with open(plain, "wb") as lines:
            lines.writelines(unpacked(packed))
    except Unpackable as error:
        raise _broken(path, f"part {part.file}: {error}") from None
    packed.unlink()
    return plain


def _examine(path: Path, part: Part, file: Path) -> None:
    """Raises DamagedExport unless a part holds what the manifest says, and nothing else."""
    trials = 0
    for value in jsonl.verified(file):
        if isinstance(value, Job) or (isinstance(value, Record) and not part.holds(value)):
            raise _broken(path, f"part {part.file} holds what its manifest does not tell")
        trials += isinstance(value, Record)
    if trials != part.trials:
        raise _broken(path, f"part {part.file} has {trials} trials, not {part.trials}")


def _broken(path: Path, why: str) -> DamagedExport:
    return DamagedExport(f"{path}: {why}; nothing was imported; fetch it again")


# --- where records are from -----------------------------------------------------------------------


def _origin(data: bytes, archive: zipfile.ZipFile, parts: Iterable[Part]) -> str:
    """What a store keeps of a bundle: its manifest as it was signed, and which parts were taken."""
    return canonical_json(
        {
            "tilewright": "pulled",
            "manifest": data.decode(),
            "signature": archive.read(SIGNATURE).hex(),
            "taken": sorted(part.file for part in parts),
        }
    )


def origins(store: Store) -> tuple[tuple[Manifest, tuple[Part, ...]], ...]:
    """Every bundle that a store has records of, and the parts that were taken, oldest first.

    What only says so, without its signer's signature, is left out.
    """
    told = (_told(text) for text in store.texts() if text.startswith(_ORIGIN))
    found = [pair for pair in told if pair is not None]
    return tuple(sorted(found, key=lambda pair: (pair[0].created, len(pair[1]))))


def _told(text: str) -> tuple[Manifest, tuple[Part, ...]] | None:
    """The inverse of `_origin`; None for what another wrote."""
    try:
        values: Mapping[str, Any] = json.loads(text)
        data, signature = values["manifest"].encode(), bytes.fromhex(values["signature"])
        manifest = Manifest.from_json(data)
        if not signing.is_signed(manifest.signer, signature, _DOMAIN + data):
            return None
        return manifest, tuple(p for p in manifest.parts if p.file in values["taken"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
