"""tilewright targets: the backends, and what this machine offers them; and the operators."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.cli.app import Format, OutputFormat, app, examples, print_json


@app.command(epilog=examples("tilewright targets", "tilewright targets --format json"))
def targets(form: OutputFormat = Format.text) -> None:
    """List targets and this machine's facts."""
    from ir.registry import operator_names
    from ir.target import target_names

    found = {name: _facts(name) for name in target_names()}
    if form is Format.json:
        print_json({"targets": found, "operators": operator_names()})
        return
    for name, facts in found.items():
        print(name)
        for fact, value in facts.items():
            print(f"  {fact:12}  {' '.join(value) if isinstance(value, tuple) else value}")
    print(f"operators\n  {len(operator_names())}, which `tilewright operators` lists")


def _facts(target: str) -> Mapping[str, object]:
    from ir.errors import MissingTarget
    from ir.target import get_backend

    try:
        hardware = get_backend(target).hardware()
    except MissingTarget as error:
        return {"missing": str(error)}
    return {"threads": hardware.threads, "isa": hardware.isa, **dict(hardware.facts)}
