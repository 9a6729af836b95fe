"""What the values of an input may be: a few distributions that an author names, as data.

Random inputs, the check and the measurements use them. Along the last dimension where a kind speaks
of rows. Drawn alike on every array library (`ir.draws`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ir.draws import Draws, Recipe, normal_recipe
from ir.dtypes import dtype_of, from_float, is_float, numpy_dtype, whole_range
from ir.errors import ProgramError
from ir.ops.base import Array, TensorSpec

_FINE = 1 << 20  # parts of a random step, so that sums of steps are exact
_NUMBER = "a number"

Number = int | float


@dataclass(frozen=True, slots=True)
class Values:
    """A kind of values with its numbers, such as `uniform(0, 0.1)`."""

    kind: str
    numbers: tuple[Number, ...] = ()

    def __post_init__(self) -> None:
        row = _kind(self.kind)
        if not row.fewest <= len(self.numbers) <= len(row.names):
            wanted = ", ".join(row.names) or "nothing"
            raise ProgramError(f"values {self.kind}: {len(self.numbers)} numbers; takes {wanted}")
        for name, number in zip(row.names, self.numbers, strict=False):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ProgramError(f"values {self.kind}: {name} is {number!r}, not {_NUMBER}")
            if not math.isfinite(number):
                raise ProgramError(f"values {self.kind}: {name} is {number}, not finite")

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{number!r}' for number in self.numbers)})"

    def number(self, name: str, default: Number = 0) -> Number:
        """The number called `name`, or `default` where it was left out."""
        place = _kind(self.kind).names.index(name)
        return self.numbers[place] if place < len(self.numbers) else default

    def check(self, spec: TensorSpec) -> None:
        """Raises ProgramError where a tensor of that type and shape cannot have such values."""
        row = _kind(self.kind)
        have = "float" if is_float(spec.element) else "int"
        if row.of not in ("any", have):
            raise ProgramError(f"input {spec.name}: {self} are {row.of}s, and it is {spec.element}")
        if row.rows and not spec.shape:
            raise ProgramError(f"input {spec.name}: {self} need a dimension, and it is a scalar")
        why = _impossible(self, spec)
        if why:
            raise ProgramError(f"input {spec.name}: {self} {why}")

    def draw(self, spec: TensorSpec, draws: Draws) -> Array:
        """Such values for the tensor, in storage dtype, on the arrays of `draws.xp`."""
        self.check(spec)
        return _kind(self.kind).draw(self, spec, draws)


@dataclass(frozen=True, slots=True)
class _Kind:
    names: tuple[str, ...]
    fewest: int
    of: str  # "any" | "float" | "int"
    rows: bool
    draw: Callable[[Values, TensorSpec, Draws], Array]


def _impossible(values: Values, spec: TensorSpec) -> str:
    """Why there are no such values for the tensor, or ''."""
    named = dict(zip(_kind(values.kind).names, values.numbers, strict=False))
    if named.get("low", -math.inf) > named.get("high", math.inf):
        return "has its ends the wrong way round"
    if named.get("extent", 1) < 1:
        return "leaves no index; an extent is at least 1"
    if not 0 <= named.get("least", 0) <= named.get("most", math.inf):
        return "needs 0 <= least <= most"
    negative = [name for name in ("skew", "total", "rate") if named.get(name, 0) < 0]
    if negative:
        return f"has a {negative[0]} below 0"
    if values.kind == "near_identity" and len(spec.shape) < 2:
        return f"is for matrices; it has {spec.shape}"
    return "" if is_float(spec.element) else _outside(named, spec.element)


def _outside(named: Mapping[str, Number], dtype: str) -> str:
    """Why an integer dtype lacks one of the numbers that values may be, or ''."""
    ends = [named[name] for name in ("low", "high", "value", "most", "total") if name in named]
    ends += [named["extent"] - 1] if "extent" in named else []
    low, high = whole_range(dtype)
    found = [end for end in ends if not low <= end <= high]
    return f"has {found[0]}; {dtype} has {low} to {high}" if found else ""


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise ProgramError(f"unknown values {name!r}: known are {', '.join(_KINDS)}")
    return _KINDS[name]


def _stored(array: Array, dtype: str) -> Array:
    """Exact numbers in storage; on another library's arrays narrow floats are rounded there."""
    return from_float(array, dtype) if is_float(dtype) else array.astype(numpy_dtype(dtype))


def _elementwise(spec: TensorSpec, draws: Draws, recipe: Recipe) -> Array:
    return draws.array(
        spec.shape, spec.dtype,
        lambda d, start, count: _stored(recipe(d, start, count), spec.dtype),
    )  # fmt: skip


def _uniform(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    low, high = values.numbers
    if is_float(spec.dtype):
        return _elementwise(spec, draws, lambda d, s, n: low + d.uniform(s, n) * (high - low))
    return _elementwise(spec, draws, lambda d, s, n: d.whole(int(low), int(high), s, n))


def _normal(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    scale, mean = values.number("scale", 1.0), values.number("mean", 0.0)
    if scale == 1 and mean == 0:
        return draws.array(spec.shape, spec.dtype, normal_recipe(spec.dtype))
    return _elementwise(spec, draws, lambda d, s, n: d.normal(s, n, True) * scale + mean)


def _positive(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    scale = values.number("scale", 1.0)
    return _elementwise(
        spec, draws, lambda d, s, n: np.abs(d.normal(s, n, True)) * scale + scale * 2.0**-10
    )


def _decay(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    rate = values.number("rate", 1.0)
    return _elementwise(spec, draws, lambda d, s, n: d.uniform(s, n) * -rate)


def _constant(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    (number,) = values.numbers
    return _elementwise(spec, draws, lambda d, s, n: d.xp.full(n, number))


def _indices(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    extent = int(values.number("extent"))
    skew = int(values.number("skew"))
    return _elementwise(spec, draws, lambda d, s, n: _skewed(d, s, n, extent - 1, skew))


def _lengths(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    most, least = int(values.number("most")), int(values.number("least"))
    skew = int(values.number("skew"))
    return _elementwise(spec, draws, lambda d, s, n: _skewed(d, s, n, most - least, skew) + least)


def _skewed(draws: Draws, start: int, count: int, most: int, skew: int) -> Array:
    """Integers from 0 to `most`; with a `skew` the small ones are more frequent."""
    share = draws.uniform(start, count)
    power = share
    for _ in range(skew):
        power = power * share
    found: Array = np.minimum(np.floor(power * (most + 1)), most).astype(np.int64)
    return found


def _rows(spec: TensorSpec) -> tuple[int, int]:
    return math.prod(spec.shape[:-1]), spec.shape[-1]


def _steps(draws: Draws, rows: int, columns: int) -> Array:
    """Random integers from 0 to 2**20 - 1, a row of them for each row."""
    return (
        (draws.bits(32, 0, rows * columns) >> np.uint32(12)).astype(np.int64).reshape(rows, columns)
    )


def _ascending(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    low, high = values.numbers
    steps = _steps(draws, *_rows(spec))
    steps.sort(axis=-1)
    if is_float(spec.dtype):
        found = low + steps * ((high - low) / _FINE)
    else:
        found = int(low) + steps * (int(high) - int(low) + 1) // _FINE
    return _stored(found, spec.dtype).reshape(spec.shape)


def _prefix_sums(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    low, high = values.numbers
    steps = _steps(draws, *_rows(spec))
    if not is_float(spec.dtype):
        steps = int(low) + steps * (int(high) - int(low) + 1) // _FINE
        return _stored(steps.cumsum(axis=-1), spec.dtype).reshape(spec.shape)
    sums = steps.cumsum(axis=-1) * ((high - low) / _FINE)  # of integers, so in any order the same
    count = draws.xp.arange(1, spec.shape[-1] + 1, dtype=np.int64)
    return _stored(sums + count * low, spec.dtype).reshape(spec.shape)


def _probabilities(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    steps = _steps(draws, *_rows(spec)) + 1
    return _stored(steps / steps.sum(axis=-1, keepdims=True), spec.dtype).reshape(spec.shape)


def _permutation(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    rows, columns = _rows(spec)
    keys = draws.bits(64, 0, rows * columns).reshape(rows, columns)
    return _stored(keys.argsort(axis=-1), spec.dtype).reshape(spec.shape)


def _offsets(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    """From 0 to `total`, with random distances; a `skew` makes a few of them large."""
    total, skew = int(values.number("total")), int(values.number("skew"))
    rows, columns = _rows(spec)
    found = draws.xp.zeros((rows, columns), dtype=np.int64)
    if columns > 1:
        weights = _skewed(draws, 0, rows * (columns - 1), _FINE, skew).reshape(rows, columns - 1)
        most = (_FINE + 1) * (columns - 1)  # whose product with the total has room in 63 bits
        sums = (weights + 1).cumsum(axis=-1) >> max(0, most.bit_length() + total.bit_length() - 63)
        found[:, 1:] = sums * total // sums[:, -1:]
    return _stored(found, spec.dtype).reshape(spec.shape)


def _one_hot(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    rows, columns = _rows(spec)
    place = draws.whole(0, columns - 1, 0, rows)
    hot = draws.xp.arange(columns)[None, :] == place[:, None]
    return _stored(hot.astype(np.float64), spec.dtype).reshape(spec.shape)


def _near_identity(values: Values, spec: TensorSpec, draws: Draws) -> Array:
    rows, columns = spec.shape[-2:]
    scale = values.number("scale", 0.25) / math.sqrt(columns)

    def recipe(draws: Draws, start: int, count: int) -> Array:
        place = draws.xp.arange(start, start + count, dtype=np.int64)
        on_diagonal = place % columns == place // columns % rows
        found: Array = draws.normal(start, count, True) * scale + on_diagonal
        return found

    return _elementwise(spec, draws, recipe)


_KINDS: dict[str, _Kind] = {
    "uniform": _Kind(("low", "high"), 2, "any", False, _uniform),
    "normal": _Kind(("scale", "mean"), 0, "float", False, _normal),
    "positive": _Kind(("scale",), 0, "float", False, _positive),
    "decay": _Kind(("rate",), 0, "float", False, _decay),
    "constant": _Kind(("value",), 1, "any", False, _constant),
    "indices": _Kind(("extent", "skew"), 1, "int", False, _indices),
    "lengths": _Kind(("most", "least", "skew"), 1, "int", False, _lengths),
    "ascending": _Kind(("low", "high"), 2, "any", True, _ascending),
    "prefix_sums": _Kind(("low", "high"), 2, "any", True, _prefix_sums),
    "probabilities": _Kind((), 0, "float", True, _probabilities),
    "permutation": _Kind((), 0, "int", True, _permutation),
    "offsets": _Kind(("total", "skew"), 1, "int", True, _offsets),
    "one_hot": _Kind((), 0, "any", True, _one_hot),
    "near_identity": _Kind(("scale",), 0, "float", True, _near_identity),
}


def uniform(low: Number, high: Number) -> Values:
    """Between two numbers; of integers, both included."""
    return Values("uniform", (low, high))


def normal(scale: Number = 1.0, mean: Number = 0.0) -> Values:
    """Normally distributed floats."""
    return Values("normal", (scale, mean))


def positive(scale: Number = 1.0) -> Values:
    """Floats above zero: sizes of normal ones."""
    return Values("positive", (scale,))


def decay(rate: Number = 1.0) -> Values:
    """Exponents of a decay: floats between -`rate` and 0."""
    return Values("decay", (rate,))


def constant(value: Number) -> Values:
    """One number everywhere."""
    return Values("constant", (value,))


def indices(extent: int, skew: int = 0) -> Values:
    """Places along an axis of that extent; with a `skew` the first are more frequent."""
    return Values("indices", (extent, skew))


def lengths(most: int, least: int = 0, skew: int = 0) -> Values:
    """Integers from `least` to `most`; with a `skew` most of them are short."""
    return Values("lengths", (most, least, skew))


def ascending(low: Number, high: Number) -> Values:
    """Rows that are sorted."""
    return Values("ascending", (low, high))


def prefix_sums(low: Number, high: Number) -> Values:
    """Rows of running sums of steps between two numbers."""
    return Values("prefix_sums", (low, high))


def probabilities() -> Values:
    """Rows of floats above zero that add up to 1."""
    return Values("probabilities")


def permutation() -> Values:
    """Rows that hold each of 0 .. n - 1 once."""
    return Values("permutation")


def offsets(total: int, skew: int = 0) -> Values:
    """Rows that rise from 0 to `total`; with a `skew` a few of the distances are long."""
    return Values("offsets", (total, skew))


def one_hot() -> Values:
    """Rows with a single 1."""
    return Values("one_hot")


def near_identity(scale: float = 0.25) -> Values:
    """Matrices with 1 on the diagonal, and small numbers everywhere: solves of them stay tame."""
    return Values("near_identity", (scale,))


def of_range(spec: TensorSpec, low: int, high: int, draws: Draws) -> Array:
    """Integers of a range, both ends included: what an input is that says nothing."""
    if dtype_of(spec.dtype).kind == "bool":
        low, high = 0, 1
    kind = np.dtype(numpy_dtype(spec.dtype))
    if is_float(spec.dtype) or kind.kind not in "iu":
        return _elementwise(spec, draws, lambda d, s, n: d.whole(low, high, s, n))
    return draws.array(
        spec.shape, spec.dtype, lambda d, start, count: d.whole(low, high, start, count, kind)
    )
