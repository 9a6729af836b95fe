"""The page for authors of operators runs as it stands, and importing `ir` is cheap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ir

_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    blocks = _BLOCK.findall((_ROOT / "docs" / "writing-an-operator.md").read_text())
    assert len(blocks) >= 8
    for block in blocks:
        title = re.match(r"# (\w+\.py)\n", block)
        if title:
            Path(title[1]).write_text(block)
        exec(compile(block, "docs/writing-an-operator.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "wrong: reduce sum: axis 'n' is not an axis of the operands ('m',)" in printed
    assert "no operator 'gated_nrom' (did you mean 'gated_norm'?) in my_ops.py" in printed


def test_every_public_name_is_there() -> None:
    for name in ir.__all__:
        assert getattr(ir, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ir.nothing


def test_importing_ir_imports_neither_numpy_nor_networkx() -> None:
    code = "import sys, ir, ir.errors; print({'numpy', 'networkx'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=_ROOT, check=True
    )
    assert found.stdout.strip() == "set()"
