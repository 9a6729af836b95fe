"""tilewright operators: the built-in operators by family, or one with its tensors and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import (
    Format,
    OutputFormat,
    Words,
    app,
    arguments_of,
    examples,
    operator_starts,
    print_json,
)

if TYPE_CHECKING:
    from ir.builder import Operator
    from ir.program import Program

Asked = Annotated[
    str | None,
    typer.Argument(
        metavar="[OPERATOR]",
        help="one of them, or FILE.py:NAME; default: all built-in ones",
        autocompletion=operator_starts,
    ),
]
Pages = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="write a page in Markdown for each family there"),
]


@app.command(
    epilog=examples(
        "tilewright operators",
        "tilewright operators conv2d",
        "tilewright operators conv2d resnet50 stride=2",
        "tilewright operators --pages pages",
    ),
)
def operators(
    operator: Asked = None,
    words: Words = None,
    pages: Pages = None,
    form: OutputFormat = Format.text,
) -> None:
    """List operators by family, or show one: formula, arguments, settings, tensors."""
    from ir.errors import UsageError
    from ir.registry import load_operator

    if pages is not None:
        if operator is not None:
            raise UsageError("--pages writes those of all operators; name none")
        return _write(pages, form)
    if operator is None:
        return _list(form)
    return _show(load_operator(operator), operator, words, form)


def _write(folder: Path, form: Format) -> None:
    from explorer.catalogue_pages import pages
    from explorer.cli.places import refuse_unwritable_folder
    from ir.catalogue import families

    refuse_unwritable_folder("--pages", folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = pages(families())
    for name, text in found.items():
        (folder / name).write_text(text)
    if form is Format.json:
        print_json({"folder": str(folder), "pages": sorted(found)})
    else:
        print(f"wrote {len(found)} pages to {folder}")


def _list(form: Format) -> None:
    from ir.catalogue import explained, families

    found = families()
    if form is Format.json:
        listed = [
            {"name": f.name, "about": f.about, "operators": [_as_json(op) for op in f.operators]}
            for f in found
        ]
        print_json({"families": listed})
        return
    for number, family in enumerate(found):
        print(f"{chr(10) if number else ''}{family.name}: {family.about}")
        for operator in family.operators:
            print(f"  {_call(operator)}\n      {explained(operator)[0]}")


def _call(operator: Operator) -> str:
    from ir.registry import signature

    return " ".join([operator.name, *map(signature, operator.parameters.values())])


def _as_json(operator: Operator) -> dict[str, object]:
    from ir.catalogue import explained, settings_of

    formula, rest = explained(operator)
    arguments = [
        {"name": name}
        | ({} if parameter.default is parameter.empty else {"default": parameter.default})
        for name, parameter in operator.parameters.items()
    ]
    settings = {name: dict(setting) for name, setting in settings_of(operator).items()}
    return {
        "name": operator.name, "formula": formula, "about": rest, "arguments": arguments,
        "settings": settings,
    }  # fmt: skip


def _show(operator: Operator, name: str, words: list[str] | None, form: Format) -> None:
    """With the tensors of the arguments that `words` give; else of the small setting."""
    from ir.catalogue import SMALL, explained, settings_of
    from ir.sources import build

    settings = settings_of(operator)
    words = words or ([SMALL] if SMALL in settings else None)
    program = build(operator, arguments_of(name, words)) if words else None
    if form is Format.json:
        tensors = {} if program is None else {"tensors": _tensors(program)}
        print_json(_as_json(operator) | tensors)
        return
    formula, rest = explained(operator)
    print(_call(operator))
    print(f"\n    {formula}" + (f"\n\n{rest}" if rest else ""))
    _print_settings(settings)
    if words and program is not None:
        print(f"\ntensors of {' '.join(words)}")
        _print_tensors(program)


def _print_settings(settings: Mapping[str, Mapping[str, object]]) -> None:
    from explorer.catalogue_pages import words

    if settings:
        print("\nsettings")
    width = max(map(len, settings), default=0)
    for name, setting in settings.items():
        print(f"  {name:{width}}  {words(setting)}")


def _tensors(program: Program) -> list[dict[str, object]]:
    from ir.catalogue import subscripts

    shown = subscripts(program)
    return [
        {"name": t.name, "role": t.role, "dtype": t.dtype, "shape": t.shape,
         "indices": shown.get(t.name, ())}
        for t in program.tensors
    ]  # fmt: skip


def _print_tensors(program: Program) -> None:
    from ir.catalogue import subscripts

    shown = subscripts(program)
    for t in program.tensors:
        axes = ", ".join(shown.get(t.name, ()))
        print(f"  {t.role:6}  {t.name}[{axes}]  {t.dtype} {' x '.join(map(str, t.shape)) or 1}")
