"""Formulas of arrays that a device passes over once.

What the oracle says of one elementwise op is some thirty operations of numpy, and the library of a
device passes over its memory for each of them. Here such a formula is called with stand-ins for its
arrays, which note what is done to them; of the notes one kernel is made, which reads every array
once and writes every result once. Where a stand-in does not know an operation, `Unknown` is raised
and the formula has to be called with the arrays themselves. What asks whether *any* element is such
and such has to take it that some are (`ir.reduced`): a formula may be longer for that, not wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

Array = NDArray[Any]
_DTYPES = {"f": np.dtype(np.float64), "i": np.dtype(np.int64), "b": np.dtype(np.bool_)}
_C = {"f": "double", "i": "long long", "b": "bool"}
_WHOLE = {
    np.dtype(np.int8): "signed char", np.dtype(np.uint8): "unsigned char",
    np.dtype(np.int16): "short", np.dtype(np.uint16): "unsigned short",
    np.dtype(np.int32): "int", np.dtype(np.uint32): "unsigned int",
}  # fmt: skip
LINE, ONE = "line", "one"  # ways to read an array, see `walked`
_THREADS = 256  # of a block
OPTIONS = ("--fmad=false",)  # as numpy rounds


class Unknown(Exception):
    """An operation that stand-ins do not know."""


class Formula:
    """What is noted of one formula: lines of C, each of which gives one number of an element."""

    def __init__(self) -> None:
        self.inputs: list[StandIn] = []
        self.lines: list[str] = []

    def stand_in(self, array: Array) -> StandIn:
        """One for an array of float64, int64 or bool; raises Unknown."""
        kind = array.dtype.kind
        if _DTYPES.get(kind) != array.dtype:
            raise Unknown(f"an array of {array.dtype}")
        self.inputs.append(StandIn(self, kind, f"a{len(self.inputs)}"))
        return self.inputs[-1]

    def noted(self, kind: str, text: str) -> StandIn:
        """A number that is computed so."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"const {_C[kind]} {name} = {text};")
        return StandIn(self, kind, name)


def _ternary(test: str, yes: str, no: str) -> str:
    return f"({test}) ? {yes} : {no}"


def _call(name: str) -> tuple[str, Callable[..., str]]:
    return "f", lambda *args: f"{name}({', '.join(args)})"


def _infix(sign: str) -> tuple[str, Callable[..., str]]:
    return "", lambda a, b: f"{a} {sign} {b}"


def _compared(sign: str) -> tuple[str, Callable[..., str]]:
    return "b", lambda a, b: f"{a} {sign} {b}"


# Kinds of results ("": the largest of the operands', "f": floats, whose operands are) and texts.
_KNOWN: dict[np.ufunc, tuple[str, Callable[..., str]]] = {
    np.add: _infix("+"), np.subtract: _infix("-"), np.multiply: _infix("*"),
    np.divide: ("f", lambda a, b: f"{a} / {b}"),
    np.negative: ("", lambda a: f"-{a}"), np.positive: ("", lambda a: a),
    np.maximum: ("", lambda a, b: _ternary(f"{a} != {a} || {a} > {b}", a, b)),
    np.minimum: ("", lambda a, b: _ternary(f"{a} != {a} || {a} < {b}", a, b)),
    np.square: ("", lambda a: f"{a} * {a}"),
    np.less: _compared("<"), np.less_equal: _compared("<="), np.greater: _compared(">"),
    np.greater_equal: _compared(">="), np.equal: _compared("=="), np.not_equal: _compared("!="),
    np.sqrt: _call("sqrt"), np.exp: _call("exp"), np.log: _call("log"), np.tanh: _call("tanh"),
    np.log1p: _call("log1p"), np.expm1: _call("expm1"), np.sin: _call("sin"), np.cos: _call("cos"),
    np.copysign: _call("copysign"),
}  # fmt: skip
_OF_FLOATS: dict[np.ufunc, str] = {
    np.floor: "floor",
    np.ceil: "ceil",
    np.trunc: "trunc",
    np.rint: "rint",
}
_ABOUT: dict[np.ufunc, str] = {np.isfinite: "isfinite", np.isnan: "isnan", np.isinf: "isinf"}
_LOGICAL: dict[np.ufunc, str] = {
    np.logical_and: "&&", np.logical_or: "||", np.bitwise_and: "&", np.bitwise_or: "|",
    np.bitwise_xor: "^",
}  # fmt: skip


class StandIn(NDArrayOperatorsMixin):
    """An array of which nothing is known but what kind of numbers it has."""

    __array_priority__ = 1000.0
    size: ClassVar[int] = 1

    def __init__(self, formula: Formula, kind: str, name: str) -> None:
        self.formula, self.kind, self.name = formula, kind, name

    @property
    def dtype(self) -> np.dtype[Any]:
        return _DTYPES[self.kind]

    def transpose(self, *axes: object) -> StandIn:
        """The same: arrays lie side by side before they are stood in for."""
        return self

    def __getitem__(self, index: object) -> StandIn:
        parts = index if isinstance(index, tuple) else (index,)
        if any(part is not None and part != slice(None) for part in parts):
            raise Unknown("a subscript")
        return self

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> StandIn:
        kind = np.dtype(dtype).kind
        if np.dtype(dtype) == np.float32:  # as the nearest of f32, in f64
            return self.formula.noted("f", f"(double)(float){self.name}")
        if np.dtype(dtype) in _WHOLE and self.kind != "f":  # its low bits, in 64
            return self.formula.noted("i", f"(long long)({_WHOLE[np.dtype(dtype)]}){self.name}")
        if _DTYPES.get(kind) != np.dtype(dtype):
            raise Unknown(f"as {dtype}")
        if kind == self.kind:
            return self
        if kind == "b":
            return self.formula.noted("b", f"{self.name} != 0")
        return self.formula.noted(kind, f"({_C[kind]}){self.name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unknown(name)

    def all(self) -> bool:
        """Nobody knows of all."""
        return False

    def __bool__(self) -> bool:
        raise Unknown("the truth of an array")

    def __pow__(self, exponent: object) -> StandIn:
        if exponent == 0.5:
            return self.formula.noted("f", f"sqrt({_as('f', self)})")
        raise Unknown("a power")

    def __array_ufunc__(self, function: np.ufunc, method: str, *args: Any, **how: Any) -> Any:
        if method != "__call__" or how:
            raise Unknown(f"{function.__name__}.{method}")
        formula = self.formula
        operands = [_operand(formula, arg) for arg in args]
        kind = max((one.kind for one in operands), key="bif".index)
        if function is np.frexp:
            return _parts(formula, operands[0])
        if function is np.ldexp:
            base, by = operands
            return formula.noted("f", f"ldexp({_as('f', base)}, (int){by.name})")
        if function in (np.abs, np.fabs):
            name = {"f": "fabs", "i": "llabs"}.get(kind)
            return formula.noted(kind, f"{name}({operands[0].name})") if name else operands[0]
        if function in _OF_FLOATS and kind == "f":
            return formula.noted("f", f"{_OF_FLOATS[function]}({operands[0].name})")
        if function in _ABOUT:
            return formula.noted("b", f"(bool){_ABOUT[function]}({_as('f', operands[0])})")
        if function in (np.logical_not, np.invert) and kind == "b":
            return formula.noted("b", f"!{operands[0].name}")
        if function in _LOGICAL:
            return _logical(formula, function, operands, kind)
        if function not in _KNOWN:
            raise Unknown(function.__name__)
        result, text = _KNOWN[function]
        if result == "f":
            kind = "f"
        elif kind == "b" and result == "":
            raise Unknown(f"{function.__name__} of truths")
        return formula.noted(result or kind, text(*(_as(kind, one) for one in operands)))

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: Any, how: dict[str, Any]
    ) -> Any:
        if function is np.where and len(args) == 3 and not how:
            test, yes, no = (_operand(self.formula, arg) for arg in args)
            kind = max(yes.kind, no.kind, key="bif".index)
            return self.formula.noted(kind, _ternary(_as("b", test), _as(kind, yes), _as(kind, no)))
        if function is np.clip and len(args) == 3 and not how:
            return np.minimum(np.maximum(args[0], args[1]), args[2])
        if function is np.asarray and len(args) == 1 and {*how} <= {"like"}:
            return _operand(self.formula, args[0])
        if function is np.nan_to_num and how == _BUT_NAN:
            return np.where(args[0] == args[0], args[0], 0.0)
        raise Unknown(function.__name__)


_BUT_NAN = {"nan": 0.0, "posinf": np.inf, "neginf": -np.inf}


def _operand(formula: Formula, value: Any) -> StandIn:
    """A stand-in as it is; a number as one."""
    if isinstance(value, StandIn):
        return value
    if isinstance(value, bool | np.bool_):
        return StandIn(formula, "b", "true" if value else "false")
    if isinstance(value, int | np.integer):
        return StandIn(formula, "i", _whole(int(value)))
    if isinstance(value, float | np.floating):
        return StandIn(formula, "f", _number(float(value)))
    raise Unknown(f"a {type(value).__name__}")


def _whole(value: int) -> str:
    if not -(2**63) <= value < 2**63:
        raise Unknown("a number beyond 64 bits")
    return f"({value}LL)" if value > -(2**63) else f"({value + 1}LL - 1)"


def _number(value: float) -> str:
    if math.isfinite(value):
        return f"({value!r})"
    bits = int(np.float64(value).view(np.uint64))
    return f"__longlong_as_double({bits:#x}LL)"


def _as(kind: str, one: StandIn) -> str:
    if kind == one.kind:
        return one.name
    return f"({one.name} != 0)" if kind == "b" else f"({_C[kind]}){one.name}"


def _logical(formula: Formula, function: np.ufunc, operands: Sequence[StandIn], kind: str) -> Any:
    bits = function in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    if bits and kind == "f":
        raise Unknown("bits of floats")
    used = kind if bits else "b"
    left, right = (_as(used, one) for one in operands)
    return formula.noted(used, f"({_C[used]})({left} {_LOGICAL[function]} {right})")


def _parts(formula: Formula, value: StandIn) -> tuple[StandIn, StandIn]:
    """What frexp gives: a number's mantissa and its exponent."""
    here = _as("f", value)
    told = f"isfinite({here}) && {here} != 0"
    exponent = formula.noted("i", _ternary(told, f"(long long)ilogb({here}) + 1", "0LL"))
    return formula.noted("f", f"ldexp({here}, -(int){exponent.name})"), exponent


def computed(
    formula: Formula, results: Sequence[StandIn], arrays: Sequence[Array], library: Any
) -> tuple[list[Array], list[bool]]:
    """The results on a device, and whether any element of each is anything but 0. Raises Unknown
    where its library's compiler refuses the kernel."""
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    found = [library.empty(shape, _DTYPES[one.kind]) for one in results]
    told = library.zeros(len(results), dtype=np.int32)
    extents, strides = walked(shape, arrays)
    size = math.prod(extents)
    text = source(
        tuple((one.kind, walk if isinstance(walk, str) else len(walk))
              for one, walk in zip(formula.inputs, strides, strict=True)),
        tuple((one.kind, one.name) for one in results),
        tuple(formula.lines),
        "unsigned" if size < 2**31 else "long long",
    )  # fmt: skip
    given = [np.int64(step) for walk in strides if not isinstance(walk, str) for step in walk]
    if text in _REFUSED:
        raise Unknown("what the compiler refuses")
    if size:
        kernel, blocks = _kernel(library.RawKernel, text), -(-size // _THREADS)
        lengths = [np.int64(extent) for extent in extents[1:]] if given else []
        operands = (*arrays, *found, told, np.int64(size), *lengths, *given)
        try:
            kernel((blocks,), (_THREADS,), operands)
        except library.cuda.compiler.CompileException as error:
            _REFUSED.add(text)
            raise Unknown(str(error)) from error
    return found, told.get().astype(bool).tolist()


def walked(
    shape: tuple[int, ...], arrays: Sequence[Array]
) -> tuple[list[int], list[str | tuple[int, ...]]]:
    """Extents of as few dimensions as can be, and how each array is read along them: LINE as
    results lie, ONE where it is a single number, else its strides in elements."""
    steps = []
    for array in arrays:
        missing = len(shape) - array.ndim
        pairs = zip(array.shape, array.strides, strict=True)
        own = [step // array.itemsize if extent > 1 else 0 for extent, step in pairs]
        steps.append([0] * missing + own)
    extents: list[int] = []
    kept: list[list[int]] = [[] for _ in arrays]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        here = [step[dim] for step in steps]
        if extents and all(k[-1] == h * extent for k, h in zip(kept, here, strict=True)):
            extents[-1] *= extent
            for k, h in zip(kept, here, strict=True):
                k[-1] = h
        else:
            extents.append(extent)
            for k, h in zip(kept, here, strict=True):
                k.append(h)
    lines = [math.prod(extents[dim + 1 :]) for dim in range(len(extents))]
    ways: list[str | tuple[int, ...]] = [
        ONE if not any(k) else LINE if k == lines else tuple(k) for k in kept
    ]
    return extents, ways


_REFUSED: set[str] = set()  # texts of kernels


@lru_cache(maxsize=1024)
def _kernel(make: Any, text: str) -> Any:
    return make(text, "at_once", options=OPTIONS)


def source(
    inputs: Sequence[tuple[str, str | int]], results: Sequence[tuple[str, str]],
    lines: Sequence[str], word: str,
) -> str:  # fmt: skip
    """The text of a kernel: inputs by their kind and way (dimensions, where that is by strides),
    results by kind and name. It has no header, which takes longer to compile than it does."""
    dims = max((way for _, way in inputs if not isinstance(way, str)), default=0)
    parameters = [f"const {_C[kind]} *p{number}" for number, (kind, _) in enumerate(inputs)]
    parameters += [f"{_C[kind]} *q{number}" for number, (kind, _) in enumerate(results)]
    parameters += ["int *any", "long long n"]
    parameters += [f"long long e{dim}" for dim in range(1, dims)]
    body = [
        f"const {word} i = ({word})blockIdx.x * {_THREADS} + threadIdx.x;",
        "if (i >= n) return;",
    ]
    if dims:
        body.append(f"{word} x0 = i;")
    for dim in reversed(range(1, dims)):
        body.append(f"const {word} x{dim} = x0 % ({word})e{dim}; x0 /= ({word})e{dim};")
    for number, (kind, way) in enumerate(inputs):
        place = {LINE: "i", ONE: "0"}.get(str(way), "")
        if not isinstance(way, str):
            parameters += [f"long long s{number}_{dim}" for dim in range(way)]
            place = " + ".join(f"x{dim} * s{number}_{dim}" for dim in range(way))
        body.append(f"const {_C[kind]} a{number} = p{number}[{place}];")
    body += lines
    body += [
        f"q{number}[i] = {name}; if ({name} != 0) any[{number}] = 1;"
        for number, (_, name) in enumerate(results)
    ]
    inside = "\n  ".join(body)
    return f'extern "C" __global__ void at_once({", ".join(parameters)}) {{\n  {inside}\n}}\n'
