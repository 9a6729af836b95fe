"""What is built holds all that the tree has, and works where there is no tree."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import PACKAGES, ROOT, Distributions, Environment, tree


def test_the_wheel_has_every_file_of_the_packages(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == tree()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {"costmodel/pretrained/cpu.json.xz", "explorer/report/page.html"} <= names


def test_the_sdist_has_them_too_with_the_pages(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert tree() <= names
    assert pages | {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= names


def test_the_readmes_first_command_uses_a_shipped_model(
    installed: Environment, tmp_path: Path
) -> None:
    """With a smaller budget. The environment sees no tree, so what is used is the wheel's."""
    page = (ROOT / "README.md").read_text()
    command = re.search(r"\.venv/bin/(tilewright tune .*)", page)
    assert command is not None
    words = command[1].replace("--trials 64", "--trials 8").split()
    done = installed.run(*words, "--format", "json", at=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == {"source": "shipped", "why": ""}
    assert found["outcomes"]["ok"] >= 1
    assert (tmp_path / "matmul-kernel" / "matmul.c").is_file()

    report = installed.run("tilewright", "report", "--out", "page.html", at=tmp_path)
    assert report.returncode == 0, report.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_environment_runs_the_wheel(installed: Environment, tmp_path: Path) -> None:
    code = "import explorer, costmodel; print(explorer.__file__, costmodel.__file__)"
    done = installed.run("python", "-c", code, at=tmp_path)
    places = done.stdout.split()
    assert len(places) == 2, done.stderr
    assert all(place.startswith(str(installed.folder)) for place in places)


@pytest.mark.parametrize("unwanted", ["xgboost", "nvidia", "cupy", "torch"])
def test_a_plain_install_on_linux_asks_for_nothing_of_a_gpu(unwanted: str) -> None:
    """The distribution named xgboost brings libraries for GPUs, hundreds of megabytes of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = [line for line in project["dependencies"] if "darwin" not in line.partition("==")[2]]
    names = [re.split(r"[^\w-]", line)[0].lower() for line in plain]
    assert unwanted not in names
    assert "jinja2" in names
