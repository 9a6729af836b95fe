"""What every right kernel of a program must do, however it is written: bytes and products.

An element of an input is compulsory where the result depends on it whatever its value is: it is
read at least once. Nothing is, that stands below a comparison, a choice or a value made of
coordinates (a mask may skip it), or that is found by a gathered index. Each output is written once.

A product is compulsory where all of its results are, where it may not be computed as another one
or in another order ((A B) C, A B + A C, sums over its results), and where its factors are plain
data (no window, whose products a transform saves; no gather; nothing that a smaller product makes).
What is multiplied with its own transpose counts half. Algorithms of fewer products, such as
Strassen's, are left aside: no lowering uses one. Knows no machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ir.dtypes import dtype_of
from ir.merges import NAMED
from ir.ops.base import volume
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Node, Program
from ir.scalar import scalar_function

_SUMS = ("add", "sub", "neg")
_WHOLE = ("sum", "max", "min")  # reductions that depend on each of their elements
_WHOLE_MERGES = tuple(NAMED[name] for name in (*_WHOLE, "argmax", "argmin"))
# Functions of which no sum is that of the function of sums: a product below one stays a product.
_CURVED = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "max", "min", "abs", "sin", "cos",
    "log1p", "expm1",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """A compulsory sum of products: the types of its factors, that of its sum, the operations."""

    factors: tuple[str, ...]
    accumulates: str
    operations: int


@dataclass(frozen=True, slots=True)
class Compulsory:
    """Bytes that are read and written, and products of which, in each group, one must be done."""

    read: int
    written: int
    products: tuple[tuple[Product, ...], ...]

    @property
    def bytes(self) -> int:
        return self.read + self.written


@lru_cache(maxsize=256)
def compulsory(program: Program) -> Compulsory:
    """What no right kernel of the program can leave out."""
    found = _Analysis(program)
    return Compulsory(found.read, found.written, found.products)


class _Analysis:
    """Facts of the nodes of one program, each found once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._nodes = program.nodes
        self._users: list[list[int]] = [[] for _ in self._nodes]
        for position, node in enumerate(self._nodes):
            for arg in node.args:
                self._users[arg].append(position)

    # -- bytes

    @cached_property
    def read(self) -> int:
        """Of each tensor the most that one of its loads is bound to read."""
        found: dict[str, int] = {}
        for position in self._whole:
            op = self._nodes[position].op
            if isinstance(op, Load) and all(index.gather is None for index in op.index):
                count = _distinct(op, self._program)
                found[op.tensor] = max(count, found.get(op.tensor, 0))
        return sum(count * self._bytes(tensor) for tensor, count in found.items())

    @cached_property
    def written(self) -> int:
        scope = self._program.scope
        return sum(
            math.prod(scope.shape(op.axes)) * self._bytes(op.tensor)
            for _, op in self._program.stores()
        )

    def _bytes(self, tensor: str) -> int:
        return dtype_of(self._program.scope.tensors[tensor].dtype).bytes

    # -- what must be known

    @cached_property
    def _whole(self) -> set[int]:
        """Nodes of which every element decides a result."""
        found: set[int] = set()
        for position in reversed(range(len(self._nodes))):
            node = self._nodes[position]
            if isinstance(node.op, Store) or position in found:
                found.update(self._needed(node))
        return found

    def _needed(self, node: Node) -> Iterator[int]:
        """The arguments of which every element is needed if the node's are."""
        op, args = node.op, node.args
        if isinstance(op, Store | Cast | Load):
            yield from args
        elif isinstance(op, Reduce):
            known_early = self._nodes[args[0]].dtype == "bool"  # one may decide
            yield from args if op.kind in _WHOLE and not known_early else ()
        elif isinstance(op, Fold | Top):
            first = self._nodes[args[0]]
            yield from args[:1] if _decides(op) and first.dtype != "bool" else ()
        elif isinstance(op, Contract) or (isinstance(op, Map) and self._depends(op, args)):
            masked = [self._masks[arg] for arg in args]
            yield from (a for n, a in enumerate(args) if not any(masked[:n] + masked[n + 1 :]))

    def _depends(self, op: Map, args: Sequence[int]) -> bool:
        """Whether a function's value tells of each of its operands, as far as no mask hides it:
        not a difference from itself, nor a multiple of zero."""
        values = [self._nodes[arg].op for arg in args]
        void = op.function == "mul" and any(isinstance(v, Constant) and not v.value for v in values)
        itself = op.function in ("sub", "div") and len(set(args)) == 1
        row = scalar_function(op.function)
        numbers = row.result in ("promote", "float") and not row.is_whole
        return numbers and not void and not itself

    @cached_property
    def _masks(self) -> list[bool]:
        """Nodes that may hide what they are combined with: made of coordinates, of choices, of
        comparisons or of infinities."""
        found: list[bool] = []
        for node in self._nodes:
            found.append(self._hides(node, [found[arg] for arg in node.args]))
        return found

    @staticmethod
    def _hides(node: Node, args: Sequence[bool]) -> bool:
        op = node.op
        if isinstance(op, Map):
            return scalar_function(op.function).result in ("bool", "select") or any(args)
        if isinstance(op, Cast):
            return any(args)
        if isinstance(op, Constant):
            return not math.isfinite(op.value)
        return not isinstance(op, Load | Contract | Reduce)

    # -- products

    @cached_property
    def products(self) -> tuple[tuple[Product, ...], ...]:
        """By groups that a sum may turn into one product; of equal ones the first."""
        groups: list[tuple[set[int], list[Product]]] = []
        seen: set[tuple[object, tuple[int, ...]]] = set()
        for position in sorted(self._whole):
            node = self._nodes[position]
            if (node.op, node.args) in seen:
                continue
            seen.add((node.op, node.args))
            found, region = self._product(position), self._linear(position)
            if found is None or not self._lasts(region):
                continue
            joined = [group for group in groups if group[0] & region]
            groups = [group for group in groups if not group[0] & region]
            one = (region, [found])
            for nodes, members in joined:
                one[0].update(nodes)
                one[1].extend(members)
            groups.append(one)
        return tuple(tuple(members) for _, members in groups)

    def _product(self, position: int) -> Product | None:
        """The node as a product of plain factors; None if it is none."""
        node = self._nodes[position]
        if isinstance(node.op, Contract):
            factors, over, acc = node.args, node.op.over, node.op.acc
        elif isinstance(node.op, Reduce) and node.op.kind == "sum":
            body = self._nodes[node.args[0]]
            if not isinstance(body.op, Map) or body.op.function != "mul":
                return None
            factors, over, acc = body.args, node.op.over, node.dtype
        else:
            return None
        tensors = [self._plain(factor) for factor in factors]
        axes = [self._nodes[factor].axes for factor in factors]
        whole = all(set(over) <= set(own) for own in axes)
        if not whole or any(own is None for own in tensors) or len(set(map(frozenset, axes))) < 2:
            return None
        left, right = (own or frozenset() for own in tensors)
        points = tuple(dict.fromkeys((*axes[0], *axes[1])))
        count = 2 * volume(self._program.scope, points)
        types = {self._nodes[factor].dtype for factor in factors}
        types |= {self._program.scope.tensors[name].dtype for name in left | right}
        return Product(tuple(sorted(types)), acc, count // 2 if left & right else count)

    def _plain(self, position: int) -> frozenset[str] | None:
        """The tensors of which a factor is made element by element; None if it is made otherwise.

        One load, or one curved function of a product, must have all of its axes: else it could be
        taken apart, or be computed in another order.
        """
        own = set(self._nodes[position].axes)
        found: set[str] = set()
        full = False
        waiting, seen = [(position, False)], set[tuple[int, bool]]()
        while waiting:
            number, curved = waiting.pop()
            if (number, curved) in seen:
                continue
            seen.add((number, curved))
            node = self._nodes[number]
            if isinstance(node.op, Load) and _is_plain(node.op):
                found.add(node.op.tensor)
                full |= set(node.axes) == own
            elif isinstance(node.op, Map | Cast):
                curved |= isinstance(node.op, Map) and node.op.function in _CURVED
                waiting.extend((arg, curved) for arg in node.args)
            elif isinstance(node.op, Reduce | Contract) and (curved or set(node.axes) < own):
                found |= self._above(node)
                full |= set(node.axes) == own
            elif not isinstance(node.op, Constant):
                return None
        return frozenset(found) if full and not self._masks[position] else None

    def _above(self, node: Node) -> set[str]:
        """All tensors that a node is made of."""
        behind = (self._nodes[n].op for n in self._program.behind(node.args, lambda _: False))
        return {op.tensor for op in behind if isinstance(op, Load)}

    def _linear(self, position: int) -> set[int]:
        """The nodes that are linear in this one: sums, scalings and casts of it."""
        found = {position}
        for number in range(position + 1, len(self._nodes)):
            node = self._nodes[number]
            inside = [arg in found for arg in node.args]
            if any(inside) and self._keeps_linear(node, inside):
                found.add(number)
        return found

    @staticmethod
    def _keeps_linear(node: Node, inside: Sequence[bool]) -> bool:
        if isinstance(node.op, Cast):
            return True
        if not isinstance(node.op, Map):
            return False
        scaled = tuple(inside) == (True, False)
        if node.op.function == "mul":
            return scaled or tuple(inside) == (False, True)
        return node.op.function in _SUMS or (node.op.function == "div" and scaled)

    def _lasts(self, region: set[int]) -> bool:
        """Whether what is linear in a product is stored, or needed by what is not linear in it."""
        for position in region & self._whole:
            for user in self._users[position]:
                op = self._nodes[user].op
                curved = isinstance(op, Map) or (isinstance(op, Reduce) and op.kind != "sum")
                if isinstance(op, Store) or (
                    curved
                    and user not in region
                    and position in self._needed(self._nodes[user])
                    and user in self._whole
                ):
                    return True
        return False


def _decides(op: Fold | Top) -> bool:
    """Whether each element of the first argument decides a result."""
    return isinstance(op, Top) or op.merge in _WHOLE_MERGES


def _is_plain(op: Load) -> bool:
    """Whether every dimension is an axis of its own: no window, no diagonal, no gather."""
    axes = [axis for index in op.index for axis, _ in index.terms]
    single = all(len(index.terms) <= 1 and index.gather is None for index in op.index)
    return single and len(set(axes)) == len(axes) and op.fill is None


def _distinct(op: Load, program: Program) -> int:
    """How many elements a load reads at least."""
    shape = program.scope.tensors[op.tensor].shape
    free = dict(program.axes)
    count = 1
    for index, extent in zip(op.index, shape, strict=True):
        choices = {axis: _inside(index, axis, extent, program) for axis, _ in index.terms}
        best = max((axis for axis in choices if axis in free), key=choices.__getitem__, default="")
        if best:
            count *= choices[best]
            del free[best]
        elif op.fill is not None:
            count *= min((_inside(index, "", extent, program), *choices.values()))
    return count


def _inside(index: Index, axis: str, extent: int, program: Program) -> int:
    """Values of an index within its dimension as one axis runs, whatever the others are."""
    coefficient = dict(index.terms).get(axis, 0)
    others = Index(tuple(t for t in index.terms if t[0] != axis), index.constant)
    run = program.axes[axis] if axis and coefficient else 1
    low, high = others.bounds(program.scope)
    return min(_hits(start, coefficient, run, extent) for start in (low, high))


def _hits(start: int, step: int, run: int, extent: int) -> int:
    """How many of start, start + step, ... (`run` of them) lie from 0 to extent - 1."""
    if not step:
        return int(0 <= start < extent)
    if step < 0:
        start, step = start + step * (run - 1), -step
    first = max(0, -(start // step))
    last = min(run - 1, (extent - 1 - start) // step)
    return max(0, last - first + 1)
