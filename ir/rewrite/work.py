"""The work of a program on paper: arithmetic by unit, and bytes of tensors and of what one sum
leaves for another. Forms are chosen by it; kernels have costs of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ir.dtypes import TOGETHER, dtype_of, holding
from ir.ops.base import volume
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Node, Program
from ir.rewrite import digits, rebased, rereading, strided, tiered

STEPPING = 16.0  # times as long that an operation takes where steps wait for each other
GATHERED = 32  # operations that an index is which is computed for each element
WINDOWED = 32  # operations that an element is which each of many points reads for itself
SENT = 160  # bytes that finding the order moves of each place: four passes, keys and places
SENT_NEAR, NEAR = 8, 1 << 16  # the same where all places are within a block's reach, in bytes
FOLDED = 4.0  # times as long that an operation takes on states of several numbers
ORDERED, SORTED = 128, 1024  # operations that sorting an element is, and how many are at first
ORDERED_SECONDS = 3e-10  # that an element of a row takes, which is one group's
AGAIN = 4  # products of an operand's element from which what it is made of counts


@dataclass(frozen=True, slots=True)
class Rates:
    """What a machine does in a second: products (two operations each) by the types of their
    factors, other operations, bytes to and from memory. `room`: bytes that parts may take there."""

    products: Mapping[str, float]
    other: float
    bytes: float
    room: float = math.inf

    def of(self, factors: tuple[str, ...]) -> float:
        """Of products of such factors: that of the type which has the numbers of both, or of the
        slower one where units take both together; plain units where none is known."""
        kinds = frozenset(factors)
        if len(kinds) == 1 or any(kinds <= pair for pair in TOGETHER):
            return min(self.products.get(dtype, 2 * self.other) for dtype in factors)
        return self.products.get(holding(kinds, sorted(kinds)), 2 * self.other)


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds that a program takes at least on paper; operations for operands of products."""

    seconds: float
    operands: int


def work_of(program: Program, rates: Rates) -> Work:
    """Arithmetic at the rates of its units, and bytes at that of memory."""
    again = strided.twice_read(program) + tiered.read_again(program)
    again += rebased.read_again(program)
    seconds = (program.bytes + again) / rates.bytes
    steps, feeding = in_steps(program), _feeding(program, _is_sum)
    folded = _feeding(program, _is_folded)  # which always goes through memory
    feeding |= folded
    for position, node in enumerate(program.nodes):
        types = [program.nodes[arg].type for arg in node.args]
        operations = node.op.flops(types, node.type, program.scope)
        if digits.is_computed(program, position):
            points = max(
                volume(program.scope, axes) for axes in (node.axes, *(t.axes for t in types))
            )
            seconds += GATHERED * points / rates.other
        if position in steps and not _is_matrices(program, position):
            seconds += STEPPING * operations / rates.other
        elif isinstance(node.op, Contract):
            factors = tuple(_read_as(program, arg, rates.products) for arg in node.args)
            seconds += operations / rates.of(factors)
            seconds += WINDOWED * _windowed(program, position) / rates.other
        elif isinstance(node.op, Top):
            extent = program.axes[node.op.axis]
            rows = volume(program.scope, types[0].axes) // extent
            all_of_them = (operations + 0.5 * ORDERED * min(extent, SORTED) * rows) / rates.other
            seconds += max(all_of_them, 0.5 * ORDERED_SECONDS * extent)  # values, places: half each
        elif _is_folded(node):
            seconds += FOLDED * operations / rates.other
        else:
            seconds += operations / rates.other
        if _is_sum(node) and position in feeding and not _is_added_up(program, position):
            # another sum reads what this one leaves
            size = volume(program.scope, node.axes) * dtype_of(node.dtype).bytes
            seconds += (4 if position in folded else 2) * size / rates.bytes
        if isinstance(node.op, Scatter):
            seconds += _sent(program, node, node.op) / rates.bytes
    seconds += _written_for_reads(program) / rates.bytes
    operands = {
        inner
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Contract) and position not in steps
        for arg in node.args
        if _used_again(program, position, arg)
        for inner in _made_of(program, arg)
    }  # fmt: skip
    return Work(seconds, len(operands))


def _windowed(program: Program, product: int) -> int:
    """Elements that a product of no matrices reads by windows, each at the points of many: of
    factors that vary along what moves them, and are summed along others."""
    node = program.nodes[product]
    assert isinstance(node.op, Contract)
    found = 0
    for arg in () if _is_matrices(program, product) else node.args:
        here = program.nodes[arg]
        while isinstance(here.op, Cast):
            here = program.nodes[here.args[0]]
        if isinstance(here.op, Load) and {*node.op.over} < {*here.axes}:
            shape = program.scope.tensors[here.op.tensor].shape
            kept = (axis for axis in here.axes if axis not in node.op.over)
            summed = math.prod(program.axes[axis] for axis in node.op.over)
            points = volume(program.scope, tuple(kept)) * summed
            found += points if points > AGAIN * math.prod(shape) else 0
    return found


def _sent(program: Program, node: Node, op: Scatter) -> int:
    """Bytes of what is sent, there and back one by one, and of finding the order in which it is."""
    types = [program.nodes[arg].type for arg in node.args]
    sent = {axis for axis in op.sources(types) if axis not in op.owned}
    if not sent:
        return 0
    named = {axis for index in op.index for axis, _ in index.terms}
    named |= {axis for tile in types[1:] for axis in tile.axes}
    places = volume(program.scope, tuple(sent & named))
    values = volume(program.scope, types[0].axes) * dtype_of(types[0].dtype).bytes
    targets = tuple(axis for axis in op.axes if axis not in op.owned)
    near = volume(program.scope, targets) * dtype_of(node.dtype).bytes <= NEAR
    return (SENT_NEAR if near else SENT) * places + 4 * values


def _written_for_reads(program: Program) -> int:
    """Bytes of tiles that are whole in memory because they are read at other points, there and
    back, where reads could make them."""
    positions = range(len(program.nodes))
    found = {p for one in positions if (p := rereading.through_memory(program, one)) is not None}
    nodes = [program.nodes[p] for p in found]
    sizes = (volume(program.scope, node.axes) * dtype_of(node.dtype).bytes for node in nodes)
    return 2 * sum(sizes)


def _is_added_up(program: Program, product: int) -> bool:
    """Whether sums of products are partial ones, which who has them scales and adds up: all readers
    reduce them along axes of their own."""
    if not isinstance(program.nodes[product].op, Contract):
        return False
    own, over = {*program.nodes[product].axes}, set[frozenset[str]]()
    pending, seen = [product], {product}
    while pending:
        for user in program.users(pending.pop()):
            node = program.nodes[user]
            if isinstance(node.op, Map | Cast):
                pending += [user] if user not in seen else []
                seen.add(user)
            elif isinstance(node.op, Reduce) and {*node.op.over} < own:
                over.add(frozenset(node.op.over))
                if {*node.axes} != own - {*node.op.over}:
                    return False
            else:
                return False
    return len(seen) > 1 and len(over) == 1


def _used_again(program: Program, product: int, arg: int) -> bool:
    """Whether a product multiplies each element of an operand with many others."""
    axes = {axis for one in program.nodes[product].args for axis in program.nodes[one].axes}
    others = axes - set(program.nodes[arg].axes)
    return volume(program.scope, tuple(others)) >= AGAIN


def _read_as(program: Program, position: int, known: Collection[str]) -> str:
    """The type of an operand before casts that only widen it, if products of it are known."""
    node = program.nodes[position]
    found = node.dtype
    while isinstance(node.op, Cast):
        node = program.nodes[node.args[0]]
        if dtype_of(found).bits < dtype_of(node.dtype).bits:
            break
        found = node.dtype if node.dtype in known else found
    return found


def _feeding(program: Program, ends: Callable[[Node], bool]) -> set[int]:
    """What such nodes are made of, directly or by way of others."""
    found: set[int] = set()
    for position in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[position]
        if position in found or ends(node):
            found.update(node.args)
    return found


def _made_of(program: Program, position: int) -> set[int]:
    """The maps between a value and what is loaded or summed up; loads at computed indices."""

    def ends(here: int) -> bool:
        node = program.nodes[here]
        return isinstance(node.op, Load | Constant | Iota | Store) or _is_sum(node)

    return {
        here
        for here in program.behind([position], ends)
        if digits.is_computed(program, here)
        or not (ends(here) or isinstance(program.nodes[here].op, Cast))
    }


def in_steps(program: Program) -> set[int]:
    """What is computed once a step of a loop, whose products are no matrices."""
    found: set[int] = set()
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Before | Recur) or found & set(node.args):
            found.add(position)
    return found


def _is_matrices(program: Program, position: int) -> bool:
    """Whether a product has rows and columns, each factor of its own."""
    node = program.nodes[position]
    if not isinstance(node.op, Contract):
        return False
    left, right = ({*program.nodes[arg].axes} for arg in node.args)
    own = (tuple(left - right), tuple(right - left))
    return all(volume(program.scope, axes) >= AGAIN for axes in own)


def _is_folded(node: Node) -> bool:
    """Whether states of several numbers go element by element, or elements are put in order."""
    if isinstance(node.op, Top):
        return True
    return isinstance(node.op, Fold) and not node.op.keep and node.op.how.states > 1


def _is_sum(node: Node) -> bool:
    return isinstance(node.op, Contract | Reduce | Carry)
