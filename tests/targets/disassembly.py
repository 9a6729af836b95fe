"""Opcodes of a cubin, counted by the disassembler of the package nvidia-cuda-nvdisasm."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

_OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


@cache
def disassembler() -> str | None:
    """Path of nvdisasm, from the Python package or the PATH."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in Path(folder).rglob("nvdisasm"):
            if found.is_file():
                return str(found)
    return shutil.which("nvdisasm")


def opcodes(cubin: bytes) -> Counter[str]:
    """How often each opcode, with its suffixes, occurs."""
    command = disassembler()
    assert command is not None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.check_output([command, "-c", file.name], text=True)
    return Counter(_OPCODE.findall(text))
