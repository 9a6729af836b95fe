"""Two values of 16 bits in one word: small integers made floats without a conversion, and scaled.

An integer v below 2^7 (bf16) or 2^10 (f16), put into the fraction of the float 2^7 or 2^10, makes
that float plus v; a subtraction leaves v (Kim et al., "Who Says Elephants Can't Run", 2022). What
is exact in 16 bits is computed in them; the last product is rounded once, as the program says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ir.dtypes import is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Map
from ir.program import Program
from ir.ranges import Range, integer_range
from ir.targets.cuda.text.writer import Writer


@dataclass(frozen=True, slots=True)
class Half:
    """A 16-bit float: bits of its fraction, and the bits of 2 to their number."""

    name: str
    fraction: int
    start: int

    @property
    def exact(self) -> int:
        """All integers up to this size are values."""
        return 2 << self.fraction

    def bits(self, value: int) -> int:
        """The bits of a positive integer up to `exact`."""
        exponent = value.bit_length() - 1
        shift = self.fraction - exponent
        fraction = value << shift if shift >= 0 else value >> -shift
        return self.start + ((exponent - self.fraction) << self.fraction) + fraction - (
            1 << self.fraction
        )  # fmt: skip


HALVES: Mapping[str, Half] = {"bf16": Half("bf16", 7, 0x4300), "f16": Half("f16", 10, 0x6400)}


@dataclass(frozen=True)
class PackedWords:
    """Writes words of two neighbours. `value` gives a node's value at either of them, as text."""

    program: Program
    half: Half
    w: Writer
    value: Callable[[int, int], str]

    def word(self, position: int) -> str:
        """The word of an operand, a cast to the 16-bit type; empty if it takes more than halves."""
        node = self.program.nodes[position]
        if not isinstance(node.op, Cast) or node.dtype != self.half.name:
            return ""
        source = self.program.nodes[node.args[0]]
        if isinstance(source.op, Map) and source.op.function == "mul" and is_float(source.dtype):
            if all(self.is_exact(arg) for arg in source.args):
                first, second = (self._exact(arg) for arg in source.args)
                return self._named(f"tw_mul_{self.half.name}x2({first}, {second})")
            return ""
        return self._exact(node.args[0]) if self._is_small(node.args[0]) else ""

    # -- what 16 bits hold exactly

    def is_exact(self, position: int) -> bool:
        """Whether a value and the way to it are exact in 16 bits."""
        node = self.program.nodes[position]
        if isinstance(node.op, Load) and node.dtype == self.half.name:
            return True
        if isinstance(node.op, Cast) and is_float(node.dtype):
            return self.is_exact(node.args[0])
        return self._is_small(position)

    def _is_small(self, position: int) -> bool:
        """Whether an integer is a small one, or a difference or sum of such."""
        bounds = integer_range(self.program, position)
        if bounds is None:
            return False
        low, high = bounds
        if max(-low, high) > self.half.exact:
            return False
        if self._fits(bounds):
            return True
        node = self.program.nodes[position]
        both = isinstance(node.op, Map) and node.op.function in ("sub", "add")
        return both and all(self._is_small(arg) for arg in node.args)

    def _fits(self, bounds: Range) -> bool:
        """Whether values from the lowest on fit the fraction."""
        low, high = bounds
        start = 1 << self.half.fraction
        return high - low < start and 0 < start - low <= self.half.exact

    def _exact(self, position: int) -> str:
        node = self.program.nodes[position]
        if isinstance(node.op, Load) and node.dtype == self.half.name:
            pair = ", ".join(self.value(position, place) for place in (0, 1))
            return self._named(f"tw_pack_{self.half.name}({pair})")
        if isinstance(node.op, Cast) and is_float(node.dtype):
            return self._exact(node.args[0])
        bounds = integer_range(self.program, position)
        assert bounds is not None
        if not self._fits(bounds):
            assert isinstance(node.op, Map)
            first, second = (self._exact(arg) for arg in node.args)
            return self._named(f"tw_{node.op.function}_{self.half.name}x2({first}, {second})")
        return self._small(position, bounds[0])

    def _small(self, position: int, low: int) -> str:
        """Two integers within the fraction above `low`."""
        start = self.half.start
        shift = f" + {-low}" if low < 0 else f" - {low}" if low else ""
        first, second = (f"(u32)({self.value(position, place)}{shift})" for place in (0, 1))
        joined = self._named(f"{first} | {second} << 16 | {start << 16 | start:#x}u")
        origin = self.half.bits((1 << self.half.fraction) - low)
        return self._named(f"tw_sub_{self.half.name}x2({joined}, {origin << 16 | origin:#x}u)")

    def _named(self, text: str) -> str:
        name = self.w.name("pair")
        self.w.line(f"const u32 {name} = {text};")
        return name
