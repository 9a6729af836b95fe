"""Bundles: what is published comes back, and nothing enters that was not signed as it is."""

from __future__ import annotations

import http.server
import json
import lzma
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from explorer import cli
from records import Record, Store, StoreError, Wanted, bundles, origins, publish, pull, signing
from records.bundles import MANIFEST, SIGNATURE
from records.canonical import content_key
from records.errors import DamagedExport, UntrustedBundle, UnusableLocation

PROGRAMS = ("program one", "program two")


def trial(number: int, program: int = 0, machine: str = "Card A") -> Record:
    return Record(
        workload=content_key(PROGRAMS[program]), operator=("matmul", "softmax")[program],
        extents='{"m": 8}', target="cpu", hardware=f"cpu:{machine}:2",
        hardware_facts=json.dumps({"model": machine}), generator="cpu-1", threads=2,
        schedule=json.dumps({"target": "cpu", "values": {"tile": number}}), status="ok",
        seconds=1e-3 * (1 + number), created="2026-01-01T00:00:00+00:00", job="abc",
    )  # fmt: skip


TRIALS = [trial(n, p, m) for n in range(5) for p in (0, 1) for m in ("Card A", "Card B")]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A store with two workloads on two machines, and a job whose options are nobody's business."""
    path = tmp_path / "mine.db"
    with Store(path) as store:
        store.new_job("matmul", '{"m": 8}', "cpu", '{"model": "/home/me/secret.json"}')
        store.keep_texts([*PROGRAMS, "another program"])
        store.add_all(TRIALS)
    return path


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "mine.key"
    return path, signing.make_key(path)


@pytest.fixture
def bundle(mine: Path, key: tuple[Path, str], tmp_path: Path) -> Path:
    path = tmp_path / "all.bundle"
    with Store(mine, read_only=True) as store:
        publish(store, path, key[0])
    return path


def taken(path: Path, trusted: str, **wanted: str) -> tuple[set[Record], bundles.Pulled, Store]:
    store = Store(":memory:")
    done = pull(store, path, [trusted], Wanted(**wanted))
    return set(store.records()), done, store


def test_what_is_published_comes_back(bundle: Path, key: tuple[Path, str]) -> None:
    found, done, store = taken(bundle, key[1])
    assert found == set(TRIALS)
    assert (done.read, done.added, len(done.parts)) == (20, 20, 4)
    assert {store.text(content_key(text)) for text in PROGRAMS} == set(PROGRAMS)


def test_jobs_and_what_no_trial_needs_stay_at_home(bundle: Path, key: tuple[Path, str]) -> None:
    _, _, store = taken(bundle, key[1])
    assert store.jobs() == ()
    assert store.text(content_key("another program")) is None
    with zipfile.ZipFile(bundle) as archive:
        parts = [name for name in archive.namelist() if name.endswith(".xz")]
        content = b"".join(lzma.decompress(archive.read(name)) for name in parts)
    assert b"secret" not in content
    assert len(parts) == 4


def test_twice_is_once(bundle: Path, key: tuple[Path, str]) -> None:
    _, _, store = taken(bundle, key[1])
    again = pull(store, bundle, [key[1]])
    assert (again.read, again.added, store.count()) == (20, 0, 20)
    assert len(origins(store)) == 1


@pytest.mark.parametrize(
    ("wanted", "trials"),
    [
        ({"workload": "softmax"}, 10),
        ({"workload": content_key(PROGRAMS[0])[:9]}, 10),
        ({"device": "card a"}, 10),
        ({"device": "cpu:Card B:2", "workload": "matmul"}, 5),
        ({"target": "cuda"}, 0),
    ],
)
def test_a_part_of_it(
    wanted: dict[str, str], trials: int, bundle: Path, mine: Path, key: tuple[Path, str]
) -> None:
    """The same choice on the way in as on the way out."""
    found, done, store = taken(bundle, key[1], **wanted)
    assert (len(found), done.read) == (trials, trials)
    assert len(origins(store)) == bool(trials)
    some = bundle.with_name("some.bundle")
    with Store(mine, read_only=True) as whole:
        if trials:
            assert publish(whole, some, key[0], Wanted(**wanted)).trials == trials
            assert taken(some, key[1])[0] == found
        else:
            with pytest.raises(UnusableLocation, match="no trial is of what is to be published"):
                publish(whole, some, key[0], Wanted(**wanted))
            assert not some.exists()


def test_a_store_tells_where_records_are_from(bundle: Path, key: tuple[Path, str]) -> None:
    """What merely says so, without its signer's signature, does not count."""
    _, _, store = taken(bundle, key[1], device="Card B")
    ((whole, parts),) = origins(store)
    assert (whole.signer, whole.trials) == (key[1], 20)
    assert {part.device for part in parts} == {"Card B"}
    (text,) = (text for text in store.texts() if text.startswith('{"manifest"'))
    forged = text.replace("Card B", "Card C")
    assert forged != text
    store.keep_texts([forged, '{"manifest":1}', '{"manifest":', forged.replace('"taken":', '"t":')])
    assert len(origins(store)) == 1


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """Every member of a bundle as `change` has it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, change(name, data))


def refused(path: Path, trusted: str, kind: type[StoreError], said: str) -> None:
    with Store(":memory:") as store:
        with pytest.raises(kind, match=said) as refusal:
            pull(store, path, [trusted])
        assert (store.count(), list(store.texts())) == (0, [])
    assert "\n" not in str(refusal.value)


def test_who_is_not_trusted_is_refused(bundle: Path, key: tuple[Path, str], tmp_path: Path) -> None:
    other = signing.make_key(tmp_path / "other.key")
    refused(bundle, other, UntrustedBundle, "none of the keys that are trusted has signed it")
    with Store(":memory:") as store:
        assert pull(store, bundle, [other, key[1]]).added == 20


def test_an_altered_manifest_is_refused(bundle: Path, key: tuple[Path, str]) -> None:
    swap = (b"Card A", b"Card C")
    rewritten(bundle, lambda name, data: data.replace(*swap) if name == MANIFEST else data)
    refused(bundle, key[1], UntrustedBundle, "altered")


def test_an_altered_signature_is_refused(bundle: Path, key: tuple[Path, str]) -> None:
    rewritten(bundle, lambda name, data: data[:-1] + b"!" if name == SIGNATURE else data)
    refused(bundle, key[1], UntrustedBundle, "altered")


def test_an_altered_part_is_refused_before_any_record_enters(
    bundle: Path, key: tuple[Path, str]
) -> None:
    """A time that was made better, in the last of the parts."""
    with zipfile.ZipFile(bundle) as archive:
        last = archive.namelist()[-1]

    def better(name: str, data: bytes) -> bytes:
        return (
            lzma.compress(lzma.decompress(data).replace(b"0.001", b"0.002"))
            if name == last
            else data
        )

    rewritten(bundle, better)
    refused(bundle, key[1], DamagedExport, "checksum of part .* does not match")


def test_every_cut_is_refused(bundle: Path, key: tuple[Path, str]) -> None:
    whole = bundle.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        bundle.write_bytes(whole[:end])
        refused(bundle, key[1], DamagedExport, "no bundle, or ends early|no sound|cannot be read")


def resigned(path: Path, key: Path, **changes: object) -> None:
    """The bundle with another manifest, signed by its own owner: what a careless one may do."""
    with zipfile.ZipFile(path) as archive:
        manifest = bundles.Manifest.from_json(archive.read(MANIFEST))
    first = replace(manifest.parts[0], **changes)  # type: ignore[arg-type]
    data = replace(manifest, parts=(first, *manifest.parts[1:])).to_json().encode()
    signature, _ = signing.sign(key, b"tilewright bundle 1\n" + data)
    rewritten(path, lambda name, old: {MANIFEST: data, SIGNATURE: signature}.get(name, old))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 4}, "has 5 trials, not 4"),
        ({"hardware": "cpu:Card Z:2"}, "what its manifest does not tell"),
        ({"size": 10}, "checksum of part"),
        ({"file": "../../etc/passwd"}, "cannot be read"),
        ({"file": MANIFEST}, "checksum of part"),
    ],
)
def test_what_the_owner_says_must_be_so(
    changes: dict[str, object], said: str, bundle: Path, key: tuple[Path, str]
) -> None:
    resigned(bundle, key[0], **changes)
    refused(bundle, key[1], DamagedExport, said)


def test_keys_are_files_of_their_owners(key: tuple[Path, str], tmp_path: Path) -> None:
    path, public = key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing.public_key(f"{path}.pub") == signing.public_key(public) == public
    with pytest.raises(UnusableLocation, match="cannot write the key"):
        signing.make_key(path)
    (tmp_path / "no.key").write_text("no key")
    for given in (str(path), "ed25519:12", "ed25519:zz", str(tmp_path / "no.key"), "gone.pub"):
        with pytest.raises(UnusableLocation, match=r"no public Ed25519 key|cannot read the key"):
            signing.public_key(given)
    for given in ("no.key", "mine.key.pub", "gone.key"):
        with pytest.raises(UnusableLocation, match=r"no private Ed25519 key|cannot read the key"):
            signing.sign(tmp_path / given, b"")


def test_without_the_library_its_install_is_named(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = "cryptography.hazmat.primitives.asymmetric"
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(StoreError, match=r"pip install 'tilewright\[share\]'"):
        signing.public_key("ed25519:00")


@pytest.fixture
def served(bundle: Path) -> Iterator[str]:
    """The folder of the bundle, on loopback."""
    handler = partial(_Quiet, directory=str(bundle.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(10)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on the terminal of the tests."""


def test_the_verbs_from_an_address(
    served: str, bundle: Path, key: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--records", str(bundle.with_name("new.db"))]
    words = ["db", "pull", f"{served}/{bundle.name}", "--trust", key[1], *into]
    assert cli.invoke([*words, "--format", "json"]) == cli.EXIT_DONE
    told = json.loads(capsys.readouterr().out)
    assert (told["read"], told["added"], told["signer"]) == (20, 20, key[1])
    assert cli.invoke(words) == cli.EXIT_DONE
    assert f"read 20 trials, 0 of them new, signed by {key[1]}" in capsys.readouterr().out
    assert cli.invoke(["db", "pulled", *into]) == cli.EXIT_DONE
    assert key[1] in capsys.readouterr().out
    assert cli.invoke(["db", "check", *into]) == cli.EXIT_DONE
    capsys.readouterr()
    for address, said in ((f"{served}/gone", "ot found"), ("http://127.0.0.1:1/x", "refused")):
        assert cli.invoke(["db", "pull", address, "--trust", key[1], *into]) == 8
        heard = capsys.readouterr().err
        assert "cannot fetch" in heard
        assert said in heard
        assert heard.count("\n") == 1


def test_a_fetched_file_is_bounded(served: str, bundle: Path, tmp_path: Path) -> None:
    from records.fetching import fetch

    with pytest.raises(StoreError, match="larger than"):
        fetch(f"{served}/{bundle.name}", tmp_path / "fetched", 100)
