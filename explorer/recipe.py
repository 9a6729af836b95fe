"""What a target adds to what right kernels must compute: how it adds up products, and which equal
programs it may compute instead."""

from __future__ import annotations

from itertools import permutations

from explorer.expectation import Recipe
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite import contracted
from ir.rewrite.narrowing import unwidened
from ir.rewrite.scanned import met_once
from ir.roundoff import Accumulations
from ir.target import Backend, Hardware, HasForms, StatesRoundoff

COARSE = 2.0**-20  # a roundoff of sums above which they are not as those of f32


def recipe_of(program: Program, seed: int, backend: Backend, hardware: Hardware) -> Recipe:
    """The recipe of a program's expectation for kernels of a target.

    Factors that the program only widens are those that kernels multiply, in sums of products as in
    contractions: how tensor cores add up their products is what a right kernel may be off by.
    Linear steps of states are taken as such.
    """
    accumulations = backend.accumulations(hardware) if isinstance(backend, StatesRoundoff) else ()
    forms = _coarser(program, backend, hardware, accumulations)
    return Recipe(_multiplied(met_once(program), accumulations), seed, accumulations, forms)


def _multiplied(program: Program, accumulations: Accumulations) -> Program:
    """The program with factors as kernels multiply them, and with its sums of products as those of
    matrices where any of them is added up in a way of its own."""
    known, plain = {pair for pair, _ in accumulations}, unwidened(program)
    found = contracted.rewritten(program)
    if found is None:
        return plain
    products = unwidened(found[1])
    counts = [sum(pair in known for pair in _pairs(one)) for one in (plain, products)]
    return products if counts[1] > counts[0] else plain


def _pairs(program: Program) -> list[tuple[str, ...]]:
    """Types of the factors of products, in either order."""
    return [
        pair
        for node in program.nodes
        if isinstance(node.op, Contract)
        for pair in permutations(program.nodes[arg].dtype for arg in node.args)
    ]


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
    return coarse.intersection(_pairs(unwidened(program)))
