"""An operator's arguments from arrays: extents and dtypes are unified with its tensors' shapes.

An operator is any function, so it is asked: built at trial extents, and again with one of them
changed, it tells how each dimension depends on each argument. What is solved for is built once more
and compared, so nothing is returned that does not fit. Knows no target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from inspect import Parameter
from typing import Any

import numpy as np

from ir.dtypes import DTYPES, numpy_dtype
from ir.errors import UsageError
from ir.ops.base import TensorSpec
from ir.registry import checked_arguments, kind_of
from ir.sources import Source, build

_FOREIGN = {  # what other libraries call types that numpy has no word for
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e8m0fnu": "e8m0",
}
_STARTS = (256, 64, 16, 8, 4, 2, 1, 1024)  # trial extents: multiples of what operators ask for
_STEPS = 8  # rounds until what is solved for must fit
_MOST_DTYPES = 64  # combinations that are tried

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """What is known of an array: its shape, and the dtypes that its elements may be of."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    named: str  # its type, for messages

    @classmethod
    def of(cls, value: Any) -> Example:
        """Of an array or tensor of any library, or of numbers."""
        if isinstance(value, bool | int | float | list | tuple):
            return cls._of_numbers(value)
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            try:
                value = np.asarray(value)
            except (TypeError, ValueError) as error:
                raise UsageError(f"a {type(value).__name__} is no array: {error}") from None
        named = str(getattr(value.dtype, "name", value.dtype)).rpartition(".")[2]
        return cls(tuple(int(extent) for extent in value.shape), _dtypes(named), named)

    @classmethod
    def _of_numbers(cls, value: Any) -> Example:
        """Numbers of Python take the dtype that is asked of them."""
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise UsageError(f"a {type(value).__name__} is no array: {error}") from None
        kinds = {"b": ("bool",), "f": ("float",)}.get(array.dtype.kind, ("int", "uint", "float"))
        dtypes = tuple(name for name, dtype in DTYPES.items() if dtype.kind in kinds)
        return cls(array.shape, dtypes, f"{array.dtype.name} of Python")

    def __str__(self) -> str:
        return f"{self.named}{list(self.shape)}"


def _dtypes(named: str) -> tuple[str, ...]:
    """The dtypes that an array's may stand for: its own, and those kept in it as patterns."""
    if named in _FOREIGN:
        return (_FOREIGN[named],)
    return tuple(name for name in DTYPES if numpy_dtype(name).name == named)


class _Misfit(UsageError):
    """Why one choice does not fit; of several, one that came further says more."""

    def __init__(self, stage: int, words: str) -> None:
        super().__init__(words)
        self.stage = stage


_DTYPE, _RANK, _SHAPE, _UNTOLD = 1, 2, 3, 4  # what an author's function refuses says least


def fitted_arguments(
    source: Source, examples: Sequence[Example], given: Mapping[str, Any]
) -> Arguments:
    """Arguments of an operator for inputs like these, in their order; `given` ones as they are.

    Those with a default keep it, and are left out, unless another value alone makes the arrays
    fit. Raises UsageError in one line where nothing fits, or where shapes do not tell an argument.
    """
    fixed = checked_arguments(source, given, partial=True)
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    free = [p for n, p in source.parameters.items() if n not in fixed and p.kind not in variadic]
    required = [p for p in free if p.default is p.empty]
    extents = [p.name for p in required if kind_of(p) in (int, None)]
    untold = [p.name for p in required if p.name not in extents]
    if untold:
        raise UsageError(f"{source.name}: arrays do not tell {_by_name(untold)}")
    optional = [p.name for p in free if p.default is not p.empty and kind_of(p) is int]
    dtypes = {p.name: p.default for p in free if p.default in DTYPES}
    fit = _Fit(source, tuple(examples), {})
    refusals: list[UsageError] = []
    for others in _choices(optional):
        for chosen in fit.dtype_choices(dtypes):
            try:
                return fit.solved(extents, others, fixed | chosen)
            except UsageError as error:
                if not others or _stage(error) == _UNTOLD:  # of what is usual most is to be said
                    refusals.append(error)
    raise UsageError(str(max(refusals, key=_stage)))


def _by_name(untold: Sequence[str]) -> str:
    return f"{', '.join(untold)}: give {'it' if len(untold) == 1 else 'them'} by name"


def _stage(error: UsageError) -> int:
    return error.stage if isinstance(error, _Misfit) else 0


def _choices(optional: list[str]) -> Iterator[tuple[str, ...]]:
    """Which optional arguments to solve for: none, all, then one or two of them."""
    yield ()
    if optional:
        yield tuple(optional)
    for count in (1, 2):
        yield from itertools.combinations(optional, count) if len(optional) > count else ()


@dataclass(frozen=True, slots=True)
class _Fit:
    """One operator and the arrays that its inputs are to be like; it remembers what it asked."""

    source: Source
    examples: tuple[Example, ...]
    asked: dict[tuple[tuple[str, Any], ...], tuple[TensorSpec, ...]]

    def dtype_choices(self, dtypes: Mapping[str, str]) -> Iterator[Arguments]:
        """Dtypes of the arrays for every argument that is one, the defaults first."""
        there = dict.fromkeys(d for example in self.examples for d in example.dtypes)
        options = [dict.fromkeys([default, *there]) for default in dtypes.values()]
        for values in itertools.islice(itertools.product(*options), _MOST_DTYPES):
            chosen = dict(zip(dtypes, values, strict=True))
            yield {name: value for name, value in chosen.items() if value != dtypes[name]}

    def solved(self, extents: list[str], others: tuple[str, ...], known: Arguments) -> Arguments:
        """Arguments by which the inputs are as the arrays are; raises UsageError.

        Solves from trial extents, and again from there where a dimension is no line in them. Of
        `others` those keep their default that are in no shape.
        """
        wanted = [*extents, *others]
        at = self._start(wanted, others, known)
        for _ in range(_STEPS):
            found = self._step(wanted, others, known, at)
            specs = self._inputs(known | found)
            self._refuse_kinds(specs)
            if [spec.shape for spec in specs] == [example.shape for example in self.examples]:
                return known | found
            if found == at:
                break
            wanted, at = list(found), found
        raise self._misfit(specs, found)

    def _start(
        self, wanted: Sequence[str], others: Sequence[str], known: Arguments, scale: int = 1
    ) -> Arguments:
        """Trial extents for which the operator has a program of inputs like the arrays.

        Some dimensions are there only where one of `others` divides what it is compared with.
        """
        refusals: list[UsageError] = []
        for extent, part in itertools.product(_STARTS if wanted else (1,), (1, 4)):
            least = max(1, extent // part)
            at = {name: scale * (least if name in others else extent) for name in wanted}
            try:
                self._refuse_kinds(self._inputs(known | at))
            except UsageError as error:
                refusals.append(error)
            else:
                return at
        raise max(refusals, key=_stage)

    def _refuse_kinds(self, specs: Sequence[TensorSpec]) -> None:
        """Raises UsageError unless arrays are as many as inputs, of their rank and dtype."""
        name = self.source.name
        if len(specs) != len(self.examples):
            takes, there = ", ".join(spec.name for spec in specs), len(self.examples)
            raise _Misfit(_RANK, f"{name} takes {takes}: {there} arrays are given")
        for spec, example in zip(specs, self.examples, strict=True):
            if len(spec.shape) != len(example.shape):
                dims = len(spec.shape)
                raise _Misfit(_RANK, f"{name}: {spec.name} has {dims} dimensions, not {example}")
            if spec.dtype not in example.dtypes:
                raise _Misfit(_DTYPE, f"{name}: {spec.name} is of {spec.dtype}, not {example}")

    def _step(
        self, wanted: Sequence[str], others: Sequence[str], known: Arguments, at: Arguments
    ) -> Arguments:
        """Values of `wanted` by which dimensions would be those of the arrays.

        A dimension tells an argument if it depends on no other that is not told yet.
        """
        told: Arguments = {}
        while len(told) < len(wanted):
            left = [name for name in wanted if name not in told]
            here = known | told | self._resume(left, others, known | told, at)
            base = _dimensions(self._inputs(here))
            slopes = {name: self._slopes(name, here, base) for name in left}
            fresh = self._read_off(slopes, here, base)
            if not fresh:
                untold = [name for name in left if name not in others]
                if not untold:
                    break
                words = f"shapes of arrays do not tell {_by_name(untold)}"
                raise _Misfit(_UNTOLD, f"{self.source.name}: {words}")
            told |= fresh
        return {name: told[name] for name in wanted if name in told}

    def _resume(
        self, left: Sequence[str], others: Sequence[str], known: Arguments, at: Arguments
    ) -> Arguments:
        """Trial extents of what is left, beside what is told: as they were, or others."""
        same = {name: at[name] for name in left}
        try:
            self._inputs(known | same)
        except UsageError:
            product = math.prod(v for v in known.values() if type(v) is int and v)
            for scale in (1, product):
                try:
                    return self._start(left, others, known, scale)
                except UsageError as error:
                    refusal = error
            raise refusal from None
        return same

    def _read_off(
        self, slopes: Mapping[str, list[Fraction]], here: Arguments, base: list[int]
    ) -> Arguments:
        """What dimensions that depend on one argument alone say of it, the first for each."""
        fresh: Arguments = {}
        extents = [extent for example in self.examples for extent in example.shape]
        for place, extent in enumerate(extents):
            moved = [name for name, slope in slopes.items() if slope[place]]
            if len(moved) == 1 and moved[0] not in fresh:
                (name,) = moved
                step = (extent - base[place]) / slopes[name][place]
                fresh[name] = max(0, math.ceil(here[name] + step))
        return fresh

    def _slopes(self, name: str, there: Arguments, base: list[int]) -> list[Fraction]:
        """How far each dimension moves with an argument."""
        value = there[name]
        refusal = UsageError(f"{self.source.name}: give {name} by name")
        for other in dict.fromkeys((2 * value, value // 2, value + 1, value + 64, value - 1)):
            if other < 0 or other == value:
                continue
            try:
                moved = _dimensions(self._inputs(there | {name: other}))
            except UsageError as error:
                refusal = error
                continue
            if len(moved) == len(base):
                pairs = zip(moved, base, strict=True)
                return [Fraction(now - before, other - value) for now, before in pairs]
        raise refusal

    def _inputs(self, arguments: Arguments) -> tuple[TensorSpec, ...]:
        key = tuple(sorted(arguments.items()))
        if key not in self.asked:
            self.asked[key] = build(self.source, checked_arguments(self.source, arguments)).inputs
        return self.asked[key]

    def _misfit(self, specs: Sequence[TensorSpec], found: Arguments) -> UsageError:
        """The first array that does not fit the arguments that the others tell."""
        told = ", ".join(f"{name}={value}" for name, value in found.items())
        for spec, example in zip(specs, self.examples, strict=True):
            if spec.shape != example.shape:
                has, wants = list(example.shape), list(spec.shape)
                where = f"with {told} it" if told else "it"
                words = f"{self.source.name}: {spec.name} has shape {has}; {where} is {wants}"
                return _Misfit(_SHAPE, words)
        raise AssertionError("the arrays fit")


def _dimensions(specs: Sequence[TensorSpec]) -> list[int]:
    return [extent for spec in specs for extent in spec.shape]
