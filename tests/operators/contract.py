"""What each operator of the library has to show: one row of a table, the same checks for all.

A file of this folder has a table `CASES`; `test_corpus.py` finds them. A reference is straight
numpy from the definition and shares nothing with the oracle: it gets the inputs by name, floats
widened to float64 and whole numbers to int64, and the case's arguments, and returns the output, or
all of them by name, unrounded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import cli
from explorer.check import Bounds
from explorer.expectation import error_model, leaning_of
from explorer.recall import FINAL, HEAT, existing_store
from explorer.runtime.process import Answer as Reply
from explorer.runtime.process import Worker, process_server
from ir.dtypes import numpy_dtype, to_float
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.ops.base import Array
from ir.oracle import Answer, answers, evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS
from ir.text import parse
from tests.emulator.emulate import MODES, emulate

Inputs = Mapping[str, Array]
Reference = Callable[..., Array | Mapping[str, Array]]

_THREADS = 2
_CARD = known_hardware("h200")
_TIMEOUT = 60.0
_FOLDER = tempfile.TemporaryDirectory(prefix="tilewright-corpus-")  # goes with the process
_FEW = 0.2  # of an output's elements may be anything
_CLOSE = 1e-9  # of the oracle and a reference, both in float64


@dataclass(frozen=True)
class Case:
    """An operator with small arguments, and its reference: `reference(inputs, **arguments)`.

    `close` is how near the oracle has to be, relatively, where the reference's own sums cancel.
    """

    operator: str
    arguments: Mapping[str, Any]
    reference: Reference
    close: float = _CLOSE

    def __str__(self) -> str:
        said = "-".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.operator}-{said}"


@dataclass(frozen=True)
class Prepared:
    """A case's program, its inputs, the reference's outputs and what a kernel's may be."""

    program: Program
    inputs: Inputs
    wanted: Mapping[str, Array]
    bounds: Mapping[str, Bounds]

    def wrong(self, found: Mapping[str, Array]) -> list[str]:
        """What of a kernel's outputs is not the reference's."""
        verdicts = {name: bounds.judge(found[name]) for name, bounds in self.bounds.items()}
        return [f"{name}: {verdict.detail}" for name, verdict in verdicts.items() if verdict.detail]


_KNOWN: dict[str, Prepared] = {}


def prepared(case: Case) -> Prepared:
    """Builds the program, draws its inputs, and asks the reference: once for each case."""
    if str(case) not in _KNOWN:
        _KNOWN[str(case)] = _prepared(case)
    return _KNOWN[str(case)]


def _prepared(case: Case) -> Prepared:
    program = load_operator(case.operator).build(**case.arguments)
    inputs = random_inputs(program, np.random.default_rng(7))
    widened = {spec.name: to_float(inputs[spec.name], spec.dtype) for spec in program.inputs}
    result = case.reference(widened, **case.arguments)
    wanted = dict(result) if isinstance(result, Mapping) else {program.outputs[0].name: result}
    return Prepared(program, inputs, wanted, _bounds(program, inputs, wanted))


def _bounds(program: Program, inputs: Inputs, wanted: Mapping[str, Array]) -> dict[str, Bounds]:
    """Around the reference, as wide as roundings of the program allow."""
    reach = answers(program, inputs, error_model(program, ACCUMULATIONS))
    leaning = leaning_of(program, ACCUMULATIONS)
    found: dict[str, Bounds] = {}
    for spec in program.outputs:
        assert wanted[spec.name].shape == spec.shape, spec.name
        answer = Answer(np.asarray(wanted[spec.name]), reach[spec.name].reach)
        found[spec.name] = Bounds.around(answer, spec.dtype, None, leaning)
    return found


def check_meaning(case: Case) -> None:
    """The oracle says what the reference says, of outputs that can be judged; the text is whole."""
    made = prepared(case)
    found = evaluate(made.program, made.inputs)
    assert set(found) == set(made.wanted)
    for name, wanted in made.wanted.items():
        np.testing.assert_allclose(found[name], wanted, case.close, case.close, err_msg=name)
        assert made.bounds[name].unbounded <= _FEW * wanted.size, f"{name}: much may be anything"
    assert parse(str(made.program)) == made.program


def check_tuned(case: Case, capsys: pytest.CaptureFixture[str], count: int) -> None:
    """`tilewright tune` on the CPU with `count` trials: each of them is right for the search, and
    its kernel, run by a process of its own in guarded memory, for the reference."""
    words = [f"{name}={value}" for name, value in case.arguments.items()]
    options = [
        "--trials",
        str(count),
        "--threads",
        str(_THREADS),
        "--no-baseline",
        "--format",
        "json",
    ]
    code = cli.invoke(["tune", case.operator, *words, *options])
    printed = capsys.readouterr()
    assert code == cli.EXIT_DONE, printed.err
    found = json.loads(printed.out)
    with existing_store() as store:
        trials = [r for r in store.records(job=found["job"]) if r.strategy not in (HEAT, FINAL)]
    assert [record.detail for record in trials if record.status != "ok"] == []
    assert found["trials"] == len(trials) > 0
    schedules = [Schedule.from_json(record.schedule) for record in trials]
    assert kernels_wrong(prepared(case), schedules) == []


def check_cpu(case: Case, count: int = 8) -> None:
    """Kernels of drawn schedules, two seeds of the space among them, as `check_tuned` has them."""
    made = prepared(case)
    space = get_backend("cpu").space(made.program, get_backend("cpu").hardware(_THREADS))
    assert kernels_wrong(made, _drawn(space, 2, count, len(str(case)))) == []


def check_cuda(case: Case, count: int = 2) -> None:
    """Emulated kernels: a seed of the space and drawn ones, in two orders of completion; a single
    one is a seed in some cases and drawn in others."""
    assert run_cuda(prepared(case), count, len(str(case))) == []


def kernels_wrong(made: Prepared, schedules: Sequence[Schedule]) -> list[str]:
    """What is wrong with the outputs of the CPU's kernels."""
    backend = get_backend("cpu")
    hardware = backend.hardware(_THREADS)
    found = []
    for schedule in schedules:
        kernel = backend.lower(made.program, schedule, hardware)
        outputs = _run(kernel, made.inputs)
        wrong = [outputs] if isinstance(outputs, str) else made.wrong(outputs)
        found += [f"{problem} {schedule.to_json()}" for problem in wrong]
    return found


def run_cuda(made: Prepared, count: int, seed: int) -> list[str]:
    """The same of emulated kernels, and their faults; a seed of the space is among several."""
    backend = get_backend("cuda")
    space = backend.space(made.program, _CARD)
    found = []
    both = list(enumerate(_drawn(space, 1, max(count, 2), seed)))
    for turn, schedule in both if count > 1 else both[seed % 2 :][:1]:
        kernel = backend.lower(made.program, schedule, _CARD)
        found += [f"{said} {schedule.to_json()}" for said in _emulated(made, kernel, turn)]
    return found


def _drawn(space: Space, seeds: int, count: int, seed: int) -> list[Schedule]:
    rng = np.random.default_rng(seed)
    rows = [*space.seed_rows(rng)[:seeds], *space.sample(rng, count)][:count]
    return [space.schedule(row) for row in rows]


def _emulated(made: Prepared, kernel: Kernel, turn: int) -> list[str]:
    arrays = _arrays(kernel, made.inputs)
    mode = MODES[(0, 15, 6, 9)[turn % 4]]
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=mode, limit=_TIMEOUT)
    return [*run.faults, *made.wrong(arrays)]


def _arrays(kernel: Kernel, inputs: Inputs) -> dict[str, Array]:
    """Inputs that must not be written, and outputs full of what no kernel writes."""
    found: dict[str, Array] = {}
    for argument in kernel.arguments:
        if argument.role == "input":
            found[argument.name] = np.array(inputs[argument.name], order="C")
            found[argument.name].flags.writeable = False
        elif argument.role == "output":
            poison = np.full(argument.bytes, 0x5A, np.uint8)
            found[argument.name] = poison.view(numpy_dtype(argument.dtype)).reshape(argument.shape)
    return found


@cache
def _worker() -> Worker:
    """One process for all kernels; a kernel that ends it is an answer in words."""
    folder = cache_folder()
    return Worker(process_server("cpu", folder), "explorer.runtime.workers:Runner", "cpu", folder)


def cache_folder() -> Path:
    """Where kernels of all tests of this process are kept, so that each is compiled once."""
    return Path(_FOLDER.name)


def _run(kernel: Kernel, inputs: Inputs) -> dict[str, Array] | str:
    """A kernel's outputs, or how it ended."""
    arrays = _arrays(kernel, inputs)
    reply = _worker().ask(_TIMEOUT, "run", kernel, list(arrays.values()))
    if not isinstance(reply, Reply):
        return str(reply)
    assert isinstance(reply.value, tuple)
    names = [argument.name for argument in kernel.arguments if argument.role == "output"]
    return dict(zip(names, reply.value[1], strict=True))
