"""One sdist, one wheel built from it, and one fresh environment with the wheel, for all tests.

Dependencies are those of the environment that runs the tests, so nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("explorer", "costmodel", "ir", "records")
_BEHIND = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in")
_BUILT = (
    "from setuptools import build_meta as backend; "
    "print(backend.build_{kind}({folder!r}))"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Distributions:
    """The built files."""

    sdist: Path
    wheel: Path


def tree() -> set[str]:
    """Every file of the packages, by its path from the root."""
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build(kind: str, source: Path, out: Path) -> Path:
    """Build with the backend that pyproject.toml names, as an installer asks it to."""
    code = _BUILT.format(kind=kind, folder=str(out))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=_clean(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


def _clean() -> dict[str, str]:
    """The environment without what would let Python find the tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The wheel is built from the unpacked sdist: what that lacks, the wheel lacks."""
    work = tmp_path_factory.mktemp("dist")
    source, out = work / "source", work / "out"
    shutil.copytree(ROOT / "docs", source / "docs")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", *_BEHIND):
        shutil.copy(ROOT / name, source / name)
    out.mkdir()
    sdist = build("sdist", source, out)
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # which the first of Python 3.11 lack
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(work / "unpacked")
    (unpacked,) = (work / "unpacked").iterdir()
    return Distributions(sdist, build("wheel", unpacked, out))


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that sees the wheel, and no tree."""

    folder: Path

    def run(self, *words: str, at: Path) -> subprocess.CompletedProcess[str]:
        """A command of the environment in an empty home."""
        variables = {
            name: value
            for name, value in _clean().items()
            if not name.startswith(("TILEWRIGHT_", "XDG_"))
        }
        variables |= {"HOME": str(at), "TILEWRIGHT_CACHE": str(at / "cache")}
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        return subprocess.run(command, cwd=at, env=variables, capture_output=True, text=True)


@pytest.fixture(scope="session")
def installed(
    distributions: Distributions, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The wheel in an environment of its own; its dependencies are borrowed by path."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", "--no-compile", str(distributions.wheel)],
        check=True,
        env=_clean(),
    )
    site = next((folder / "lib").glob("python*")) / "site-packages"
    (site / "borrowed.pth").write_text("\n".join(_borrowed()) + "\n")
    return Environment(folder)


def _borrowed() -> list[str]:
    """Where this environment's packages are: its own folder, and those that its .pth files add."""
    own = sysconfig.get_paths()["purelib"]
    below = [path for path in sys.path if path.rstrip("/").endswith("site-packages")]
    return list(dict.fromkeys([own, *below]))
