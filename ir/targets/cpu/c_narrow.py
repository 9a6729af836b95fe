"""C helpers that convert between f32 and narrow floats, which are stored as bit patterns.

The twin of `llvm_narrow.py`: an instruction where the compiler has it, else integer arithmetic on
GNU vectors (or on scalars). Text only; needs no type of the compiler for narrow floats.
"""

from __future__ import annotations

from ir.targets.cpu.instructions import CONVERSIONS
from ir.targets.cpu.narrow import F32_MANTISSA, HALF, INFINITE, Format

_MACROS = {"avx512_bf16": "__AVX512BF16__", "avx512f": "__AVX512F__", "avx2": "__F16C__"}


def with_instruction(
    names: tuple[str, str], result: str, lanes: int, body: tuple[str, ...]
) -> tuple[str, ...]:
    """The body of a helper, before which stands the instruction for (source, target), if any."""
    for row in CONVERSIONS:
        if (row.source, row.target, row.lanes) == (*names, lanes):
            call = f"return ({result}){row.c.format('x')};"
            return (f"#if defined({_MACROS[row.isa]})", call, "#else", *body, "#endif")
    return body


def widening(format: Format, i32: str, f32: str, small: str) -> tuple[str, ...]:
    """f32 from a vector; `i32`, `f32` and `small` (signed, of the format's width) name types."""
    if not format.signed:
        pattern = f"{i32} pattern = __builtin_convertvector(x, {i32});"
        ends = f"{i32} ends = ((pattern + 1) & 255) <= 1;"
        bits = f"return ({f32})(pattern << {F32_MANTISSA} | (ends & {_hex(HALF)}));"
        return pattern, ends, bits
    moved = f"{i32} bits = __builtin_convertvector(({small})x, {i32}) << {format.shift}"
    if not format.rescaled:
        return f"{moved};", f"return ({f32})bits;"
    if format.bits < format.width:
        return (
            f"{i32} pattern = __builtin_convertvector(({small})x, {i32});",
            f"{i32} bits = (pattern << {format.shift}) & {_hex(format.moved)};",
            f"bits |= (pattern << {32 - format.bits}) & {_hex(1 << 31)};",
            f"return ({f32})bits * {format.scale.hex()}f;",
        )
    other = INFINITE if format.infinite else INFINITE | 1 << 22
    return (
        f"{moved} & {_hex(format.moved | 1 << 31)};",
        f"{i32} number = ({i32})(({f32})bits * {format.scale.hex()}f);",
        f"{i32} special = (bits & {_hex(format.moved)}) >= {_hex(format.special)};",
        f"return ({f32})((number & ~special) | ((bits | {_hex(other)}) & special));",
    )


def scalar_widening(format: Format, to_f32: str) -> tuple[str, ...]:
    """f32 from a scalar; `to_f32` gives a number of these bits."""
    if not format.signed:
        ends = f"((x + 1) & 255) <= 1 ? {_hex(HALF)} : 0"
        bits = f"int32_t bits = (int32_t)((uint32_t)x << {F32_MANTISSA} | ({ends}));"
        return bits, f"return {to_f32}(bits);"
    moved = f"int32_t bits = (int32_t)((uint32_t)(int{format.width}_t)x << {format.shift}"
    if not format.rescaled:
        return f"{moved});", f"return {to_f32}(bits);"
    if format.bits < format.width:
        return (
            f"{moved} & {_hex(format.moved)});",
            f"bits |= (int32_t)((uint32_t)x << {32 - format.bits} & {_hex(1 << 31)});",
            f"return {to_f32}(bits) * {format.scale.hex()}f;",
        )
    other = INFINITE if format.infinite else INFINITE | 1 << 22
    special = f"(bits & {_hex(format.moved)}) >= {_hex(format.special)}"
    return (
        f"{moved} & {_hex(format.moved | 1 << 31)});",
        f"if ({special}) return {to_f32}(bits | {_hex(other)});",
        f"return {to_f32}(bits) * {format.scale.hex()}f;",
    )


def narrowing(
    format: Format, i32: str, u32: str, f32: str, small: str, result: str
) -> tuple[str, ...]:
    """A vector from f32; `small` is unsigned, of the format's width."""
    lines = [f"{i32} bits = ({i32})x, size = bits & 0x7FFFFFFF, when;"]
    if not format.signed:
        lines += _exponents(i32)
        return (*lines, f"return ({result})__builtin_convertvector(y, {small});")
    if format.rescaled and not format.infinite:
        lines.append(_where("size", f"size > {_hex(format.largest)}", _hex(format.largest)))
    lines.append(f"{i32} y = ({i32})(({u32})({_sum('size', format)}) >> {format.shift});")
    if format.rescaled:
        aligned = f"({i32})(({f32})size + {format.aligner.hex()}f) - {_hex(format.aligner_bits)}"
        lines.append(_where("y", f"size < {_hex(format.smallest)}", aligned))
        if format.infinite:
            infinite = _hex(format.special >> format.shift)
            lines.append(_where("y", f"size >= {_hex(format.largest)}", infinite))
    nan = f"(bits & 0x7FFFFFFF) > {_hex(INFINITE)}"
    lines.append(_where("y", nan, _hex(format.nan)))
    sign = f"({i32})(({u32})bits >> {32 - format.bits}) & {_hex(format.sign)}"
    lines.append(f"y |= {sign};" if format.undefined else f"y |= {sign} & ~({nan});")
    return (*lines, f"return ({result})__builtin_convertvector(y, {small});")


def scalar_narrowing(format: Format, to_f32: str, to_i32: str) -> tuple[str, ...]:
    """A scalar from f32."""
    unsigned = f"uint{format.width}_t"
    if not format.signed:
        return (
            f"int32_t bits = {to_i32}(x), size = bits & 0x7FFFFFFF;",
            f"if (size > {_hex(INFINITE)}) return 255;",
            "if (bits < 0) return 0;",
            f"if (size < {_hex(1 << F32_MANTISSA)}) return size > {_hex(HALF + HALF // 2)};",
            f"int32_t y = {_EXPONENT};",
            "return y > 254 ? 254 : (uint8_t)y;",
        )
    sign = f"({unsigned})((uint32_t)bits >> {32 - format.bits} & {_hex(format.sign)})"
    nan = f"sign | {_hex(format.nan)}" if format.undefined else _hex(format.nan)
    lines = [
        f"int32_t bits = {to_i32}(x), size = bits & 0x7FFFFFFF;",
        f"{unsigned} sign = {sign};",
        f"if (size > {_hex(INFINITE)}) return {nan};",
    ]
    if format.rescaled:
        largest = _hex(format.largest)
        infinite = f"return sign | {_hex(format.special >> format.shift)}"
        over = infinite if format.infinite else f"size = {largest}"
        lines.append(f"if (size >= {largest}) {over};")
        aligned = f"{to_i32}({to_f32}(size) + {format.aligner.hex()}f)"
        lines.append(f"if (size < {_hex(format.smallest)})")
        lines.append(f"  return sign | ({unsigned})({aligned} - {_hex(format.aligner_bits)});")
    rounded = f"(uint32_t)({_sum('size', format)}) >> {format.shift}"
    return (*lines, f"return sign | ({unsigned})({rounded});")


def _sum(size: str, format: Format) -> str:
    """Half of the last place is added, less to even numbers, and the bias corrected."""
    half = (1 << (format.shift - 1)) - 1
    offset = f" - {_hex(format.offset)}" if format.rescaled else ""
    return f"{size}{offset} + {_hex(half)} + ({size} >> {format.shift} & 1)"


_EXPONENT = f"(int32_t)((uint32_t)(size + 0x{HALF - 1:X} + (size >> 23 & 1)) >> 23)"


def _exponents(i32: str) -> list[str]:
    """The nearest power of two's exponent as `y`, ties to even; the least of what is below it."""
    return [
        f"{i32} y = (size + {_hex(HALF - 1)} + (size >> 23 & 1)) >> 23 & 511;",
        _where("y", f"size < {_hex(1 << F32_MANTISSA)}", f"(size > {_hex(HALF + HALF // 2)}) & 1"),
        _where("y", "y > 254", "254"),
        _where("y", "bits < 0", "0"),
        _where("y", f"size > {_hex(INFINITE)}", "255"),
    ]


def _where(name: str, test: str, value: str) -> str:
    """`name` becomes `value` where `test` holds."""
    return f"when = {test}; {name} = ({name} & ~when) | (({value}) & when);"


def _hex(value: int) -> str:
    """A 32-bit pattern as a signed constant."""
    return f"0x{value:X}" if value < 1 << 31 else f"-0x{(1 << 32) - value:X}"
