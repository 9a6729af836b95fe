"""Who reads the values of a program: which are worth holding, and which have to be exact.

Facts of the graph alone; knows neither registers nor text.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ir.dtypes import compute_dtype, is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract
from ir.ops.store import Store
from ir.program import Program
from ir.roundoff import FORMATS
from ir.scalar import scalar_function
from ir.stages import is_reduction

LIMITED = ("f16", "e4m3")  # types whose casts need not round in registers, and lack numbers of f32
_DECIDING = frozenset({"floor", "ceil", "trunc", "round", "bitcast", "lt", "le", "eq"})


def behind_decisions(program: Program) -> frozenset[int]:
    """Nodes from which something whole is made: a comparison, an index, an integer.

    Their last bit may be the difference between one result and the next.
    """
    found: set[int] = set()
    pending = []
    for position, node in enumerate(program.nodes):
        whole = isinstance(node.op, Cast) and not is_float(node.dtype)
        whole |= isinstance(node.op, Store) and not is_float(node.dtype)
        deciding = isinstance(node.op, Map) and _decides(node.op.function)
        if whole or deciding or isinstance(node.op, Load):
            pending.append(position)
    while pending:
        for arg in program.nodes[pending.pop()].args:
            if arg not in found:
                found.add(arg)
                pending.append(arg)
    return frozenset(found)


def _decides(function: str) -> bool:
    """Whether a function has a step somewhere."""
    return function in _DECIDING or scalar_function(function).is_whole


def stated_inverse(program: Program, position: int) -> float | None:
    """1 / c of a quotient by a constant c in f32 that has one; else None."""
    dividend, divisor = (program.nodes[arg] for arg in program.nodes[position].args)
    types = {compute_dtype(node.dtype) for node in (dividend, divisor)}
    if not isinstance(divisor.op, Constant) or types != {"f32"}:
        return None
    value = abs(float(divisor.op.value))
    return 1.0 / float(divisor.op.value) if 1e-30 < value < 1e30 else None


def read_again(program: Program) -> frozenset[int]:
    """Elementwise values that several readers lead to different reductions and stores."""
    ends = _ends(program)
    found = set()
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Map | Cast) or of_coordinates(program, position):
            continue
        readers = {ends[user] for user in program.users(position)}
        if len(readers) > 1:
            found.add(position)
    return frozenset(found)


def gelu_of(program: Program, position: int) -> int | None:
    """The x of a node that is x * (1 + erf(x / sqrt 2)) / 2 in f32, in any order; else None."""
    factors = _factors(program, position)
    constants = [_constant(program, factor) for factor in factors]
    others = [f for f, value in zip(factors, constants, strict=True) if value is None]
    if len(others) != 2 or math.prod(value for value in constants if value is not None) != 0.5:
        return None
    for x, rest in (others, others[::-1]):
        if _is_twice_normal(program, rest, x):
            return x
    return None


def _factors(program: Program, position: int) -> list[int]:
    """What a product in f32 is made of; a node that is none is its own factor."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function != "mul" or node.dtype != "f32":
        return [position]
    return [factor for arg in node.args for factor in _factors(program, arg)]


def _constant(program: Program, position: int) -> float | None:
    op = program.nodes[position].op
    return float(op.value) if isinstance(op, Constant) else None


def _is_twice_normal(program: Program, position: int, x: int) -> bool:
    """Whether a node is 1 + erf(x / sqrt 2) in f32."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function != "add" or node.dtype != "f32":
        return False
    rest = [arg for arg in node.args if _constant(program, arg) != 1]
    erf = program.nodes[rest[0]] if len(rest) == 1 else node
    if not isinstance(erf.op, Map) or erf.op.function != "erf":
        return False
    factors = _factors(program, erf.args[0])
    scale = [value for f in factors if (value := _constant(program, f)) is not None]
    return [f for f in factors if _constant(program, f) is None] == [x] and math.isclose(
        math.prod(scale), math.sqrt(0.5), rel_tol=1e-6
    )


def loaded_late(program: Program) -> frozenset[int]:
    """Loads that no reduction of the program waits for, though something else does."""
    early: set[int] = set()
    for position, node in enumerate(program.nodes):
        if is_reduction(node):
            early |= _made_of(program, position)
    loads = [p for p, n in enumerate(program.nodes) if isinstance(n.op, Load) and not n.args]
    return frozenset(p for p in loads if p not in early) if early else frozenset()


def read_once(program: Program, position: int) -> bool:
    """Whether no other tile reads a load's elements: every parallel axis is indexed."""
    stores = [set(store.axes) for _, store in program.stores()]
    common = set.intersection(*stores) if stores else set()
    return common <= set(program.nodes[position].axes)


def only_stored(program: Program) -> frozenset[int]:
    """Reductions whose results are stored and nothing else: no other part of a tile reads them.

    What is stored lies along the results' own axes, so one holder of each is enough.
    """
    found = set()
    for position, node in enumerate(program.nodes):
        if is_reduction(node) and _stays(program, position, frozenset(node.axes)):
            found.add(position)
    return frozenset(found)


def narrows(program: Program, position: int) -> bool:
    """Whether a value is a cast to a float type that lacks numbers of the type it comes from."""
    node = program.nodes[position]
    if not isinstance(node.op, Cast) or node.dtype not in LIMITED:
        return False
    source = program.nodes[node.args[0]].dtype
    return not is_float(source) or FORMATS[source].largest > FORMATS[node.dtype].largest


def read_narrowed(program: Program) -> frozenset[int]:
    """Such casts that others read than stores and products, which limit what they pack."""
    return frozenset(
        position
        for position in range(len(program.nodes))
        if narrows(program, position)
        and not all(
            isinstance(program.nodes[user].op, Store | Contract) for user in program.users(position)
        )
    )


def _stays(program: Program, position: int, axes: frozenset[str]) -> bool:
    """Whether all that is made of a value lies within `axes` and ends at stores."""
    seen, pending = set[int](), [position]
    while pending:
        for user in program.users(pending.pop()):
            node = program.nodes[user]
            if not isinstance(node.op, Map | Cast | Store) or not set(node.axes) <= axes:
                return False
            pending += [user] if user not in seen else []
            seen.add(user)
    return True


def _ends(program: Program) -> dict[int, frozenset[int]]:
    """For each node, the reductions and stores that its elementwise readers end at."""
    ends: dict[int, frozenset[int]] = {}
    for position in reversed(range(len(program.nodes))):
        node = program.nodes[position]
        if is_reduction(node) or not isinstance(node.op, Map | Cast):
            ends[position] = frozenset({position})
        else:
            ends[position] = frozenset().union(*(ends[u] for u in program.users(position)))
    return ends


def _made_of(program: Program, position: int) -> set[int]:
    found: set[int] = set()
    pending = [position]
    while pending:
        here = pending.pop()
        if here not in found:
            found.add(here)
            pending.extend(program.nodes[here].args)
    return found


@lru_cache(maxsize=4096)
def of_coordinates(program: Program, position: int) -> bool:
    """Made of coordinates and constants alone."""
    node = program.nodes[position]
    if isinstance(node.op, Constant | Iota):
        return True
    return isinstance(node.op, Map | Cast) and all(of_coordinates(program, a) for a in node.args)
