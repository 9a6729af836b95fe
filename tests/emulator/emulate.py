"""Runs a kernel's CUDA text on the CPU, in the completion order of a mode, and tells its faults.

Compiles the unchanged text with g++ against the host prelude. Needs no GPU and no CUDA; knows
nothing of programs or schedules: text, plan and arrays are all it takes.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.emulator.host import host_prelude, runtime_text
from tests.emulator.host_launch import Plan, Range, launch_kernel

SEPARATOR = "//@ kernel\n"
LIMIT = 120.0
"""Seconds that one kernel may take."""
CACHE = "tilewright-emulate"
KEPT = 2048
"""Compiled kernels in the cache's folder."""
_KERNEL_FLAGS = (
    "-Og", "-w", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-nodefaultlibs",
    "-Wl,--no-as-needed",
)  # fmt: skip
"""A kernel is compiled for a few runs: little optimised, and linked with the runtime alone."""
_LOCK = threading.Lock()
_CLUSTER = re.compile(r"__cluster_dims__\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Mode:
    """When asynchronous work happens. `matrix`: wgmma at "issue" or at "wait"; `load`: TMA loads
    and cp.async at "issue", or once everybody is "stuck" (cp.async: at its wait); `store`: bulk
    stores at "issue" or at "wait", and then clusters run side by side, not one after another;
    `order` of threads, "forward" or "reverse".
    """

    matrix: str = "issue"
    load: str = "issue"
    store: str = "issue"
    order: str = "forward"

    @property
    def bits(self) -> int:
        """As the runtime's `Mode`."""
        late = (self.matrix == "wait", self.load == "stuck", self.store == "wait")
        return sum(1 << i for i, on in enumerate((*late, self.order == "reverse")) if on)


MODES: tuple[Mode, ...] = tuple(
    Mode(*choice)
    for choice in itertools.product(
        ("issue", "wait"), ("issue", "stuck"), ("issue", "wait"), ("forward", "reverse")
    )
)
"""Every mode; the first is the eager one."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """`outputs`: every array by name, as the kernels left it; `faults`: one text for each kind."""

    outputs: Mapping[str, NDArray[Any]]
    faults: tuple[str, ...]


class CompileError(Exception):
    """g++ refused a text; the message has its words."""


def compiler() -> str | None:
    """The host's C++ compiler; None if there is none."""
    return shutil.which("g++")


def emulate(
    source: str,
    plan: str | Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    mode: Mode = MODES[0],
    registers: int | Mapping[str, int] | None = None,
    limit: float | None = None,
) -> Emulation:
    """Run the plan's kernels one after another on `arrays`, which change in place.

    `source`: kernels, with the device prelude before the line `//@ kernel` or without it.
    `arrays`: contiguous arrays by argument name; a read-only array must not be written; the
    workspace is made here unless given. `registers`: of a thread on entry, as the compiler gave
    them, for all kernels or by name; by default what launching leaves room for. `limit`: seconds
    for each kernel, by default LIMIT. Kernels after one with a fault do not run. CompileError if
    the text is refused; ValueError if an array is missing or not contiguous.
    """
    body = source.rpartition(SEPARATOR)[2]
    decoded: Plan = json.loads(plan) if isinstance(plan, str) else dict(plan)
    memory = _memory(decoded, arrays)
    ranges = tuple(Range(name, array) for name, array in memory.items())
    library = _library(body, tuple(kernel["name"] for kernel in decoded["kernels"]))
    faults: tuple[str, ...] = _cluster_faults(body, decoded)
    for kernel in decoded["kernels"] if not faults else ():
        for offset, count in kernel.get("zero", ()):
            memory["workspace"].view(np.uint8)[offset : offset + count] = 0
        given = registers.get(kernel["name"]) if isinstance(registers, Mapping) else registers
        with _LOCK:
            faults += launch_kernel(library, kernel, ranges, mode.bits, given, limit or LIMIT)
        if faults:
            break
    return Emulation(memory, faults)


def _memory(plan: Plan, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    memory = dict(arrays)
    size = int(plan.get("workspace_bytes", 0))
    if size and "workspace" not in memory:
        memory["workspace"] = np.full(size, 0xFF, np.uint8)
        for offset, count in plan.get("clean", ()):
            memory["workspace"][offset : offset + count] = 0
    for name, array in memory.items():
        if not array.flags.c_contiguous:
            raise ValueError(f"array {name} is not contiguous")
    return memory


def _cluster_faults(body: str, plan: Plan) -> tuple[str, ...]:
    """A plan whose cluster is not the text's would be launched wrong."""
    found = []
    for kernel in plan["kernels"]:
        named = re.search(rf"\b{re.escape(kernel['name'])}\s*\(", body)
        match = _CLUSTER.search(_head(body, named.start())) if named else None
        stated = [int(x) for x in match[1].split(",")] if match else []
        wanted = list(kernel.get("cluster") or (1, 1, 1))
        if stated + [1] * (3 - len(stated)) != wanted:
            found.append(f"launch: cluster {wanted} of {kernel['name']}, its text has {stated}")
    return tuple(found)


def _head(body: str, end: int) -> str:
    """The text before a place, back to the statement or the body before it."""
    return body[max(body.rfind(mark, 0, end) for mark in ";}") + 1 : end]


@cache
def _library(body: str, names: Sequence[str]) -> ctypes.CDLL:
    """The compiled text, from the cache where it was compiled before."""
    entries = "".join(f"RT_ENTRY({name})\n" for name in names)
    text = f"{host_prelude(body)}{body}\n{entries}"
    runtime = _built("runtime", runtime_text(), ("-O3", *_vector_flags()))
    path = _built("kernel", text, _KERNEL_FLAGS, (str(runtime), "-lgcc"))
    return ctypes.CDLL(str(path))


def _vector_flags() -> tuple[str, ...]:
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return ()
    return ("-mavx2", "-mfma") if {"avx2", "fma"} <= set(words) else ()


def _built(stem: str, text: str, flags: tuple[str, ...], linked: tuple[str, ...] = ()) -> Path:
    """The shared library that g++ makes of `text`, by content; made elsewhere and then renamed."""
    program = compiler()
    if program is None:
        raise CompileError("no g++ on this machine")
    facts = json.dumps([program, flags, linked, text])
    key = hashlib.sha256(facts.encode()).hexdigest()[:24]
    folder = _folder()
    path = folder / f"{stem}-{key}.so"
    if path.exists():
        return path
    make_room(folder)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        cpp, made = Path(work) / f"{stem}.cpp", Path(work) / f"{stem}.so"
        cpp.write_text(text)
        common = ("-std=c++17", "-fPIC", "-shared", "-fno-strict-aliasing")
        command = [program, *common, *flags, str(cpp), *linked, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(done.stderr[:4000])
        made.rename(path)
    return path


def make_room(folder: Path) -> None:
    """Forget the oldest half of the kernels once there are KEPT."""
    kernels = sorted(folder.glob("kernel-*.so"), key=_age)
    for path in kernels[: len(kernels) // 2] if len(kernels) >= KEPT else ():
        path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    """When a kernel was made; one that another process has just forgotten is the oldest."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"{CACHE}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()  # a link of somebody else's leads anywhere
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise CompileError(f"{folder} was made by somebody else, or others can write it")
    return folder
