"""Forms of a program as a decision: the space of all of them, and the one that a schedule takes.

Targets say what a machine does in a second, and what space a single form has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ir.alternatives import FORM, Alternatives, chosen
from ir.kernel import Kernel
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.schedule import Schedule
from ir.space import Space

RESIDENT = 3  # forms, the one as written and those of least work, of which residences are looked at


def space_of_forms(
    program: Program,
    rates: Rates,
    ideal: Callable[[Program], float],
    space: Callable[[Program, float | None, bool], Space],
) -> Space:
    """The space of every form. `space` is asked with what costs are relative to, which is the least
    `ideal` of all forms, none where there is one form; and for the first few, with all residences.
    """
    forms = forms_of(program, rates).offered
    least = min(ideal(form.program) for form in forms) if len(forms) > 1 else None
    spaces = {
        form.name: space(form.program, least, number < RESIDENT)
        for number, form in enumerate(forms)
    }
    return Alternatives(FORM, spaces, next(iter(program.axes), program.name)).space()


def formed(program: Program, schedule: Schedule, rates: Rates) -> tuple[Program, Schedule]:
    """The form that a schedule names, and its schedule in that form's space."""
    forms = {form.name: form.program for form in forms_of(program, rates).offered}
    value, own = chosen(schedule, FORM, tuple(forms))
    return forms[value], own


def as_given(kernel: Kernel, program: Program) -> Kernel:
    """The kernel of a form with the shapes that the program as written has for its tensors."""
    shapes = {spec.name: spec.shape for spec in program.tensors}
    arguments = tuple(
        replace(argument, shape=shapes.get(argument.name, argument.shape))
        for argument in kernel.arguments
    )
    return replace(kernel, arguments=arguments)
