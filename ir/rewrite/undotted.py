"""Names without dots, for texts in which a dot means something: `up.weight` is `up_weight` there.

Kernels are generated of such programs; what callers pass keeps the names that it was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from ir.kernel.compiled import Kernel
from ir.program import Program
from ir.rewrite.cutting import fresh
from ir.text import parse, to_text

_TOKEN = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*")


def undotted(program: Program) -> Program:
    """The program with other names for axes and tensors that have dots in theirs."""
    return _renamed(program) if _safe(program) else program


@lru_cache(maxsize=64)
def _renamed(program: Program) -> Program:
    safe = _safe(program)
    return parse(_TOKEN.sub(lambda found: safe.get(found[0], found[0]), to_text(program)))


@lru_cache(maxsize=256)
def _safe(program: Program) -> Mapping[str, str]:
    """A name without dots, that none has, for each that has some."""
    names = [*program.axes, *(spec.name for spec in program.tensors)]
    taken, dotted = {*names}, dict.fromkeys(name for name in names if "." in name)
    return MappingProxyType({name: fresh(name.replace(".", "_"), taken) for name in dotted})


def as_named(kernel: Kernel, program: Program) -> Kernel:
    """The kernel of an undotted program with the names that `program` has for its tensors."""
    names = {safe: name for name, safe in _safe(program).items()}
    if not names:
        return kernel
    old = kernel.text("launch")
    plan = json.loads(old)
    for launch in plan["kernels"]:
        for parameter in launch["parameters"]:
            parameter["argument"] = names.get(parameter["argument"], parameter["argument"])
    new = json.dumps(plan, separators=(",", ":"))
    return replace(
        kernel,
        arguments=tuple(replace(a, name=names.get(a.name, a.name)) for a in kernel.arguments),
        texts=tuple((kind, text.replace(old, new)) for kind, text in kernel.texts),
    )
