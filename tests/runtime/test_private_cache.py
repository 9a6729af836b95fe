"""Code in the cache is run: only what a trusted owner put there counts, whatever is in the way."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from explorer import cli, settings
from explorer.runtime import cache
from explorer.runtime.cache import cached_file, read_cached
from ir.errors import UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _made(root: Path, key: str = "key", content: bytes = b"code") -> Path:
    return cached_file(root, key, ".o", lambda: content)


def _become_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """We are not who made the files so far, and that was not the machine's owner."""
    who = os.geteuid() + 1
    for module in ("private", "cache"):
        monkeypatch.setattr(f"explorer.runtime.{module}.me", lambda: who)
    monkeypatch.setattr(cache, "_ROOT", -1)


def test_the_cache_is_nobody_elses(root: Path) -> None:
    path = _made(root)
    assert read_cached(path) == b"code"
    assert [p.stat().st_mode & 0o777 for p in (root, path.parent, path)] == [0o700, 0o700, 0o600]


def test_a_strangers_files_do_not_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _made(root, content=b"evil")
    _become_another(monkeypatch)
    with pytest.raises(OSError, match="belongs to user"):
        read_cached(path)
    with pytest.raises(OSError, match="belongs to user"):
        _made(root)


def test_files_that_others_can_write_do_not_count(root: Path) -> None:
    path = _made(root, content=b"evil")
    path.chmod(0o666)
    with pytest.raises(OSError, match="others can write it"):
        read_cached(path)
    assert read_cached(_made(root)) == b"code"
    root.chmod(0o777)
    assert read_cached(path) == b"code"
    assert root.stat().st_mode & 0o022 == 0  # ours, so closed


def test_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    other = _made(tmp_path / "other", content=b"evil")
    path = _made(root)
    path.unlink()
    path.symlink_to(other)
    with pytest.raises(OSError):  # noqa: PT011 (the system's words)
        read_cached(path)
    assert read_cached(_made(root)) == b"code"
    assert not path.is_symlink()
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(other.parent)
    with pytest.raises(OSError, match="is a link or no folder"):
        _made(root)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(OSError, match="is a link or no folder"):
        _made(tmp_path / "link", "another")


def test_no_file_stands_for_another(root: Path) -> None:
    path, other = _made(root), _made(root, "other", b"evil")
    path.write_bytes(other.read_bytes())
    with pytest.raises(OSError, match="damaged"):
        read_cached(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="no file"):
        read_cached(path)
    assert read_cached(_made(root)) == b"code"


def test_the_least_recently_used_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.CACHE_LIMIT, "64 KB")  # 250 bytes in each of the folders
    monkeypatch.setattr(cache, "FRESH", 0.0)
    keys = [key for key in map(str, range(3000)) if _folder_of(key) == _folder_of("0")][:6]
    paths = []
    for age, key in enumerate(keys[:5]):
        paths.append(_made(root, key, b"x" * 40))
        when = 1_000_000 + (5 - age if age != 2 else 100)
        os.utime(paths[-1], (when, when))
    _made(root, keys[5], b"x" * 40)
    left = {path for path in paths if path.exists()}
    assert paths[2] in left  # used last
    assert len(left) < 3


def _folder_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:2]


def test_many_write_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.CACHE_LIMIT, "64 KB")

    def work(number: int) -> bytes:
        return read_cached(_made(root, f"key {number % 20}", b"code %d" % (number % 20)))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(400)))
    assert found == [b"code %d" % (number % 20) for number in range(400)]
    assert not list(root.rglob("*.part"))


def test_a_shared_cache_is_its_owners(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(settings.SHARED_CACHE, str(shared))
    ours = _made(root)
    assert ours.is_relative_to(shared)  # we own it
    assert ours.stat().st_mode & 0o777 == 0o644
    _become_another(monkeypatch)
    assert _made(root) == ours
    assert read_cached(ours) == b"code"  # its owner is trusted by name
    shared.chmod(0o777)
    with pytest.raises(OSError, match="can be written by others"):
        read_cached(ours)
    monkeypatch.setenv(settings.SHARED_CACHE, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="no such folder"):
        settings.shared_cache()


_WHERE = """
import os, pwd, sys
from explorer import settings
if sys.argv[1] == "nobody":
    def missing(uid):
        raise KeyError(uid)
    pwd.getpwuid = missing
path = settings.cache_dir()
print(path, oct(path.stat().st_mode & 0o777), settings.cache_trouble() or "-", sep="|")
"""


def _where(*words: str, **environment: str) -> list[str]:
    keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", _WHERE, *words], env=keep | environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip().split("|")


def test_where_the_cache_is(tmp_path: Path) -> None:
    path, mode, trouble = _where("-", XDG_CACHE_HOME=str(tmp_path))
    assert (path, mode, trouble) == (str(tmp_path / "tilewright"), "0o700", "-")
    path, mode, trouble = _where("nobody", TMPDIR=str(tmp_path))
    assert Path(path).parent == tmp_path
    assert mode == "0o700"
    assert "no home folder" in trouble
    assert not Path(path).exists()  # it went with the process
    (tmp_path / "home").write_text("")
    path, mode, trouble = _where("-", HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path))
    assert Path(path).parent == tmp_path
    assert trouble != "-"


def test_a_planted_default_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tilewright").symlink_to(tmp_path / "elsewhere")
    path, _, trouble = _where("-", XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert Path(path).name.startswith("tilewright-")
    assert "is a link or no folder" in trouble


def test_settings_that_are_none_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(settings.CACHE_LIMIT, "much")
    with pytest.raises(UsageError, match="not a size"):
        settings.cache_limit()
    monkeypatch.setenv(settings.CACHE_LIMIT, "1.5GB")
    assert cli.invoke(["doctor"]) == cli.EXIT_TARGET
    assert "write 500MB or 4GB" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    monkeypatch.delenv(settings.CACHE_LIMIT)
    monkeypatch.setenv(settings.CACHE, str(tmp_path / "file"))
    with pytest.raises(UsageError, match="name a folder of your own"):
        settings.cache_dir()


def test_workers_import_nothing_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from explorer.runtime.process import ProcessServer

    (tmp_path / "json.py").write_text("open('sprung', 'w')")
    monkeypatch.chdir(tmp_path)
    server = ProcessServer("cpu", tmp_path / "cache")
    server.close()
    assert not (tmp_path / "sprung").exists()
