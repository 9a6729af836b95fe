"""Lines of memory that the warps of a group ask for, in loops that threads share."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ir.dtypes import dtype_of
from ir.plain.accesses import every, nested, scalars_of
from ir.plain.code import (
    TENSOR,
    Accumulate,
    Assign,
    Between,
    Call,
    Let,
    Loop,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import Walk, elements, extent_of

_LINE = 128  # bytes that a warp is given at a time


def lines_of(kernel: PlainKernel) -> tuple[float, float, float]:
    """Lines of memory that the warps of a group ask for at a point, in loops that threads share:
    one where its lanes read neighbours or all the same, one for each where they read apart. How
    many they were if all that is read lay side by side. And the bytes of what is read, an element
    once a loop."""
    return _Lines(kernel).outside(kernel.body, 1.0)


class _Clamped(Walk):
    """As it is away from the ends at which an index is clamped."""

    def _of_call(self, call: Call) -> int | None:
        if call.function in ("min", "max") and call.dtype == "i64":
            strides = [self.stride(arg) for arg in call.args]
            if None not in strides and 0 in strides:
                return next((stride for stride in strides if stride), 0)
        return super()._of_call(call)


class _Lines:
    def __init__(self, kernel: PlainKernel) -> None:
        tensors = (array for array in kernel.arrays if array.place == TENSOR)
        self.sizes = {array.name: dtype_of(array.dtype).bytes for array in tensors}
        self.lets = {s.name.name: s.value for s in every(kernel.body) if isinstance(s, Let)}
        self.changing = frozenset(s.name.name for s in every(kernel.body) if isinstance(s, Assign))
        self.lanes, self.beside = "", 1  # of the shared loop: its fastest variable

    def stride(self, index: Scalar, variable: str) -> int | None:
        return _Clamped(variable, self.lets, self.changing).stride(index)

    def outside(self, statements: Iterable[Statement], often: float) -> tuple[float, float, float]:
        """Of statements that run so often, shared loops among them."""
        asked = least = brought = 0.0
        for s in statements:
            if isinstance(s, Spread):
                around = tuple((name.name, extent) for name, extent in s.variables)
                self.lanes, self.beside = around[-1] if around else ("", 1)
                found = [self._inside(s.body, around, often)]
            else:
                times = _times(s)
                found = [self.outside(block, often * times) for block in nested(s)]
            for one in found:
                asked, least, brought = asked + one[0], least + one[1], brought + one[2]
        return asked, least, brought

    def _inside(
        self, statements: Iterable[Statement], around: tuple[tuple[str, int], ...], often: float
    ) -> tuple[float, float, float]:
        """Of statements of a shared loop over these variables, and loops inside of it."""
        warps = often * prod(extent for _, extent in around) / 32.0
        asked = least = brought = 0.0
        for s in statements:
            places = [(e.array, e.index) for e in elements(scalars_of(s)) if e.array in self.sizes]
            if isinstance(s, Write) and s.array in self.sizes:
                places.append((s.array, s.index))
            for array, index in places:
                size, stride = self.sizes[array], self.stride(index, self.lanes)
                beside = min(32, self.beside)
                apart = _LINE if stride is None else min(abs(stride) * size, _LINE)
                asked += warps * max(1.0, beside * apart / _LINE) * 32.0 / beside
                least += warps * (32.0 * size / _LINE if apart else 1.0)
                own = [n for name, n in around if self.stride(index, name) != 0]
                brought += often * prod(own) * size
            for block in nested(s):
                more = around
                if isinstance(s, Loop | Between | Accumulate):
                    more = (*around, (s.variable.name, extent_of(s)))
                one = self._inside(block, more, often)
                asked, least, brought = asked + one[0], least + one[1], brought + one[2]
        return asked, least, brought


def _times(s: Statement) -> float:
    return float(extent_of(s)) if isinstance(s, Loop | Between | Accumulate) else 1.0
