"""What the steps of a loop read of inputs, asked for a step ahead: lines of memory enter L2.

A step waits for what it reads, and the next one only begins behind it. Where a place moves with the
step and else with loops of known extent alone, the lines of the next step are known before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.plain.accesses import every, nested, scalars_of
from ir.plain.code import Element, Let, Loop, Name, Number, PlainKernel, Scalar, Spread, Statement
from ir.plain.jammed import scalar
from ir.plain.scalars import rebuilt
from ir.plain.strides import Walk, elements
from ir.plain.sums import names_of

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText

LINE = 128  # bytes
_MOST = 1 << 16  # lines of a step, beyond which they are not asked for

Variables = tuple[tuple[Name, int], ...]


@dataclass(frozen=True, slots=True)
class Ahead:
    """The lines of one read in a step: at all `points`, of which the last one goes by `unit`."""

    element: Element
    points: Variables
    unit: int

    @property
    def count(self) -> int:
        extents = [extent for _, extent in self.points]
        return prod(extents[:-1]) * -(-extents[-1] // self.unit)


def ahead_of(kernel: PlainKernel, loop: Loop) -> tuple[Ahead, ...]:
    """The lines that a step of a loop reads, of inputs whose place moves with it; each once."""
    inputs = {spec.name for spec in kernel.tensors if spec.role == "input"}
    sizes = {a.name: dtype_of(a.dtype).bytes for a in kernel.arrays if a.name in inputs}
    outside = {name.name for name, _ in kernel.points}
    found: dict[object, Ahead] = {}
    for spread in (s for s in loop.body if isinstance(s, Spread)):
        for element, variables in _reads(spread.body, spread.variables):
            known = {*outside, loop.variable.name, *(name.name for name, _ in variables)}
            if element.array not in sizes or not {*names_of(element.index)} <= known:
                continue
            strides = {
                name.name: Walk(name.name, {}).stride(element.index)
                for name in (loop.variable, *(name for name, _ in variables))
            }
            moves = strides.pop(loop.variable.name)
            if not moves or None in strides.values():
                continue
            one = _lines(element, variables, strides, sizes[element.array])
            if one is not None and one.count <= _MOST:
                found.setdefault(_like(one, loop, strides), one)
    return tuple(found.values())


def _reads(
    statements: Iterable[Statement], around: Variables
) -> Iterator[tuple[Element, Variables]]:
    """Reads in a shared loop, with the variables of the loops around them; what variables were
    defined as stands in their place."""
    lets: dict[Scalar, Scalar] = {}
    for s in statements:
        for value in scalars_of(s):
            yield from ((e, around) for e in elements((rebuilt(value, lets.get),)))
        if isinstance(s, Let):
            lets[s.name] = rebuilt(s.value, lets.get)
        more = (*around, (s.variable, s.extent)) if isinstance(s, Loop) else around
        for block in nested(s):
            yield from _reads(block, more)


def _lines(
    element: Element, variables: Variables, strides: dict[str, int | None], size: int
) -> Ahead | None:
    """Along what lies side by side a line at a time, else each element; None where all is one."""
    own = [(name, extent) for name, extent in variables if strides[name.name]]
    if not own:
        return None
    last = next((entry for entry in own if strides[entry[0].name] == 1), own[-1])
    rest = [entry for entry in own if entry != last]
    return Ahead(element, (*rest, last), LINE // size if strides[last[0].name] == 1 else 1)


def _like(one: Ahead, loop: Loop, strides: dict[str, int | None]) -> object:
    """What two reads share that are of the same lines: the first place, and how they go on."""
    zero: dict[Scalar, Scalar] = {name: Number(0, "i64") for name, _ in one.points}
    walks = sorted((strides[name.name] or 0, extent) for name, extent in one.points)
    return one.element.array, rebuilt(one.element.index, zero.get), tuple(walks)


def ask_ahead(text: PlainText, loop: Loop) -> None:
    """Write what asks for the lines of the step behind this one, by all threads of a block."""
    found = ahead_of(text.kernel, loop)
    if not found or text.group is None:
        return
    w, here = text.w, text.names[loop.variable.name]
    then = Name(text.names.new("then"))
    step = f"{here} - 1" if loop.backward else f"{here} + 1"
    inside = f"{here} > 0" if loop.backward else f"{step} < {loop.extent}"
    with w.block(f"if ({inside})"):
        w.line(f"const i64 {text.names[then.name]} = {step};")
        for one in found:
            at = text.names.fresh("at")
            head = f"for (i32 {at} = thread; {at} < {one.count}; {at} += {text.group.threads})"
            with w.block(head):
                (name, extent), rest = one.points[-1], one.points[:-1]
                short = Name(text.names.new("line"))
                lines = (short, -(-extent // one.unit))
                text.coordinates((*rest, lines), at)
                w.line(
                    f"const i64 {text.names[name.name]} = {text.names[short.name]} * {one.unit};"
                )
                index = scalar(one.element.index, {loop.variable.name: then.name})
                place = f"{text.names[one.element.array]} + {text.scalars.text(index)}"
                w.line(f"tw_prefetch({place});")


def asks(kernel: PlainKernel) -> bool:
    """Whether there is anything that a block could ask for ahead."""
    loops = (s for s in every(kernel.body) if isinstance(s, Loop))
    return kernel.cooperative and any(ahead_of(kernel, loop) for loop in loops)
