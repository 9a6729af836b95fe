"""Indices of operands that are read or computed: once for a tile, coordinates of its copies.

Knows origins as texts; no ring and no role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program
from ir.targets.cuda.build.products import BY_NUMBERS, SIMPLE, told_index
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.layouts.operands import OperandTile, looked_up
from ir.targets.cuda.text.writer import Writer


def declare_lookups(
    w: Writer, program: Program, operands: Iterable[OperandTile], origins: Mapping[str, str]
) -> dict[str, str]:
    """Declare the indices of a tile at `origins`; their names, as `coordinates` asks for them."""
    found = {}
    for operand in operands:
        own = program.nodes[operand.position].op
        assert isinstance(own, Load)
        for (gather, extent), piece in product(operand.gathers, range(operand.times)):
            moved = {
                axis: _within(f"{origins[axis]} + {piece}", program.axes[axis], points)
                for axis, points in operand.pieces
            }
            told = told_index(program, operand.position, gather)
            assert told is not None
            index = _index(w, program, told, {**origins, **moved})
            # as the meaning has it; what is beyond a tensor, by one or by more, is read as zero
            terms = next(one.terms for one in own.index if one.gather == gather)
            ahead = sum(factor * (program.axes[axis] - 1) for axis, factor in terms if factor > 0)
            behind = sum(factor * (program.axes[axis] - 1) for axis, factor in terms if factor < 0)
            outside = int(own.fill is not None)
            least, most = -ahead - outside, extent - 1 - behind + outside
            name = w.name(f"{operand.spec.name}_index")
            w.line(f"const i32 {name} = (i32)min(max({index}, (i64){least}), (i64){most});")
            found[looked_up(operand.position, gather, piece)] = name
    return found


def _within(point: str, extent: int, points: int) -> str:
    """A point of a tile of so many; the last one of the axis where the tile reaches beyond it."""
    return f"min({point}, {extent - 1})" if extent % points else f"({point})"


def looks_along(program: Program, operand: OperandTile, axes: Iterable[str]) -> bool:
    """Whether an index of an operand varies along one of the axes."""
    told = [told_index(program, operand.position, gather) for gather, _ in operand.gathers]
    return any({*axes} & {*program.nodes[index].axes} for index in told if index is not None)


def _index(w: Writer, program: Program, position: int, origins: Mapping[str, str]) -> str:
    """A told index at `origins`, in 64 bits."""
    node = program.nodes[position]
    if isinstance(node.op, Load):
        return _read(w, program, position, origins)
    if isinstance(node.op, Iota):
        return f"(i64)({origins[node.op.axis]})"
    if isinstance(node.op, Constant):
        return f"(i64){int(node.op.value)}"
    args = [_index(w, program, arg, origins) for arg in node.args]
    if isinstance(node.op, Cast):
        return args[0]
    assert isinstance(node.op, Map)
    return _FORMS[node.op.function].format(*args)


_FORMS = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "shr": "({0} >> {1})",
    "bitand": "({0} & {1})", "min": "min({0}, {1})", "max": "max({0}, {1})",
    "floordiv": "({0} / {1} - ({0} % {1} < 0))", "mod": "(({0} % {1} + {1}) % {1})",
}  # fmt: skip
assert {*_FORMS} == {*SIMPLE, *BY_NUMBERS}


def _read(w: Writer, program: Program, position: int, origins: Mapping[str, str]) -> str:
    node = program.nodes[position]
    assert isinstance(node.op, Load)
    access = load_access(node.op, program.scope.tensors[node.op.tensor])
    axes = dict.fromkeys(axis for d in access.dimensions for axis, _ in d.terms)
    parts = [f"{origins[axis]} * {access.stride(axis)}" for axis in axes]
    for d in access.dimensions:
        if d.gather is not None:
            where = _index(w, program, node.args[d.gather], origins)
            parts.append(f"min(max({where}, (i64)0), (i64){d.extent - 1}) * {d.stride}")
    if access.constant or not parts:
        parts.append(str(access.constant))
    return f"(i64){w.pointer(access.tensor)}[{' + '.join(parts)}]"
