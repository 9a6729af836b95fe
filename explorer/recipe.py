"""What a target adds to what right kernels must compute: how it adds up products, and which equal
programs it may compute instead."""

from __future__ import annotations

from explorer.expectation import Recipe
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.narrowing import unwidened
from ir.rewrite.scanned import met_once
from ir.roundoff import Accumulations
from ir.target import Backend, Hardware, HasForms, StatesRoundoff

COARSE = 2.0**-20  # a roundoff of sums above which they are not as those of f32


def recipe_of(program: Program, seed: int, backend: Backend, hardware: Hardware) -> Recipe:
    """The recipe of a program's expectation for kernels of a target.

    Factors that the program only widens are those that kernels multiply: how tensor cores add up
    their products is what a right kernel may be off by. Linear steps of states are taken as such.
    """
    accumulations = backend.accumulations(hardware) if isinstance(backend, StatesRoundoff) else ()
    forms = _coarser(program, backend, hardware, accumulations)
    return Recipe(unwidened(met_once(program)), seed, accumulations, forms)


def _coarser(
    program: Program, backend: Backend, hardware: Hardware, accumulations: Accumulations
) -> tuple[Program, ...]:
    """The forms on offer whose roundings may be those of larger numbers, or whose products are
    added up more coarsely than those of the program are; of forms that differ in a length alone,
    the one of least work."""
    if not isinstance(backend, HasForms):
        return ()
    found: dict[str, Program] = {}
    known = _coarse(program, accumulations)
    for form in backend.forms(program, hardware).offered:
        if form.cancels or not _coarse(form.judged, accumulations) <= known:
            found.setdefault(form.kind or form.name, form.judged)
    return tuple(found.values())


def _coarse(program: Program, accumulations: Accumulations) -> set[tuple[str, ...]]:
    """Types of factors of products whose sums lose much of f32's digits."""
    coarse: set[tuple[str, ...]] = {pair for pair, how in accumulations if how.unit > COARSE}
    nodes = unwidened(program).nodes
    pairs = {
        tuple(nodes[arg].dtype for arg in node.args)
        for node in nodes
        if isinstance(node.op, Contract)
    }
    return coarse & pairs
