"""In which ways a program may be cut into kernels, the best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ir.program import Program
from ir.targets.cuda.build.cut import cut_program


def partitions(
    program: Program, engine: str, taken: frozenset[str], ways: tuple[Mapping[str, Any], ...]
) -> Iterator[tuple[Mapping[str, Any], tuple[Program, ...]]]:
    """Parts of a program, cut in each of `ways` (arguments of `cut_program`); ahead of each those
    with statistics of the same rows in one kernel, where there are such."""
    for way in ways:
        parts = cut_program(program, engine=engine, taken=taken, **way)
        if len(parts) > 2:
            fewer = cut_program(program, engine=engine, taken=taken, together=True, **way)
            if len(fewer) < len(parts):
                yield way, fewer
        yield way, parts
