"""A program evaluated op by op by an array library: the baseline of what is compiled from it.

Every op becomes the call that a user of the library would write; intermediates are whole arrays in
the type in which the program computes. Knows programs and the library's interface; no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from explorer.runtime.base import Array
from explorer.runtime.products import Product, Value, product_at
from ir.dtypes import CODES, dtype_of, from_float, numpy_dtype, promote
from ir.ops.base import Op
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Node, Program
from ir.scalar import scalar_function

Step = Callable[[], None]
_SAYABLE = (Load, Map, Constant, Iota, Cast, Contract, Reduce, Store)
_STATE = "a state that goes from step to step (g.state and recur, carry)"
_WORDS = {  # ops that are no call of an array library, as authors write them
    "fold": "a fold or scan (fold, scan, cumulative, argmax)",
    "read": "reading a computed tile elsewhere (tile.at)",
    "scatter": "sending elements elsewhere (scatter)",
    "top": "the largest in order (top)",
} | dict.fromkeys(("before", "recur", "carry", "now", "prior"), _STATE)


class Inexpressible(Exception):
    """The library cannot say this program, or not in reasonable time; the message tells people."""


class ArrayLibrary(Protocol):
    """An array library, and how it deals with element types that it does not have."""

    @property
    def xp(self) -> Any:
        """numpy, or a module with its interface."""
        ...

    @property
    def room(self) -> float:
        """Bytes that intermediates may take."""
        ...

    def refuse(self, program: Program, product: Product) -> None:
        """Raises Inexpressible where it has no product of these types that is of use."""
        ...

    def fast(self, left: str, right: str) -> bool:
        """Whether products of these types run in its BLAS."""
        ...

    def wide(self, array: Array, dtype: str, to: str) -> Array:
        """Elements stored as `dtype` as numbers of type `to`, in which one computes."""
        ...

    def narrow(self, array: Array, dtype: str) -> Array:
        """Numbers rounded to `dtype`, as they are stored."""
        ...

    def write(self, array: Array, dtype: str, out: Array) -> None:
        """Numbers rounded to `dtype` and broadcast into `out`."""
        ...

    def function(self, name: str) -> Callable[..., Array]:
        """The scalar function of that name, elementwise."""
        ...

    def multiply(
        self, left: Array, right: Array, dtypes: tuple[str, str, str], out: Array | None
    ) -> Array:
        """Products of matrices (batch, rows, depth) and (batch, depth, columns).

        `dtypes` are those of left, right and result. The result is written to `out`, a contiguous
        array, if there is one.
        """
        ...

    def writes(self, left: str, right: str, out: str) -> bool:
        """Whether `multiply` can give the result in type `out` by itself."""
        ...


class Evaluation:
    """One program on given inputs and outputs; a call evaluates it once.

    What does not change from run to run (views of the inputs, constants) is made at once. Raises
    Inexpressible.
    """

    def __init__(
        self,
        program: Program,
        library: ArrayLibrary,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
    ) -> None:
        self._program = program
        self._library = library
        self._arrays = {**inputs, **outputs}
        self._products = {
            n: found for n in range(len(program.nodes)) if (found := product_at(program, n))
        }
        self._direct = {n for n, product in self._products.items() if self._is_direct(product)}
        self._done = {other for n in self._direct for other in self._products[n].behind}
        self._fixed: dict[int, Value] = {}
        self._values: dict[int, Value] = {}
        self._order = self._needed()
        self._dying = self._last_uses()
        self._refuse()
        for position in filter(self._stays, self._order):
            self._fixed[position] = self._made(self._program.nodes[position])

    def called(self, library: str, blas: str) -> str:
        """What people call it: `blas` where that does all, else `library`, with it or without."""
        products = [self._products[n] for n in self._order if n in self._products]
        pairs = [tuple(self._program.nodes[n].dtype for n in (p.left, p.right)) for p in products]
        if not any(self._library.fast(left, right) for left, right in pairs):
            return library
        return f"{blas} ({library})" if self._plain() else f"{library} with {blas}"

    def _plain(self) -> bool:
        """Whether the program is one product of stored matrices and nothing else."""
        own = [n for n in self._order if n not in self._done]
        others = [n for n in own if not _whole(self._program.nodes[n].op)]
        return len(others) == 1 and others[0] in self._direct

    def __call__(self) -> None:
        self._values = dict(self._fixed)
        for position in self._order:
            if position not in self._values and position not in self._done:
                self._evaluate(position)
            for dead in self._dying.get(position, ()):
                self._values.pop(dead, None)
        self._values = {}

    def _needed(self) -> list[int]:
        """Positions that the outputs are made of, in order; sums of products form no product."""
        return sorted(_made_of([position for position, _ in self._program.stores()], self._reads))

    def _reads(self, position: int) -> tuple[int, ...]:
        product = self._products.get(position)
        return (product.left, product.right) if product else self._program.nodes[position].args

    def _last_uses(self) -> dict[int, list[int]]:
        """Values that nobody reads behind a position."""
        last: dict[int, int] = {}
        for position in self._order:
            last |= dict.fromkeys(self._reads(position), position)
        dying: dict[int, list[int]] = {}
        for value, reader in last.items():
            dying.setdefault(reader, []).append(value)
        return dying

    def _refuse(self) -> None:
        """Raises Inexpressible for what the library cannot say, before anything is made."""
        for position in self._order:
            node = self._program.nodes[position]
            if not isinstance(node.op, _SAYABLE):
                words = _WORDS.get(node.op.name, node.op.name)
                raise Inexpressible(f"no call of an array library stands for {words}")
            stored = self._stored(node)
            if stored in CODES or dtype_of(stored).per_byte > 1:
                raise Inexpressible(f"array libraries have no {stored}")
            if position in self._products:
                self._library.refuse(self._program, self._products[position])
            if isinstance(node.op, Load):
                self._refuse_load(node, node.op)
        needed = self._intermediates()
        if needed > self._library.room:
            raise Inexpressible(
                f"op by op its intermediates take {needed / 1e9:.1f} GB, and there is room for "
                f"{self._library.room / 1e9:.1f} GB"
            )

    def _refuse_load(self, node: Node, op: Load) -> None:
        """What is read at strides alone is a view."""
        packed = self._program.scope.tensors[op.tensor].packs
        if packed:
            raise Inexpressible(f"array libraries have no {packed}, of which {op.tensor} is")
        if not node.args:
            return
        nodes = self._program.nodes
        behind = _made_of(node.args, lambda position: nodes[position].args)
        given = any(isinstance(nodes[position].op, Load) for position in behind)
        where = "indices of another tensor" if given else "indices that are computed"
        raise Inexpressible(f"{op.tensor} is read at {where}")

    def _stored(self, node: Node) -> str:
        """The dtype of a value, or of the tensor that it is written to."""
        if isinstance(node.op, Store):
            return self._program.scope.tensors[node.op.tensor].dtype
        return node.dtype

    def _intermediates(self) -> int:
        """Bytes of values at the moment when they are most."""
        alive: dict[int, int] = {}
        most = 0
        elsewhere = {*filter(self._stays, self._order), *self._direct, *self._done}
        for position in self._order:
            node = self._program.nodes[position]
            if position not in elsewhere and not isinstance(node.op, Store):
                extents = (self._program.axes[axis] for axis in node.axes)
                alive[position] = prod(extents) * dtype_of(node.dtype).bytes
            most = max(most, sum(alive.values()))
            for dead in self._dying.get(position, ()):
                alive.pop(dead, None)
        return most

    def _stays(self, position: int) -> bool:
        """Whether a value is the same in every run: a constant, or a view of an input."""
        op = self._program.nodes[position].op
        if isinstance(op, Load):
            return not any(any(pair) for pair in self._margins(op))
        return isinstance(op, Constant | Iota)

    def _made(self, node: Node) -> Value:
        """A value that stays."""
        xp, op = self._library.xp, node.op
        if isinstance(op, Constant):
            value = from_float(np.asarray(op.value), node.dtype)
            return Value((), xp.asarray(value), node.dtype)
        if isinstance(op, Iota):
            count = self._program.axes[op.axis]
            return Value(node.axes, xp.arange(count, dtype=numpy_dtype(node.dtype)), node.dtype)
        return self._view(node)

    def _evaluate(self, position: int) -> None:
        node = self._program.nodes[position]
        if position in self._products:
            self._multiply(position, self._products[position])
        elif isinstance(node.op, Store):
            self._store(node, node.op)
        else:
            self._values[position] = self._value(node)

    def _value(self, node: Node) -> Value:
        """Of an op that is neither a product nor a store."""
        op, args = node.op, [self._values[arg] for arg in node.args]
        if isinstance(op, Load):
            return self._view(node)
        if isinstance(op, Cast):
            return self._cast(args[0], op.dtype)
        if isinstance(op, Reduce):
            where = tuple(args[0].axes.index(axis) for axis in op.over)
            wide = self._wide(args[0], node.dtype)
            reduced = getattr(self._library.xp, op.kind)(wide, axis=where)
            axes = tuple(axis for axis in args[0].axes if axis not in op.over)
            return Value(axes, reduced.astype(wide.dtype, copy=False), node.dtype)
        assert isinstance(op, Map)
        return self._mapped(node, op, args)

    def _mapped(self, node: Node, op: Map, args: list[Value]) -> Value:
        given = [arg.dtype for arg in args]
        if op.function == "bitcast":
            return Value(node.axes, args[0].array.view(numpy_dtype(node.dtype)), node.dtype)
        kind, into = scalar_function(op.function).result, op.operand(given)
        types = ["bool" if kind == "select" and n == 0 else into for n in range(len(args))]
        operands = [
            Value(arg.axes, self._wide(arg, dtype), dtype).aligned(node.axes)
            for arg, dtype in zip(args, types, strict=True)
        ]
        result = op.numpy(given, self._library.function(op.function))(*operands)
        return Value(node.axes, result.astype(numpy_dtype(node.dtype), copy=False), node.dtype)

    def _cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        wide = self._wide(value, promote((value.dtype,)))
        return Value(value.axes, self._library.narrow(wide, dtype), dtype)

    def _wide(self, value: Value, dtype: str) -> Array:
        return self._library.wide(value.array, value.dtype, dtype)

    def _multiply(self, position: int, product: Product) -> None:
        """One call of the library's product; into the output at once where it can be."""
        left, right = self._operand(product.left, product), self._operand(product.right, product)
        over = tuple(a for a in product.over if a in left.axes and a in right.axes)
        dtype, out = self._program.nodes[position].dtype, None
        shape = tuple(self._program.axes[axis] for axis in product.axes)
        a = left.matrices(product.batch, product.rows, over)
        b = right.matrices(product.batch, over, product.columns)
        if position in self._direct:
            store = self._program.nodes[product.behind[-1]]
            assert isinstance(store.op, Store)
            dtype = store.dtype
            out = self._arrays[store.op.tensor].reshape(len(a), a.shape[1], b.shape[2])
        result = self._library.multiply(a, b, (left.dtype, right.dtype, dtype), out)
        self._values[position] = Value(product.axes, result.reshape(shape), dtype)

    def _operand(self, position: int, product: Product) -> Value:
        """A factor, with the axes summed away that only it has."""
        value = self._values[position]
        other = product.right if position == product.left else product.left
        others = self._program.nodes[other].axes
        own = [axis for axis in product.over if axis in value.axes and axis not in others]
        if not own:
            return value
        where = tuple(value.axes.index(axis) for axis in own)
        dtype = promote((value.dtype,))
        summed = self._wide(value, dtype).sum(axis=where, dtype=numpy_dtype(dtype))
        return Value(tuple(axis for axis in value.axes if axis not in own), summed, dtype)

    def _is_direct(self, product: Product) -> bool:
        """Whether the library writes the product to the output by itself."""
        nodes = self._program.nodes
        types = {nodes[n].dtype for n in product.behind}
        factors = (nodes[product.left].dtype, nodes[product.right].dtype)
        return len(types) == 1 and self._library.writes(*factors, types.pop())

    def _store(self, node: Node, op: Store) -> None:
        value = self._values[node.args[0]]
        spec = self._program.scope.tensors[op.tensor]
        wide = self._wide(value, promote((value.dtype,)))
        array = Value(value.axes, wide, value.dtype).aligned(op.axes)
        self._library.write(array, spec.dtype, self._arrays[op.tensor].reshape(spec.shape))

    def _margins(self, op: Load) -> list[tuple[int, int]]:
        """How far the indices of each dimension reach beyond its ends."""
        scope = self._program.scope
        bounds = [index.bounds(scope) for index in op.index]
        shape = scope.tensors[op.tensor].shape
        return [
            (max(0, -low), max(0, high - n + 1))
            for (low, high), n in zip(bounds, shape, strict=True)
        ]

    def _view(self, node: Node) -> Value:
        """A tensor at affine indices: a strided view, of a padded copy where it reaches outside."""
        op = node.op
        assert isinstance(op, Load)
        xp, spec = self._library.xp, self._program.scope.tensors[op.tensor]
        source, margins = self._arrays[op.tensor].reshape(spec.shape), self._margins(op)
        if any(any(pair) for pair in margins):
            fill = from_float(np.asarray(op.fill or 0.0), spec.dtype)
            source = xp.pad(source, margins, constant_values=fill[()])
        starts = (index.constant + low for index, (low, _) in zip(op.index, margins, strict=True))
        source = source[tuple(slice(start, None) for start in starts)]
        strides = dict.fromkeys(node.axes, 0)
        for index, stride in zip(op.index, source.strides, strict=True):
            for axis, coefficient in index.terms:
                strides[axis] += coefficient * stride
        shape = tuple(self._program.axes[axis] for axis in node.axes)
        array = xp.lib.stride_tricks.as_strided(source, shape, tuple(strides.values()))
        return Value(node.axes, array, spec.dtype)


def _made_of(ends: Sequence[int], reads: Callable[[int], Sequence[int]]) -> set[int]:
    """Positions that these are made of, themselves included."""
    found, pending = set[int](), list(ends)
    while pending:
        position = pending.pop()
        if position not in found:
            found.add(position)
            pending += reads(position)
    return found


def _whole(op: Op) -> bool:
    """Whether an op reads a tensor as it is stored, with one axis for each dimension."""
    if not isinstance(op, Load):
        return False
    axes = [axis for index in op.index for axis, coefficient in index.terms if coefficient == 1]
    simple = all(len(i.terms) == 1 and not i.constant for i in op.index)
    return simple and len(set(axes)) == len(op.index)
