"""tilewright explain: what a schedule's decisions mean, why it is refused, how it compares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.app import (
    Format,
    Machine,
    Memory,
    OperatorFiles,
    OutputFormat,
    Records,
    Target,
    Threads,
    Words,
    app,
    domain_text,
    examples,
    milliseconds,
    operator_starts,
    print_json,
    read_schedule,
    workload_of,
)
from explorer.cli.baseline import missing_words
from ir.errors import UsageError
from ir.printable import printable

if TYPE_CHECKING:
    from explorer.baseline import Baseline
    from explorer.explanation import Choice, Explanation
    from explorer.landscape import Difference
    from explorer.outcome import Outcome
    from explorer.workload import Workload
    from ir.program import Program
    from ir.schedule import Schedule
    from ir.space import Space

SHOWN = 8  # neighbours and remedies
Operator = Annotated[
    str | None,
    typer.Argument(
        metavar="[OPERATOR]",
        help="a built-in operator, or FILE.py:NAME",
        autocompletion=operator_starts,
    ),
]
Chosen = Annotated[
    str, typer.Option(metavar="JSON", help="a schedule, @FILE, or best: the best recorded one")
]
JobName = Annotated[
    str | None, typer.Option("--job", metavar="JOB", help="explain this job's best schedule")
]


@app.command(
    epilog=examples(
        "tilewright explain matmul m=512 n=512 k=512",
        "tilewright explain matmul m=512 n=512 k=512 --schedule best",
        "tilewright explain --job JOB",
    ),
)
def explain(
    operator: Operator = None,
    words: Words = None,
    schedule: Chosen = "",
    job: JobName = None,
    target: Target = "cpu",
    threads: Threads = None,
    memory: Memory = None,
    hardware: Machine = None,
    records: Records = None,
    operators: OperatorFiles = None,
    form: OutputFormat = Format.text,
) -> None:
    """Say what decisions mean, why a schedule is refused, and how it did beside its neighbours.

    Without a schedule or job it explains the decisions and constraints of the workload's space.
    """
    from explorer.explanation import explain_known

    if job is not None:
        if operator is not None:
            raise UsageError("give an operator or --job, not both")
        if hardware is not None:
            raise UsageError("--hardware goes with an operator; a job has its own")
        workload, found = _of_job(job, schedule, records, operators or ())
    elif operator is None:
        raise UsageError("Missing argument 'OPERATOR', or --job JOB")
    else:
        named = workload_of(operator, words, target, threads, records, "explain", memory)
        workload = named.on(hardware)
        if not schedule:
            _explain_space(workload.space(), form)
            return
        chosen = _best(workload, records) if schedule == "best" else read_schedule(schedule)
        found = explain_known(workload, chosen, records)
    if form is Format.json:
        print_json(_as_json(found))
    else:
        _print_text(workload, found)


def _of_job(
    job: str, schedule: str, records: str | None, operators: Sequence[str]
) -> tuple[Workload, Explanation]:
    """The job's workload, and its best or the given schedule explained by the job's trials."""
    from explorer.explanation import explain as explain_schedule
    from explorer.recall import existing_store
    from explorer.story import read_story

    with existing_store(records) as store:
        story = read_story(store, job, operators)
    chosen = read_schedule(schedule) if schedule not in ("", "best") else story.best_schedule
    trials = [(trial.schedule, trial.outcome) for trial in story.decided]
    found = explain_schedule(story.space(), chosen, trials)
    return story.workload, replace(found, baseline=story.baseline)


def _best(workload: Workload, records: str | None) -> Schedule:
    from explorer.recall import best_winner

    return best_winner(workload, records).schedule


def _explain_space(space: Space, form: Format) -> None:
    if form is Format.json:
        decisions = [
            {"name": d.name, "group": d.group, "owner": d.owner, "why": d.why, "domain": d.domain}
            for d in space.decisions
        ]
        rules = [{"name": rule.name, "needs": rule.needs} for rule in space.constraints]
        print_json({"decisions": decisions, "constraints": rules})
        return
    print("decisions")
    for decision in space.decisions:
        print(f"  {decision.name} ({decision.group}, of {decision.owner}): {decision.why}")
        print(f"    one of {domain_text(decision)}")
    print("constraints")
    for rule in space.constraints:
        print(f"  {rule.name}: {rule.needs}")


def _print_text(workload: Workload, found: Explanation) -> None:
    for broken in found.broken:
        print(f"refused by {broken.name}: {broken.detail}")
        print(f"  it needs: {broken.needs}")
    if found.broken:
        _print_remedies(found)
    print("decisions")
    for choice in found.choices:
        print(f"  {choice.decision.name} = {_shown(choice.value)}: {choice.decision.why}")
        effect = _effect(choice)
        if effect:
            print(f"    {effect}")
    for outcome in found.trials:
        print(f"measured: {_outcome(outcome, workload.program)}")
    if found.baseline is not None:
        print(_baseline(found, found.baseline))
    if found.neighbours:
        _print_neighbours(found)


def _baseline(found: Explanation, baseline: Baseline) -> str:
    """The library's time beside the schedule's own, or why there is none."""
    from explorer.cli.progress import crowded
    from explorer.comparison import beside_baseline
    from explorer.outcome import CALL

    if baseline.seconds is None:
        return missing_words(baseline)
    best = _best_of(found)
    if best is not None:  # the library is timed as it is called
        best = replace(best, seconds=float(dict(best.notes).get(CALL, best.seconds or 0.0)))
    compared = None if best is None else beside_baseline(best, baseline)
    beside = crowded(baseline.crowd) if compared is None else f"; the schedule: {compared.words}"
    return f"baseline: {baseline.library} takes {milliseconds(baseline.seconds)}{beside}"


def _best_of(found: Explanation) -> Outcome | None:
    """The schedule's own time, if it has one."""
    timed = [outcome for outcome in found.trials if outcome.ok and outcome.seconds]
    return min(timed, key=lambda outcome: outcome.seconds or 0.0, default=None)


def _print_remedies(found: Explanation) -> None:
    if not found.remedies:
        print("no single change makes it legal")
        return
    print("made legal by any of")
    for name, before, after in found.remedies[:SHOWN]:
        print(f"  {name} = {_shown(after)} instead of {_shown(before)}")
    if len(found.remedies) > SHOWN:
        print(f"  and {len(found.remedies) - SHOWN} more")


def _effect(choice: Choice) -> str:
    """The best times with this value and with the others, where there are some."""
    known = [effect for effect in choice.tried if effect.best is not None]
    others = [effect for effect in known if effect.value != choice.value]
    here = [effect.best for effect in known if effect.value == choice.value]
    if not others:
        return ""
    parts = [f"best with it {milliseconds(best)}" for best in here if best is not None]
    ranked = sorted(others, key=lambda effect: effect.best or 0.0)[:3]
    parts += [f"with {_shown(e.value)} {milliseconds(e.best)}" for e in ranked if e.best]
    return ", ".join(parts)


def _print_neighbours(found: Explanation) -> None:
    count = len(found.neighbours[0].changes)
    print(f"measured schedules that differ in {count} decision{'s' if count > 1 else ''}")
    for neighbour in found.neighbours[:SHOWN]:
        print(f"  {_neighbour(neighbour, _best_of(found))}")
    if len(found.neighbours) > SHOWN:
        print(f"  and {len(found.neighbours) - SHOWN} more")


def _neighbour(neighbour: Difference, mine: Outcome | None) -> str:
    """What differs, and its time; beside that of the schedule unless one of them is in doubt."""
    from explorer.disturbance import crowd_of

    changes = ", ".join(
        f"{name} = {_shown(after)} instead of {_shown(before)}"
        for name, before, after in neighbour.changes
    )
    outcome = neighbour.outcome
    if outcome.status != "ok" or outcome.seconds is None:
        return f"{changes}: {outcome.status}"
    compared = ""
    if crowd_of(outcome) is not None:
        compared = " (crowded)"
    elif mine is not None and mine.seconds and crowd_of(mine) is None:
        compared = f" ({outcome.seconds / mine.seconds:.3f} times as long)"
    return f"{changes}: {milliseconds(outcome.seconds)}{compared}"


def _outcome(outcome: Outcome, program: Program) -> str:
    from explorer.cli.progress import crowded, rate
    from explorer.disturbance import crowd_of

    if not outcome.ok or outcome.seconds is None:
        return f"{outcome.status}: {printable(outcome.detail)}"
    marked = crowded(crowd_of(outcome))
    return f"{milliseconds(outcome.seconds)}, {rate(outcome.seconds, program)}{marked}"


def _shown(value: object) -> str:
    return str(value) or "-"


def _as_json(found: Explanation) -> dict[str, Any]:
    from explorer.disturbance import crowd_of

    return {
        "schedule": json.loads(found.schedule.to_json()),
        "legal": not found.broken,
        "refused_by": [
            {"name": b.name, "needs": b.needs, "detail": b.detail} for b in found.broken
        ],
        "remedies": [
            {"decision": name, "from": before, "to": after}
            for name, before, after in found.remedies
        ],
        "decisions": [_choice_json(choice) for choice in found.choices],
        "trials": [
            {"status": o.status, "seconds": o.seconds, "crowded": crowd_of(o) is not None}
            for o in found.trials
        ],
        "neighbours": [_neighbour_json(neighbour) for neighbour in found.neighbours],
        "baseline": None if found.baseline is None else found.baseline.to_facts(),
    }


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.decision.name,
        "value": choice.value,
        "group": choice.decision.group,
        "owner": choice.decision.owner,
        "why": choice.decision.why,
        "tried": [
            {"value": e.value, "trials": e.tried, "right": e.right, "best": e.best}
            for e in choice.tried
        ],
    }


def _neighbour_json(neighbour: Difference) -> dict[str, Any]:
    changes = [
        {"decision": name, "from": before, "to": after} for name, before, after in neighbour.changes
    ]
    outcome = neighbour.outcome
    return {"changes": changes, "status": outcome.status, "seconds": outcome.seconds}
