"""Kernels as shared libraries: for every target whose backend makes a kernel standalone.

Writes text, object, C, manifest, a Python module on numpy and, where a linker is found, the
library. Machine code is made in a worker process. Knows no search, store or target.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from string import Template
from types import CodeType
from typing import Any

from explorer.errors import ExportError
from explorer.exporters import outputs
from explorer.exporters.base import (
    CHOOSE,
    MANIFEST_SCHEMA,
    TableFacts,
    argument_rows,
    checksums,
    described,
    flat,
    names_in,
    parameter_names,
    refuse_name,
)
from explorer.exporters.library_module import (
    CHOOSING,
    HIDDEN,
    LOADING,
    LOADING_TABLE,
    MODULE,
    TABLE,
)
from explorer.runtime.once import ask_once
from ir.dtypes import numpy_dtype
from ir.kernel import Argument, Kernel, KernelTable, Standalone
from ir.target import get_backend

_C_WORDS = re.compile(
    "auto|bool|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|main|register|restrict|return|short|signed|sizeof|static|struct|switch|"
    "typedef|union|unsigned|void|volatile|while"
)
_TORCH = {  # where its word is not numpy's
    "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu",
}  # fmt: skip
_COMPILERS = ("cc", "gcc", "clang")
_NAMED = "a function in C and Python"


class LibraryExporter:
    """See `explorer.exporters.base.Exporter`."""

    def check(self, name: str, symbol: str, several: bool = False) -> None:
        """The name is a function's in C and in Python."""
        refuse_name(name, _NAMED, ("numpy", "torch"))
        if _C_WORDS.fullmatch(name):
            raise ExportError(f"{name!r} cannot be the name of {_NAMED}; {CHOOSE}")
        if name in used_names(several) and not hasattr(builtins, name):
            raise ExportError(f"{name!r} is a name inside the exported module; {CHOOSE}")
        if symbol.startswith("tilewright_") or (symbol and in_c_library(symbol)):
            where = "the C library, or of the thread pool"
            raise ExportError(f"{symbol!r} is a function of {where}; {CHOOSE}")

    def write_table(
        self,
        table: KernelTable,
        facts: TableFacts,
        folder: Path,
        *,
        symbol: str,
        linker: str | None,
        cache_dir: Path | None,
    ) -> None:
        from explorer.exporters.library_table import write_table

        write_table(table, facts, folder, symbol, linker or find_linker(), cache_dir)

    def write(
        self,
        kernel: Kernel,
        facts: Mapping[str, object],
        folder: Path,
        *,
        symbol: str,
        linker: str | None,
        cache_dir: Path | None,
    ) -> None:
        name = kernel.name
        around = get_backend(kernel.target).standalone(kernel, symbol)
        refuse_inner_name(symbol, kernel)
        code = ask_once(kernel, "assemble", list(around.texts), cache_dir=cache_dir)
        assert isinstance(code, bytes)
        (folder / f"{name}.ll").write_text(kernel.text("llvm"))
        (folder / f"{name}.o").write_bytes(code)
        (folder / f"{name}.{around.language}").write_text(source_text(kernel, around, facts))
        if around.header:
            (folder / f"{name}.h").write_text(header_text(name, around, facts))
        (folder / f"{name}.py").write_text(python_text(kernel, around, facts))
        found = linker or find_linker()
        if found:
            link(found, folder / f"{name}.o", folder / f"lib{name}.so")
        (folder / f"{name}.json").write_text(_manifest(kernel, around, facts, folder))


def refuse_inner_name(symbol: str, kernel: Kernel) -> None:
    """Raises ExportError if a kernel's own texts have something of that name."""
    if symbol and re.search(rf"\b{symbol}\b", kernel.texts[0][1] + kernel.text("c")):
        raise ExportError(f"{symbol!r} is a name inside the kernel; {CHOOSE}")


def in_c_library(name: str) -> bool:
    """Whether this process has a symbol called `name`: C's library, or what Python brings."""
    return hasattr(ctypes.CDLL(None), name)


def find_linker() -> str | None:
    """The system's C compiler, if there is one."""
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


def link(linker: str, source: Path, library: Path) -> None:
    # The pool's threads run code of the library that started them: it must stay loaded.
    command = [linker, "-shared", "-pthread", "-Wl,-z,nodelete", "-o", str(library), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ExportError(f"{linker}: {error.strerror}") from None
    if done.returncode:
        raise ExportError(f"{linker}: {_complaint(done.stderr)}")


def _complaint(words: str) -> str:
    """The last line that says why; the compiler's own, behind the linker's, does not."""
    lines = [line for line in words.splitlines() if line.strip() and "ld returned" not in line]
    return lines[-1] if lines else "failed, without a word"


def source_text(kernel: Kernel, around: Standalone, facts: Mapping[str, object]) -> str:
    """One source file: a header that tells what it is, and all it takes to run."""
    described = "\n".join(f" *   {name}: {flat(value)}" for name, value in facts.items())
    stored = {a.dtype for a in kernel.arguments} & {"f16", *_TORCH}
    patterns = f"; {', '.join(sorted(stored))} as bit patterns" if stored else ""
    header = f"""\
/* {kernel.name}: generated by Tilewright.
{described}
 *
 * {around.signature}
 * Arrays are row-major and whole{patterns}.
 * Runs on {kernel.threads} thread(s) of a pool that all such kernels share.
 *
 * Build for the machine it was tuned on:
 *   {around.build}
 */
"""
    return f"{header}\n{around.source}"


def _manifest(
    kernel: Kernel, around: Standalone, facts: Mapping[str, object], scratch: Path
) -> str:
    """What the files hold, with their checksums."""
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "name": kernel.name,
        "target": kernel.target,
        "symbol": around.symbol,
        "signature": around.signature,
        "threads": kernel.threads,
        "arguments": argument_rows(kernel),
        "kernel_key": kernel.key,
        "facts": dict(facts),
        "notes": dict(kernel.notes),
        "build": around.build,
        "sha256": checksums(scratch),
    }
    return json.dumps(manifest, indent=2, default=str) + "\n"


_HEADER = """\
/* {name}: generated by Tilewright.
{facts}
 *
 * Link with one of {name}.{language}, {name}.o and lib{name}.so, and with -pthread.
 */
#ifndef TILEWRIGHT_KERNEL_{symbol}
#define TILEWRIGHT_KERNEL_{symbol}

{declared}{short}
#endif
"""

# Of two kernels of one name neither has the short name, so that nobody calls the wrong one.
_SHORT = """
/* {name} for short, unless the header of another kernel asks for the same. */
#ifndef TILEWRIGHT_NO_SHORT_NAMES
#ifdef TILEWRIGHT_SHORT_{name}
#undef {name}
#else
#define TILEWRIGHT_SHORT_{name}
#define {name} {symbol}
#endif
#endif
"""


def header_text(
    name: str, around: Standalone, facts: Mapping[str, object], endings: Sequence[str] = ("",)
) -> str:
    """The header: what it declares, and a short name for it if C has no such function.

    `endings` are those of the names of all entries.
    """
    symbol, text = around.symbol, ""
    if name != symbol and not in_c_library(name):
        text = "".join(_SHORT.format(name=name + e, symbol=symbol + e) for e in endings)
    return _HEADER.format(
        name=name,
        symbol=symbol,
        facts="\n".join(f" *   {key}: {flat(value)}" for key, value in facts.items()),
        language=around.language,
        declared=around.header,
        short=text,
    )


def python_text(kernel: Kernel, around: Standalone, facts: Mapping[str, object]) -> str:
    """A module that calls the shared library on arrays; see `library_module`."""
    operands = [a for a in kernel.arguments if a.role != "workspace"]
    places = {"name": kernel.name, "symbol": around.symbol, "build": around.build}
    hidden = kernel.name in used_names()
    function = "_exported" if hidden else kernel.name
    return Template(MODULE).substitute(
        layer_places(operands, function),
        name=kernel.name,
        facts=described(facts),
        signature=around.signature,
        loading=Template(LOADING).substitute(places),
        hidden=Template(HIDDEN).substitute(places, function=function) if hidden else "",
        **ALONE,
    )


def calling_layer(operands: Sequence[Argument], entry: Callable[..., None]) -> Callable[..., Any]:
    """The function of an exported module, on top of `entry` (addresses in) in place of a library's.

    So that a kernel is timed as it is called.
    """
    namespace: dict[str, Any] = {"__name__": "tilewright_called"}
    exec(_layer_code(tuple(operands)), namespace)
    namespace["_function"] = entry
    function: Callable[..., Any] = namespace["_exported"]
    return function


@lru_cache(maxsize=8)
def _layer_code(operands: tuple[Argument, ...]) -> CodeType:
    """The layer compiled: all kernels of a program have the same operands."""
    places = layer_places(operands, "_exported")
    text = Template(MODULE).safe_substitute(
        places, name="kernel", facts="", signature="", loading="_function = None", hidden="",
        **ALONE,
    )  # fmt: skip
    return compile(text, "<calling layer>", "exec")


def layer_places(operands: Sequence[Argument], function: str) -> dict[str, str]:
    """What the module says of a kernel's operands."""
    rows = [argument_row(argument) for argument in operands]
    names = parameter_names([a.name for a in operands], ("_run",))
    inputs = [names[a.name] for a in operands if a.role == "input"]
    written = [f"{names[a.name]}=None" for a in operands if a.role == "output"]
    return {
        "arguments": "(\n" + "".join(f"    {row!r},\n" for row in rows) + ")",
        "parameters": ", ".join([*inputs, *written]),
        "function": function,
        "words": "\n".join(f"    {names[a.name]}: {argument_words(a)}" for a in operands),
        "values": "".join(f"{name}, " for name in names.values()).rstrip(" "),
        "outputs": outputs.text(),
    }


ALONE = {  # of a module with one kernel
    "chosen": "    arguments, rooms, extents = ARGUMENTS, _ROOMS, ()",
    "table": "_ROOMS = _rooms(ARGUMENTS)",
}
_PLACES = (
    "name", "symbol", "build", "facts", "arguments", "parameters", "function", "signature",
    "words", "values", "hidden", "outputs", "loading", "chosen", "table",
)  # fmt: skip


@cache
def used_names(several: bool = False) -> frozenset[str]:
    """What the module itself calls something, builtins included; if `several`, one of a table."""
    places = dict.fromkeys(_PLACES, "_") | {"outputs": outputs.text(), "table": ""}
    loading = LOADING_TABLE if several else LOADING
    places["chosen"] = Template(CHOOSING).substitute(shapes="") if several else ALONE["chosen"]
    places["loading"] = Template(loading).substitute(places, count=1)
    if several:
        places["table"] = Template(TABLE).substitute(kernels="()", varying="()", extents="m")
    return names_in(Template(MODULE).substitute(places))


def argument_row(argument: Argument) -> tuple[object, ...]:
    stored = numpy_dtype(argument.dtype).name
    torch = _TORCH.get(argument.dtype, stored)
    output = argument.role == "output"
    return argument.name, argument.shape, argument.dtype, stored, torch, output


def argument_words(argument: Argument) -> str:
    extents = " x ".join(map(str, argument.shape)) or "one value"
    return f"{argument.role}, {argument.holds}, {extents}"
