"""Kernels that are kept as exported: whatever their target calls its function, it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer import kept
from explorer.errors import ExportError


def _loaded(folder: Path, text: str) -> kept.Function:
    (folder / "double.py").write_text(text)
    (folder / "double.json").write_text("{}")
    function, _ = kept._load(kept._packed(folder), 0)
    return function


@pytest.mark.parametrize("name", ["double", "run"])
def test_the_function_of_a_module_is_found(tmp_path: Path, name: str) -> None:
    """Modules of the CPU name it after the operator, those of CUDA `run`."""
    assert _loaded(tmp_path, f"def {name}(x):\n    return 2 * x\n")(21) == 42


def test_files_beside_a_module_are_there_when_it_is_called(tmp_path: Path) -> None:
    text = (
        "from pathlib import Path\n"
        "def run():\n    return Path(__file__).with_suffix('.json').read_text()\n"
    )
    (tmp_path / "double.py").write_text(text)
    (tmp_path / "double.json").write_text("{}")
    function, files = kept._load(kept._packed(tmp_path), 0)
    assert function() == "{}"
    assert files is not None


def test_a_module_without_a_function_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"neither double\(\) nor run\(\)"):
        _loaded(tmp_path, "x = 1\n")
