"""The page on the command line: what `--help` of each verb says.

Knows the verbs by their names alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from explorer.cli.app import VERBS

PLACE = "reference/command-line.md"
_WIDTH = 100
_HEAD = """# The command line

What `tilewright VERB --help` says of each verb. Codes with which a command ends are on
[a page of their own](../exit-codes.md).
"""


def page() -> str:
    """The page in Markdown, a section for each verb and each verb of a verb."""
    parts = [_HEAD]
    for words, text in helps():
        parts.append(
            f"{'#' * (len(words) + 1)} tilewright {' '.join(words)}\n\n```text\n{text}```\n"
        )
    return "\n".join(parts)


def helps() -> Iterator[tuple[tuple[str, ...], str]]:
    """Each verb, as its words, with its help."""
    import typer.main

    from explorer.cli.app import app, load

    load(())
    root: Any = typer.main.get_command(app)
    for verb in VERBS:
        yield from _helps(root.commands[verb], (verb,), "tilewright")


def _helps(
    command: Any, words: tuple[str, ...], above: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    name = f"{above} {words[-1]}"
    context = command.make_context(
        name, [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield words, context.get_help().rstrip() + "\n"
    for inner, of in getattr(command, "commands", {}).items():
        yield from _helps(of, (*words, inner), name)
