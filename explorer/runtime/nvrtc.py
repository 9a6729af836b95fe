"""CUDA C++ to a cubin by NVRTC, without a GPU or headers; what its log says of the result.

Imports cuda-bindings inside functions only. Log lines and codes are ptxas's (CUDA 13.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from explorer.runtime.base import CompileError
from ir.errors import MissingTarget

OPTIONS = ("-std=c++17", "-default-device", "--ptxas-options=-v")
INSTALL = "install the extra that fits the driver: pip install 'tilewright[cuda13]' (or cuda12)"
_SERIAL = re.compile(r"wgmma\.mma_async instructions are serialized due to ([^\n]*?) (?:in|for) ")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_ERROR_LINES = 3


@dataclass(frozen=True, slots=True)
class Resources:
    """What the kernels of a cubin use, the largest of each: registers a thread, bytes.

    `serialised` says why ptxas runs wgmma one by one, where it does.
    """

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    serialised: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Resources:
        values = json.loads(text)
        return cls(**{**values, "serialised": tuple(values["serialised"])})


def bindings() -> Any:
    """cuda-bindings' NVRTC module; MissingTarget with what to install."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise MissingTarget(f"no NVRTC ({error}); {INSTALL}") from None
    return nvrtc


def version() -> str:
    """NVRTC's version, "13.0"; MissingTarget where its library is missing."""
    nvrtc = bindings()
    try:
        error, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as problem:
        raise MissingTarget(f"NVRTC does not load: {problem}; {INSTALL}") from None
    if int(error):
        raise MissingTarget(f"NVRTC does not answer: error {int(error)}; {INSTALL}")
    return f"{major}.{minor}"


def compile_text(source: str, arch: str, options: Sequence[str] = ()) -> tuple[bytes, Resources]:
    """A cubin of `source` for `arch` ("sm_90a"); raises CompileError with the first errors."""
    version()
    nvrtc = bindings()
    text = source.encode()  # kept as long as the program, which may read it late
    _, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], [])
    try:
        words = [f"--gpu-architecture={arch}", *OPTIONS, *options]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(words), [w.encode() for w in words])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if int(error):
            raise CompileError(_first_errors(log) or f"NVRTC error {int(error)}")
        code = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return code, resources_of(log)


def _text(size_of: Any, fill: Any, program: Any) -> bytes:
    """What NVRTC writes into bytes; never into those of length 1, which Python shares."""
    _, size = size_of(program)
    room: bytes = bytes(size + 2)
    fill(program, room)
    return room[:size]


def _first_errors(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if "error" in line or "fatal" in line]
    return " / ".join(lines[:_ERROR_LINES])


def resources_of(log: str) -> Resources:
    """What ptxas -v reports."""
    spills = [tuple(map(int, found)) for found in _SPILL.findall(log)]
    return Resources(
        max(map(int, _USED.findall(log)), default=0),
        max((stack for stack, _, _ in spills), default=0),
        max((stores for _, stores, _ in spills), default=0),
        max((loads for _, _, loads in spills), default=0),
        tuple(dict.fromkeys(_SERIAL.findall(log))),
    )
