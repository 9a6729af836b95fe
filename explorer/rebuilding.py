"""From what a store holds back to workloads and machines: by the program's text, which the store
has under the workload's key, or by name where the operator is our own.

No file is loaded that a record names: only those that the person named. Knows no target.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from explorer.workload import Workload
from ir.builder import Operator
from ir.errors import TilewrightError, UsageError
from ir.printable import printable, shortened
from ir.program import Program
from ir.registry import operator_names, operators_in
from ir.target import Hardware, target_names
from ir.text import parse
from records import MEMORIES, Job, Record

if TYPE_CHECKING:
    from records import Store

PROGRAM = "program"  # of a job's options: the key under which the store has its program


@dataclass(frozen=True, slots=True)
class Named:
    """What a record says of its workload. `key` is its program's, "" where that is not known."""

    operator: str
    extents: str  # JSON object
    target: str
    key: str = ""
    threads: int | None = None
    memory: str = MEMORIES[0]  # of records and jobs that do not say it

    @property
    def arguments(self) -> tuple[tuple[str, Any], ...]:
        """Of the operator; raises UsageError for what no operator takes."""
        found = json.loads(self.extents)
        for name, value in found.items():
            if not isinstance(value, str | int | float | bool):
                raise UsageError(f"{self}: {shortened(name)} is no number, text or truth value")
        return tuple(found.items())

    def __str__(self) -> str:
        return shortened(f"{self.operator} {self.extents}")


def of_record(record: Record, threads: int | None = None) -> Named:
    where = (record.target, record.workload, threads, record.memory)
    return Named(record.operator, record.extents, *where)


def of_job(store: Store, job: Job) -> Named:
    """The key of an older job's program is that of its trials."""
    options = json.loads(job.options)
    key = options.get(PROGRAM, "")
    if not key:
        first = next(store.records(job=job.id), None)
        key = "" if first is None else first.workload
    memory = str(options.get("memory", MEMORIES[0]))
    return Named(job.operator, job.extents, job.target, str(key), options.get("threads"), memory)


def rebuilt(store: Store, named: Named, files: Sequence[str] = ()) -> Workload:
    """The workload of a record or job; raises UsageError where its program is not to be had.

    `files` are operator files that the person named: for records of versions that kept no text.
    """
    if named.target not in target_names():  # elsewhere a target may be named as module:class
        known = ", ".join(target_names())
        raise UsageError(f"{named}: recorded for target {named.target!r}; there are {known}")
    text = store.text(named.key) if named.key else None
    if text is not None:
        program = read_program(text, named.key)
        return _of_program(named, program)
    missed: list[str] = []
    for operator in _candidates(named, files):
        try:
            program = operator.build(**dict(named.arguments))
        except Exception as error:  # noqa: BLE001 (an author's function may raise anything)
            missed.append(f"{operator.name} {shortened(repr(error), 100)}")
            continue
        if named.key in ("", program.key):
            return _of_program(named, program)
        missed.append(f"{operator.name} is another program now")
    raise UsageError(_unknown(named, missed))


def _of_program(named: Named, program: Program) -> Workload:
    found = (named.operator, named.arguments, named.target, named.threads)
    return Workload(*found, None, program, named.memory)


def read_program(text: str, key: str) -> Program:
    """The program of a text that a store carries; raises UsageError unless it is this very one."""
    try:
        program = parse(text)
    except UsageError as error:
        raise UsageError(f"program {key[:12]} of the records: {error}") from None
    if program.key != key:
        raise UsageError(f"program {key[:12]} of the records is not as this version prints it")
    return program


def _candidates(named: Named, files: Sequence[str]) -> Iterator[Operator]:
    """The person's operators, the one of the same name first; else our own of that name."""
    wanted = named.operator.rpartition(":")[2]
    given = [operator for file in files for operator in operators_in(file)]
    yield from sorted(given, key=lambda operator: operator.name != wanted)
    if named.operator in operator_names():
        from ir.registry import load_operator

        yield load_operator(named.operator)


def _unknown(named: Named, missed: Sequence[str]) -> str:
    why = f" ({'; '.join(missed)})" if missed else ""
    return (
        f"{named}: these records carry no text of its program{why}; name the file with the "
        "operator as it was, with --operators FILE.py"
    )


def machine_of(record: Record) -> Hardware:
    """The hardware that a record was made on; raises UsageError for facts that are none."""
    facts = json.loads(record.hardware_facts)
    isa = facts.pop("isa", [])
    plain = all(isinstance(value, str | int | float | bool) for value in facts.values())
    if not plain or not isinstance(isa, list) or not all(isinstance(name, str) for name in isa):
        raise UsageError(f"{printable(record.hardware)}: its facts are not a machine's")
    name = record.hardware.removeprefix(f"{record.target}:").removesuffix(f":{record.threads}")
    return Hardware(record.target, name, tuple(isa), record.threads, tuple(facts.items()))


def buildable(store: Store, named: Named, files: Sequence[str] = ()) -> Workload | None:
    """As `rebuilt`; None where it is not to be had."""
    try:
        return rebuilt(store, named, files)
    except TilewrightError:
        return None
