"""map: one scalar function on tiles that broadcast by axis name; and constants, iota, cast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ir.dtypes import NARROW, STEPPED, dtype_of, is_float, rounded, within
from ir.errors import ProgramError
from ir.ops.base import (
    Environment,
    Error,
    Scope,
    TileArray,
    TileType,
    union_axes,
    volume,
)
from ir.propagation import converted, mapped, widened
from ir.roundoff import ErrorModel
from ir.scalar import scalar_function
from ir.wholes import refuse_bitcast, refuse_table, table_of


@dataclass(frozen=True, slots=True)
class Map:
    """Elementwise `function` (a row of `ir.scalar.FUNCTIONS`).

    `dtype` is that of a bitcast and of the entries of a lookup, `table` these entries.
    """

    function: str
    dtype: str | None = None
    table: tuple[float, ...] | None = None
    name: ClassVar[str] = "map"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        row = scalar_function(self.function)
        if len(args) != row.arity:
            raise ProgramError(f"{self.function}: {len(args)} operands, needs {row.arity}")
        types = [arg.dtype for arg in args]
        self._refuse(types)
        return TileType(union_axes(args), self._result(types))

    def _result(self, types: Sequence[str]) -> str:
        row = scalar_function(self.function)
        if self.dtype is not None:
            return self.dtype
        return row.operand(types) if row.result in ("promote", "select", "float") else row.result

    def _refuse(self, types: Sequence[str]) -> None:
        """Raises ProgramError for operands or attributes that the function does not take."""
        row = scalar_function(self.function)
        if row.result == "select" and types[0] != "bool":
            raise ProgramError(f"{self.function}: the condition is {types[0]}, not bool")
        for number, dtype in enumerate(types):
            if row.is_whole and is_float(dtype):
                raise ProgramError(
                    f"{self.function}: operand {number} is {dtype}; it takes whole numbers, which "
                    'cast(x, "i32") makes'
                )
        if self.function == "lookup":
            refuse_table(self.table, self.dtype)
        elif self.function == "bitcast":
            refuse_bitcast(types[0], self.dtype)
        elif self.dtype is not None:
            raise ProgramError(f"{self.function}: a dtype belongs to lookup and bitcast alone")
        if self.table is not None and self.function != "lookup":
            raise ProgramError(f"{self.function}: a table belongs to lookup alone")

    def operand(self, types: Sequence[str]) -> str:
        """The dtype that operands of `types` are converted to, but for a choice's condition."""
        return (
            types[0]
            if self.function == "bitcast"
            else scalar_function(self.function).operand(types)
        )

    @property
    def entries(self) -> tuple[float, ...]:
        """The table's entries as their dtype has them."""
        assert self.table is not None
        assert self.dtype is not None
        return table_of(self.table, self.dtype)

    def numpy(
        self, types: Sequence[str], meaning: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """The meaning on arrays of operands of `types`; `meaning` stands for the row's."""
        row = scalar_function(self.function)
        meaning = meaning or row.meaning
        if self.function == "lookup":
            return partial(meaning, table=self.table, dtype=self.dtype)
        if self.function == "bitcast":
            return partial(meaning, source=types[0], target=self.dtype)
        return partial(meaning, dtype=row.operand(types)) if row.typed else meaning

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        axes = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
        function = self.numpy([kind.dtype for kind in env.types])
        arrays = [a.aligned(axes) for a in args]
        if scalar_function(self.function).result == "float":  # of truth values numpy's are narrow
            arrays = [a.astype(np.float64) if a.dtype.kind == "b" else a for a in arrays]
        with np.errstate(all="ignore"):
            result = function(*arrays)
        return TileArray(axes, result)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        names = [kind.dtype for kind in types]
        dtype, begins = self._result(names), int(scalar_function(self.function).result == "select")
        args = [*args[:begins], *(widened(arg, self.operand(names)) for arg in args[begins:])]
        return mapped(self.function, args, result, dtype, model, self.numpy(names), env.floors)

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return scalar_function(self.function).flops * volume(scope, result.axes)


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar constant of the given dtype."""

    value: float
    dtype: str = "f32"
    name: ClassVar[str] = "constant"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        return TileType((), dtype_of(self.dtype).name)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        kind = np.float64 if is_float(self.dtype) else np.int64
        return TileArray((), env.xp.asarray(self.value, dtype=kind))

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return None

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Iota:
    """The coordinate along an axis, as i32."""

    axis: str
    name: ClassVar[str] = "iota"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        if self.axis not in scope.extents:
            raise ProgramError(f"iota: unknown axis {self.axis!r}")
        return TileType((self.axis,), "i32")

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return TileArray((self.axis,), env.points(self.axis).astype(np.int64, copy=False))

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return None

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion to `dtype`. The oracle rounds to integers and floats of few numbers only, what
    others round is an error; but what `dtype` has no room for is infinite, or its largest number.
    """

    dtype: str
    name: ClassVar[str] = "cast"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        try:
            return TileType(args[0].axes, dtype_of(self.dtype).name)
        except ProgramError as error:
            raise ProgramError(f"cast: {error}") from None

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        array = args[0].array
        rounds = env.rounds and self.dtype in NARROW and array.dtype.kind == "f"
        if rounds or self.dtype in STEPPED:
            array = rounded(array, self.dtype)
        return TileArray(args[0].axes, within(array, self.dtype))

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return converted(args[0], result, types[0].dtype, self.dtype)

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return 0
