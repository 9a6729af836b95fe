"""The program: a frozen graph of tile ops over named axes, with a networkx DiGraph underneath.

Knows no target, schedule or concrete operator. Building is `ir.builder`'s, meaning `ir.oracle`'s.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from ir.dtypes import dtype_of
from ir.errors import ProgramError, UsageError
from ir.ops.base import Op, Scope, TensorSpec, TileType
from ir.ops.load import Load
from ir.ops.store import Store
from ir.packs import check_packs
from ir.printable import shortened
from ir.running import refuse_escapes

if TYPE_CHECKING:
    import networkx as nx

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
LONGEST_NAME = 100  # it becomes part of a file's name
LARGEST_EXTENT = 2**31 - 1
WORKSPACE = "workspace"  # an argument of kernels, beside tensors
LARGEST_TENSOR = 2**56  # bytes; offsets into several such tensors are still i64
MOST_DIMENSIONS = 32

Pin = tuple[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Node:
    """One op application. `args` are positions of earlier nodes in the program."""

    op: Op
    args: tuple[int, ...]
    type: TileType

    @property
    def axes(self) -> tuple[str, ...]:
        return self.type.axes

    @property
    def dtype(self) -> str:
        return self.type.dtype


@dataclass(frozen=True)
class Program:
    """Tile dataflow. `extents` are (axis, extent) pairs; nodes are in topological order. Where
    their types are `inferred`, they are not looked at again."""

    name: str
    extents: tuple[tuple[str, int], ...]
    tensors: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    pins: tuple[Pin, ...] = ()
    inferred: InitVar[bool] = False

    def __post_init__(self, inferred: bool) -> None:
        names = [self.name, *(axis for axis, _ in self.extents), *(t.name for t in self.tensors)]
        for name in names:
            _check_name(self.name, name)
        for axis, extent in self.extents:
            if not 0 <= extent <= LARGEST_EXTENT:
                raise ProgramError(
                    f"{self.name}: axis {axis} has extent {extent}; needs >= 0, and coordinates "
                    f"are i32: <= {LARGEST_EXTENT}"
                )
        self._check_tensors()
        for position, node in enumerate(() if inferred else self.nodes):
            if any(not 0 <= arg < position for arg in node.args):
                raise ProgramError(f"{self.name}: node {position} ({node.op.name}) reads ahead")
            args = [self.nodes[arg].type for arg in node.args]
            if node.op.infer(args, self.scope) != node.type:
                what = f"node {position} ({node.op.name})"
                raise ProgramError(f"{self.name}: {what} has a wrong type")
        try:
            refuse_escapes([(node.op, node.args) for node in self.nodes])
        except ProgramError as error:
            raise ProgramError(f"{self.name}: {error}") from None

    def _check_tensors(self) -> None:
        """What generated code relies on: inputs are read, outputs written once, within them."""
        for spec in self.tensors:
            _check_tensor(self.name, spec)
        readable = {spec.name for spec in self.inputs}
        for node in self.nodes:
            if isinstance(node.op, Load) and node.op.tensor not in readable:
                raise ProgramError(f"{self.name}: load {node.op.tensor}: no such input")
        shapes = {spec.name: spec.shape for spec in self.outputs}
        written = [op for _, op in self.stores()]
        for op in written:
            what = f"{self.name}: store {op.tensor}"
            if op.tensor not in shapes:
                raise ProgramError(f"{what}: no such output")
            if any(axis not in self.axes for axis in op.axes):
                raise ProgramError(f"{what}: unknown axis in {op.axes}")
            shape = self.scope.shape(op.axes)
            if not _lies_within(shape, shapes[op.tensor]):
                raise ProgramError(f"{what}: {shape} elements into {shapes[op.tensor]}")
        names = [op.tensor for op in written]
        needed = [name for name, shape in shapes.items() if name in names or 0 not in shape]
        if sorted(names) != sorted(needed):
            raise ProgramError(f"{self.name}: every output is stored once, here {names} are")

    def named(self, name: str) -> Program:
        """The program by another name, which is all that there is to check."""
        _check_name(name, name)
        found = object.__new__(Program)
        found.__dict__.update(self.__getstate__(), name=name)
        return found

    def __hash__(self) -> int:
        """Of all of it, once: caches ask often, and forms of a program differ late in it."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.extents, self.tensors, self.nodes))

    def __getstate__(self) -> dict[str, object]:
        """What it is made of: what was derived may be growing in another thread."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @cached_property
    def axes(self) -> dict[str, int]:
        return dict(self.extents)

    @cached_property
    def scope(self) -> Scope:
        return Scope(self.axes, {spec.name: spec for spec in self.tensors})

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.tensors if spec.role == "input")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.tensors if spec.role == "output")

    @cached_property
    def is_void(self) -> bool:
        """Whether no output has an element."""
        return all(0 in spec.shape for spec in self.outputs)

    def refuse_void(self) -> None:
        """Raises UsageError for a program without work."""
        if self.is_void:
            spec = self.outputs[0]
            raise UsageError(
                f"{self.name}: nothing to compute: output {spec.name} has shape {spec.shape}, "
                "and no output has an element"
            )

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The dataflow graph; node attributes `node`, edge attributes `position`."""
        import networkx as nx  # takes longer than most programs need it for

        graph = nx.DiGraph()
        for position, node in enumerate(self.nodes):
            graph.add_node(position, node=node)
            for slot, arg in enumerate(node.args):
                graph.add_edge(arg, position, position=slot)
        return graph

    def users(self, position: int) -> tuple[int, ...]:
        """Positions of the nodes that read node `position`."""
        return self._users[position]

    @cached_property
    def _users(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for position, node in enumerate(self.nodes):
            for arg in dict.fromkeys(node.args):
                found[arg].append(position)
        return tuple(map(tuple, found))

    def behind(self, starts: Iterable[int], ends: Callable[[int], bool]) -> list[int]:
        """Some nodes and what they are made of, arguments first, each once however often it is
        used; not what is behind those of them that `ends` holds of."""
        found, pending = set[int](), [*starts]
        while pending:
            here = pending.pop()
            if here not in found:
                found.add(here)
                pending += () if ends(here) else self.nodes[here].args
        return sorted(found)

    def stores(self) -> Iterator[tuple[int, Store]]:
        """Positions and ops of the outputs."""
        for position, node in enumerate(self.nodes):
            if isinstance(node.op, Store):
                yield position, node.op

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one run, counted op by op at the whole extents."""
        return sum(
            node.op.flops([self.nodes[arg].type for arg in node.args], node.type, self.scope)
            for node in self.nodes
        )

    @cached_property
    def bytes(self) -> int:
        """Compulsory memory traffic: every tensor once."""
        total = 0
        for spec in self.tensors:
            size = dtype_of(spec.dtype).bytes
            for extent in spec.shape:
                size *= extent
            total += size
        return total

    @cached_property
    def key(self) -> str:
        """Structural hash: names of nodes do not matter, names of axes and tensors do."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        from ir.text import to_text

        return to_text(self)


def _check_name(program: str, name: str) -> None:
    if not _WORD.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ProgramError(
            f"{shortened(program)}: {shortened(repr(name))} is not a name (letters, "
            f"digits, _ and ., {LONGEST_NAME} at most)"
        )


def _lies_within(stored: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether what is stored is the tensor, or the tensor's rows without their padding.

    Kernels of a cut program pad what goes between them, so that rows begin where copies can.
    """
    same = len(stored) == len(whole) and stored[:-1] == whole[:-1]
    return same and stored[-1:] <= whole[-1:]


def _check_tensor(program: str, spec: TensorSpec) -> None:
    """Raises ProgramError for a role, dtype or shape that no memory has."""
    what = f"{program}: tensor {spec.name}"
    if spec.name == WORKSPACE:
        raise ProgramError(f"{what}: kernels call memory of their own so; choose another name")
    if spec.role not in ("input", "output"):
        raise ProgramError(f"{what} is neither input nor output, but {spec.role!r}")
    check_packs(spec)
    size = dtype_of(spec.dtype).bytes * math.prod(spec.shape)
    if len(spec.shape) > MOST_DIMENSIONS or any(extent < 0 for extent in spec.shape):
        raise ProgramError(f"{what} has shape {spec.shape}: at most {MOST_DIMENSIONS}, all >= 0")
    if size > LARGEST_TENSOR:
        raise ProgramError(
            f"{what} has {size} bytes, {LARGEST_TENSOR} at most: choose smaller extents"
        )


_KNOWN: WeakKeyDictionary[Program, ref[Program]] = WeakKeyDictionary()


def known(program: Program) -> Program:
    """An equal program that is in use, if there is one: what is kept by program is found without
    comparing all of two."""
    found = _KNOWN.setdefault(program, ref(program))()
    return program if found is None else found
