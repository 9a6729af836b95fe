"""Scalar functions, constants and element conversions as C++ expressions."""

from __future__ import annotations

import hashlib
import math
import struct

from ir.dtypes import STEPPED, compute_dtype, dtype_of, is_float, whole_range

LOG2E = 1.4426950408889634
NARROW = {name: f"tw_from_{name}" for name in ("bf16", "f16", "e4m3", "e5m2", "e2m1", "e8m0")}
STORAGE = {
    "bool": "u8", "u8": "u8", "i8": "i8", "u16": "u16", "i16": "i16", "u32": "u32", "i32": "i32",
    "i64": "i64", "bf16": "u16", "f16": "u16", "e4m3": "u8", "e5m2": "u8", "e8m0": "u8",
    "tf32": "f32", "f32": "f32", "f64": "f64", "u4": "u8", "i4": "i8", "i2": "i8", "e2m1": "u8",
}  # fmt: skip
_CLOSE = {"div": "tw_quotient({0}, {1})", "sqrt": "tw_root({0})"}
_TABLES = ("u8", "i8", "u16", "i16", "u32", "i32")  # that whole numbers are kept in
ROUNDED = ("e5m2", *STEPPED)  # what casts round in registers too


def register_type(dtype: str) -> str:
    """The C++ type in which a value of `dtype` is held: bool, i32, i64, f32 or f64."""
    return compute_dtype(dtype)


def literal(value: float, dtype: str) -> str:
    """A constant in the register type of `dtype`."""
    kind = register_type(dtype)
    if kind in ("i32", "i64"):
        limits = (-(2**31), 2**31 - 1) if kind == "i32" else (-(2**63), 2**63 - 1)
        whole = int(min(max(value, limits[0]), limits[1]))
        if whole == limits[0]:
            return f"({whole + 1}{'ll' if kind == 'i64' else ''} - 1)"
        return f"{whole}{'ll' if kind == 'i64' else ''}"
    if kind == "bool":
        return "true" if value else "false"
    if math.isinf(value):
        name = "TW_INF" if kind == "f32" else "TW_INF64"
        return name if value > 0 else f"-{name}"
    if math.isnan(value):
        return f"(TW_INF{'64' if kind == 'f64' else ''} * 0)"
    if kind == "f64":
        return repr(float(value))
    exact = struct.unpack("f", struct.pack("f", value))[0]
    return f"{exact!r}f"


def apply(function: str, dtype: str, arguments: list[str], operand: str, exact: bool = True) -> str:
    """`function` of ir.scalar on C++ expressions; `operand` is the dtype it computes in.

    Quotients and roots that need not be `exact` are as close as their row says.
    """
    a = arguments
    kind = register_type(operand)
    if kind == "i64" and function in ("add", "sub", "mul"):  # which may wrap
        sign = {"add": "+", "sub": "-", "mul": "*"}[function]
        return f"(i64)((u64){a[0]} {sign} (u64){a[1]})"
    simple = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "=="}
    if function in simple:
        return f"({a[0]} {simple[function]} {a[1]})"
    words = {
        "neg": "(-{0})", "and": "({0} && {1})", "or": "({0} || {1})", "not": "(!{0})",
        "where": "({0} ? {1} : {2})", "shr": "({0} >> {1})", "bitand": "({0} & {1})",
        "bitor": "({0} | {1})", "xor": "({0} ^ {1})", "mod": "tw_mod({0}, {1})",
        "floordiv": "tw_floordiv({0}, {1})", "popcount": "tw_popcount({0})",
        "philox": "tw_philox({0}, {1}, {2}, {3})", "unit": "tw_unit({0})",
    }  # fmt: skip
    if function in words:
        return words[function].format(*a)
    if kind not in ("f32", "f64") and function in ("floor", "ceil", "trunc", "round"):
        return a[0]
    if kind == "bool" and function in ("max", "min"):
        return f"({a[0]} {'||' if function == 'max' else '&&'} {a[1]})"
    if kind in ("i32", "i64") and function in ("abs", "max", "min"):
        if function == "abs":
            return f"({a[0]} < 0 ? -{a[0]} : {a[0]})"
        return f"{function}({a[0]}, {a[1]})"
    if kind == "f32" and not exact and function in _CLOSE:
        return _CLOSE[function].format(*a)
    return _real(function, a, kind == "f64")


def shift(function: str, value: str, amount: str, inside: bool) -> str:
    """value << amount or value >> amount; `inside`: amounts are known to be below the width."""
    if function == "shr" and inside:
        return f"({value} >> {amount})"
    return f"tw_{function}({value}, {amount})"


def bitcast(expression: str, source: str, target: str) -> str:
    """The bits of a value of dtype `source` as one of `target`, both in registers."""
    words = {"f32": "tw_bits({0})", "tf32": "tw_bits({0})", "f64": "tw_bits_64({0})"}
    bits = words[source].format(expression) if source in words else to_storage(expression, source)
    if target == "f64":
        return f"tw_float_64((u64){bits})"
    if target in ("f32", "tf32"):
        return f"tw_float((u32){bits})"
    if target in ("i32", "i64"):
        return f"({target}){bits}"
    return from_storage(f"({bits})", target)


def table_name(entries: tuple[float, ...], dtype: str) -> str:
    """What a table of constants is called: by its content, so that kernels share it."""
    text = repr((register_type(dtype), entries))
    return f"table_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def table_storage(entries: tuple[float, ...], dtype: str) -> str:
    """The type in which a table is kept: of whole numbers the narrowest that holds them all, so
    that fewer lines are looked up."""
    kind = register_type(dtype)
    if kind not in ("i32", "i64") or not entries:
        return kind
    ranges = ((name, *whole_range(name)) for name in _TABLES)
    low, high = min(entries), max(entries)
    return next((name for name, least, most in ranges if least <= low and high <= most), kind)


def table_text(entries: tuple[float, ...], dtype: str) -> str:
    """A table of constants in the device's memory."""
    kind, items = table_storage(entries, dtype), ", ".join(literal(e, dtype) for e in entries)
    return f"__device__ static const {kind} {table_name(entries, dtype)}[] = {{{items}}};"


def _real(function: str, a: list[str], wide: bool) -> str:
    """Functions of real numbers, in f64 if `wide`, else in f32 with the fast units."""
    if wide:
        names = {
            "div": "({0} / {1})", "abs": "fabs({0})", "max": "tw_most({0}, {1})",
            "min": "tw_least({0}, {1})", "exp": "exp({0})", "log": "log({0})", "sqrt": "sqrt({0})",
            "rsqrt": "(1.0 / sqrt({0}))", "tanh": "tanh({0})",
            "sigmoid": "(1.0 / (1.0 + exp(-{0})))", "erf": "erf({0})", "floor": "floor({0})",
            "ceil": "ceil({0})", "trunc": "trunc({0})", "round": "rint({0})", "sin": "sin({0})",
            "cos": "cos({0})", "log1p": "log1p({0})", "expm1": "expm1({0})",
        }  # fmt: skip
        return names[function].format(*a)
    names = {
        "div": "tw_divide({0}, {1})", "abs": "fabsf({0})", "max": "tw_most({0}, {1})",
        "min": "tw_least({0}, {1})", "exp": f"tw_exp2({{0}} * {LOG2E!r}f)",
        "log": "tw_log({0})", "sqrt": "tw_sqrt({0})", "rsqrt": "tw_rsqrt({0})",
        "tanh": "tw_tanh({0})", "sigmoid": "tw_sigmoid({0})", "erf": "tw_erf({0})",
        "floor": "floorf({0})", "ceil": "ceilf({0})", "trunc": "truncf({0})",
        "round": "rintf({0})", "sin": "tw_sin({0})", "cos": "tw_cos({0})", "log1p": "log1pf({0})",
        "expm1": "expm1f({0})",
    }  # fmt: skip
    return names[function].format(*a)


def convert(expression: str, source: str, target: str) -> str:
    """A value of dtype `source` as one of `target`, both in registers.

    A float that becomes a narrower float keeps its register: rounding happens where it is stored,
    but of those that lie far apart.
    """
    before, after = register_type(source), register_type(target)
    if target in ROUNDED and source != target:
        value = expression if before == "f32" else f"(f32){expression}"
        return f"tw_from_{target}(tw_to_{target}({value}))"
    if is_float(target) or before == after == "bool":
        return expression if before == after else f"({after}){expression}"
    if after == "bool":
        return f"({expression} != 0)"
    if is_float(before):
        return _whole(expression, target)
    if dtype_of(target).per_byte > 1:
        return _low_bits(expression if before == "i32" else f"(i32){expression}", target)
    narrow = target if target in ("i8", "u8", "i16", "u16", "u32") else ""
    cast = f"({after})({narrow})" if narrow else f"({after})"
    return f"{cast}{expression}" if before != after or narrow else expression


def within(expression: str, dtype: str) -> str:
    """A number that registers hold, with the range of the float type f16 or e4m3."""
    return f"tw_within_{dtype}({expression})"


def hidden(factor: str) -> str:
    """A factor that is not what memory holds, out of the compiler's sight: see `tw_factor`."""
    return f"tw_factor({factor})"


def _low_bits(expression: str, dtype: str) -> str:
    """The low bits of an i32 as a number of an integer dtype narrower than a byte."""
    row = dtype_of(dtype)
    if row.kind == "uint":
        return f"({expression} & {(1 << row.bits) - 1})"
    spread = f"(i32)((u32){expression} << {32 - row.bits}) >> {32 - row.bits}"
    return f"(i32)(i8){hidden(spread)}"


def _whole(expression: str, target: str) -> str:
    """A float as the nearest integer that dtype `target` has, in its register type."""
    if target == "i64":
        return f"tw_whole_64({expression})"
    if target == "i32":
        return f"tw_whole({expression})"
    low, high = whole_range(target)
    if target == "u32":
        return f"min(max(tw_whole_64({expression}), {low}ll), {high}ll)"
    return f"min(max(tw_whole({expression}), {low}), {high})"


def vector_type(size: int) -> str:
    """The type of `size` loaded bytes."""
    return {16: "tw_vec16", 8: "tw_vec8"}.get(size, "u32")


def element_of(words: str, size: int, place: int, dtype: str) -> str:
    """Element `place` of `size` loaded bytes of `dtype`, in its register type."""
    each = dtype_of(dtype).bytes
    if each == 8:
        whole = f"((u64){words}.w[{2 * place + 1}] << 32 | {words}.w[{2 * place}])"
        return f"tw_float_64({whole})" if dtype == "f64" else f"(i64){whole}"
    word = words if size <= 4 else f"{words}.w[{place * each // 4}]"
    return unpack(word, place, dtype)


def unpack(word: str, place: int, dtype: str) -> str:
    """Element `place` of a 32-bit word of elements of `dtype`, in its register type."""
    bits = 8 * dtype_of(dtype).bytes
    per_word = 32 // bits
    place %= per_word
    if dtype == "bf16":
        return f"tw_float({word} & 0xffff0000u)" if place else f"tw_float({word} << 16)"
    shifted = f"({word} >> {bits * place})" if place else word
    if dtype == "f16":
        return f"tw_from_f16({shifted} & 0xffffu)"
    if dtype in ("f32", "tf32"):
        return f"tw_float({word})"
    if dtype in ("i32", "u32"):
        return f"({register_type(dtype)}){word}"
    if dtype == "e4m3":
        pair = f"tw_pair_e4m3({word} >> 16)" if place > 1 else f"tw_pair_e4m3({word})"
        return f"tw_high_f16({pair})" if place % 2 else f"tw_from_f16({pair} & 0xffffu)"
    return from_storage(f"({shifted} & {(1 << bits) - 1:#x}u)", dtype)


def from_storage(raw: str, dtype: str) -> str:
    """A loaded element (of the storage type, as an integer or the type itself) in registers."""
    if dtype in NARROW:
        return f"{NARROW[dtype]}((u32){raw})"
    if dtype == "bool":
        return f"({raw} != 0)"
    if STORAGE[dtype] in ("i8", "u8", "i16", "u16", "u32"):
        return f"({register_type(dtype)})({STORAGE[dtype]}){raw}"
    return raw


def to_storage(value: str, dtype: str) -> str:
    """A register value as the storage type of `dtype`."""
    if dtype == "bf16":
        return f"(u16)tw_pack_bf16({value}, 0.0f)"
    if dtype == "f16":
        return f"(u16)tw_pack_f16({value}, 0.0f)"
    if dtype in NARROW:
        return f"(u8)tw_to_{dtype}({value})"
    if dtype == "bool":
        return f"(u8)({value} ? 1 : 0)"
    return f"({STORAGE[dtype]}){value}"


def pack_word(values: list[str], dtype: str) -> str:
    """Neighbouring register values as one 32-bit word."""
    if dtype in ("bf16", "f16"):
        return f"tw_pack_{dtype}({values[0]}, {values[1]})"
    if dtype == "e4m3" and len(values) == 4:
        return f"tw_pack_e4m3({', '.join(values)})"
    if dtype in ("f32", "tf32"):
        return f"tw_bits({values[0]})"
    if dtype in ("i32", "u32"):
        return f"(u32){values[0]}"
    bits = 8 * dtype_of(dtype).bytes
    parts = [f"((u32){to_storage(value, dtype)} & {(1 << bits) - 1:#x}u)" for value in values]
    return " | ".join(f"({p} << {bits * i})" if i else p for i, p in enumerate(parts))
