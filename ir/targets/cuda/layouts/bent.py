"""Accesses of loads whose indices bend back where they leave a tensor (`ir.bends`): neighbours are
read together, and points that meet read an element once; what lies beyond an end is looked up.
"""

from __future__ import annotations

from dataclasses import replace

from ir.bends import bends
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.layouts.access import Access, load_access


def plain_access(program: Program, position: int) -> Access:
    """A load's access, with sums of axes for indices that bend."""
    op = program.nodes[position].op
    assert isinstance(op, Load)
    access = load_access(op, program.scope.tensors[op.tensor])
    own = bends(program).get(position, {})
    dimensions = list(access.dimensions)
    for number, bend in own.items():
        terms, constant = tuple(bend.of.terms.items()), bend.of.constant
        old = dimensions[number]
        dimensions[number] = replace(old, terms=terms, constant=constant, gather=None, bent=True)
    return replace(access, dimensions=tuple(dimensions))
