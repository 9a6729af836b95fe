"""Pages of the built-in operators in Markdown, one a family, made from what the code says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ir.builder import Operator
from ir.catalogue import SMALL, Family, Setting, explained, settings_of, subscripts
from ir.ops.base import TensorSpec
from ir.program import Program

_INDEX = "README.md"
_WIDTH = 100
_MADE = "<!-- Made by `tilewright operators --pages docs/operators` from the operators' code. -->"

_HEAD = """# Operators

The built-in operators by family; `tilewright operators` lists them, too. A setting is a name for
arguments: `tilewright tune softmax small` tunes the softmax of a few rows.

| family | what it is | operators |
|---|---|---|"""
_IMPORTS = """```python
import numpy as np

from ir import evaluate, load_operator, random_inputs
```"""


def pages(families: Iterable[Family]) -> dict[str, str]:
    """The text of each page by its file's name, an index among them."""
    every = tuple(families)
    return {_INDEX: _index(every)} | {f"{family.name}.md": _page(family) for family in every}


def _index(families: Iterable[Family]) -> str:
    rows = []
    for family in families:
        names = ", ".join(f"`{operator.name}`" for operator in family.operators)
        rows.append(f"| [{family.name}]({family.name}.md) | {_escaped(family.about)} | {names} |")
    return "\n".join([_MADE, "", _HEAD, *rows, ""])


def _page(family: Family) -> str:
    title = family.name.replace("_", " ").capitalize()
    parts = [_MADE, f"# {title}", family.about, _IMPORTS]
    parts += [_section(operator) for operator in family.operators]
    return "\n\n".join(parts) + "\n"


def _section(operator: Operator) -> str:
    formula, rest = explained(operator)
    settings = settings_of(operator)
    parts = [f"## {operator.name}", f"    {formula}", *([rest] if rest else [])]
    parts.append(_arguments(operator))
    if settings:
        parts += [_settings(settings), *_example(operator, settings)]
    return "\n\n".join(parts)


def _arguments(operator: Operator) -> str:
    rows = [
        f"| `{name}` | {_kind(parameter.annotation)} | {_default(parameter.default)} |"
        for name, parameter in operator.parameters.items()
    ]
    return "\n".join(["| argument | is | default |", "|---|---|---|", *rows])


def _kind(annotation: object) -> str:
    """A type in the words of the pages."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    words = {"int": "whole number", "float": "number", "bool": "true or false", "str": "word"}
    return words.get(name, "value")


def _default(value: object) -> str:
    return "" if isinstance(value, type) else f"`{value!r}`".replace("`''`", "chosen")


def _settings(settings: Mapping[str, Setting]) -> str:
    rows = [f"| `{name}` | `{words(setting)}` |" for name, setting in settings.items()]
    return "\n".join(["| setting | arguments |", "|---|---|", *rows])


def words(setting: Setting) -> str:
    """Arguments as the command line takes them."""
    shown = {True: "true", False: "false"}
    return " ".join(
        f"{name}={shown[value] if isinstance(value, bool) else value}"
        for name, value in setting.items()
    )


def _example(operator: Operator, settings: Mapping[str, Setting]) -> list[str]:
    """Tensors and a search of the small setting, and its meaning from Python."""
    name = SMALL if SMALL in settings else next(iter(settings))
    program = operator.build(**settings[name])
    shown = subscripts(program)
    rows = [_tensor(spec, shown.get(spec.name, ())) for spec in program.tensors]
    tensors = "\n".join([f"| `{name}` | of | shape | indices |", "|---|---|---|---|", *rows])
    command = f"    tilewright tune {operator.name} {name} --trials 8"
    return [tensors, command, _python(operator, settings[name], program)]


def _tensor(spec: TensorSpec, axes: tuple[str, ...]) -> str:
    shape = " x ".join(map(str, spec.shape)) or "1"
    return f"| {spec.role} `{spec.name}` | {spec.dtype} | {shape} | {', '.join(axes)} |"


def _python(operator: Operator, setting: Setting, program: Program) -> str:
    """Its meaning in numpy: what a test of the pages runs."""
    given = ", ".join(f"{name}={_literal(value)}" for name, value in setting.items())
    build = f'program = load_operator("{operator.name}").build({given})'
    if len(build) > _WIDTH:
        build = build.replace(f"({given})", f"(\n    {given}\n)")
    output = program.outputs[0]
    return "\n".join([
        "```python",
        build,
        "outputs = evaluate(program, random_inputs(program, np.random.default_rng(0)))",
        f'assert outputs["{output.name}"].shape == {output.shape}',
        "```",
    ])  # fmt: skip


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")
