"""Kernels of programs that were tried before, in another place of a list of kernels.

Whether any schedule of a kernel can be lowered does not depend on what the program is called. Ways
to cut a program and places where values live have most kernels in common, by other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ir.errors import Refusal

MOST = 4096  # kernels that are remembered

K = TypeVar("K", bound=Any)  # a kernel: of a program, on a card
_known: dict[object, Refusal | None] = {}


def once(probe: Callable[[K], None]) -> Callable[[K], None]:
    """`probe`, which raises Refusal for a kernel that there is none of, not asked twice."""

    @wraps(probe)
    def remembered(kernel: K) -> None:
        program = kernel.program
        own = (program.extents, program.tensors, program.nodes, program.pins)
        key = (type(kernel), own, kernel.hardware, getattr(kernel, "formed", ()))
        if key not in _known:
            if len(_known) >= MOST:
                _known.clear()
            try:
                probe(kernel)
                _known[key] = None
            except Refusal as refusal:
                _known[key] = refusal.with_traceback(None)
        known = _known[key]
        if known is not None:
            raise known

    return remembered
