"""Loops of plain kernels that add up and do nothing else: in whatever order. Knows no target."""

from __future__ import annotations

from ir.plain.code import Assign, Call, Convert, Element, Let, Loop, Name, Scalar

EXTREMES = ("max", "min")  # which may have what they begin with in every part


def is_sum(loop: Loop) -> bool:
    """Whether iterations only add to variables of floats, each by what it finds itself."""
    sums = {s.name.name for s in loop.body if isinstance(s, Assign)}
    return bool(sums) and all(
        (isinstance(s, Let) and not sums & {*names_of(s.value)})
        or (isinstance(s, Assign) and _adds(s, sums))
        for s in loop.body
    )  # fmt: skip


def is_combined(loop: Loop) -> bool:
    """The same, where variables may also become the larger, or the smaller, of themselves and what
    an iteration finds."""
    sums = {s.name.name for s in loop.body if isinstance(s, Assign)}
    return bool(sums) and all(
        (isinstance(s, Let) and not sums & {*names_of(s.value)})
        or (isinstance(s, Assign) and _adds(s, sums, ("add", *EXTREMES)))
        for s in loop.body
    )  # fmt: skip


def _adds(s: Assign, sums: set[str], functions: tuple[str, ...] = ("add",)) -> bool:
    value = s.value
    return (
        isinstance(value, Call) and value.function in functions and value.args[0] == s.name
        and s.name.dtype in ("f32", "f64") and not sums & {*names_of(value.args[1])}
    )  # fmt: skip


def names_of(scalar: Scalar) -> list[str]:
    """Variables in a scalar."""
    if isinstance(scalar, Name):
        return [scalar.name]
    if isinstance(scalar, Call):
        return [name for arg in scalar.args for name in names_of(arg)]
    if isinstance(scalar, Convert):
        return names_of(scalar.arg)
    return names_of(scalar.index) if isinstance(scalar, Element) else []
