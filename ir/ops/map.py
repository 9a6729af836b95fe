"""map: one scalar function on tiles that broadcast by axis name; and constants, iota, cast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ir.dtypes import NARROW, STEPPED, dtype_of, is_float, promote, rounded, within
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
from ir.propagation import converted, mapped
from ir.roundoff import ErrorModel
from ir.scalar import scalar_function


@dataclass(frozen=True, slots=True)
class Map:
    """Elementwise `function` (a row of `ir.scalar.FUNCTIONS`)."""

    function: str
    name: ClassVar[str] = "map"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        row = scalar_function(self.function)
        if len(args) != row.arity:
            raise ProgramError(f"{self.function}: {len(args)} operands, needs {row.arity}")
        axes = union_axes(args)
        if row.result == "bool":
            return TileType(axes, "bool")
        if row.result == "select":
            if args[0].dtype != "bool":
                raise ProgramError(f"{self.function}: the condition is {args[0].dtype}, not bool")
            return TileType(axes, promote(tuple(arg.dtype for arg in args[1:])))
        dtype = promote(tuple(arg.dtype for arg in args))
        if row.result == "float" and not is_float(dtype):
            dtype = "f32"
        return TileType(axes, dtype)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        axes = tuple(dict.fromkeys(axis for arg in args for axis in arg.axes))
        with np.errstate(all="ignore"):
            result = scalar_function(self.function).meaning(*(a.aligned(axes) for a in args))
        return TileArray(axes, result)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        return mapped(self.function, args, result, self.infer(types, env.scope).dtype, model)

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
        return TileArray((self.axis,), env.xp.asarray(env.coordinates[self.axis], dtype=np.int64))

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
