"""tilewright tune: a search of one workload or several, shown live, resumable, exported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOTHING
from explorer.cli.app import (
    ExportName,
    Format,
    Memory,
    OperatorFiles,
    OutputFormat,
    Pins,
    Records,
    Target,
    Threads,
    Words,
    app,
    arguments_of,
    examples,
    family_of,
    operator_starts,
    pairs,
)
from explorer.cli.places import refuse_unwritable_folder
from explorer.cli.replayed import recording_words
from ir.errors import UsageError

if TYPE_CHECKING:
    from explorer.budget import Budget
    from explorer.cli.progress import Display
    from explorer.interrupted import Interrupted
    from explorer.measuring import Machines
    from explorer.plan import Plan
    from explorer.replay import Recording
    from explorer.result import JobResult, PlanResult
    from explorer.roofline import Roofline
    from explorer.shapes.family import Family
    from explorer.workload import Workload

OperatorOrJob = Annotated[
    str | None,
    typer.Argument(
        metavar="[OPERATOR]",
        help="a built-in operator, or FILE.py:NAME; with --resume, a job's identifier; with "
        "--replay also a kernel that another tuner recorded, or - for the only one",
        autocompletion=operator_starts,
    ),
]
Jobs = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="several workloads under one budget")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="go on with an interrupted job, by default the newest")
]
Plain = Annotated[bool, typer.Option("--plain", help="lines instead of the live panel")]
Trials = Annotated[int | None, typer.Option(help="candidates to measure, whatever time it takes")]
Seconds = Annotated[
    float | None, typer.Option(help="wall clock of the search; with --trials, whichever is first")
]
Effort = Annotated[
    str, typer.Option(help="budget by name, without numbers: quick, standard or deep")
]
Strategy = Annotated[
    str, typer.Option(help="evolutionary, annealing, random, exhaustive, replay, optuna-tpe ...")
]
Seed = Annotated[int, typer.Option(min=0, help="of the search's random choices")]
Model = Annotated[
    str | None, typer.Option(help="cost model to start with: a file, or none; default: our own")
]
StartFrom = Annotated[
    str | None, typer.Option(metavar="RECORDS", help="measure the fastest of these records first")
]
Replay = Annotated[
    str | None,
    typer.Option(
        metavar="RECORDS",
        help="take outcomes from a store, an export or another tuner's file; store nothing",
    ),
]
BaselineOption = Annotated[
    bool,
    typer.Option(
        "--baseline/--no-baseline", help="compare with the array library: cuBLAS, numpy's BLAS"
    ),
]
DevicesOption = Annotated[
    str,
    typer.Option(
        metavar="NUMBERS", help="devices that measure at a time: 0,1 or all; finals on the first"
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="folder to export the best kernel to, made if need be")
]

WorkersOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="measure on workers of this Dask scheduler: tcp://host:8786"
    ),
]

# parameters that go with any others
_ALWAYS = {"resume", "records", "out", "name", "plain", "form", "workers"}
_OF_RANGES = {
    "operator", "words", "target", "trials", "seconds", "effort", "threads", "memory", "pin",
    "strategy", "seed", "model", "records", "baseline", "plain", "form",
}  # fmt: skip


@app.command(
    epilog=examples(
        "tilewright tune matmul m=512 n=512 k=512 --trials 64 --out kernel",
        "tilewright tune matmul m=512 n=512 k=512 dtype=bf16 --seconds 20 --pin pack.s0.B=no",
        "tilewright tune gated.py:gated m=256 n=512 k=128 --effort quick",
        "tilewright tune --jobs jobs.toml --trials 64",
    ),
)
def tune(
    context: typer.Context,
    operator: OperatorOrJob = None,
    words: Words = None,
    jobs: Jobs = None,
    resume: Resume = False,
    target: Target = "cpu",
    trials: Trials = None,
    seconds: Seconds = None,
    effort: Effort = "standard",
    threads: Threads = None,
    memory: Memory = None,
    pin: Pins = None,
    strategy: Strategy = "evolutionary",
    seed: Seed = 0,
    model: Model = None,
    records: Records = None,
    operators: OperatorFiles = None,
    start_from: StartFrom = None,
    replay: Replay = None,
    baseline: BaselineOption = True,
    devices: DevicesOption = "0",
    workers: WorkersOption = None,
    out: Out = None,
    name: ExportName = None,
    plain: Plain = False,
    form: OutputFormat = Format.text,
) -> int:
    """Search for the fastest kernel of an operator, or of several.

    Every trial is recorded before it is shown. Ctrl-C keeps what is measured and prints the best;
    `tune --resume` goes on as if nothing had happened, also after a kill. The same command given
    again adds trials to those that are known. With a range of an extent, m=1..2048, some of its
    values are searched, few schedules are kept for all, and their regret is told.
    """
    if name is not None and out is None:
        raise UsageError("--name says what is exported; give --out FOLDER too")
    from explorer.budget import Budget

    given = _given(context)
    unlike = {"jobs", "resume", "records", "workers"} if replay is not None else set()
    _refuse_others(given, set(given) - unlike, "--replay answers from records and stores nothing")
    output = _Output(out, name, plain, form, records, workers)
    if resume:
        return _resume(operator, given, output, operators or ())
    if operators:
        raise UsageError("--operators is for --resume; name an operator of a file as FILE.py:NAME")
    if jobs is not None:
        return _tune_file(jobs, (trials, seconds, effort), given, output)
    if operator is None and replay is None:
        raise UsageError("Missing argument 'OPERATOR', or --jobs FILE.toml, or --resume")
    budget = Budget.of(effort, trials, seconds)
    search = {"strategy": strategy, "seed": seed, "model": model, "pins": pairs(pin, "pin")}
    several = family_of(operator or "", words, target, threads, memory)
    if several is not None:
        return _tune_shapes(several, budget, output, given, **search)
    return _tune_one(
        operator, words, budget, replay, given, output, **search, target=target, threads=threads,
        start_from=start_from, baseline=baseline, devices=devices, memory=memory,
    )  # fmt: skip


def _tune_one(
    operator: str | None, words: list[str] | None, budget: Budget, replay: str | None,
    given: dict[str, str], output: _Output, **options: Any,
) -> int:  # fmt: skip
    """Search one workload, or answer from what was recorded of one or several."""
    from explorer.job import plan_replay

    arguments = arguments_of(operator or "", words)
    plan, recordings = plan_replay(operator, arguments, budget, replay, **options)
    if any(_is_foreign(recording) for recording in recordings):
        why = "the kernel was recorded by another tuner, where it ran"
        _refuse_others(given, set(given) - {"target", "threads"}, why)
    return _search(plan, output, recordings=recordings)


def _is_foreign(recording: Recording) -> bool:
    from explorer.recorded import RecordedKernel

    return isinstance(recording.workload, RecordedKernel)


def _tune_shapes(
    family: Family, budget: Budget, output: _Output, given: dict[str, str], **options: Any
) -> int:
    """Search a range of workloads; the budget is for all of them."""
    _refuse_others(given, _OF_RANGES, "the arguments are several workloads, of a range")
    from explorer.cli.shapes import tune_shapes
    from explorer.shapes.plan import plan_family

    tune_shapes(plan_family(family, budget, **options), output.records, output.form)
    return EXIT_DONE


@dataclass(frozen=True, slots=True)
class _Output:
    """Where results go, and how they are shown."""

    folder: Path | None
    name: str | None
    plain: bool
    form: Format
    records: str | None
    workers: str | None


def _resume(
    name: str | None, given: dict[str, str], output: _Output, operators: Sequence[str]
) -> int:
    """Go on with the job called `name`, else with the newest interrupted one."""
    from explorer.job import interrupted_run

    allowed = _ALWAYS | {"operator", "operators"}
    _refuse_others(given, allowed, "--resume goes on with a job's own options")
    past = interrupted_run(name, output.records, operators)
    return _search(past.plan, output, past)


def _tune_file(
    file: Path,
    budget: tuple[int | None, float | None, str],
    given: dict[str, str],
    output: _Output,
) -> int:
    """Tune the jobs of a file; what the command line says of the budget goes before the file."""
    from explorer.plan import read_plan

    allowed = _ALWAYS | {"jobs", "trials", "seconds", "effort"}
    _refuse_others(given, allowed, f"with --jobs it stands in {file}")
    from explorer.cli.shapes import tune_shapes
    from explorer.shapes.plan import split

    trials, seconds, effort = budget
    named = effort if "effort" in given else None
    parts = split(read_plan(file, trials=trials, seconds=seconds, effort=named))
    if parts.families and (output.folder is not None or output.form is not Format.text):
        option = "--out" if output.folder is not None else "--format json"
        raise UsageError(f"{option} is for single workloads, and {file} has a range; leave it out")
    for family in parts.families:
        tune_shapes(family, output.records, output.form)
    return EXIT_DONE if parts.plan is None else _search(parts.plan, output)


def _search(
    plan: Plan,
    output: _Output,
    past: Interrupted | None = None,
    recordings: Sequence[Recording] = (),
) -> int:
    """Run a plan where it is to be measured, then print, export and choose the exit code."""
    from explorer.job import machines_at, placed

    with machines_at(output.workers) as machines:
        on_them = plan if past is not None else placed(plan, machines)
        found, workloads = _run(on_them, output, past, recordings, machines)
    return _finish(found, output, workloads, recordings)


def _run(
    plan: Plan,
    output: _Output,
    past: Interrupted | None,
    recordings: Sequence[Recording],
    machines: Machines | None,
) -> tuple[PlanResult, Sequence[Workload]]:
    """Run a plan with its display; what was found, and of what."""
    from explorer.cli.progress import Silence
    from explorer.interrupts import second_one_quits
    from explorer.job import run_plan
    from explorer.turns import prepare

    workloads = prepare(plan, recordings, past, machines)
    _refuse_names(workloads, output)
    for recording in recordings if output.form is Format.text else ():
        print(recording_words(recording), flush=True)
    for number, workload in enumerate(workloads):
        if output.folder is not None:
            folder = _folder(output.folder, len(workloads), number, workload.program.name)
            refuse_unwritable_folder("--out", folder)
    peaks = _peaks(workloads, machines, measured=not recordings)
    text = output.form is Format.text
    display = _display(plan, workloads, peaks, output.plain) if text else Silence()
    with second_one_quits(), display:
        found = run_plan(
            plan, store=output.records, progress=display.show, past=past, peaks=peaks,
            recordings=recordings, workloads=workloads, machines=machines,
        )  # fmt: skip
    if not recordings:
        _doubt_peaks(found, workloads, peaks)
    return found, workloads


def _doubt_peaks(
    found: PlanResult, workloads: Sequence[Workload], peaks: Sequence[Mapping[str, float]]
) -> None:
    """Have the machine's peaks measured again next time if a kernel was faster than they allow."""
    from explorer.peaks import forget_peaks

    rooflines = _rooflines(workloads, peaks)
    for result in found.results:
        if rooflines[result.number].doubts(result.seconds):
            forget_peaks(workloads[result.number].hardware)
    for number, _ in found.missed:  # perhaps because no time was believed
        forget_peaks(workloads[number].hardware)


def _rooflines(
    workloads: Sequence[Workload], peaks: Sequence[Mapping[str, float]]
) -> tuple[Roofline, ...]:
    from explorer.roofline import Roofline

    return tuple(
        Roofline.of(workload.program, dict(workload.hardware.facts) | dict(measured))
        for workload, measured in zip(workloads, peaks, strict=True)
    )


def _peaks(
    workloads: Sequence[Workload], machines: Machines | None, measured: bool
) -> list[dict[str, float]]:
    """What the machines can do at most; what can be measured of them only where they measure."""
    from explorer.peaks import measured_peaks, stated_peaks

    def found(workload: Workload) -> Mapping[str, float]:
        if not measured:
            return {}
        if machines is not None:
            return machines.peaks(workload)
        return measured_peaks(workload.target, workload.hardware)

    return [stated_peaks(w.backend, w.hardware) | dict(found(w)) for w in workloads]


def _refuse_names(workloads: Sequence[Workload], output: _Output) -> None:
    """Raises now what exporting would after the search."""
    if output.folder is None:  # nor is there a name
        return
    from explorer.exporter import refuse_name
    from explorer.recorded import RecordedKernel, nothing_to

    for workload in workloads:
        if isinstance(workload, RecordedKernel):
            raise UsageError(nothing_to("export", workload.operator, workload.target))
    if output.name is not None and len(workloads) > 1:
        raise UsageError(f"--name {output.name}: there are {len(workloads)} kernels; name one job")
    for workload in workloads:
        refuse_name(workload.target, workload.program.name, output.name)


def _given(context: typer.Context) -> dict[str, str]:
    """What the command line names itself, by parameter, as it is spelt."""
    return {
        option.name: option.opts[-1] if option.opts[-1].startswith("-") else "words"
        for option in context.command.params
        if option.name and _from_command_line(context, option.name)
    }


def _from_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_others(given: dict[str, str], allowed: set[str], why: str) -> None:
    for name, spelt in given.items():
        if name not in allowed:
            what = "operator and words" if name in ("operator", "words") else spelt
            raise UsageError(f"{what} cannot be given here: {why}")


def _display(
    plan: Plan, workloads: Sequence[Workload], peaks: Sequence[Mapping[str, float]], plain: bool
) -> Display:
    """A panel on a terminal, otherwise lines."""
    from explorer.cli.progress import Account, Lines

    account = Account(plan, _rooflines(workloads, peaks))
    if plain or not sys.stdout.isatty():
        return Lines(account)
    from explorer.cli.panel import LivePanel

    return LivePanel(account)


def _finish(
    found: PlanResult,
    output: _Output,
    workloads: Sequence[Workload],
    recordings: Sequence[Recording],
) -> int:
    """Print what was found, export it, and choose the exit code."""
    from explorer.cli.found import print_end, print_found, print_interrupted, print_text
    from explorer.job import single

    if len(found.plan.jobs) == 1:
        single(found)  # raises what a job without a result ends with
    text = output.form is Format.text
    for result in found.results if text else ():
        print_text(found, result, recordings[result.number] if recordings else None)
    files = {r.number: _export(found.plan, r, workloads[r.number], output) for r in found.results}
    if text:
        print_end(found, files)
        if found.interrupted:
            print_interrupted(found, output.records, output.workers, not recordings)
    else:
        print_found(found, files, recordings)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_NOTHING if found.missed else EXIT_DONE


def _export(plan: Plan, result: JobResult, workload: Workload, output: _Output) -> tuple[str, ...]:
    """Files of a job's best kernel, in its folder."""
    from explorer.job import export_best

    out = output.folder
    if out is None:
        return ()
    folder = _folder(out, len(plan.jobs), result.number, result.program.name)
    written = export_best(
        workload, folder, schedule=result.best, seconds=result.seconds, name=output.name
    )
    return tuple(str(path) for path in written)


def _folder(out: Path, jobs: int, number: int, name: str) -> Path:
    return out if jobs == 1 else out / f"{number + 1}-{name}"
