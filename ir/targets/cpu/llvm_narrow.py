"""Conversions between f32 and narrow floats as LLVM IR text.

No `fptrunc` to a narrow type: LLVM 22 aborts where it finds out late that its operand is constant,
and other machines have no instruction for it. Knows types and formats; no function, no program.
"""

from __future__ import annotations

from collections.abc import Callable

from ir.targets.cpu.instructions import CallRow
from ir.targets.cpu.llvm_words import literal, type_text
from ir.targets.cpu.narrow import F32_MANTISSA, HALF, INFINITE, Format, conversion
from ir.targets.cpu.nest import Type

Emit = Callable[[str], str]  # writes `name = text` and returns the name


class NarrowFloats:
    """Converts values of one shape; every line goes through `emit`."""

    def __init__(
        self, emit: Emit, declare: Callable[[CallRow], None], isa: tuple[str, ...]
    ) -> None:
        self.emit, self.declare, self.isa = emit, declare, isa
        self.lanes = 0

    def convert(self, value: str, source: Format | None, target: Format | None, lanes: int) -> str:
        """The name of `value` converted; one of the formats is None, which stands for f32."""
        self.lanes = lanes
        names = (source.name if source else "f32"), (target.name if target else "f32")
        row = conversion(*names, lanes, self.isa)
        if row is not None and row.llvm:
            return self._whole(row, value)
        if target is not None:
            return self._narrowed(value, target)
        assert source is not None
        return self._widened(value, source) if row is None else self._extended(value)

    def _type(self, scalar: str) -> str:
        return type_text(Type(scalar, self.lanes))

    def _whole(self, row: CallRow, value: str) -> str:
        """By the instruction for whole vectors; bf16 has a type of its own there."""
        self.declare(row)
        result, _, _ = row.llvm_declaration.partition(" @")
        given = "i16" if row.source == "f16" else "f32"
        arguments = ", ".join(part for part in (f"{self._type(given)} {value}", row.suffix) if part)
        found = self.emit(f"call {result} @{row.llvm}({arguments})")
        if "bfloat" in result:
            return self.emit(f"bitcast {result} {found} to {self._type('i16')}")
        return found

    def _extended(self, value: str) -> str:
        """f16 widened by the cast for which LLVM takes the machine's instruction."""
        half = f"<{self.lanes} x half>" if self.lanes else "half"
        bits = self.emit(f"bitcast {self._type('i16')} {value} to {half}")
        return self.emit(f"fpext {half} {bits} to {self._type('f32')}")

    # -- one operation a line; constants are splat over the lanes

    def _literal(self, value: float, scalar: str) -> str:
        text = literal(value, scalar)
        word = type_text(Type(scalar))
        return f"splat ({word} {text})" if self.lanes else text

    def _op(self, word: str, left: str, right: int | str) -> str:
        other = right if isinstance(right, str) else self._literal(right, "i32")
        return self.emit(f"{word} {self._type('i32')} {left}, {other}")

    def _float(self, word: str, left: str, right: float) -> str:
        return self.emit(f"{word} {self._type('f32')} {left}, {self._literal(right, 'f32')}")

    def _test(self, predicate: str, left: str, right: int) -> str:
        return self._op(f"icmp {predicate}", left, right)

    def _select(self, test: str, yes: str | int, no: str) -> str:
        if isinstance(yes, int):
            yes = self._literal(yes, "i32")
        bits, type = self._type("i1"), self._type("i32")
        return self.emit(f"select {bits} {test}, {type} {yes}, {type} {no}")

    def _cast(self, word: str, value: str, source: str, target: str) -> str:
        return self.emit(f"{word} {self._type(source)} {value} to {self._type(target)}")

    # -- widening

    def _widened(self, value: str, format: Format) -> str:
        if not format.signed:
            return self._power(value)
        signed = self._cast("sext", value, format.integer, "i32")
        bits = self._op("shl", signed, format.shift)
        if not format.rescaled:
            return self._cast("bitcast", bits, "i32", "f32")
        if format.bits < format.width:
            sign = self._op("and", self._op("shl", signed, 32 - format.bits), -(1 << 31))
            bits = self._op("or", self._op("and", bits, format.moved), sign)
        else:
            bits = self._op("and", bits, format.moved - (1 << 31))
        number = self._cast("bitcast", bits, "i32", "f32")
        number = self._float("fmul", number, format.scale)
        if not format.undefined:
            return number
        size = self._op("and", bits, format.moved)
        special = self._test("sge", size, format.special)
        other = self._op("or", bits, INFINITE if format.infinite else INFINITE | 1 << 22)
        other = self._cast("bitcast", other, "i32", "f32")
        type = self._type("f32")
        return self.emit(f"select {self._type('i1')} {special}, {type} {other}, {type} {number}")

    def _power(self, value: str) -> str:
        """A power of two by its exponent: the least is half a step of f32's, the last is NaN."""
        pattern = self._cast("zext", value, "i8", "i32")
        ends = self._op("and", self._op("add", pattern, 1), 255)
        bits = self._op("shl", pattern, F32_MANTISSA)
        other = self._op("or", bits, HALF)
        found = self._select(self._test("sle", ends, 1), other, bits)
        return self._cast("bitcast", found, "i32", "f32")

    # -- narrowing

    def _exponent(self, value: str) -> str:
        """The nearest power of two's exponent, ties to even; the least of what is below it."""
        bits = self._cast("bitcast", value, "f32", "i32")
        size = self._op("and", bits, 0x7FFFFFFF)
        odd = self._op("and", self._op("lshr", size, F32_MANTISSA), 1)
        up = self._op("add", self._op("add", size, HALF - 1), odd)
        found = self._op("lshr", up, F32_MANTISSA)
        above = self._cast("zext", self._test("sgt", size, HALF + HALF // 2), "i1", "i32")
        found = self._select(self._test("slt", size, 1 << F32_MANTISSA), above, found)
        found = self._select(self._test("sgt", found, 254), 254, found)
        found = self._select(self._test("slt", bits, 0), 0, found)
        found = self._select(self._test("sgt", size, INFINITE), 255, found)
        return self._cast("trunc", found, "i32", "i8")

    def _narrowed(self, value: str, format: Format) -> str:
        if not format.signed:
            return self._exponent(value)
        bits = self._cast("bitcast", value, "f32", "i32")
        size = self._op("and", bits, 0x7FFFFFFF)
        found = self._rounded(size, format)
        if format.rescaled:
            found = self._select(
                self._test("slt", size, format.smallest), self._small(size, format), found
            )
            if format.infinite:
                over = self._test("sge", size, format.largest)
                found = self._select(over, format.special >> format.shift, found)
        nan = self._test("sgt", size, INFINITE)
        found = self._select(nan, format.nan, found)
        sign = self._op("and", self._op("lshr", bits, 32 - format.bits), format.sign)
        if not format.undefined:
            sign = self._select(nan, 0, sign)
        return self._cast("trunc", self._op("or", found, sign), "i32", format.integer)

    def _rounded(self, size: str, format: Format) -> str:
        """A normal number's bits to nearest even, the exponent's bias corrected."""
        if format.rescaled and not format.infinite:
            limit = self._test("slt", size, format.largest)
            limited = self._literal(format.largest, "i32")
            type = self._type("i32")
            size = self.emit(f"select {self._type('i1')} {limit}, {type} {size}, {type} {limited}")
        odd = self._op("and", self._op("lshr", size, format.shift), 1)
        up = self._op("add", size, (1 << (format.shift - 1)) - 1 - format.offset)
        return self._op("lshr", self._op("add", up, odd), format.shift)

    def _small(self, size: str, format: Format) -> str:
        """Below the normal numbers: an addition rounds to a multiple of the smallest."""
        number = self._cast("bitcast", size, "i32", "f32")
        number = self._float("fadd", number, format.aligner)
        return self._op("sub", self._cast("bitcast", number, "f32", "i32"), format.aligner_bits)
