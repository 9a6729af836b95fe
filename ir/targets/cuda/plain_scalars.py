"""Scalars of plain kernels as C++ expressions: elements widened where they are read, and rounded
where they are written; merges of states.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir.dtypes import NARROW
from ir.merges import CAST, Merge
from ir.ops.base import Scope, TileType
from ir.ops.map import Map
from ir.plain.code import Array, Call, Convert, Element, Name, Number, Scalar
from ir.targets.cuda import scalars
from ir.targets.cuda.evaluate import applied
from ir.targets.cuda.writer import Writer

_NO_SCOPE = Scope({}, {})
# what C++ or the text around means something else by
_TAKEN = frozenset(
    """alignas alignof and asm auto bitand bitor bool break case catch char class compl const
    constexpr continue decltype default delete do double else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not nullptr operator or
    private protected public register return short signed sizeof static struct switch template this
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 min max abs exp log sqrt erf floor tanh fabs
    thread point step turn upper lane warp first mine left live slot scratch room""".split()
)


class Names:
    """C++ names of what plain kernels call anything; no two share one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            stem = re.sub(r"\W", "_", name)
            if stem in _TAKEN or stem.startswith(("tw_", "rt_", "TW_")):
                stem = f"{stem}_"
            found, number = stem, 1
            while found in self._used:
                number += 1
                found = f"{stem}_{number}"
            self._used.add(found)
            self._known[name] = found
        return self._known[name]

    def fresh(self, stem: str) -> str:
        """A name for something that the kernel has none for."""
        number = 0
        while f"{stem} {number}" in self._known:
            number += 1
        return self[f"{stem} {number}"]


@dataclass(frozen=True, slots=True)
class Typed:
    """A C++ expression and the dtype of what it gives."""

    text: str
    dtype: str

    def as_dtype(self, dtype: str) -> str:
        """The expression converted to a compute type or to i64."""
        return self.text if self.dtype == dtype else scalars.convert(self.text, self.dtype, dtype)


class PlainScalars:
    """Writes scalars that read `arrays`."""

    def __init__(self, arrays: Sequence[Array], names: Names) -> None:
        self.names = names
        self.dtypes: Mapping[str, str] = {array.name: array.dtype for array in arrays}

    def text(self, scalar: Scalar) -> str:
        """A C++ expression for a scalar."""
        match scalar:
            case Number():
                return scalars.literal(scalar.value, scalar.dtype)
            case Name():
                return self.names[scalar.name]
            case Element():
                return self._element(scalar)
            case Convert():
                return self._converted(scalar)
            case Call():
                types = [arg.dtype for arg in scalar.args]
                arguments = [self.text(arg) for arg in scalar.args]
                return applied(scalar.function, arguments, types, scalar.dtype)

    def _element(self, element: Element) -> str:
        dtype = self.dtypes[element.array]
        raw = f"{self.names[element.array]}[{self.text(element.index)}]"
        return Typed(scalars.from_storage(raw, dtype), dtype).as_dtype(element.dtype)

    def _converted(self, convert: Convert) -> str:
        text = scalars.convert(self.text(convert.arg), convert.arg.dtype, convert.to)
        if convert.to in NARROW and convert.to != "tf32":
            text = scalars.from_storage(scalars.to_storage(text, convert.to), convert.to)
        return Typed(text, convert.to).as_dtype(convert.dtype)

    def stored(self, array: str, value: Scalar) -> str:
        """A scalar as an element of an array."""
        dtype = self.dtypes[array]
        text = scalars.convert(self.text(value), value.dtype, dtype)
        return scalars.to_storage(text, dtype)


def merged(
    w: Writer, names: Names, merge: Merge, left: Sequence[Typed], right: Sequence[Typed]
) -> list[str]:
    """Write the steps of merging two groups of states; expressions for the states of both."""

    def apply(function: str, arguments: list[Typed]) -> Typed:
        if function.startswith(CAST):
            dtype = function[len(CAST) :]
            (argument,) = arguments
            found = Typed(scalars.convert(argument.text, argument.dtype, dtype), dtype)
        else:
            types = [argument.dtype for argument in arguments]
            dtype = Map(function).infer([TileType((), t) for t in types], _NO_SCOPE).dtype
            texts = [argument.text for argument in arguments]
            found = Typed(applied(function, texts, types, dtype), dtype)
        name = names.fresh("m")
        w.line(f"const {scalars.register_type(dtype)} {name} = {found.text};")
        return Typed(name, dtype)

    def number(value: float | int) -> Typed:
        dtype = "i32" if type(value) is int else "f32"
        return Typed(scalars.literal(value, dtype), dtype)

    found = merge.merged(left, right, apply, number)
    return [one.as_dtype(state.dtype) for one, state in zip(found, left, strict=True)]
