"""Wrong kernels of every kind of operator are refused on both targets, and right ones are not.

The CUDA ones are emulated. Of a thing that is wrong with a program, one kernel each.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ir.dtypes import from_float
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS
from tests.emulator.emulate import compiler
from tests.mutants.cases import CASES, KINDS, NAMES, built
from tests.mutants.launches import LAUNCHES, Faulty
from tests.mutants.operators import narrow_norm
from tests.mutants.programs import PROGRAMS
from tests.mutants.results import RESULTS
from tests.mutants.runtimes import EmulatedRuntime, HereRuntime
from tests.mutants.subject import Subject
from tests.mutants.suite import Found, Machine, Suite


def _every(step: int, first: int) -> pytest.MarkDecorator:
    """Some of the cases on each of the two targets; all on both with those that are long."""
    marks = [() if n % step == first else (pytest.mark.long,) for n in range(len(CASES))]
    cases = [pytest.param(n, id=NAMES[n], marks=marks[n]) for n in range(len(CASES))]
    return pytest.mark.parametrize("number", cases)


needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
seen: dict[str, set[str]] = {"cpu": set(), "cuda": set()}
ran: dict[str, set[int]] = {"cpu": set(), "cuda": set()}  # which cases, in this process


@cache
def machine(target: str) -> Machine:
    backend = get_backend(target)
    if target == "cpu":
        return Machine(backend, backend.hardware(1), Faulty(HereRuntime()))
    runtime = Faulty(EmulatedRuntime())
    return Machine(backend, known_hardware("h200"), runtime, ACCUMULATIONS)


def judged(number: int, target: str) -> Found:
    with Suite(built(number), machine(target)) as suite:
        suite.calibrate(1)
        suite.judge_launches()
        suite.judge_programs()
    seen[target] |= set(suite.found.caught)
    ran[target].add(number)
    return suite.found


@_every(5, 0)
def test_wrong_kernels_of_the_host_are_refused_and_right_ones_are_not(number: int) -> None:
    found = judged(number, "cpu")
    assert (found.refused, found.alive, found.unbuilt) == ([], [], [])
    assert len(found.caught) > 15


@needs_compiler
@_every(10, 6)
def test_wrong_emulated_kernels_are_refused_and_right_ones_are_not(number: int) -> None:
    found = judged(number, "cuda")
    assert (found.refused, found.alive, found.unbuilt) == ([], [], [])
    assert len(found.caught) > 15


def test_mutants_are_of_every_kind() -> None:
    assert KINDS >= 25
    for target, caught in seen.items():
        if len(ran[target]) == len(CASES):
            assert {*RESULTS, *LAUNCHES, *PROGRAMS} - caught == set(), target


def test_a_right_kernel_is_no_mutant() -> None:
    """What nobody can tell from one is left out, by the roundoff of the outputs alone."""
    subject = Subject.of(narrow_norm.build(m=40, n=96), 1)
    below, above = (from_float(subject.exact["Y"] * part, "e4m3") for part in (0.97, 1.03))
    mixed = np.where(np.arange(below.size).reshape(below.shape) % 2, below, above)
    assert not subject.tells(subject.stored)
    assert not subject.tells({"Y": mixed})
    assert subject.tells({"Y": above})  # in the mean
    mixed[3, 7] = from_float(np.array(2 * subject.exact["Y"][3, 7]), "e4m3")
    assert subject.tells({"Y": mixed})
