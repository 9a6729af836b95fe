"""scatter: combine the elements of a tile at computed positions of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ir.dtypes import compute_dtype, dtype_of, is_float, whole_range
from ir.errors import ProgramError
from ir.ops.base import Array, Environment, Error, Scope, TileArray, TileType, volume
from ir.ops.load import Index
from ir.ops.read import is_itself
from ir.propagation import both, reach
from ir.propagation_sums import accumulated
from ir.reduced import every
from ir.roundoff import ErrorModel
from ir.scalar import COMBINES

KINDS = ("sum", "max", "min", "or")


@dataclass(frozen=True, slots=True)
class Scatter:
    """The tile over `axes` of which each element combines what is sent there.

    The first argument's element at a point is sent to `index` there, one index for each of `axes`;
    the other arguments are index tiles. What is sent outside is dropped. Where nothing is sent the
    result is the identity of `kind`: 0, or the lowest or the highest number, or false.
    """

    kind: str
    axes: tuple[str, ...]
    index: tuple[Index, ...]
    name: ClassVar[str] = "scatter"

    def infer(self, args: Sequence[TileType], scope: Scope) -> TileType:
        what = f"scatter {self.kind}"
        if self.kind not in KINDS:
            raise ProgramError(f"{what}: unknown kind: known are {', '.join(KINDS)}")
        if len(self.index) != len(self.axes) or len(set(self.axes)) != len(self.axes):
            raise ProgramError(f"{what}: {len(self.index)} indices for axes {self.axes}")
        if not args:
            raise ProgramError(f"{what}: nothing to scatter")
        for axis, index in zip(self.axes, self.index, strict=True):
            self._check(axis, index, args, scope)
        if (args[0].dtype == "bool") != (self.kind == "or"):
            raise ProgramError(
                f"{what}: of {args[0].dtype}; or is for bool, the others for numbers"
            )
        return TileType(self.axes, compute_dtype(args[0].dtype))

    def _check(self, axis: str, index: Index, args: Sequence[TileType], scope: Scope) -> None:
        what = f"scatter {self.kind} to {axis}"
        if axis not in scope.extents:
            raise ProgramError(f"{what}: unknown axis")
        for name, _ in index.terms:
            if name not in scope.extents:
                raise ProgramError(f"{what}: unknown axis {name!r}")
        index.refuse_far(what, scope)
        if index.gather is not None:
            if not 0 < index.gather < len(args):
                raise ProgramError(f"{what}: no argument {index.gather}")
            if dtype_of(args[index.gather].dtype).kind not in ("int", "uint"):
                raise ProgramError(
                    f"{what}: the index tile is {args[index.gather].dtype}, not whole"
                )

    def sources(self, args: Sequence[TileType]) -> tuple[str, ...]:
        """The axes of the points that are sent."""
        found = dict.fromkeys(axis for arg in args for axis in arg.axes)
        found.update(dict.fromkeys(axis for index in self.index for axis, _ in index.terms))
        return tuple(found)

    @property
    def owned(self) -> frozenset[str]:
        """The axes of which each point is sent to itself."""
        pairs = zip(self.axes, self.index, strict=True)
        return frozenset(axis for axis, index in pairs if is_itself(axis, index))

    def sent_along(self, args: Sequence[TileType]) -> tuple[str, ...]:
        """The axes of the points that are sent of which a part may be sent by itself."""
        return tuple(axis for axis in self.sources(args) if axis not in self.axes)

    def meaning(self, args: Sequence[TileArray], env: Environment) -> TileArray:
        return TileArray(self.axes, self._received(args, env))

    def _received(self, args: Sequence[TileArray], env: Environment) -> Array:
        return self._combined(self._sent(args, env), env)

    def _combined(self, sent: _Sent, env: Environment) -> Array:
        shape = tuple(len(env.coordinates[axis]) for axis in self.axes)
        dtype = compute_dtype(env.types[0].dtype) if env.types else "f64"
        result = env.xp.full(shape, nothing_sent(self.kind, dtype), dtype=sent.value.dtype)
        return sent.into(result, self.kind, sent.value)

    def _sent(self, args: Sequence[TileArray], env: Environment) -> _Sent:
        """Elements, their positions and whether these are inside."""
        axes = self.sources([TileType(arg.axes, "i64") for arg in args])
        shape = tuple(len(env.coordinates[axis]) for axis in axes)
        inside: Array = env.xp.ones(shape, dtype=bool)
        places = []
        for axis, index in zip(self.axes, self.index, strict=True):
            position: Array = env.xp.full((1,) * len(axes), index.constant, dtype=np.int64)
            for name, coefficient in index.terms:
                tile = TileArray((name,), env.points(name))
                position = position + coefficient * tile.aligned(axes)
            if index.gather is not None:
                position = position + args[index.gather].aligned(axes).astype(np.int64)
            extent = len(env.coordinates[axis])
            if is_itself(axis, index):  # of these there may be some of the coordinates only
                position = TileArray((axis,), env.xp.arange(extent)).aligned(axes)
            inside = inside & (position >= 0) & (position < extent)
            places.append(env.xp.broadcast_to(env.xp.clip(position, 0, extent - 1), shape))
        value = env.xp.broadcast_to(args[0].aligned(axes), shape)
        return _Sent(value, axes, tuple(places), inside)

    def error(
        self, args: Sequence[TileArray], types: Sequence[TileType], result: TileArray,
        env: Environment, model: ErrorModel,
    ) -> Error | None:  # fmt: skip
        """Of a sum by the number of its terms, and by those whose one index is in doubt, at each
        place where they may be; any other index in doubt leaves the whole in doubt."""
        return self.share(args, types, env, result).error(types, model)

    def share(
        self, args: Sequence[TileArray], types: Sequence[TileType], env: Environment,
        result: TileArray | None = None,
    ) -> Share:  # fmt: skip
        """What comes of the points that are sent here, and all that its error follows from; of
        those of parts of an axis the shares are joined. `result` is its values, if they are known.
        """
        points = self._sent(args, env)
        found = self._combined(points, env) if result is None else result.array
        moved = self._moved(args, points, found, env)
        value = points.value
        own, floats = args[0].error_over(points.axes), is_float(compute_dtype(types[0].dtype))

        def sent(kind: str, amount: Any) -> Array:
            whole = env.xp.broadcast_to(env.xp.asarray(amount, dtype=np.float64), value.shape)
            return points.into(env.xp.zeros(found.shape), kind, whole)

        if self.kind != "sum":
            return Share(self, found, moved, wide=None if own is None else sent("max", reach(own)))
        return Share(
            self, found, moved,
            squares=sent("sum", np.square(value)) if floats else None,
            terms=sent("sum", 1.0) if floats else None,
            wide=None if own is None else sent("sum", own.wide),
            spread=None if own is None else sent("sum", own.spread),
        )  # fmt: skip

    def _moved(
        self, args: Sequence[TileArray], sent: _Sent, result: Array, env: Environment
    ) -> Array | None:
        """How much may come to each place, or go, with elements whose index is in doubt; None
        where none is."""
        told = [
            (dim, one.gather) for dim, one in enumerate(self.index)
            if one.gather is not None and _in_doubt(args[one.gather].error)
        ]  # fmt: skip
        if not told:
            return None
        if self.kind != "sum" or len(told) != 1:
            anything: Array = env.xp.full(result.shape, np.inf)
            return anything
        ((dim, argument),) = told
        value, axes, places = sent.value, sent.axes, sent.places
        doubt, own = args[argument].error_over(axes), args[0].error_over(axes)
        assert doubt is not None
        amount = np.abs(value) + (0.0 if own is None else reach(own))
        far = env.xp.broadcast_to(reach(doubt), value.shape)
        last = result.shape[dim] - 1
        far = np.ceil(np.minimum(far, float(last + 1))).astype(np.int64)
        shape = tuple(n + (d == dim) for d, n in enumerate(result.shape))
        ends = (places[dim] - far, 1.0), (np.minimum(places[dim] + far, last) + 1, -1.0)
        found: Array = env.xp.zeros(shape)
        for end, sign in ends:
            at = (*places[:dim], np.maximum(end, 0), *places[dim + 1 :])
            found = _Sent(value, axes, at, far > 0).into(found, "sum", sign * amount)
        inner = (slice(None),) * dim + (slice(0, last + 1),)
        total: Array = np.maximum(np.cumsum(found, axis=dim)[inner], 0.0)
        return total

    def flops(self, args: Sequence[TileType], result: TileType, scope: Scope) -> int:
        return volume(scope, self.sources(args))


@dataclass(frozen=True)
class _Sent:
    """Elements over `axes`, their positions along each axis of the result, and which are inside."""

    value: Array
    axes: tuple[str, ...]
    places: tuple[Array, ...]
    inside: Array

    def _flat(self, shape: tuple[int, ...]) -> Array:
        """Where each element inside goes, as places of a result of a shape are counted together;
        found once, all results being of one shape."""
        if shape not in self._known:
            found: Any = 0
            for place, extent in zip(self.places, shape, strict=True):
                found = found * extent + place
            self._known[shape] = self._left(found)
        return self._known[shape]

    @cached_property
    def _known(self) -> dict[tuple[int, ...], Array]:
        return {}

    @cached_property
    def _all(self) -> bool:
        return every(self.inside)

    def _left(self, array: Array) -> Array:
        """Of the elements inside, one after the other."""
        left: Array = array.reshape(-1) if self._all else array[self.inside]
        return left

    def into(self, result: Array, kind: str, value: Array) -> Array:
        """`result`, in which a value of each element inside is combined; in place."""
        if kind != "or":
            _combine(kind, result.reshape(-1), self._flat(result.shape), self._left(value))
            return result
        found = self.inside & (value != 0)
        result[tuple(place[found] for place in self.places)] = True
        return result


@dataclass(frozen=True, slots=True)
class Share:
    """What some of the points that are sent come to at each place, and what its error follows from:
    the squares and the number of terms, how far other places' may come to it, and their own."""

    op: Scatter
    array: Array
    moved: Array | None = None
    squares: Array | None = None
    terms: Array | None = None
    wide: Array | None = None
    spread: Array | None = None

    def joined(self, other: Share) -> Share:
        """Both together."""
        kind = self.op.kind
        within = {"sum": np.add, "or": np.logical_or, "max": np.maximum, "min": np.minimum}[kind]
        beside = np.add if kind == "sum" else np.maximum

        def of(mine: Array | None, others: Array | None) -> Array | None:
            if mine is None or others is None:
                return others if mine is None else mine
            found: Array = beside(mine, others)
            return found

        return Share(
            self.op, within(self.array, other.array), of(self.moved, other.moved),
            of(self.squares, other.squares), of(self.terms, other.terms),
            of(self.wide, other.wide), of(self.spread, other.spread),
        )  # fmt: skip

    def error(self, types: Sequence[TileType], model: ErrorModel) -> Error | None:
        """How far a right kernel may be off at each place."""
        found = None
        if self.squares is not None and self.terms is not None:
            dtype = compute_dtype(types[0].dtype)
            with np.errstate(all="ignore"):
                root = np.sqrt(self.squares)
            way = model.accumulation(dtype, dtype, dtype)
            found = accumulated(root, np.abs(self.array), self.terms, way, runs=False)
        moved = None if self.moved is None else Error(self.moved)
        if self.op.kind != "sum":
            return moved or (None if self.wide is None else Error(self.wide))
        found = both(found, moved) if moved is not None else found
        if self.wide is None or self.spread is None:
            return found
        return both(found, Error(self.wide, self.spread))


def nothing_sent(kind: str, dtype: str) -> float | int | bool:
    """What is where nothing is sent, of a scatter in compute type `dtype`."""
    if kind == "or":
        return False
    identity = COMBINES[kind].identity
    if dtype not in ("i32", "i64") or identity in (0.0, 1.0):
        return identity
    low, high = whole_range(dtype)
    return low if identity < 0 else high


def _in_doubt(error: Error | None) -> bool:
    """Whether any index may be another."""
    return error is not None and bool(np.any(reach(error) > 0))


def _combine(kind: str, result: Array, at: Array, value: Array) -> None:
    """Combine elements at places of a row, in place and in their order."""
    function = COMBINES[kind].meaning
    if hasattr(result, "get"):  # an array of a device, whose library scatters by functions
        import importlib

        library = importlib.import_module(type(result).__module__.partition(".")[0])
        function = getattr(library, function.__name__)
        if kind != "sum" and value.dtype == np.float64:
            extremes(library, kind, result, (at,), value)
            return
    elif kind == "sum" and result.dtype == np.float64:
        result += np.bincount(at, value, result.size)
        return
    function.at(result, at, value)


def extremes(xp: Any, kind: str, result: Array, at: tuple[Array, ...], value: Array) -> Array:
    """As `minimum.at` (`maximum.at`) of float64, in place, by whole numbers in the same order:
    CuPy's own compare them as float32. NaN stays."""
    sign = -1.0 if kind == "min" else 1.0
    keys = _ordered(xp, sign * result)
    xp.maximum.at(keys, at, _ordered(xp, sign * value))
    result[...] = sign * _turned(xp, keys).view(np.float64)
    return result


def _ordered(xp: Any, value: Array) -> Array:
    """Whole numbers in the order of floats; that of NaN is the largest."""
    return _turned(xp, xp.where(value != value, np.nan, value).view(np.int64))


def _turned(xp: Any, bits: Array) -> Array:
    """Negative floats have a larger number the smaller they are: all bits but the sign's turned."""
    turned: Array = xp.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return turned
