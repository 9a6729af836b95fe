"""The C that stands before a printed nest: vector types and the small helpers that it uses.

Helpers work with any compiler that has GNU vectors; where the machine has an instruction for the
whole vector, they use it. Knows nest types; no functions, no programs.
"""

from __future__ import annotations

from ir.targets.cpu.c_narrow import (
    narrowing,
    scalar_narrowing,
    scalar_widening,
    widening,
    with_instruction,
)
from ir.targets.cpu.narrow import Format
from ir.targets.cpu.nest import Type
from ir.targets.cpu.permutes import permute_row

_SCALARS = {
    "i1": "int", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "bf16": "uint16_t", "f16": "uint16_t", "e4m3": "uint8_t",
    "e5m2": "uint8_t", "e2m1": "uint8_t", "e8m0": "uint8_t",
    "f32": "float", "f64": "double", "ptr": "char *",
}  # fmt: skip
_WIDTHS = {16: "_mm", 32: "_mm256", 64: "_mm512"}
_MATH = {
    "fsqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "nearbyint",
}  # fmt: skip
INLINE = "static inline __attribute__((always_inline, unused)) "


def scalar_bytes(scalar: str) -> int:
    """Bytes of one element, unsigned ones included."""
    return Type(scalar.replace("u", "i") if scalar.startswith("u") else scalar).bytes


class Prelude:
    """Collects what a function uses, in the order of first use; `text` prints it."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._helpers: dict[str, str] = {}
        self.headers: set[str] = set()

    def text(self) -> str:
        """Includes, types and helpers."""
        lines = ["#include <stdint.h>", "#include <string.h>"]
        if self.headers:
            lines += ["#if defined(__x86_64__)"]
            lines += [f"#include <{header}>" for header in sorted(self.headers)]
            lines += ["#endif"]
        quiet = '#pragma GCC diagnostic ignored "-Wpsabi"'
        parts = ["\n".join([*lines, quiet]), "\n".join(self._types.values())]
        return "\n\n".join([part for part in parts if part] + list(self._helpers.values())) + "\n"

    # -- types

    def type(self, type: Type) -> str:
        """C's name of a type; masks are vectors of 32-bit integers, 0 or -1."""
        if not type.lanes:
            return _SCALARS[type.scalar]
        return self.vector("i32" if type.scalar == "i1" else type.scalar, type.lanes)

    def vector(self, scalar: str, lanes: int) -> str:
        name = f"v{lanes}{scalar}"
        if name not in self._types:
            size = lanes * scalar_bytes(scalar)
            attribute = f"__attribute__((vector_size({size})))"
            self._types[name] = f"typedef {_SCALARS[scalar]} {name} {attribute};"
        return name

    def _unaligned(self, type: Type) -> str:
        """The type as it may lie anywhere in memory, between anything else."""
        plain = self.type(type)
        name = f"{plain if type.lanes else type.scalar}_at"
        base, size = _SCALARS[type.scalar], f"vector_size({type.bytes}), " if type.lanes else ""
        attribute = f"__attribute__(({size}aligned(1), may_alias))"
        self._types.setdefault(name, f"typedef {base} {name} {attribute};")
        return name

    def _name(self, type: Type) -> str:
        return self.type(type) if type.lanes else type.scalar

    def _add(self, name: str, result: str, parameters: str, *body: str) -> str:
        if name not in self._helpers:
            if len(body) == 1 and not body[0].startswith("#"):
                line = f"{INLINE}{result} {name}({parameters}) {{ {body[0]} }}"
                if len(line) <= 100:
                    self._helpers[name] = line
                    return name
            text = "\n".join(line if line.startswith("#") else f"  {line}" for line in body)
            self._helpers[name] = f"{INLINE}{result} {name}({parameters}) {{\n{text}\n}}"
        return name

    def comment(self, name: str, text: str) -> None:
        """Say something once, before the helpers that follow."""
        self._helpers.setdefault(name, f"/* {text} */")

    def declare(self, name: str, text: str) -> None:
        """A declaration of something defined elsewhere."""
        self._helpers.setdefault(name, text)

    def table(self, name: str, scalar: str, count: int, items: str) -> str:
        """A table of constants."""
        self.declare(name, f"static const {_SCALARS[scalar]} {name}[{count}] = {{{items}}};")
        return name

    # -- memory

    def load(self, type: Type) -> str:
        at = self._unaligned(type)
        body = f"return *(const {at} *)p;"
        return self._add(f"load_{self._name(type)}", self.type(type), "const char *p", body)

    def store(self, type: Type) -> str:
        at = self._unaligned(type)
        return self._add(
            f"store_{self._name(type)}", "void", f"char *p, {self.type(type)} x",
            f"*({at} *)p = x;",
        )  # fmt: skip

    def load_first(self, type: Type) -> str:
        """Reads the first n lanes; the others are 0."""
        name, size = self.type(type), scalar_bytes(type.scalar)
        masked, unit = _family(type), f"epi{8 * size}"
        plain = (f"{name} x = {{0}};", f"memcpy(&x, p, (size_t)n * {size});", "return x;")
        body: tuple[str, ...] = plain
        if masked:
            guard, prefix, mask = masked
            self.headers.add("immintrin.h")
            body = (
                f"#if {guard}", f"return ({name}){prefix}_maskz_loadu_{unit}({mask}, p);",
                *_avx2(type, f"return ({name})_mm256_maskload_epi32((const int *)p, ", ");"),
                "#else", *plain, "#endif",
            )  # fmt: skip
            if "AVX2" in "".join(body):
                self.vector("i32", type.lanes)
        return self._add(f"load_first_{name}", name, "const char *p, int n", *body)

    def store_first(self, type: Type) -> str:
        """Writes the first n lanes."""
        name, size = self.type(type), scalar_bytes(type.scalar)
        masked, unit = _family(type), f"epi{8 * size}"
        body: tuple[str, ...] = (f"memcpy(p, &x, (size_t)n * {size});",)
        if masked:
            guard, prefix, mask = masked
            self.headers.add("immintrin.h")
            kind = "__m512i" if type.bytes == 64 else f"__m{8 * type.bytes}i"
            body = (
                f"#if {guard}", f"{prefix}_mask_storeu_{unit}(p, {mask}, ({kind})x);",
                *_avx2(type, "_mm256_maskstore_epi32((int *)p, ", ", (__m256i)x);"),
                "#else", *body, "#endif",
            )  # fmt: skip
            if "AVX2" in "".join(body):
                self.vector("i32", type.lanes)
        return self._add(f"store_first_{name}", "void", f"char *p, {name} x, int n", *body)

    def stream(self, type: Type) -> str:
        """A store that bypasses the caches, where the address allows it."""
        plain, name = self.store(type), self.type(type)
        rows = {
            64: ("__AVX512F__", "_mm512_stream_si512((__m512i *)", "__m512i"),
            32: ("__AVX__", "_mm256_stream_si256((__m256i *)", "__m256i"),
            16: ("__SSE2__", "_mm_stream_si128((__m128i *)", "__m128i"),
        }  # fmt: skip
        body: tuple[str, ...] = (f"{plain}(p, x);",)
        if type.bytes in rows:
            macro, call, kind = rows[type.bytes]
            self.headers.add("immintrin.h")
            body = (
                f"#if defined({macro})", f"if ((uintptr_t)p % {type.bytes} == 0) {{",
                f"  {call}p, ({kind})x);", "  return;", "}", "#endif", *body,
            )  # fmt: skip
        return self._add(f"stream_{name}", "void", f"char *p, {name} x", *body)

    def gather(self, type: Type, near: bool) -> str:
        """Lane l < n reads p + l * stride; the others are 0. `near`: offsets fit 32 bits."""
        name, one = self.type(type), self.load(Type(type.scalar))
        plain = (
            f"{name} x = {{0}};", f"for (int l = 0; l < n; l++) x[l] = {one}(p + l * stride);",
            "return x;",
        )  # fmt: skip
        body: tuple[str, ...] = plain
        whole = near and type.bytes == 64 and type.lanes == 16
        if whole:
            self.headers.add("immintrin.h")
            zero = "_mm512_setzero_si512()"
            call = f"_mm512_mask_i32gather_epi32({zero}, (__mmask16)((1u << n) - 1),"
            body = (
                "#if defined(__AVX512F__)", self._lane_steps(),
                f"return ({name}){call} (__m512i)at, p, 1);", "#else", *plain, "#endif",
            )  # fmt: skip
        stem = "gather" if whole or not near else "collect"
        stem = stem if near else "collect"
        return self._add(f"{stem}_{name}", name, "const char *p, int64_t stride, int n", *body)

    def scatter(self, type: Type, near: bool) -> str:
        """Lane l < n writes p + l * stride."""
        name, one = self.type(type), self.store(Type(type.scalar))
        plain = f"for (int l = 0; l < n; l++) {one}(p + l * stride, x[l]);"
        body: tuple[str, ...] = (plain,)
        whole = near and type.bytes == 64 and type.lanes == 16
        if whole:
            self.headers.add("immintrin.h")
            call = "_mm512_mask_i32scatter_epi32(p, (__mmask16)((1u << n) - 1),"
            body = (
                "#if defined(__AVX512F__)", self._lane_steps(),
                f"{call} (__m512i)at, (__m512i)x, 1);", "#else", plain, "#endif",
            )  # fmt: skip
        stem = "scatter" if whole else "spread"
        parameters = f"char *p, {name} x, int64_t stride, int n"
        return self._add(f"{stem}_{name}", "void", parameters, *body)

    def _lane_steps(self) -> str:
        return f"{self.vector('i32', 16)} at = {self.lanes(Type('i32', 16))}() * (int32_t)stride;"

    def gather_at(self, type: Type) -> str:
        """Lane l reads p + at[l]."""
        name, one = self.type(type), self.load(Type(type.scalar))
        offsets = self.vector("i64", type.lanes)
        return self._add(
            f"gather_at_{name}", name, f"const char *p, {offsets} at", f"{name} x = {{0}};",
            f"for (int l = 0; l < {type.lanes}; l++) x[l] = {one}(p + at[l]);", "return x;",
        )  # fmt: skip

    def chosen(self, name: str, type: Type, parts: list[str]) -> str:
        """Lane l is entry at[l] of a table that is given as vectors, the last one filled up."""
        kind, indices = self.type(type), self.vector("i32", type.lanes)
        row = permute_row(type.lanes, type.lanes * len(parts))
        count = type.lanes * len(parts)
        table = f"static const {_SCALARS[type.scalar]} table[{count}] = {{{', '.join(parts)}}};"
        body: tuple[str, ...] = (
            table, f"{kind} x = {{0}};",
            f"for (int l = 0; l < {type.lanes}; l++) x[l] = table[at[l]];", "return x;",
        )  # fmt: skip
        if row is not None:
            self.headers.add("immintrin.h")
            vectors = (f"{kind} t{n} = {{{part}}};" for n, part in enumerate(parts))
            body = (
                f"#if defined({row.macro})", *vectors, f"return ({kind}){row.c};", "#else", *body,
                "#endif",
            )  # fmt: skip
        return self._add(f"{name}_of_{kind}", kind, f"{indices} at", *body)

    # -- values

    def splat(self, type: Type) -> str:
        name = self.type(type)
        scalar = "i32" if type.scalar == "i1" else type.scalar
        lanes = ", ".join(["x"] * type.lanes)
        return self._add(
            f"splat_{name}", name, f"{_SCALARS[scalar]} x", f"return ({name}){{{lanes}}};"
        )

    def lanes(self, type: Type) -> str:
        name = self.type(type)
        items = ", ".join(str(lane) for lane in range(type.lanes))
        return self._add(f"lanes_{name}", name, "void", f"return ({name}){{{items}}};")

    def bits(self, source: Type, target: Type) -> str:
        """The bits of one scalar as another."""
        kind = self.type(target)
        return self._add(
            f"{target.scalar}_bits_of_{source.scalar}", kind, f"{self.type(source)} x",
            f"{kind} y;", "memcpy(&y, &x, sizeof y);", "return y;",
        )  # fmt: skip

    def select(self, type: Type) -> str:
        """Lanes of yes where the mask is set, of no elsewhere."""
        name = self.type(type)
        scalar = "i32" if type.scalar == "i1" else type.scalar
        integer = self.vector(f"i{8 * scalar_bytes(scalar)}", type.lanes)
        mask = self.vector("i32", type.lanes)
        m = "m" if integer == mask else f"__builtin_convertvector(m, {integer})"
        body = f"return ({name})((({integer})yes & {m}) | (({integer})no & ~{m}));"
        return self._add(f"select_{name}", name, f"{mask} m, {name} yes, {name} no", body)

    def extreme(self, kind: str, type: Type) -> str:
        """max or min; a NaN in either operand gives the second."""
        name, sign = self.type(type), {"max": ">", "min": "<"}[kind]
        if not type.lanes:
            body = f"return a {sign} b ? a : b;"
            return self._add(f"{kind}_{type.scalar}", name, f"{name} a, {name} b", body)
        integer = self.vector(f"i{8 * scalar_bytes(type.scalar)}", type.lanes)
        body_lines: tuple[str, ...] = (
            f"{integer} m = a {sign} b;",
            f"return ({name})((({integer})a & m) | (({integer})b & ~m));",
        )
        if type == Type("f32", 16):
            self.headers.add("immintrin.h")
            call = f"return ({name})_mm512_{kind}_ps((__m512)a, (__m512)b);"
            body_lines = ("#if defined(__AVX512F__)", call, "#else", *body_lines, "#endif")
        return self._add(f"{kind}_{name}", name, f"{name} a, {name} b", *body_lines)

    def whole_extreme(self, kind: str, type: Type) -> str:
        """max or min; NaN if either operand is."""
        name, sign = self.type(type), {"max": ">", "min": "<"}[kind]
        word = {"max": "maximum", "min": "minimum"}[kind]
        if not type.lanes:
            body = f"return b {sign} a || b != b ? b : a;"
            return self._add(f"{word}_{type.scalar}", name, f"{name} a, {name} b", body)
        integer = self.vector(f"i{8 * scalar_bytes(type.scalar)}", type.lanes)
        body_lines: tuple[str, ...] = (
            f"{integer} m = (b {sign} a) | (b != b);",
            f"return ({name})((({integer})b & m) | (({integer})a & ~m));",
        )
        if type == Type("f32", 16):
            self.headers.add("immintrin.h")
            mask = "_mm512_cmp_ps_mask((__m512)b, (__m512)b, _CMP_UNORD_Q)"
            body_lines = (
                "#if defined(__AVX512F__)", f"__m512 x = _mm512_{kind}_ps((__m512)b, (__m512)a);",
                f"return ({name})_mm512_mask_mov_ps(x, {mask}, (__m512)b);",
                "#else", *body_lines, "#endif",
            )  # fmt: skip
        return self._add(f"{word}_{name}", name, f"{name} a, {name} b", *body_lines)

    def saturate(self, source: Type, target: Type) -> str:
        """A float truncated to the nearest integer that there is; 0 of NaN."""
        name, to = self.type(source), self.type(target)
        bits = 8 * scalar_bytes(target.scalar)
        one, each = ("x[l]", "y[l]") if source.lanes else ("x", "y")
        # -2^n and 2^n are floats, the largest integer is none
        limit = f"{2.0 ** (bits - 1)!r}{'f' if source.scalar == 'f32' else ''}"
        line = (
            f"{each} = {one} >= {limit} ? INT{bits}_MAX : {one} >= -{limit} ? (int{bits}_t){one}"
            f" : {one} != {one} ? 0 : INT{bits}_MIN;"
        )
        loop = f"for (int l = 0; l < {source.lanes}; l++) " if source.lanes else ""
        return self._add(
            f"{target.scalar}_within_{self._name(source)}", to, f"{name} x",
            f"{to} y;", f"{loop}{line}", "return y;",
        )  # fmt: skip

    def math(self, op: str, type: Type) -> str:
        """fsqrt, floor, ceil, trunc or round (to nearest even)."""
        scalar = f"__builtin_{_MATH[op]}{'f' if type.scalar == 'f32' else ''}"
        if not type.lanes:
            return scalar
        name = self.type(type)
        loop = f"for (int l = 0; l < {type.lanes}; l++) x[l] = {scalar}(x[l]);"
        body: tuple[str, ...] = (loop, "return x;")
        if type.bytes in (32, 64):
            self.headers.add("immintrin.h")
            macro = "__AVX512F__" if type.bytes == 64 else "__AVX__"
            body = (f"#if defined({macro})", self._whole(op, type), "#else", *body, "#endif")
        return self._add(f"{_MATH[op]}_{name}", name, f"{name} x", *body)

    def _whole(self, op: str, type: Type) -> str:
        """The instruction on a whole register."""
        kind = "ps" if type.scalar == "f32" else "pd"
        register = f"__m{8 * type.bytes}" + ("d" if kind == "pd" else "")
        prefix = _WIDTHS[type.bytes]
        if op == "fsqrt":
            return f"return ({self.type(type)}){prefix}_sqrt_{kind}(({register})x);"
        call = "roundscale" if type.bytes == 64 else "round"
        mode = {"floor": 9, "ceil": 10, "trunc": 11, "round": 8}[op]
        return f"return ({self.type(type)}){prefix}_{call}_{kind}(({register})x, {mode});"

    def fold(self, kind: str, type: Type) -> str:
        """All lanes combined: sum, prod, max or min."""
        self._shuffle()
        name, scalar = self.type(type), self.type(Type(type.scalar))
        wide = "i32" if type.scalar == "i1" else type.scalar
        indices = self.vector(f"i{8 * scalar_bytes(wide)}", type.lanes)
        lines, width = [], type.lanes // 2
        while width:
            turned = ", ".join(str((lane + width) % type.lanes) for lane in range(type.lanes))
            other = f"TURNED(x, {indices}, {turned})"
            if type.scalar == "i1":
                lines.append(f"x {'|' if kind in ('sum', 'max') else '&'}= {other};")
            elif kind in ("sum", "prod"):
                lines.append(f"x {'+' if kind == 'sum' else '*'}= {other};")
            else:
                extreme = self.whole_extreme if type.is_float else self.extreme
                lines.append(f"x = {extreme(kind, type)}(x, {other});")
            width //= 2
        last = "return x[0] & 1;" if type.scalar == "i1" else "return x[0];"
        return self._add(f"{kind}_of_{name}", scalar, f"{name} x", *lines, last)

    def _shuffle(self) -> None:
        self._helpers.setdefault(
            "TURNED",
            "#if defined(__clang__) || __GNUC__ >= 12\n"
            "#define TURNED(x, indices, ...) __builtin_shufflevector(x, x, __VA_ARGS__)\n"
            "#else\n"
            "#define TURNED(x, indices, ...) __builtin_shuffle(x, (indices){__VA_ARGS__})\n"
            "#endif",
        )

    def interleave(self, type: Type) -> str:
        """a0 b0 a1 b1 ...; `type` is that of the operands."""
        half, whole = self.type(type), self.vector(type.scalar, 2 * type.lanes)
        order = ", ".join(f"{lane}, {lane + type.lanes}" for lane in range(type.lanes))
        items = ", ".join(f"a[{lane}], b[{lane}]" for lane in range(type.lanes))
        return self._add(
            f"interleave_{half}", whole, f"{half} a, {half} b",
            "#if defined(__clang__) || __GNUC__ >= 12",
            f"return __builtin_shufflevector(a, b, {order});", "#else",
            f"return ({whole}){{{items}}};", "#endif",
        )  # fmt: skip

    # -- narrow floats: stored as bit patterns

    def widen(self, format: Format, lanes: int) -> str:
        """f32 from a narrow float."""
        narrow, f32 = self.type(Type(format.name, lanes)), self.type(Type("f32", lanes))
        if lanes:
            i32, small = self.vector("i32", lanes), self.vector(format.integer, lanes)
            body = widening(format, i32, f32, small)
        else:
            body = scalar_widening(format, self.bits(Type("i32"), Type("f32")))
        return self._conversion(format.name, "f32", lanes, f"{narrow} x", body)

    def narrow(self, format: Format, lanes: int) -> str:
        """A narrow float from f32, to nearest even; NaNs stay quiet NaNs."""
        narrow, f32 = self.type(Type(format.name, lanes)), self.type(Type("f32", lanes))
        if lanes:
            i32, u32 = self.vector("i32", lanes), self.vector("u32", lanes)
            small = self.vector(f"u{format.width}", lanes)
            body = narrowing(format, i32, u32, f32, small, narrow)
        else:
            bits = self.bits(Type("i32"), Type("f32")), self.bits(Type("f32"), Type("i32"))
            body = scalar_narrowing(format, *bits)
        return self._conversion("f32", format.name, lanes, f"{f32} x", body)

    def _conversion(
        self, source: str, target: str, lanes: int, parameter: str, body: tuple[str, ...]
    ) -> str:
        given, found = Type(source, lanes), self.type(Type(target, lanes))
        name = f"{target}_of_{self._name(given)}" if target == "f32" else f"{found}_of_f32"
        if not lanes and target != "f32":
            name = f"{target}_of_f32"
        body = with_instruction((source, target), found, lanes, body)
        if body[0].startswith("#"):
            self.headers.add("immintrin.h")
        return self._add(name, found, parameter, *body)


def _family(type: Type) -> tuple[str, str, str] | None:
    """(condition, prefix, mask of the first n lanes) of AVX-512's masked moves, or None."""
    size = scalar_bytes(type.scalar)
    if type.bytes not in _WIDTHS:
        return None
    guards = ["defined(__AVX512F__)"]
    guards += ["defined(__AVX512BW__)"] * (size < 4) + ["defined(__AVX512VL__)"] * (type.bytes < 64)
    one = "1ull" if type.lanes > 31 else "1u"
    mask = f"(__mmask{max(8, type.lanes)})(({one} << n) - 1)"
    return " && ".join(guards), _WIDTHS[type.bytes], mask


def _avx2(type: Type, before: str, after: str) -> tuple[str, ...]:
    """The same with AVX2, which has it for 32-bit lanes."""
    if type.bytes != 32 or type.lanes != 8:
        return ()
    items = ", ".join(str(lane) for lane in range(8))
    return "#elif defined(__AVX2__)", f"{before}(__m256i)((v8i32){{{items}}} < n){after}"
