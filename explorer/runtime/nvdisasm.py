"""What is in a cubin, by NVIDIA's disassembler: of nvidia-cuda-nvdisasm, or on the PATH."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ir.errors import MissingTarget

_SECONDS = 50.0


@cache
def disassembler() -> str | None:
    """Path of nvdisasm; None where it is not installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in Path(folder).rglob("nvdisasm"):
            if found.is_file():
                return str(found)
    return shutil.which("nvdisasm")


def text_of(cubin: bytes) -> str:
    """The cubin's instructions with their labels; raises MissingTarget without the disassembler."""
    command = disassembler()
    if command is None:
        raise MissingTarget("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        words = [command, "-c", file.name]
        return subprocess.check_output(words, text=True, timeout=_SECONDS)
