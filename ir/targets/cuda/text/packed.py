"""Two values of 16 bits in one word: small integers made floats without a conversion, and scaled.

An integer v below 2^7 (bf16) or 2^10 (f16), put into the fraction of the float 2^7 or 2^10, makes
that float plus v; a subtraction leaves v (Kim et al., "Who Says Elephants Can't Run", 2022). What
is exact in 16 bits is computed in them; the last product is rounded once, as the program says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ir.dtypes import is_float
from ir.ops.base import Op
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Map
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


WIDE = ("tf32", "f32", "f64")  # which hold whatever a half does
HALVES: Mapping[str, Half] = {"bf16": Half("bf16", 7, 0x4300), "f16": Half("f16", 10, 0x6400)}


def _is_map(op: Op, function: str) -> bool:
    return isinstance(op, Map) and op.function == function


@dataclass(frozen=True)
class PackedWords:
    """Writes words of two neighbours. `value` gives a node's value at either of them, as text;
    `raw` both elements of a load as they lie in memory, empty where they are not at hand; `start`
    is the word of two halves of 2 to the bits of the fraction."""

    program: Program
    half: Half
    w: Writer
    value: Callable[[int, int], str]
    start: str
    raw: Callable[[int], str] = lambda _: ""

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
        if isinstance(node.op, Cast) and node.dtype in (self.half.name, *WIDE):
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
        if self._fits(bounds) or self._in_bytes(bounds):
            return True
        return self._is_sum(position) and all(
            self._is_small(arg) for arg in self.program.nodes[position].args
        )

    def _is_sum(self, position: int) -> bool:
        op = self.program.nodes[position].op
        return isinstance(op, Map) and op.function in ("sub", "add")

    def _fits(self, bounds: Range) -> bool:
        """Whether values from the lowest on fit the fraction."""
        low, high = bounds
        start = 1 << self.half.fraction
        return high - low < start and 0 < start - low <= self.half.exact

    def _in_bytes(self, bounds: Range) -> bool:
        """Whether values are signed bytes, which a fraction of seven bits has but for the sign."""
        return -bounds[0] <= 128 == 1 << self.half.fraction and bounds[1] < 128

    def _exact(self, position: int) -> str:
        node = self.program.nodes[position]
        if isinstance(node.op, Load) and node.dtype == self.half.name:
            pair = ", ".join(self.value(position, place) for place in (0, 1))
            return self._named(f"tw_pack_{self.half.name}({pair})")
        if isinstance(node.op, Cast) and is_float(node.dtype):
            return self._exact(node.args[0])
        bounds = integer_range(self.program, position)
        assert bounds is not None
        if self._fits(bounds):
            return self._small(position, bounds[0])
        if self._is_sum(position) and all(self._is_small(arg) for arg in node.args):
            assert isinstance(node.op, Map)
            first, second = (self._exact(arg) for arg in node.args)
            return self._named(f"tw_{node.op.function}_{self.half.name}x2({first}, {second})")
        return self._bytes(position)

    def _small(self, position: int, low: int) -> str:
        """Two integers within the fraction above `low`."""
        fields = self._fields(position)
        if not fields:
            shift = f" + {-low}" if low < 0 else f" - {low}" if low else ""
            first, second = (f"(u32)({self.value(position, place)}{shift})" for place in (0, 1))
            fields = f"{first} | {second} << 16"
        joined = self._named(f"{fields} | {self.start}")
        origin = self.half.bits((1 << self.half.fraction) - low)
        return self._named(f"tw_sub_{self.half.name}x2({joined}, {origin << 16 | origin:#x}u)")

    def _fields(self, position: int) -> str:
        """Both integers above the lowest, taken at once, if they are bits of one narrow integer
        that both places have; empty if not."""
        nodes = self.program.nodes
        while self._is_sum(position) and isinstance(nodes[nodes[position].args[1]].op, Constant):
            position = nodes[position].args[0]
        field, moved = nodes[position], nodes[(*nodes[position].args, position)[0]]
        if not _is_map(field.op, "bitand") or not _is_map(moved.op, "shr"):
            return ""
        mask, (source, shift) = nodes[field.args[1]].op, moved.args
        held, steps = (integer_range(self.program, here) for here in moved.args)
        if not isinstance(mask, Constant) or held is None or steps is None:
            return ""
        bits = int(mask.value)
        plain = bits & (bits + 1) == 0 and held[0] >= 0 and steps[0] >= 0
        first, second = (self.value(source, place) for place in (0, 1))
        if first != second or not plain or held[1].bit_length() > 16 - (steps[1] - steps[0]):
            return ""
        bits &= (1 << (held[1] >> steps[0]).bit_length()) - 1  # a wider mask meets the other place
        low, high = (self.value(shift, place) for place in (0, 1))
        return f"tw_fields((u32){first}, {low}, {high}, {bits:#x}u)"

    def _bytes(self, position: int) -> str:
        """Two signed bytes: seven bits above 2^7, from which as much is taken, or twice as much for
        a sign."""
        name = self.half.name
        pair = self._loaded(position)
        if not pair:
            first, second = (f"((u32){self.value(position, place)} & 0xffu)" for place in (0, 1))
            pair = self._named(f"{first} | {second} << 16 | {self.start}")
        rest, sign = (f"{pair} & {mask:#x}u" for mask in (0xFF7FFF7F, 0xFF80FF80))
        return self._named(f"tw_sub_{name}x2({rest}, {sign})")

    def _loaded(self, position: int) -> str:
        """Two bytes that lie in memory, each below the high byte of 2^7; empty if they do not."""
        node = self.program.nodes[position]
        while isinstance(node.op, Cast) and not is_float(node.dtype):
            position = node.args[0]
            node = self.program.nodes[position]
        raw = self.raw(position) if node.dtype == "i8" else ""
        return self._named(f"tw_apart({raw}, {self.start})") if raw else ""

    def _named(self, text: str) -> str:
        name = self.w.name("pair")
        self.w.line(f"const u32 {name} = {text};")
        return name
