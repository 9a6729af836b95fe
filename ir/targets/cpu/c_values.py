"""Nest instructions as C expressions: arithmetic, conversions, loads. Owns no statements."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ir.targets.cpu.c_prelude import Prelude
from ir.targets.cpu.narrow import FORMATS, pattern
from ir.targets.cpu.nest import Instruction, Type, Value
from ir.targets.cpu.permutes import in_registers

# How tightly an expression binds
LOOSE, SUM, PRODUCT, UNARY, ATOM = range(5)

_ARITHMETIC = {
    "iadd": ("+", SUM), "isub": ("-", SUM), "imul": ("*", PRODUCT), "idiv": ("/", PRODUCT),
    "irem": ("%", PRODUCT), "sdiv": ("/", PRODUCT), "srem": ("%", PRODUCT),
    "fadd": ("+", SUM), "fsub": ("-", SUM), "fmul": ("*", PRODUCT),
    "fdiv": ("/", PRODUCT), "and": ("&", LOOSE), "or": ("|", LOOSE), "xor": ("^", LOOSE),
    "shl": ("<<", LOOSE), "ashr": (">>", LOOSE),
}  # fmt: skip
_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_EXTREMES = {"imin": "min", "imax": "max", "fmin": "min", "fmax": "max"}
_WHOLE_EXTREMES = {"fminimum": "min", "fmaximum": "max"}
_FLOATS = ("f32", "f64")
_WHOLE = ("i8", "i16", "i32", "i64")
_NARROW = ("i8", "i16", *FORMATS)


@dataclass(frozen=True, slots=True)
class Expression:
    """C text, how tightly it binds, and the mutable variables that it reads."""

    text: str
    level: int = ATOM
    reads: frozenset[str] = frozenset()

    def at(self, level: int) -> str:
        """The text as an operand of something that binds at `level`."""
        return self.text if self.level >= level else f"({self.text})"


def scalar_literal(value: float, scalar: str) -> str:
    """A scalar constant in C."""
    if scalar in FORMATS:
        return f"0x{pattern(value, scalar):0{FORMATS[scalar].bits // 4}X}"
    if scalar not in ("f32", "f64"):
        lowest = scalar == "i64" and int(value) == -(2**63)  # in C, its size is a number before
        return f"({int(value) + 1} - 1)" if lowest else str(int(value))
    suffix = "f" if scalar == "f32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = _shortest(value) if scalar == "f32" else repr(value)
    return text + ("" if any(c in text for c in ".e") else ".0") + suffix


def _shortest(value: float) -> str:
    """The fewest digits that give the same f32."""
    exact = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(1, 10):
        text = f"{exact:.{digits}g}"
        try:
            if struct.unpack("f", struct.pack("f", float(text)))[0] == exact:
                return text
        except OverflowError:
            continue
    return repr(exact)


class Values:
    """Expressions of values that are known by now; `known` maps value ids to them."""

    def __init__(self, prelude: Prelude) -> None:
        self.prelude = prelude
        self.known: dict[int, Expression] = {}
        self.constants: dict[int, float] = {}
        self.numbers: dict[int, float] = {}  # the same, and splats of them

    def operand(self, operand: Any) -> Expression:
        """The expression of a value or of a plain index."""
        if not isinstance(operand, Value):
            return Expression(str(operand), ATOM if operand >= 0 else UNARY)
        return self.known[operand.id]

    def expression(self, i: Instruction) -> Expression:
        """What instruction `i` computes; operands must be known."""
        reads = frozenset().union(*(self.operand(a).reads for a in i.args if isinstance(a, Value)))
        text, level = self._dispatch(i)
        return Expression(text, level, reads)

    def _dispatch(self, i: Instruction) -> tuple[str, int]:
        if i.op in _ARITHMETIC:
            return self._arithmetic(i)
        if i.op in _EXTREMES:
            return self._call(self.prelude.extreme(_EXTREMES[i.op], _type(i)), *i.args)
        if i.op in _WHOLE_EXTREMES:
            return self._whole_extreme(_WHOLE_EXTREMES[i.op], i)
        if i.op in ("fsqrt", "floor", "ceil", "trunc", "round"):
            return self._call(self.prelude.math(i.op, _type(i)), *i.args)
        method: Callable[[Instruction], tuple[str, int]] = getattr(self, f"_op_{i.op}")
        return method(i)

    def _call(self, name: str, *args: Any) -> tuple[str, int]:
        return f"{name}({', '.join(self.operand(a).text for a in args)})", ATOM

    # -- constants

    def constant(self, i: Instruction) -> Expression:
        """A literal; a vector of equal lanes is `{0}` cast, or a splat."""
        assert i.result is not None
        type, value = i.result.type, i.args[0]
        if type.scalar == "i1" and type.lanes:
            value = -int(value)
        self.constants[i.result.id] = self.numbers[i.result.id] = value
        name = self.prelude.type(type)
        if type.lanes and value == 0 and math.copysign(1, value) > 0:
            return Expression(f"({name}){{0}}", UNARY)
        text = scalar_literal(value, "i32" if type.scalar == "i1" else type.scalar)
        if type.lanes:
            return Expression(f"{self.prelude.splat(type)}({text})")
        return Expression(text, UNARY if text.startswith(("-", "(")) else ATOM)

    def _bare(self, value: Any, other: Any, level: int) -> str:
        """An operand of vector arithmetic; a constant beside a vector needs no splat."""
        if isinstance(value, Value) and value.type.lanes and value.id in self.constants:
            constant = self.constants[value.id]
            narrow = value.type.scalar in _NARROW or value.type.scalar == "i1"
            if not narrow and getattr(other, "id", None) not in self.constants:
                text = scalar_literal(constant, value.type.scalar)
                return f"({text})" if text.startswith("-") and level > SUM else text
        return self.operand(value).at(level)

    # -- arithmetic

    def _arithmetic(self, i: Instruction) -> tuple[str, int]:
        sign, level = _ARITHMETIC[i.op]
        left, right = i.args
        if "wraps" in i.attrs:
            return self._wrapping(i, sign)
        # Sums of indices may be regrouped, sums of floats may not.
        tight = level if i.op == "iadd" else level + 1
        low, high = (level, tight) if level > LOOSE else (UNARY, UNARY)
        return f"{self._bare(left, right, low)} {sign} {self._bare(right, left, high)}", level

    def _wrapping(self, i: Instruction, sign: str) -> tuple[str, int]:
        """Arithmetic modulo a power of two, which is that of unsigned numbers as wide."""
        type = _type(i)
        scalar = "u" + type.scalar[1:]
        kind = f"uint{scalar[1:]}_t"
        if type.lanes:
            kind = self.prelude.vector(scalar, type.lanes)
        left, right = (f"({kind}){self.operand(a).at(UNARY)}" for a in i.args)
        return f"({self.prelude.type(type)})({left} {sign} {right})", UNARY

    def _op_lshr(self, i: Instruction) -> tuple[str, int]:
        type = _type(i)
        if type.lanes:
            kind = self.prelude.vector("u" + type.scalar[1:], type.lanes)
        else:
            kind = f"u{self.prelude.type(type)}"
        left, right = i.args
        shifted = f"({kind}){self.operand(left).at(UNARY)} >> {self._bare(right, left, ATOM)}"
        return f"({self.prelude.type(type)})({shifted})", UNARY

    def _op_fma(self, i: Instruction) -> tuple[str, int]:
        x, y, z = i.args
        constants = [getattr(a, "id", None) in self.constants for a in (x, y)]
        left = self._bare(x, y, PRODUCT) if not all(constants) else self.operand(x).at(PRODUCT)
        right = self._bare(y, x, UNARY) if not all(constants) else self.operand(y).at(UNARY)
        last = self._bare(z, None, PRODUCT) if not all(constants) else self.operand(z).at(PRODUCT)
        if last.startswith("-") and self.constants.get(z.id, 0) < 0:
            return f"{left} * {right} - {last[1:]}", SUM
        return f"{left} * {right} + {last}", SUM

    def _op_fneg(self, i: Instruction) -> tuple[str, int]:
        return f"-{self.operand(i.args[0]).at(ATOM)}", UNARY

    def _op_fabs(self, i: Instruction) -> tuple[str, int]:
        type, value = _type(i), self.operand(i.args[0])
        if not type.lanes:
            return f"__builtin_fabs{'f' if type.scalar == 'f32' else ''}({value.text})", ATOM
        bits = 8 * type.bytes // type.lanes
        integer = self.prelude.vector(f"i{bits}", type.lanes)
        most = f"0x{(1 << bits - 1) - 1:x}"
        return f"({self.prelude.type(type)})(({integer}){value.at(UNARY)} & {most})", UNARY

    def _whole_extreme(self, kind: str, i: Instruction) -> tuple[str, int]:
        """NaN if either is; a number known here, put first, saves half of the work."""
        left, right = i.args
        if self._is_number(right):
            left, right = right, left
        if self._is_number(left):
            return self._call(self.prelude.extreme(kind, _type(i)), left, right)
        return self._call(self.prelude.whole_extreme(kind, _type(i)), left, right)

    def _is_number(self, value: Value) -> bool:
        known = self.numbers.get(value.id)
        return known is not None and not math.isnan(known)

    # -- tests

    def _op_icmp(self, i: Instruction) -> tuple[str, int]:
        left, right = (self.operand(a).at(SUM) for a in i.args)
        return f"{left} {_PREDICATES[i.attrs['predicate']]} {right}", LOOSE

    def _op_cmp(self, i: Instruction) -> tuple[str, int]:
        left, right = i.args
        type = left.type
        text = (f"{self._bare(left, right, SUM)} {_PREDICATES[i.attrs['predicate']]} "
                f"{self._bare(right, left, SUM)}")  # fmt: skip
        if not type.lanes:
            return text, LOOSE
        mask = self.prelude.vector("i32", type.lanes)
        if type.bytes == 4 * type.lanes:
            return f"({mask})({text})", UNARY
        return f"__builtin_convertvector({text}, {mask})", ATOM

    def _op_select(self, i: Instruction) -> tuple[str, int]:
        condition, yes, no = i.args
        if condition.type.lanes:
            return self._call(self.prelude.select(_type(i)), condition, yes, no)
        texts = [self.operand(a).at(SUM) for a in (condition, yes, no)]
        return f"{texts[0]} ? {texts[1]} : {texts[2]}", LOOSE

    # -- conversions

    def _op_convert(self, i: Instruction) -> tuple[str, int]:
        source, target = i.args[0].type, _type(i)
        value = self.operand(i.args[0])
        formats = FORMATS.get(source.scalar), FORMATS.get(target.scalar)
        if formats[0]:
            return f"{self.prelude.widen(formats[0], source.lanes)}({value.text})", ATOM
        if formats[1]:
            return f"{self.prelude.narrow(formats[1], source.lanes)}({value.text})", ATOM
        if source.scalar in _FLOATS and target.scalar in _WHOLE and not i.attrs.get("inside"):
            return f"{self.prelude.saturate(source, target)}({value.text})", ATOM
        if source.lanes:
            return self._convert_vector(value, source, target, i.attrs["unsigned"])
        return self._convert_scalar(value, source, target, i.attrs["unsigned"])

    def _convert_vector(
        self, value: Expression, source: Type, target: Type, unsigned: bool
    ) -> tuple[str, int]:
        p, lanes = self.prelude, source.lanes
        if target.scalar == "i1":
            wide = f"__builtin_convertvector({value.text}, {p.vector('i32', lanes)})"
            return f"-({wide} & 1)", UNARY
        if source.scalar == "i1":
            ones = f"{value.at(ATOM)} & 1"
            return f"__builtin_convertvector({ones}, {p.type(target)})", ATOM
        if unsigned and source.scalar not in _FLOATS:
            value = Expression(
                f"({p.vector('u' + source.scalar[1:], lanes)}){value.at(UNARY)}", UNARY
            )
        return f"__builtin_convertvector({value.text}, {p.type(target)})", ATOM

    def _convert_scalar(
        self, value: Expression, source: Type, target: Type, unsigned: bool
    ) -> tuple[str, int]:
        if target.scalar == "i1":
            return f"(int){value.at(UNARY)} & 1", LOOSE
        text = value.at(UNARY)
        if unsigned and source.scalar not in (*_FLOATS, "i1"):
            text = f"(u{self.prelude.type(source)}){text}"
        return f"({self.prelude.type(target)}){text}", UNARY

    def _op_bitcast(self, i: Instruction) -> tuple[str, int]:
        source, target = i.args[0].type, _type(i)
        value = self.operand(i.args[0])
        if source.lanes and target.lanes:
            return f"({self.prelude.type(target)}){value.at(UNARY)}", UNARY
        if not source.lanes and not target.lanes:
            return f"{self.prelude.bits(source, target)}({value.text})", ATOM
        raise ValueError(f"bitcast of {source} to {target}")

    # -- lanes

    def _op_table(self, i: Instruction) -> tuple[str, int]:
        assert i.result is not None
        entries, scalar = i.args
        items = ", ".join(scalar_literal(entry, scalar) for entry in entries)
        name = self.prelude.table(f"table{i.result.id}", scalar, len(entries), items)
        return f"(char *){name}", UNARY

    def _op_chosen(self, i: Instruction) -> tuple[str, int]:
        assert i.result is not None
        type, entries = i.result.type, i.attrs["entries"]
        parts = [
            ", ".join(scalar_literal(entry, type.scalar) for entry in part)
            for part in in_registers(entries, type.lanes)
        ]
        name = self.prelude.chosen(f"entries{i.result.id}", type, parts)
        return self._call(name, *i.args)

    def _op_lanes(self, i: Instruction) -> tuple[str, int]:
        return f"{self.prelude.lanes(_type(i))}()", ATOM

    def _op_splat(self, i: Instruction) -> tuple[str, int]:
        value, name = self.operand(i.args[0]), self.prelude.splat(_type(i))
        if i.result is not None and i.args[0].id in self.numbers:
            self.numbers[i.result.id] = self.numbers[i.args[0].id]
        if i.args[0].type.scalar == "i1":
            return f"{name}(-{value.at(ATOM)})", ATOM
        return f"{name}({value.text})", ATOM

    def _op_fold(self, i: Instruction) -> tuple[str, int]:
        return self._call(self.prelude.fold(i.attrs["kind"], i.args[0].type), *i.args)

    def _op_interleave(self, i: Instruction) -> tuple[str, int]:
        return self._call(self.prelude.interleave(i.args[0].type), *i.args)

    # -- memory

    def address(self, pointer: Any, at: int) -> Expression:
        """pointer + at bytes."""
        base = self.operand(pointer)
        if at == 0:
            return base
        sign, size = ("+", at) if at > 0 else ("-", -at)
        return Expression(f"{base.at(SUM)} {sign} {size}", SUM, base.reads)

    def _op_offset(self, i: Instruction) -> tuple[str, int]:
        return f"{self.operand(i.args[0]).at(SUM)} + {self.operand(i.args[1]).at(SUM)}", SUM

    def _op_load(self, i: Instruction) -> tuple[str, int]:
        type, pointer = _type(i), self.address(i.args[0], i.attrs["at"])
        if i.attrs["mask"]:
            return f"{self.prelude.load_first(type)}({pointer.text}, {i.attrs['mask']})", ATOM
        return f"{self.prelude.load(type)}({pointer.text})", ATOM

    def _op_gather(self, i: Instruction) -> tuple[str, int]:
        type, stride = _type(i), i.attrs["stride"]
        pointer, count = self.address(i.args[0], i.attrs["at"]), i.attrs["mask"] or type.lanes
        name = self.prelude.gather(type, near_stride(stride, type.lanes))
        return f"{name}({pointer.text}, {stride}, {count})", ATOM

    def _op_gather_at(self, i: Instruction) -> tuple[str, int]:
        return self._call(self.prelude.gather_at(_type(i)), *i.args)

    # -- instruction rows and calls

    def _op_intrinsic(self, i: Instruction) -> tuple[str, int]:
        row = i.attrs["row"]
        self.prelude.headers.add(row.header)
        if i.result is not None:
            self.prelude.type(i.result.type)
        return row.c.format(*(self.operand(a).at(ATOM) for a in i.args)), UNARY

    def _op_call(self, i: Instruction) -> tuple[str, int]:
        return self._call(i.attrs["callee"], *i.args)


def near_stride(stride: int, lanes: int) -> bool:
    """Whether lane offsets fit 32 bits."""
    return abs(stride) * lanes < 2**31


def _type(i: Instruction) -> Type:
    assert i.result is not None
    return i.result.type
