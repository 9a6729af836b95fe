"""An elementwise op on a device: its values and their errors in one pass over what it is made of.

What is computed is what `meaning` and `error` of the op say, of stand-ins for its operands; errors
have both parts as operands, whether there is any of them, so that a program's kernels are the same
whatever its inputs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ir.at_once import Formula, StandIn, Unknown, computed
from ir.ops.base import Amount, Array, Environment, Error, TileArray, TileType
from ir.ops.map import Cast, Map
from ir.propagation import both, is_none, settled
from ir.roundoff import ErrorModel


class Noting:
    """Stand-ins for operands, and the arrays that they stand for, side by side."""

    def __init__(self, axes: tuple[str, ...], library: Any) -> None:
        self.axes, self.library = axes, library
        self.formula = Formula()
        self.arrays: list[Array] = []
        self._known: dict[tuple[int, tuple[str, ...]], StandIn] = {}
        self._errors: dict[int, Error] = {}
        self._unformed: dict[int, TileArray] = {}

    def tile(self, tile: TileArray | Unformed) -> TileArray:
        """An operand, of stand-ins."""
        if isinstance(tile, Unformed):
            if id(tile) not in self._unformed:
                self._unformed[id(tile)] = self._computed(tile)
            return self._unformed[id(tile)]
        error = tile.error
        if error is not None:
            if id(error) not in self._errors:  # one value is one operand
                self._errors[id(error)] = Error(
                    self._amount(error.wide, tile.axes), self._amount(error.spread, tile.axes)
                )
            error = self._errors[id(error)]
        return TileArray(tile.axes, self._stand_in(tile.array, tile.axes), error)  # type: ignore[arg-type]

    def told(
        self, op: Map | Cast, args: Sequence[TileArray | Unformed], tiles: Sequence[TileArray],
        types: Sequence[TileType], environment: Environment, model: ErrorModel,
    ) -> tuple[TileArray, Error | None]:  # fmt: skip
        """As `told`; of an op by itself it is noted once, however often there are such operands."""
        if any(isinstance(arg, Unformed) for arg in args):
            return told(op, tiles, types, replace(environment, xp=np), model)
        names = tuple(
            (tile.axes, _named(tile.array), tile.error and _named(tile.error.wide),
             tile.error and _named(tile.error.spread))
            for tile in tiles
        )  # fmt: skip
        around = tuple(environment.floors), environment.rounds
        key = op, tuple(t.dtype for t in types), around, model, names
        if key not in _NOTED:
            found = told(op, tiles, types, replace(environment, xp=np), model)
            if len(_NOTED) >= _MOST:
                _NOTED.clear()
            _NOTED[key] = (tuple(self.formula.lines), *found)
        lines, exact, error = _NOTED[key]
        self.formula.lines = [*lines]
        return exact, error

    def _computed(self, tile: Unformed) -> TileArray:
        environment = replace(tile.environment, xp=np)
        args = [self.tile(arg) for arg in tile.args]
        exact, error = told(tile.op, args, tile.types, environment, tile.model)
        return TileArray(exact.axes, exact.array, error if tile.felt else None)

    def _amount(self, amount: Amount, axes: tuple[str, ...]) -> Any:
        if isinstance(amount, float):
            return self._stand_in(_constant(self.library, amount), ())
        return self._stand_in(amount, axes)

    def _stand_in(self, array: Array, axes: tuple[str, ...]) -> StandIn:
        key = id(array), axes
        if key not in self._known:
            if not array.ndim:  # a number of the host's would be taken for an address
                array = self.library.asarray(array)
            self.arrays.append(TileArray(axes, array).aligned(self.axes) if axes else array)
            self._known[key] = self.formula.stand_in(array)
        return self._known[key]


def _named(one: Any) -> tuple[str, str]:
    return one.kind, one.name


_NOTED: dict[Any, tuple[tuple[str, ...], TileArray, Error | None]] = {}
_MOST = 4096  # notes that are kept
_CONSTANTS: dict[tuple[str, float], Array] = {}


def _constant(library: Any, value: float) -> Array:
    """A number as an array on the device: there are few of them, no errors in the main."""
    key = library.__name__, value
    if key not in _CONSTANTS:
        if len(_CONSTANTS) > 256:
            _CONSTANTS.clear()
        _CONSTANTS[key] = library.asarray(value, dtype=np.float64)
    return _CONSTANTS[key]


@dataclass(frozen=True)
class Unformed:
    """An operand that is elementwise itself, and computed with the op that reads it: its op, its
    own operands and their types, whether it has an error, and what is known around it."""

    op: Map | Cast
    args: Sequence[TileArray | Unformed]
    types: Sequence[TileType]
    felt: bool
    environment: Environment
    model: ErrorModel

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(axis for arg in self.args for axis in arg.axes))


def meant_at_once(
    op: Map | Cast, args: Sequence[TileArray | Unformed], types: Sequence[TileType],
    environment: Environment, model: ErrorModel,
) -> tuple[TileArray, Error | None] | None:  # fmt: skip
    """The values of `op` and how far each may be off; None where stand-ins do not know the op, or
    the array library has no kernels of one's own."""
    if not hasattr(environment.xp, "RawKernel"):
        return None
    axes = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
    noting = Noting(axes, environment.xp)
    try:
        tiles = [noting.tile(arg) for arg in args]
        exact, error = noting.told(op, args, tiles, types, environment, model)
        return _computed(noting, exact, error)
    except Unknown:
        return None


def _computed(
    noting: Noting, exact: TileArray, error: Error | None
) -> tuple[TileArray, Error | None] | None:
    """What was noted, on the device."""
    amounts = () if error is None else (error.wide, error.spread)
    results = [one for one in (exact.array, *amounts) if isinstance(one, StandIn)]
    if not isinstance(exact.array, StandIn):
        return None
    arrays, some = computed(noting.formula, results, noting.arrays, noting.library)
    found = iter(zip(arrays, some, strict=True))
    values = TileArray(exact.axes, next(found)[0])
    if error is None:
        return values, None
    left = [_left(amount, found) for amount in amounts]
    return values, None if all(map(is_none, left)) else Error(*left)


def told(
    op: Map | Cast, args: Sequence[TileArray], types: Sequence[TileType], environment: Environment,
    model: ErrorModel,
) -> tuple[TileArray, Error | None]:  # fmt: skip
    """The values of `op`, and how far each may be off, by what the op says."""
    exact, unsaid = op.meaning(args, environment), None
    if isinstance(op, Map):
        exact, unsaid = settled(op.function, args, exact)
    error = op.error(args, types, exact, environment, model)
    if unsaid is not None:
        error = both(error, Error(np.where(unsaid, np.inf, 0.0)))
    return exact, error


def _left(amount: Any, found: Any) -> Amount:
    """An amount as it was computed; none where no element has any."""
    if not isinstance(amount, StandIn):
        return float(amount)
    array, some = next(found)
    return array if some else 0.0
