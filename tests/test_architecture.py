"""Who may import whom, and that importing a package, or asking for help, loads nothing heavy."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_GPU = {"cuda", "cupy", "pynvml"}  # of the CUDA runtime, inside functions
_HEAVY = {*_GPU, "cupy", "jinja2", "llvmlite", "networkx", "numpy", "scipy", "sqlalchemy"}
_HEAVY |= {
    "cryptography",
    "cuda",
    "dask",
    "distributed",
    "duckdb",
    "optuna",
    "psycopg",
    "pytest",
    "torch",
    "typer",
    "xgboost",
}
_ALLOWED = {  # beside the standard library and themselves
    "ir": {"numpy", "networkx"},
    "records": {"sqlalchemy", "duckdb", "cryptography"},  # of Parquet and signatures alone
    "costmodel": {"ir", "records", "numpy", "xgboost"},
    "explorer": {
        "costmodel",
        "ir",
        "records",
        "numpy",
        "llvmlite",
        "typer",
        "rich",
        "platformdirs",
        "jinja2",
        "markupsafe",  # of jinja2
        "optuna",  # an extra, of its adapter alone
        "distributed",  # an extra, of the farm's engine alone
        "pytest",  # of the tests that strategies of other packages inherit
        *_GPU,
    },
}


def _loaded_by(code: str) -> set[str]:
    """Heavy top-level modules that a fresh interpreter has loaded after running `code`."""
    report = f"{code}\nimport sys; print(' '.join(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", report], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    return _HEAVY & set(found.stdout.splitlines()[-1].split())


def test_import_contracts_hold() -> None:
    """Contracts and their reasons are in pyproject.toml."""
    beside = Path(sys.executable).with_name("lint-imports")
    command = str(beside) if beside.exists() else shutil.which("lint-imports")
    assert command, "lint-imports is not installed: pip install -e '.[dev]'"
    found = subprocess.run(
        [command, "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("package", ["ir", "costmodel", "records", "explorer", "explorer.cli"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    assert _loaded_by(f"import {package}") == set()


def test_help_loads_no_numerics_and_no_compiler() -> None:
    """Only typer, which prints it."""
    code = "from explorer.cli import invoke\nassert invoke(['tune', '--help']) == 0"
    assert _loaded_by(code) <= {"typer"}


def _imports(path: Path) -> set[str]:
    """Top-level modules that a file imports anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(("package", "allowed"), _ALLOWED.items())
def test_a_package_imports_only_what_it_is_allowed(package: str, allowed: set[str]) -> None:
    for path in sorted((_ROOT / package).rglob("*.py")):
        foreign = _imports(path) - set(sys.stdlib_module_names) - {package} - allowed
        assert not foreign, f"{path} imports {foreign}"


def test_a_package_imports_none_of_its_modules() -> None:
    """Else threads that import the one and the other first could wait for each other."""
    for path in sorted(p for package in _ALLOWED for p in (_ROOT / package).rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(_ROOT).parts)
        if package == "explorer.cli":  # what the command imports before there is a thread
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                assert not f"{node.module}.".startswith(f"{package}."), path
            elif isinstance(node, ast.Import):
                assert not any(a.name.startswith(f"{package}.") for a in node.names), path


def test_modules_say_what_they_own() -> None:
    for package in _ALLOWED:
        for path in sorted((_ROOT / package).rglob("*.py")):
            text = path.read_text()
            assert not text or text.startswith('"""'), path


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["targets"], {"numpy", "typer"}),
        (["targets", "--format", "json"], {"numpy", "typer"}),
        (["top"], {"sqlalchemy", "typer"}),
        (["top", "matmul", "--format", "json"], {"sqlalchemy", "typer"}),
        (["jobs"], {"sqlalchemy", "typer"}),
        (["db", "stats"], {"sqlalchemy", "typer"}),
    ],
)
def test_a_verb_that_looks_loads_what_it_needs_alone(
    words: list[str], needed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second is a long time for a list. A store of this version tells rates itself."""
    from explorer import recall
    from explorer.outcome import Outcome
    from explorer.workload import Workload
    from ir.schedule import Schedule
    from records import Store

    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    workload = Workload.of("matmul", {"m": 8, "n": 8, "k": 8})
    schedule = Schedule("cpu", (("tile.m.0", 4),))
    with Store(tmp_path / "records.db") as store:
        job = store.new_job("matmul", workload.extents_json, "cpu")
        store.add(recall.to_record(workload, schedule, Outcome("ok", 1e-3), job.id, "final"))
    code = f"from explorer.cli import invoke\nassert invoke({words}) == 0"
    assert _loaded_by(code) <= needed
