"""What an author gives where a tile or a number belongs: taken as such, or refused in one line.

Knows no op.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

from ir.axes import described
from ir.dtypes import dtype_of, whole_range
from ir.errors import ProgramError
from ir.printable import shortened

if TYPE_CHECKING:
    from ir.tiles import Tile


def given_tile(what: str, value: Any) -> Tile:
    """`value`, which `what` takes a tile as."""
    from ir.tiles import Tile

    if isinstance(value, Tile):
        return value
    raise ProgramError(
        f"{what}: {shortened(described(value))} is no tile; inputs are, and g.constant(...) and "
        "g.coordinate(...) make one of a number and of an axis"
    )


def given_number(what: str, value: Any, dtype: str) -> float | int:
    """`value` as a number that dtype `dtype` has, but for the rounding of floats."""
    kind = dtype_of(dtype).kind
    shown = shortened(described(value))
    if not isinstance(value, Real):
        raise ProgramError(f"{what}: {shown} is no number")
    number: Any = value
    if kind == "float":
        try:
            return float(number)
        except OverflowError:
            raise ProgramError(f"{what}: {shown} has no room in {dtype}") from None
    if not math.isfinite(number) or number != int(number):
        raise ProgramError(f"{what}: {shown} is no whole number, which {dtype} holds")
    low, high = whole_range(dtype)
    if not low <= number <= high:
        raise ProgramError(f"{what}: {shown} has no room in {dtype}, which has {low} to {high}")
    return int(number)
