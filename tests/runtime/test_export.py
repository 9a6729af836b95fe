"""Exported files work alone: the Python module on the shared library, and the C text by itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.errors import ExportError
from explorer.exporter import export, find_linker
from ir.targets.cpu.standalone import C_FLAGS
from tests.runtime.fake_backend import kernel

needs_compiler = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
FACTS = {"operator": "double", "schedule": {"tile": 4}, "seconds": 1e-6, "note": "a */ b"}

_USE = """\
import sys; sys.path.insert(0, {folder!r})
import os, threading
import numpy as np, doubled
a = np.arange(1000, dtype=np.float32)
def check():
    for _ in range(200):
        assert np.array_equal(doubled.doubled(a), 2 * a)
threads = [threading.Thread(target=check) for _ in range(3)]
[t.start() for t in threads]; check(); [t.join() for t in threads]
pid = os.fork()
if not pid:
    check(); os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
out = np.empty_like(a)
assert doubled.doubled(a, O=out) is out
try: doubled.doubled(a[:5])
except ValueError as error: assert "shape (1000,)" in str(error)
assert not any(name.startswith(("ir", "explorer")) for name in sys.modules)
print("good")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, code_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("export") / "out"
    export(kernel("good"), FACTS, folder, cache_dir=code_cache)
    return folder


def test_manifest_describes_every_file(folder: Path) -> None:
    manifest = json.loads((folder / "doubled.json").read_text())
    assert manifest["facts"]["schedule"] == {"tile": 4}
    assert manifest["arguments"][0] == {
        "name": "A", "shape": [1000], "dtype": "f32", "role": "input",
    }  # fmt: skip
    assert {"doubled.ll", "doubled.o", "doubled.c", "doubled.py"} <= set(manifest["sha256"])
    for name, digest in manifest["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def use(folder: Path) -> None:
    code = _USE.format(folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stdout == "good\n", done.stderr


@needs_compiler
def test_module_needs_nothing_else(folder: Path) -> None:
    use(folder)


@needs_compiler
def test_c_text_makes_the_same_library(folder: Path, tmp_path: Path) -> None:
    compiler = find_linker()
    assert compiler
    command = [compiler, "-Wall", "-Wextra", "-Werror", *C_FLAGS.split()]
    library = tmp_path / "libdoubled.so"
    subprocess.run([*command, "-o", str(library), str(folder / "doubled.c")], check=True)
    (tmp_path / "doubled.py").write_text((folder / "doubled.py").read_text())
    use(tmp_path)


def test_failure_leaves_nothing(tmp_path: Path, code_cache: Path) -> None:
    with pytest.raises(ExportError, match="expected instruction opcode"):
        export(kernel("bad_ir"), FACTS, tmp_path / "out", cache_dir=code_cache)
    with pytest.raises(ExportError, match="no-such-linker"):
        export(
            kernel("good"), {}, tmp_path / "out", linker="no-such-linker",
            cache_dir=code_cache,
        )  # fmt: skip
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'ld: no space' >&2\necho 'cc: ld returned 1' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ExportError, match=f"^{broken}: ld: no space$"):
        export(kernel("good"), {}, tmp_path / "out", linker=str(broken), cache_dir=code_cache)
    assert not list(tmp_path.glob("out/*"))
    assert not list(tmp_path.glob(".export-*"))


@pytest.mark.parametrize("name", ["double", "lambda", "a-b"])
def test_names_that_no_language_takes_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=name):
        export(dataclasses.replace(kernel("good"), name=name), {}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unwritable_folder_is_said_in_words(tmp_path: Path, code_cache: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="file"):
        export(kernel("good"), FACTS, tmp_path / "file" / "out", cache_dir=code_cache)
