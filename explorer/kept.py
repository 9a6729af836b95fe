"""Kernels that were found right on this machine, kept as they are exported: loaded in milliseconds.

What is kept lies in the cache of machine code, which nobody else can write, under all that decides
what a kernel is. Only what was checked here is kept, so what is found need not be checked again.
"""

from __future__ import annotations

import json
import marshal
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from explorer.errors import ExportError
from explorer.runtime.cache import cached_file, find_cached
from explorer.settings import cache_dir
from explorer.workload import Workload
from ir.errors import TilewrightError
from ir.schedule import Schedule

_SUFFIX = ".kernel"
_CODE = ".code"  # of the module, so that it need not be compiled again
_UNREAD = (".c", ".cu", ".h", ".ll", ".o")  # by the module, when it is called
_FORM = 1  # of what is kept

Function = Callable[..., Any]
Export = Callable[[Path], object]

_loaded: dict[Hashable, tuple[Function, object]] = {}
_locks: dict[Hashable, threading.Lock] = {}


def kernel_function(
    workload: Workload, schedule: Schedule, check: Callable[[], None], export: Export
) -> Function:
    """The exported function of a kernel, loaded once in a process.

    Where none is kept, `check` raises unless the kernel is right here, and `export` writes its
    files to a folder. Threads that ask for the same kernel wait for one of them.
    """
    kernel = (*_facts(workload), schedule)
    known = _loaded.get(kernel)
    if known is None:
        with _locks.setdefault(kernel, threading.Lock()):
            known = _loaded.get(kernel)
            if known is None:
                content = _content(_key(workload, schedule), check, export)
                known = _loaded[kernel] = _load(content, len(_loaded))
    return known[0]


def keep(workload: Workload, schedule: Schedule, check: Callable[[], None], export: Export) -> None:
    """Have a kernel ready for whoever asks for it; quietly not where it cannot be exported."""
    if workload.program.is_void:
        return
    with suppress(TilewrightError, OSError):
        _content(_key(workload, schedule), check, export)


def _facts(workload: Workload) -> tuple[str, ...]:
    """What decides, with a schedule, what a kernel is."""
    hardware, generator = workload.hardware, workload.backend.generator
    return workload.program.key, workload.target, hardware.key, *hardware.isa, generator


def _key(workload: Workload, schedule: Schedule) -> str:
    """What it is kept under: by whom it was exported, and for which Python, counts too."""
    written = (_version(), sys.implementation.cache_tag, _FORM)
    return json.dumps([_facts(workload), schedule.to_json(), written])


@cache
def _version() -> str:
    """Of Tilewright: another one may generate another kernel, and another module around it."""
    try:
        return version("tilewright")
    except PackageNotFoundError:
        return ""


def _content(key: str, check: Callable[[], None], export: Export) -> bytes:
    """What is kept under the key, made if it is not there."""
    found = find_cached(cache_dir(), key, _SUFFIX)
    if found is not None:
        return found
    check()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        export(Path(folder))
        content, whole = _packed(Path(folder)), _is_whole(Path(folder))
    if whole:  # else a linker may be there the next time
        cached_file(cache_dir(), key, _SUFFIX, lambda: content)
    return content


def _is_whole(folder: Path) -> bool:
    """Whether what was to be linked was linked."""
    suffixes = {path.suffix for path in folder.iterdir()}
    return ".o" not in suffixes or ".so" in suffixes


def _packed(folder: Path) -> bytes:
    """The files of a folder one after the other, behind a line with their names and sizes."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix not in _UNREAD]
    files = {path.name: path.read_bytes() for path in paths}
    for name in [name for name in files if name.endswith(".py")]:
        files[name + _CODE] = marshal.dumps(compile(files[name], name, "exec"))
    sizes = {name: len(data) for name, data in files.items()}
    return json.dumps(sizes).encode() + b"\n" + b"".join(files.values())


def _unpacked(content: bytes) -> Mapping[str, bytes]:
    head, _, rest = content.partition(b"\n")
    files, start = {}, 0
    for name, size in json.loads(head).items():
        files[name] = rest[start : start + size]
        start += size
    return files


def _load(content: bytes, number: int) -> tuple[Function, object]:
    """The function of an exported module, and what must stay as long as it may be called."""
    files = _unpacked(content)
    name = next((name for name in files if name.endswith(_CODE)), None)
    if name is None:
        raise ExportError("this target exports no Python module, so nothing can be called")
    # Its files stay until the process ends: a module may read them when it is called.
    folder = tempfile.TemporaryDirectory(prefix="tilewright-")
    for file in files.keys() - {name}:
        (Path(folder.name) / file).write_bytes(files[file])
    path = Path(folder.name) / name.removesuffix(_CODE)
    module = ModuleType(f"tilewright_kernel_{number}")
    module.__file__ = str(path)
    try:
        exec(marshal.loads(files[name]), module.__dict__)
    except ImportError as error:
        raise ExportError(f"the kernel cannot be called: {error}") from None
    return _function_of(module, path.stem), folder


def _function_of(module: ModuleType, name: str) -> Function:
    """What an exported module is called by: a function of its own name, or `run`."""
    found: Function | None = getattr(module, name, None) or getattr(module, "run", None)
    if found is None:
        raise ExportError(f"the exported module has neither {name}() nor run(), so it is no kernel")
    return found
