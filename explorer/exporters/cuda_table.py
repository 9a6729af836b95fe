"""Several CUDA kernels of one operator as one cubin: see `cuda` for one of them.

Their sources stand one behind the other, each in a namespace of its own, and are compiled at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from pprint import pformat
from string import Template

from explorer.errors import ExportError
from explorer.exporters import cuda_module
from explorer.exporters.base import MANIFEST_SCHEMA, TableFacts, checksums, refuse_alike
from explorer.exporters.cuda import (
    Plan,
    build_commands,
    build_lines,
    comment,
    fact_lines,
    kernel_lines,
    launch_facts,
    literal,
    module_places,
    operands,
    read_plan,
    row,
    with_own_names,
)
from explorer.runtime.once import ask_once
from ir.kernel import Argument, Kernel, KernelTable

_SECONDS = 60.0  # for machine code, and for each kernel
_EACH = 10.0


def write_table(
    table: KernelTable, facts: TableFacts, folder: Path, cache_dir: Path | None
) -> None:
    """See `explorer.exporters.base.Exporter`."""
    refuse_alike(table)
    name, own = table.name, [with_own_names(kernel) for kernel in table.kernels]
    plans = [read_plan(kernel) for kernel in own]
    _refuse_apart(table, plans)
    source = source_text(table, own, plans, facts)
    whole = replace(own[0], name=name, texts=(("cuda", source),))
    seconds = _SECONDS + _EACH * len(own)
    texts = [json.dumps(plans[0])]
    code = ask_once(whole, "assemble", texts, cache_dir=cache_dir, timeout=seconds)
    assert isinstance(code, bytes)
    (folder / f"{name}.cubin").write_bytes(code)
    (folder / f"{name}.cu").write_text(source)
    (folder / f"{name}.py").write_text(module_text(table, own, plans, facts))
    (folder / f"{name}.json").write_text(_manifest(table, plans, facts, folder))


def _refuse_apart(table: KernelTable, plans: Sequence[Plan]) -> None:
    """Raises ExportError for kernels that one compilation does not make."""
    known = (plans[0]["arch"], plans[0].get("options", []))
    for (extents, _), plan in zip(table.rows, plans, strict=True):
        if (plan["arch"], plan.get("options", [])) != known:
            raise ExportError(
                f"{table.name}: the kernel for {table.words(extents)} is compiled otherwise than "
                f"that for {table.words(table.rows[0][0])}; export each by itself"
            )


def source_text(
    table: KernelTable, kernels: Sequence[Kernel], plans: Sequence[Plan], facts: TableFacts
) -> str:
    """All kernels in one source; one that several extents have stands there once."""
    head = fact_lines(table.name, facts.common)
    head += ["", f"A kernel for each of {len(kernels)} values of {', '.join(table.varying)}."]
    parts = [comment([*head, "", *build_lines(table.name, plans[0])])]
    seen: set[str] = set()
    each = zip(table.rows, kernels, plans, facts.each, strict=True)
    for (extents, _), kernel, plan, own in each:
        if kernel.key in seen:
            continue
        seen.add(kernel.key)
        lines = fact_lines(f"{table.name}: {table.words(extents)}", own)[1:]
        lines = [table.words(extents), *lines, "", *kernel_lines(kernel, plan)]
        space = f"tw_{kernel.key[:12]}"
        parts.append(f"{comment(lines)}namespace {space} {{\n{kernel.text('cuda')}}}\n")
    return "\n".join(parts)


def module_text(
    table: KernelTable, kernels: Sequence[Kernel], plans: Sequence[Plan], facts: TableFacts
) -> str:
    """The Python module; see `cuda_module` for what it does."""
    inputs, outputs = _common(table)
    rows = [
        _row(extents, kernel, plan)
        for (extents, _), kernel, plan in zip(table.rows, kernels, plans, strict=True)
    ]
    tables = Template(cuda_module.SEVERAL).substitute(
        inputs=literal([row(a) for a in inputs]),
        outputs=literal([row(a) for a in outputs]),
        varying=repr(table.varying),
        table="(\n" + "".join(f"    {text},\n" for text in rows) + ")",
    )
    first = replace(kernels[0], name=table.name, arguments=(*inputs, *outputs))
    extents = ", ".join(table.varying)
    return Template(cuda_module.MODULE).substitute(
        module_places(first, plans[0], facts.common),
        tables=tables,
        variants=cuda_module.SEVERAL_VARIANTS,
        choosing=cuda_module.SEVERAL_CHOOSING,
        query=Template(cuda_module.QUERY).substitute(extents=extents),
    )


def _row(extents: tuple[int, ...], kernel: Kernel, plan: Plan) -> str:
    shapes = [tuple(tuple(a.shape) for a in part) for part in operands(kernel)]
    found = (extents, *shapes, *launch_facts(kernel, plan))
    return pformat(found, width=94).replace("\n", "\n    ")


def _common(table: KernelTable) -> tuple[list[Argument], list[Argument]]:
    """Inputs and outputs with None for the extents that the kernels differ in."""
    dims = {a.name: table.dims(place) for place, a in enumerate(table.operands(table.first))}
    inputs, outputs = (
        [_several(argument, dims[argument.name]) for argument in part]
        for part in operands(table.first)
    )
    return inputs, outputs


def _several(argument: Argument, dims: tuple[tuple[int, ...], ...]) -> Argument:
    shape = tuple(dim[0] if len(dim) == 1 else None for dim in dims)
    return replace(argument, shape=shape)  # type: ignore[arg-type]


def _manifest(table: KernelTable, plans: Sequence[Plan], facts: TableFacts, folder: Path) -> str:
    """What the files hold and what launching takes, with checksums."""
    rows = [
        told | {key: plan.get(key, []) for key in ("workspace_bytes", "clean", "kernels")}
        for told, plan in zip(facts.rows(table), plans, strict=True)
    ]
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "name": table.name,
        "target": table.first.target,
        "arch": plans[0]["arch"],
        "varying": table.varying,
        "table": rows,
        "facts": dict(facts.common),
        "build": build_commands(table.name, plans[0]),
        "sha256": checksums(folder),
    }
    return json.dumps(manifest, indent=2, default=str) + "\n"
