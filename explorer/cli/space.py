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
from ir.target import HasForms

if TYPE_CHECKING:
    from explorer.workload import Workload
    from ir.rewrite.forms import Forms
    from ir.summary import Summary


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
    forms = _forms(workload)
    if form is Format.json:
        print_json(_as_json(summary, forms))
        return
    _print_text(workload.program.name, summary)
    if forms is not None and len(forms.offered) > 1:
        _print_forms(forms)


def _forms(workload: Workload) -> Forms | None:
    backend = workload.backend
    if not isinstance(backend, HasForms):
        return None
    return backend.forms(workload.program, workload.hardware)


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


def _print_forms(forms: Forms) -> None:
    """The equal programs to choose from; `show --forms` has them and their derivations."""
    print("\nforms, and the least time of each on paper")
    for one in forms.offered:
        print(f"  {1e3 * one.work.seconds:9.4g} ms  {one.name}")
    print(f"  {len(forms.left_out)} others are left out, of {forms.known} that are known")


def _as_json(summary: Summary, forms: Forms | None) -> dict[str, object]:
    offered = forms.offered if forms is not None else ()
    left = forms.left_out if forms is not None else ()
    return {
        "forms": [{"name": one.name, "seconds": one.work.seconds} for one in offered],
        "forms_left_out": [{"name": one.name, "why": why} for one, why in left],
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
