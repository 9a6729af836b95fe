"""What tensors are called in a kernel's text, which has words and names of its own."""

from __future__ import annotations

import re

from ir.c_words import C_WORDS, OTHER_WORDS
from ir.ops.load import Load
from ir.ops.map import Map
from ir.ops.reduce import Carry, Reduce
from ir.program import Program

_OWN = re.compile(r"[tv]\d+|(cut|kept)_\w+")  # what goes from kernel to kernel
_MACROS = frozenset({"NULL", "NAN", "INFINITY", "HUGE_VAL"})
_PLACES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"})
_TYPES = "u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bf16 f16"
_FUNCTIONS = (
    "abs ceil ceilf erf erff exp expf expm1f fabsf floor floorf fmaf isinf log log1pf logf main "
    "max min rint rintf round rsqrt rsqrtf sqrt sqrtf tanh tanhf trunc truncf"
)
WORDS = C_WORDS | OTHER_WORDS | _MACROS | _PLACES | {*_TYPES.split(), *_FUNCTIONS.split()}
"""What a kernel's text has to mean something else by, whoever writes it."""

_MATHS = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 "
    "cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma "
    "fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 "
    "logb lrint lround max min modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv "
    "pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin "
    "sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"
)
_LIBRARY = (
    "abort alloca atof atoi atol brev bsearch calloc clock clock64 clz dim3 div drem exit "
    "ffs finite free gamma half index isfinite isinf isnan labs ldiv llabs llmax llmin "
    "malloc memchr memcmp memcpy memmove memset mul24 mulhi popc printf ptrdiff_t qsort rand "
    "random realloc sad saturate scalb select signbit significand size_t srand std strcat "
    "strcmp strcpy strlen system time ullmax ullmin umax umin umul24 umulhi usad va_list "
    "wchar_t"
)
_BOTH = {form for one in _MATHS.split() for form in (one, f"{one}f")}
KERNEL_WORDS = WORDS | _BOTH | {*_LIBRARY.split()}
"""What no kernel may be called: functions that a compiler of C++ or CUDA has already, beside it."""
_TAKEN = re.compile(
    r"(tw_|TW_|_|atomic|cuda|tex|surf|make_)\w*|u?(char|short|int|long|longlong|float|double)[1-4]"
)


def kernel_name(program: str) -> str:
    """What a program's kernels are called in text: its name, if nothing else is called so."""
    name = program.replace(".", "_")
    return f"{name}_kernel" if name in KERNEL_WORDS or _TAKEN.fullmatch(name) else name


def text_name(tensor: str) -> str:
    """A tensor's name in text: its own, if no word of the text can be that.

    Whatever the text calls anything itself has no capital, but for macros.
    """
    plain = any(letter.isupper() for letter in tensor) or _OWN.fullmatch(tensor)
    safe = plain and tensor not in WORDS and not tensor.startswith("TW_")
    return tensor if safe else f"{tensor}_data"


def value_name(program: Program, position: int) -> str:
    """A readable name of a node's value."""
    op = program.nodes[position].op
    if isinstance(op, Load):
        return text_name(op.tensor)
    if isinstance(op, (Reduce, Carry)):
        return f"{op.kind}_{position}"
    return f"{op.function if isinstance(op, Map) else op.name}_{position}"
