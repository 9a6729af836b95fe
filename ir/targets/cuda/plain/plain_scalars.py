"""Scalars of plain kernels as C++ expressions: elements widened where they are read, and rounded
where they are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ir.dtypes import NARROW
from ir.ops.map import Map
from ir.plain.accesses import names_in
from ir.plain.code import Array, Call, Convert, Element, Name, Number, Scalar
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.coded import looked_up
from ir.targets.cuda.text.naming import WORDS

# what the text around means something else by
_TAKEN = ("thread", "point", "step", "turn", "upper", "lane", "warp", "first", "mine", "left",
          "live", "slot", "scratch", "room", "start", "limit", "some", "place", "unit",
          "word")  # fmt: skip


class Names:
    """C++ names of what plain kernels call anything; no two share one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            stem = re.sub(r"\W", "_", name)
            if stem in _TAKEN or stem in WORDS or stem.startswith(("tw_", "rt_", "TW_", "__")):
                stem = f"{stem}_"
            found, number = stem, 1
            while found in self._used:
                number += 1
                found = f"{stem}_{number}"
            self._used.add(found)
            self._known[name] = found
        return self._known[name]

    def new(self, stem: str) -> str:
        """What the kernel does not call anything yet."""
        number = 1
        while f"{stem} {number}" in self._known:
            number += 1
        self[f"{stem} {number}"]
        return f"{stem} {number}"

    def fresh(self, stem: str) -> str:
        """A C++ name for something that the kernel has none for."""
        return self[self.new(stem)]


def widened(text: str, source: str, dtype: str) -> str:
    """What a register holds of `source` as a compute type or i64."""
    same = scalars.register_type(source) == scalars.register_type(dtype)
    return text if same else scalars.convert(text, source, dtype)


def _made(scalar: Scalar) -> bool:
    """A whole number that is computed of others, as far as one sees: not read, and no index."""
    while isinstance(scalar, Convert):
        scalar = scalar.arg
    return isinstance(scalar, Call | Name) and scalar.dtype == "i32"


class PlainScalars:
    """Writes scalars that read `arrays`, in what has variables that get a value under a condition
    (`unsettled`)."""

    def __init__(
        self, arrays: Sequence[Array], names: Names, unsettled: frozenset[str] = frozenset()
    ) -> None:
        self.names, self.unsettled = names, unsettled
        self.dtypes: dict[str, str] = {array.name: array.dtype for array in arrays}
        self.held: Mapping[Element, str] = {}  # elements that registers have

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
                arguments = [self.text(arg) for arg in scalar.args]
                of = scalar.args[-1].dtype
                if scalar.like is not None:
                    return self._special(scalar, scalar.like, arguments[0])
                if scalar.function in ("shl", "shr"):
                    return scalars.shift(scalar.function, arguments[0], arguments[1], False)
                if scalar.function == "mul" and of == "i32":
                    pairs = zip(scalar.args, arguments, strict=True)
                    arguments = [scalars.hidden(t) if _made(arg) else t for arg, t in pairs]
                return scalars.apply(scalar.function, scalar.dtype, arguments, of)

    @staticmethod
    def _special(call: Call, op: Map, argument: str) -> str:
        """A lookup, or the bits of a value."""
        assert op.dtype is not None
        if call.function == "lookup":
            return looked_up(op.entries, op.dtype, argument)
        return widened(scalars.bitcast(argument, call.source, op.dtype), op.dtype, call.dtype)

    def _element(self, element: Element) -> str:
        dtype = self.dtypes[element.array]
        if element in self.held:
            return widened(self.held[element], dtype, element.dtype)
        raw = f"{self.names[element.array]}[{self.text(element.index)}]"
        return widened(scalars.from_storage(raw, dtype), dtype, element.dtype)

    def _converted(self, convert: Convert) -> str:
        if convert.to == "i64" and self._is_unsettled(convert.arg):
            return f"tw_index({self.text(convert.arg)})"
        text = scalars.convert(self.text(convert.arg), convert.arg.dtype, convert.to)
        if convert.to in NARROW and convert.to != "tf32":
            text = scalars.from_storage(scalars.to_storage(text, convert.to), convert.to)
        return widened(text, convert.to, convert.dtype)

    def _is_unsettled(self, scalar: Scalar) -> bool:
        if scalars.register_type(scalar.dtype) not in ("i32", "i64"):
            return False
        return any(name.name in self.unsettled for name in names_in(scalar))

    def given(self, value: Scalar, dtype: str) -> str:
        """A scalar as one of a compute type, or i64."""
        return widened(self.text(value), value.dtype, dtype)

    def stored(self, array: str, value: Scalar) -> str:
        """A scalar as an element of an array."""
        dtype = self.dtypes[array]
        return scalars.to_storage(self.given_as(value, dtype), dtype)

    def given_as(self, value: Scalar, dtype: str) -> str:
        """A scalar as one of any dtype, in a register."""
        return scalars.convert(self.text(value), value.dtype, dtype)
