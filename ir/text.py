"""Programs as text: one node per line in SSA form, every attribute; parsing is its exact inverse.

Attributes are printed by the types of their dataclass fields, so a new op needs no line here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from ir.dtypes import dtype_of
from ir.errors import ProgramError
from ir.ops import OPS
from ir.ops.base import Op, Scope, TensorSpec, TileType
from ir.ops.load import Index
from ir.packs import check_packs
from ir.printable import shortened
from ir.program import Node, Pin, Program
from ir.values import Values

_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
LONGEST = 1 << 18  # letters of a text
_LONGEST_LINE = 1 << 14
_UNREADABLE = (
    ProgramError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    RecursionError,
)  # fmt: skip


def to_text(program: Program) -> str:
    """Print `program`; equal programs print equal text."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    for axis, extent in program.extents:
        yield f"axis {axis} = {extent}"
    for spec in program.tensors:
        more = f" packs={spec.packs}" if spec.packs else ""
        more += f" values={spec.values}" if spec.values else ""
        yield f"{spec.role} {spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]{more}"
    for name, value in program.pins:
        yield f"pin {name} = {json.dumps(value)}"
    for position, node in enumerate(program.nodes):
        yield f"%{position} = {_print_op(node)} -> {_print_type(node.type)}"


def _print_type(tile: TileType) -> str:
    return f"{tile.dtype}({', '.join(tile.axes)})"


def _print_op(node: Node) -> str:
    parts = [f"%{arg}" for arg in node.args]
    for name, hint in _attributes(type(node.op)).items():
        value = getattr(node.op, name)
        if value is not None:
            parts.append(f"{name}={_codec(hint).show(value)}")
    return f"{node.op.name}({', '.join(parts)})"


# --- attributes -------------------------------------------------------------------------------


class _Codec(NamedTuple):
    """How an attribute of one type is printed and read."""

    show: Callable[[Any], str]
    read: Callable[[str], Any]


@cache
def _attributes(op: type[Op]) -> dict[str, Any]:
    """Field name -> type of an op, in order of declaration."""
    hints = get_type_hints(op)
    return {field.name: hints[field.name] for field in fields(op)}  # type: ignore[arg-type]


@cache
def _codec(hint: Any) -> _Codec:
    args = tuple(part for part in get_args(hint) if part not in (Ellipsis, type(None)))
    if hint in _SCALARS:
        return _SCALARS[hint]
    if getattr(hint, "__origin__", None) is tuple:
        inner = _codec(args[0])
        return _Codec(
            lambda value: f"[{', '.join(inner.show(item) for item in value)}]",
            lambda text: tuple(inner.read(item) for item in _split(_inside(text, "[]"))),
        )
    return _codec(args[0])  # an optional: None is printed by leaving it out


def _show_number(value: float) -> str:
    return repr(value)


def _read_number(text: str) -> float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _show_word(value: str) -> str:
    return value if re.fullmatch(_WORD, value) else json.dumps(value)


def _read_word(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


_TERM = re.compile(rf"\s*([+-]?)\s*(?:(?:(\d+)\*)?({_WORD})|\[(\d+)\]|(\d+))")


def _read_index(text: str) -> Index:
    """Read what `str(Index)` prints: `2*h + r - 1`, with `[0]` for the first index tile."""
    terms: list[tuple[str, int]] = []
    constant, gather, position = 0, None, 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not an index")
        sign, factor, axis, tile, number = match.groups()
        unit = -1 if sign == "-" else 1
        if axis:
            terms.append((axis, unit * int(factor or 1)))
        elif tile:
            gather = int(tile)
        else:
            constant += unit * int(number)
        position = match.end()
    return Index(tuple(terms), constant, gather)


_SCALARS: dict[Any, _Codec] = {
    str: _Codec(_show_word, _read_word),
    bool: _Codec(lambda value: "true" if value else "false", lambda text: _read_bool(text)),
    int: _Codec(str, int),
    float: _Codec(_show_number, _read_number),
    Index: _Codec(str, _read_index),
}


_VALUES = re.compile(r" values=(\w+)\(([^()]*)\)")


def _read_values(text: str | None) -> Values | None:
    """Read what `str(Values)` prints, behind a tensor's type."""
    if not text:
        return None
    match = _VALUES.fullmatch(text)
    if match is None:
        raise ValueError(f"{text.strip()!r} is not values=kind(numbers)")
    kind, numbers = match.groups()
    return Values(kind, tuple(_read_number(part) for part in _split(numbers)))


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _inside(text: str, brackets: str) -> str:
    if not (text.startswith(brackets[0]) and text.endswith(brackets[1])):
        raise ValueError(f"{text!r} is not in {brackets}")
    return text[1:-1]


def _split(text: str) -> list[str]:
    """Split at the commas that are outside brackets and quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == '"' and text[position - 1 : position] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (character in "[(") - (character in ")]")
            if character == "," and depth == 0:
                parts.append(text[start:position].strip())
                start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


# --- parsing ----------------------------------------------------------------------------------


def parse(text: str) -> Program:
    """Read what `to_text` prints; blank lines and `#` comments are skipped.

    The text may be a stranger's: whatever it says, it is a sound program or a ProgramError with
    the number of the first bad line.
    """
    if len(text) > LONGEST:
        raise ProgramError(f"a program of {len(text):,} letters; {LONGEST:,} are the most")
    parser = _Parser()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            with _located(f"line {number}"):
                parser.read(stripped)
    with _located("the program"):
        return parser.program()


@contextmanager
def _located(place: str) -> Iterator[None]:
    """What is wrong there as a ProgramError of one line, whatever a rule stumbled over."""
    try:
        yield
    except _UNREADABLE as error:
        said = str(error) if isinstance(error, ProgramError | ValueError) else repr(error)
        found = said if said.startswith("line ") else f"{place}: {said}"
        raise ProgramError(shortened(found)) from None


_HEADS = {
    "program": re.compile(rf"program ({_WORD})"),
    "axis": re.compile(rf"axis ({_WORD}) = (\d+)"),
    "tensor": re.compile(rf"(input|output) ({_WORD}) (\w+)\[([\d, ]*)\]( packs=\w+)?( .*)?"),
    "pin": re.compile(r"pin ([^\s\"'\\]+) = (.+)"),
    "node": re.compile(rf"%(\d+) = ({_WORD})\((.*)\) -> (\w+)\(([^()]*)\)"),
}


class _Parser:
    def __init__(self) -> None:
        self.name = ""
        self.extents: dict[str, int] = {}
        self.tensors: dict[str, TensorSpec] = {}
        self.pins: list[Pin] = []
        self.nodes: list[Node] = []

    def read(self, line: str) -> None:
        if len(line) > _LONGEST_LINE:
            raise ProgramError(f"{len(line):,} letters; {_LONGEST_LINE:,} are the most")
        for head, pattern in _HEADS.items():
            match = pattern.fullmatch(line)
            if match:
                getattr(self, f"_{head}")(*match.groups())
                return
        raise ProgramError(f"not understood: {line!r}")

    def _program(self, name: str) -> None:
        if self.name:
            raise ProgramError("a second program begins")
        self.name = name

    def _axis(self, name: str, extent: str) -> None:
        if name in self.extents:
            raise ProgramError(f"axis {name} declared twice")
        self.extents[name] = int(extent)

    def _tensor(
        self, role: str, name: str, dtype: str, shape: str, packs: str | None, values: str | None
    ) -> None:
        if name in self.tensors:
            raise ProgramError(f"tensor {name} declared twice")
        sizes = tuple(int(size) for size in _split(shape))
        if dtype_of(dtype).per_byte > 1:
            raise ProgramError(f"tensor {name}: {dtype} shares bytes: u8[..] packs={dtype}")
        held = packs.partition("=")[2] if packs else ""
        spec = TensorSpec(name, sizes, dtype, role, _read_values(values), held)
        check_packs(spec)
        if spec.values is not None:
            spec.values.check(spec)
        self.tensors[name] = spec

    def _pin(self, name: str, value: str) -> None:
        found = json.loads(value)
        if not isinstance(found, str | int | bool):
            raise ProgramError(f"pin {name}: {value} is no text, whole number or truth value")
        self.pins.append((name, found))

    def _node(self, position: str, name: str, operands: str, dtype: str, axes: str) -> None:
        if int(position) != len(self.nodes):
            raise ProgramError(f"%{position} where %{len(self.nodes)} is next")
        if name not in OPS:
            raise ProgramError(f"unknown op {name!r}: known are {', '.join(OPS)}")
        parts = _split(operands)
        args = tuple(self._operand(part) for part in parts if part.startswith("%"))
        op = _read_op(OPS[name], [part for part in parts if not part.startswith("%")])
        found = op.infer([self.nodes[a].type for a in args], Scope(self.extents, self.tensors))
        stated = TileType(tuple(_split(axes)), dtype)
        if found != stated:
            raise ProgramError(
                f"{name}: says {_print_type(stated)}, its operands give {_print_type(found)}"
            )
        self.nodes.append(Node(op, args, found))

    def _operand(self, text: str) -> int:
        position = int(text[1:])
        if position >= len(self.nodes):
            raise ProgramError(f"{text} is used before it is defined")
        return position

    def program(self) -> Program:
        if not self.name:
            raise ProgramError("line 1: no program; the first line is `program NAME`")
        tensors, extents = tuple(self.tensors.values()), tuple(self.extents.items())
        found = Program(self.name, extents, tensors, tuple(self.nodes), tuple(self.pins))
        _refuse_padding(found)
        return found


def _refuse_padding(program: Program) -> None:
    """Results are filled whole: only kernels of one program leave padding to each other."""
    for _, op in program.stores():
        shape, whole = program.scope.shape(op.axes), program.scope.tensors[op.tensor].shape
        if shape != whole:
            raise ProgramError(f"{program.name}: store {op.tensor}: {shape} elements into {whole}")


def _read_op(op: type[Op], parts: list[str]) -> Op:
    hints = _attributes(op)
    values: dict[str, Any] = {}
    for part in parts:
        name, equals, text = part.partition("=")
        if not equals or name not in hints:
            raise ProgramError(f"{op.name}: unknown attribute {part!r}; it has {', '.join(hints)}")
        values[name] = _codec(hints[name]).read(text)
    try:
        return op(**values)
    except TypeError:
        missing = [name for name in hints if name not in values]
        raise ProgramError(f"{op.name}: attributes missing among {', '.join(missing)}") from None
