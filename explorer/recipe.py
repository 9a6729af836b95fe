"""What a target adds to what right kernels must compute: how it adds up products, and which equal
programs it may compute instead."""

from __future__ import annotations

from explorer.expectation import Recipe
from ir.program import Program
from ir.rewrite.narrowing import unwidened
from ir.rewrite.scanned import met_once
from ir.target import Backend, Hardware, HasForms, StatesRoundoff


def recipe_of(program: Program, seed: int, backend: Backend, hardware: Hardware) -> Recipe:
    """The recipe of a program's expectation for kernels of a target.

    Factors that the program only widens are those that kernels multiply: how tensor cores add up
    their products is what a right kernel may be off by. Linear steps of states are taken as such.
    """
    accumulations = backend.accumulations(hardware) if isinstance(backend, StatesRoundoff) else ()
    forms = _cancelling(program, backend, hardware)
    return Recipe(unwidened(met_once(program)), seed, accumulations, forms)


def _cancelling(program: Program, backend: Backend, hardware: Hardware) -> tuple[Program, ...]:
    """The forms on offer whose roundings may be those of larger numbers; of those that differ in a
    length alone, the one of least work."""
    if not isinstance(backend, HasForms):
        return ()
    found: dict[str, Program] = {}
    for form in backend.forms(program, hardware).offered:
        if form.cancels:
            found.setdefault(form.kind or form.name, form.judged)
    return tuple(found.values())
