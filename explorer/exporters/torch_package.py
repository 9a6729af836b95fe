"""A kernel as a package for torch: an operator of torch.library, its derivatives, their kernels.

Writes the `__init__.py` around what the target's exporter writes; torch itself is not needed.
Knows no search, store or target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from string import Template

from explorer.errors import ExportError
from explorer.exporters.base import (
    CHOOSE,
    TORCH_DEVICES,
    described,
    names_in,
    parameter_names,
)
from explorer.exporters.library_table import surrounded
from explorer.exporters.torch_module import MODULE, RUN_ON_CPU, RUN_ON_GPU
from explorer.exporters.torch_native import BUILD, calls_text, operators_text
from ir.dtypes import numpy_dtype
from ir.kernel import Argument, Kernel, KernelTable
from ir.ops.base import TensorSpec
from ir.program import Program
from ir.target import get_backend

_OTHER = {  # torch's words, where numpy's are others
    "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e8m0": "float8_e8m0fnu",
}  # fmt: skip
Dims = tuple[tuple[int, ...], ...]

_TAKEN = (  # as the package itself calls something in a call
    "self", "out", "torch", "_differentiable", "_direct", "_plain", "found",
    *(f"{word}_{number}" for word in ("at", "result") for number in range(16)),
)  # fmt: skip
_PLACES = (
    "name", "function", "op", "facts", "device", "needs", "kernels", "derivatives", "parameters",
    "arguments", "needing", "signature", "words", "gradients", "chosen",
    "runs", "loaded", "plain", "native",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Derivative:
    """What a backward program takes and gives, in its own order: tensors of the forward one by
    name, and with a "d" before it their gradients."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]

    @classmethod
    def of(cls, forward: Program, backward: Program, tensors: Mapping[str, str]) -> Derivative:
        """Tensors of `backward` are what `tensors` says, else what they are called.

        Raises ExportError for a tensor that the forward program has not, or has of another shape
        or dtype.
        """
        unknown = sorted(set(tensors) - {spec.name for spec in backward.tensors})
        if unknown:
            raise ExportError(f"{backward.name} has no tensor {unknown[0]!r}")
        known = {spec.name: spec for spec in forward.tensors}
        known |= {f"d{spec.name}": spec for spec in forward.outputs}
        gradients = {f"d{spec.name}": spec for spec in forward.inputs}

        def meant(spec: TensorSpec, among: Mapping[str, TensorSpec]) -> str:
            name = tensors.get(spec.name, spec.name)
            if name not in among:
                raise ExportError(
                    f"{backward.name}: {spec.role} {spec.name} is no tensor of {forward.name}: say "
                    f"which with {spec.name}=NAME, one of {', '.join(among)}"
                )
            of = among[name]
            if (spec.shape, spec.dtype) != (of.shape, of.dtype):
                raise ExportError(
                    f"{backward.name}: {spec.name} is {_shown(spec)}, {name} of {forward.name} is "
                    f"{_shown(of)}"
                )
            return name

        takes = tuple(meant(spec, known) for spec in backward.inputs)
        return cls(takes, tuple(meant(spec, gradients) for spec in backward.outputs))

    @property
    def folder(self) -> str:
        """Of its kernel's files within the package."""
        return "_".join(self.gives)


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel of a package, the folder of its files in it, and how its symbol was asked for."""

    kernel: Kernel
    folder: str
    symbol: str = ""
    several: KernelTable | None = None  # the kernels, of which `kernel` is one

    @property
    def table(self) -> KernelTable:
        """Its kernels; one kernel alone has no extents that choose it."""
        return self.several or KernelTable(self.kernel.name, (), (((), self.kernel),))

    @property
    def key(self) -> str:
        return self.kernel.key if self.several is None else self.several.key

    @property
    def entry(self) -> str:
        """The function of the library, where the package calls that itself."""
        if not self.library:
            return ""
        if self.several is None:
            backend = get_backend(self.kernel.target)
            return backend.standalone(self.kernel, self.symbol).symbol
        return surrounded(self.several, self.symbol).symbol

    @property
    def library(self) -> str:
        """The file that holds its code, where the package loads that itself."""
        return "" if self.kernel.target in TORCH_DEVICES else f"lib{self.kernel.name}.so"

    def named(self, role: str) -> list[Argument]:
        return [a for a in self.kernel.arguments if a.role == role]


def refuse_untaken(program: Program, name: str) -> None:
    """Raises ExportError for what is no operator of torch, or cannot be called so in a package."""
    if not program.inputs:
        raise ExportError(f"{program.name}: an operator of torch takes a tensor at least")
    if name in _used_names():
        raise ExportError(f"{name!r} is a name inside the exported package; {CHOOSE}")


@cache
def _used_names() -> frozenset[str]:
    places = dict.fromkeys(_PLACES, "_") | {"arguments": "a"}
    return names_in(Template(MODULE).substitute(places))


def package_files(
    forward: Part,
    backward: Sequence[tuple[Part, Derivative]],
    facts: Mapping[str, object],
) -> dict[str, str]:
    """What lies beside the kernels' folders: the package's module and, where it loads libraries,
    its operators in C++, how Python calls them, and who builds them."""
    files = {"__init__.py": package_text(forward, backward, facts)}
    parts = [forward, *(part for part, _ in backward)]
    if forward.library:
        entries, ops = [part.entry for part in parts], _ops(parts)
        tables = [part.table for part in parts]
        files["ops.cpp"] = operators_text(
            forward.kernel.name, ops, tables, entries, _parameters(parts)
        )
        files["calls.cpp"] = calls_text(f"{ops[0]}_plain", forward.table)
        files["build.py"] = BUILD
    return files


def _ops(parts: Sequence[Part]) -> list[str]:
    """What the operators are called; those of other kernels are called otherwise."""
    together = hashlib.sha256("".join(part.key for part in parts).encode()).hexdigest()
    ops = [f"{part.kernel.name}_{together[:12]}" for part in parts]
    return [op if not number else f"{op}_{number}" for number, op in enumerate(ops)]


def _parameters(parts: Sequence[Part]) -> list[list[str]]:
    """What operators call their inputs."""
    return [list(parameter_names([a.name for a in p.named("input")], _TAKEN).values())
            for p in parts]  # fmt: skip


def package_text(
    forward: Part,
    backward: Sequence[tuple[Part, Derivative]],
    facts: Mapping[str, object],
) -> str:
    """The `__init__.py`."""
    parts, kernel = [forward, *(part for part, _ in backward)], forward.kernel
    ops, names = _ops(parts), _parameters(parts)
    rows = ",\n".join(f"    {_row(op, part)}" for op, part in zip(ops, parts, strict=True))
    told = [(number + 1, d.takes, d.gives) for number, (_, d) in enumerate(backward)]
    device = TORCH_DEVICES.get(kernel.target, "cpu")
    operands = [a for a in kernel.arguments if a.role != "workspace"]
    given = sorted({name for _, derivative in backward for name in derivative.gives})
    return Template(MODULE).substitute(
        name=kernel.name,
        function=kernel.name,
        op=f"tilewright.{ops[0]}",
        facts=described(facts),
        device=device,
        needs=" and CuPy" if device == "cuda" else "",
        native=" `python build.py` builds the operators in C++." if forward.library else "",
        kernels=f"(\n{rows},\n)",
        derivatives=repr(tuple(told)),
        parameters=repr(dict(zip(ops, map(tuple, names), strict=True))),
        arguments=", ".join(names[0]),
        needing=" or ".join(f"{name}.requires_grad" for name in names[0]),
        signature=f"{', '.join(a.name for a in forward.named('output'))} of {kernel.name}.",
        words="\n".join(
            f"    {a.name}: {_words(a, forward.table.dims(place))}"
            for place, a in enumerate(operands)
        ),
        runs="\n\n\n".join(map(_run, range(len(parts)), parts, names)),
        loaded=f"_runs = [{', '.join(f'_run_{number}' for number in range(len(parts)))}]",
        plain=" and ".join(f"type({name}) in _KINDS and {name}.is_{device}" for name in names[0]),
        chosen=" There is a kernel for each of the shapes below." if forward.several else "",
        gradients=f" Derivatives: {', '.join(given)}." if given else "",
    )


def _run(number: int, part: Part, names: Sequence[str]) -> str:
    """The function behind an operator: each of its checks spelled out, as it runs at every call."""
    if not part.library:
        return Template(RUN_ON_GPU).substitute(number=number)
    inputs, outputs = part.named("input"), part.named("output")
    at = {a.name: f"at_{place}" for place, a in enumerate(inputs)}
    at |= {a.name: f"result_{place}.data_ptr()" for place, a in enumerate(outputs)}
    differing = [
        f"{name}.dtype is not torch.{torch_word(a.dtype)} or not {name}.is_contiguous() "
        f"or (at_{place} := {name}.data_ptr()) % {numpy_dtype(a.dtype).itemsize}"
        for place, (a, name) in enumerate(zip(inputs, names, strict=True))
    ]
    results = [
        f"    result_{place} = _empty(*found[{place + 1}], torch.{torch_word(a.dtype)})"
        for place, a in enumerate(outputs)
    ]
    order = [a.name for a in part.kernel.arguments if a.role != "workspace"]
    return Template(RUN_ON_CPU).substitute(
        number=number,
        names=", ".join(names),
        shapes=", ".join(f"{name}.shape" for name in names),
        differing="\n        or ".join(differing),
        results="\n".join(results),
        extents="*found[0], " if part.table.varying else "",
        pointers=", ".join(at[name] for name in order),
        returned=", ".join(f"result_{place}" for place in range(len(outputs))),
    )


def _row(op: str, part: Part) -> str:
    """A kernel as a row of the package's table, as Python text."""
    kernel = part.kernel
    inputs, outputs = part.named("input"), part.named("output")
    order = [a for a in kernel.arguments if a.role != "workspace"]
    places = tuple([*inputs, *outputs].index(argument) for argument in order)
    dims = {a.name: part.table.dims(place) for place, a in enumerate(order)}
    tensors = ", ".join(f"({''.join(f'{_tensor(a, dims[a.name])}, ' for a in group)})"
                        for group in (inputs, outputs))  # fmt: skip
    head = f"({op!r}, {part.folder!r}, {kernel.name!r}, {part.entry!r}, {tensors}, {places!r}"
    return f"{head}, {_variants(part)})"


def _variants(part: Part) -> str:
    """Extents, and the shapes of inputs and of outputs, of each kernel."""
    rows = []
    for extents, kernel in part.table.rows:
        one = replace(part, kernel=kernel)
        shapes = [tuple(tuple(a.shape) for a in one.named(role)) for role in ("input", "output")]
        rows.append(repr((extents, *shapes)))
    return (
        f"({rows[0]},)" if len(rows) == 1 else "(\n        " + ",\n        ".join(rows) + ",\n    )"
    )


def _tensor(argument: Argument, dims: Dims) -> str:
    shape = tuple(dim[0] if len(dim) == 1 else None for dim in dims)
    return f"({argument.name!r}, {shape!r}, torch.{torch_word(argument.dtype)})"


def torch_word(dtype: str) -> str:
    """The dtype in torch's words."""
    return _OTHER.get(dtype, numpy_dtype(dtype).name)


def _words(argument: Argument, dims: Dims) -> str:
    extents = " x ".join("|".join(map(str, dim)) for dim in dims) or "one value"
    return f"{argument.role}, {torch_word(argument.dtype)}, {extents}"


def _shown(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"
