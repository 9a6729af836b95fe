"""Several kernels of one operator as one shared library: see `library` for one of them.

All of it is the one library's: text, object, C, header, manifest, a Python module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import Template

from explorer.errors import ExportError
from explorer.exporters.base import (
    MANIFEST_SCHEMA,
    TableFacts,
    checksums,
    described,
    refuse_alike,
)
from explorer.exporters.library import (
    argument_row,
    argument_words,
    header_text,
    layer_places,
    link,
    refuse_inner_name,
    source_text,
    used_names,
)
from explorer.exporters.library_module import CHOOSING, HIDDEN, LOADING_TABLE, MODULE, TABLE
from explorer.runtime.once import ask_once
from ir.kernel import KernelTable, Standalone
from ir.target import JoinsKernels, get_backend

ENDINGS = ("", "_workspace", "_with")  # of the names of a library's entries
_SECONDS = 60.0  # for machine code, and for each kernel
_EACH = 5.0


def write_table(
    table: KernelTable,
    facts: TableFacts,
    folder: Path,
    symbol: str,
    linker: str | None,
    cache_dir: Path | None,
) -> None:
    """See `explorer.exporters.base.Exporter`."""
    name = table.name
    refuse_alike(table)
    for kernel in table.kernels:
        refuse_inner_name(symbol, kernel)
    around = surrounded(table, symbol)
    own = replace(table.first, texts=(("llvm", around.texts[0]), *table.first.texts[1:]))
    seconds = _SECONDS + _EACH * len(table.rows)
    texts = list(around.texts[1:])
    code = ask_once(own, "assemble", texts, cache_dir=cache_dir, timeout=seconds)
    assert isinstance(code, bytes)
    kernels = around.texts[: len(table.rows)]
    (folder / f"{name}.ll").write_text(_modules(table, kernels))
    (folder / f"{name}.o").write_bytes(code)
    whole = replace(table.first, name=name)
    (folder / f"{name}.{around.language}").write_text(source_text(whole, around, facts.common))
    (folder / f"{name}.h").write_text(header_text(name, around, facts.common, ENDINGS))
    (folder / f"{name}.py").write_text(python_text(table, around, facts.common))
    if linker:
        link(linker, folder / f"{name}.o", folder / f"lib{name}.so")
    (folder / f"{name}.json").write_text(_manifest(table, around, facts, folder))


def surrounded(table: KernelTable, symbol: str) -> Standalone:
    """What the target makes of a table; raises ExportError if it joins none."""
    backend = get_backend(table.first.target)
    if not isinstance(backend, JoinsKernels):
        raise ExportError(
            f"target {table.first.target} puts no kernels together; export each by itself"
        )
    return backend.standalone_table(table, symbol)


def _modules(table: KernelTable, texts: tuple[str, ...]) -> str:
    """The kernels' LLVM modules one behind the other, each under a line that tells its extents."""
    rows = zip(table.rows, texts, strict=True)
    return "\n".join(f"; --- {table.words(extents)}\n{text}" for (extents, _), text in rows)


def _manifest(table: KernelTable, around: Standalone, facts: TableFacts, scratch: Path) -> str:
    """What the files hold, with their checksums."""
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "name": table.name,
        "target": table.first.target,
        "symbol": around.symbol,
        "signature": around.signature,
        "varying": table.varying,
        "table": facts.rows(table),
        "facts": dict(facts.common),
        "build": around.build,
        "sha256": checksums(scratch),
    }
    return json.dumps(manifest, indent=2, default=str) + "\n"


def python_text(table: KernelTable, around: Standalone, facts: Mapping[str, object]) -> str:
    """A module that calls the library's kernel for the arrays that it is given."""
    places = {"name": table.name, "symbol": around.symbol, "build": around.build}
    hidden = table.name in used_names(several=True)
    function = "_exported" if hidden else table.name
    rows = [
        f"    ({extents!r}, {tuple(a.shape for a in table.operands(kernel))!r}),\n"
        for extents, kernel in table.rows
    ]
    return Template(MODULE).substitute(
        _own(table, function),
        name=table.name,
        facts=described(facts),
        signature=around.signature,
        loading=Template(LOADING_TABLE).substitute(places, count=len(table.varying)),
        hidden=Template(HIDDEN).substitute(places, function=function) if hidden else "",
        chosen=Template(CHOOSING).substitute(
            shapes="".join(f"values[{place}].shape, " for place in _inputs(table)).rstrip(" ")
        ),
        table=Template(TABLE).substitute(
            kernels=f"(\n{''.join(rows)})",
            varying=repr(table.varying),
            extents=", ".join(table.varying),
        ),
    )


def _inputs(table: KernelTable) -> list[int]:
    """Their places among the operands."""
    return [n for n, a in enumerate(table.operands(table.first)) if a.role == "input"]


def _own(table: KernelTable, function: str) -> dict[str, str]:
    """What the module says of the operands: of those whose extents vary, all of them."""
    places = layer_places(table.operands(table.first), function)
    for place, argument in enumerate(table.operands(table.first)):
        dims = table.dims(place)
        row, words = argument_row(argument), argument_words(argument)
        several = tuple(dim[0] if len(dim) == 1 else None for dim in dims)
        told = " x ".join("|".join(map(str, dim)) for dim in dims) or "one value"
        shape = " x ".join(map(str, argument.shape)) or "one value"
        places["arguments"] = places["arguments"].replace(
            repr(row), repr((row[0], several, *row[2:]))
        )
        places["words"] = places["words"].replace(words, words.removesuffix(shape) + told)
    return places
