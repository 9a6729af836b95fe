"""What `tune` says of a range of extents: each step, the schedules that were kept, the regret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from explorer.cli.app import Format, milliseconds, print_json
from explorer.shapes.family_plan import FamilyPlan
from explorer.shapes.tuning import tune_family

if TYPE_CHECKING:
    from explorer.shapes.result import FamilyResult, Step


def tune_shapes(plan: FamilyPlan, records: str | None, form: Format) -> None:
    """Search a range, told as it goes unless the result alone is wanted."""
    text = form is Format.text

    def tell(step: Step) -> None:
        if text:
            best = milliseconds(step.seconds) if step.seconds == step.seconds else "nothing valid"
            print(
                f"{step.words}: {step.what}, best {best}, {step.trials} of {plan.trials} trials",
                flush=True,
            )

    found = tune_family(plan, store=records, tell=tell)
    if text:
        _print_text(found)
    else:
        print_json(_data(found))


def _print_text(found: FamilyResult) -> None:
    print(f"{found.trials} trials in {found.elapsed:.1f} s, {len(found.schedules)} schedules kept")
    if len(found.family.varying) == 1:
        (name,) = found.family.names
        for low, high, schedule in found.pieces():
            print(f"{name}={low}..{high}: schedule {schedule.to_json()}")
    else:
        for row in found.table.rows:
            print(f"near {found.family.words(row.point)}: schedule {row.schedule.to_json()}")
    print(_regret_words(found))
    print(f"job {found.job}", flush=True)


def _regret_words(found: FamilyResult) -> str:
    """On points that nothing was chosen by."""
    if found.mean_regret is None or found.worst_regret is None:
        return "regret: not measured; more trials would hold points out for it"
    points = ", ".join(found.family.words(regret.point) for regret in found.regrets)
    beside = min(regret.beside for regret in found.regrets)
    return (
        f"regret at {points}, which nothing was chosen by: {100 * found.mean_regret:.1f} % in the "
        f"mean, {100 * found.worst_regret:.1f} % at worst, beside the best of {beside} or more "
        "schedules there"
    )


def _data(found: FamilyResult) -> dict[str, Any]:
    return {
        "job": found.job,
        "varying": {name: str(extents) for name, extents in found.family.varying},
        "trials": found.trials,
        "elapsed": found.elapsed,
        "searched": found.searched,
        "schedules": [json.loads(schedule.to_json()) for schedule in found.schedules],
        "table": [
            {"point": row.point, "schedule": found.schedules.index(row.schedule),
             "seconds": row.seconds}
            for row in found.table.rows
        ],
        "regret": {
            "mean": found.mean_regret,
            "worst": found.worst_regret,
            "points": [
                {"point": r.point, "loss": r.loss, "beside": r.beside} for r in found.regrets
            ],
        },
    }  # fmt: skip
