"""tilewright evaluate: how good a cost model is on recorded trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Format, OperatorFiles, OutputFormat, app, examples, print_json
from explorer.cli.train import OneTarget, Sources, one_target
from ir.errors import UsageError

if TYPE_CHECKING:
    from costmodel.evaluate import Evaluation


@app.command(
    epilog=examples(
        "tilewright evaluate model.json.xz",
        "tilewright evaluate --cross-validate --records records.db",
    ),
)
def evaluate(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="a file that `train` wrote")
    ] = None,
    records: Sources = None,
    cross_validate: Annotated[
        bool, typer.Option("--cross-validate", help="train on all but one, test on that one")
    ] = False,
    split: Annotated[str, typer.Option(help="what is left out: workload or operator")] = "workload",
    target: OneTarget = None,
    operators: OperatorFiles = None,
    form: OutputFormat = Format.text,
) -> None:
    """Tell how a model ranks recorded trials, against random order, traffic and neighbours.

    A model scores well on what it was trained on; --cross-validate trains fresh ones instead.
    """
    if (model is None) == (not cross_validate):
        raise UsageError("name a model, or ask for --cross-validate: one of the two")
    found = _evaluated(records, model, split, target, operators or ())
    if form is Format.json:
        scores = [score.as_dict() for score in found.scores]
        calibration = asdict(found.calibration)
        summary = found.summary()
        print_json(
            {"split": found.split, "summary": summary, "calibration": calibration, "scores": scores}
        )
        return
    from costmodel.evaluate import lines

    for line in lines(found):
        print(line)


def _evaluated(
    records: list[str] | None,
    model: Path | None,
    split: str,
    target: str | None,
    operators: Sequence[str],
) -> Evaluation:
    from costmodel.evaluate import cross_validate as crossed
    from costmodel.evaluate import evaluate as scored
    from costmodel.saved import load_model

    trained = load_model(model) if model is not None else None
    wanted = target if trained is None else trained.target
    groups = one_target(records, wanted, operators)
    return crossed(groups, split) if trained is None else scored(trained.model, groups)
