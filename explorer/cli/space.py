"""tilewright space: the size of a workload's schedule space, its decisions and constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from explorer.cli.app import (
    Format,
    Machine,
    OperatorName,
    OutputFormat,
    Pins,
    Target,
    Threads,
    Words,
    app,
    arguments_of,
    domain_text,
    examples,
    pairs,
    print_json,
)

if TYPE_CHECKING:
    from ir.space import Summary


@app.command(
    epilog=examples(
        "tilewright space matmul m=512 n=512 k=512",
        "tilewright space softmax m=512 n=1000 --pin stream=true --format json",
        "tilewright space matmul m=512 n=512 k=512 --target cuda --hardware h200",
    ),
)
def space(
    operator: OperatorName,
    words: Words = None,
    target: Target = "cpu",
    threads: Threads = None,
    hardware: Machine = None,
    pin: Pins = None,
    form: OutputFormat = Format.text,
) -> None:
    """Describe the schedule space: size, decisions, constraints."""
    import numpy as np

    from explorer.workload import Workload

    named = Workload.of(operator, arguments_of(operator, words), target, threads)
    workload = named.on(hardware)
    summary = workload.space(pairs(pin, "pin")).describe(np.random.default_rng(0))
    if form is Format.json:
        print_json(_as_json(summary))
    else:
        _print_text(workload.program.name, summary)


def _print_text(name: str, summary: Summary) -> None:
    about = "" if summary.exact else "about "
    share = f"{100 * summary.legal_share:.3g} %"
    print(f"{name}: {summary.size:,} schedules, {about}{summary.legal:,} legal ({share})")
    print("\ndecisions")
    pinned = dict(summary.pinned)
    width = max((len(decision.name) for decision in summary.decisions), default=0)
    for decision in summary.decisions:
        fixed = decision.name in pinned
        domain = f"{pinned[decision.name]} (pinned)" if fixed else domain_text(decision)
        print(f"  {decision.name:{width}}  {decision.group:9}  {domain}")
    print("\nconstraints, and the share of all schedules that each removes by itself")
    for constraint, needs, removed in summary.removed:
        print(f"  {100 * removed:5.1f} %  {constraint}: {needs}")


def _as_json(summary: Summary) -> dict[str, object]:
    return {
        "size": summary.size,
        "legal": summary.legal,
        "legal_share": summary.legal_share,
        "exact": summary.exact,
        "pinned": dict(summary.pinned),
        "decisions": [
            {"name": d.name, "domain": d.domain, "group": d.group, "owner": d.owner, "why": d.why}
            for d in summary.decisions
        ],
        "constraints": [
            {"name": name, "needs": needs, "removes": share}
            for name, needs, share in summary.removed
        ],
    }
