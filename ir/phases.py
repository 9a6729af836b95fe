"""Phases of a program: what is computed behind what, because it is read at other points.

A fold, the top of an axis, a scatter, a state along an axis and a computed tile that is read
elsewhere need values that are whole in memory. So a program that has any of them becomes several,
joined by tensors: each is either free of these ops, for a target to lower as ever, or one of them
with what is elementwise before it, which a plain kernel computes. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ir.builder import Graph
from ir.dtypes import dtype_of
from ir.errors import ProgramError
from ir.handed import all_handed
from ir.loops import loops_of, widened
from ir.ops.base import TensorSpec
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.plain.chains import chain_of
from ir.program import LONGEST_NAME, Node, Program
from ir.stored_narrow import stored_narrow
from ir.tiles import Tile

PLAIN = (Fold, Top, Scatter, Before, Recur)
_LIGHT = (Load, Map, Cast, Constant, Iota)


@dataclass(frozen=True, slots=True)
class Phase:
    """One program of several, run in order.

    Its outputs are the whole program's outputs, or tensors that later phases have as inputs.
    `plain`: it holds folds, tops or scatters of one argument list, the states of one loop, or a
    chain of reads, and a plain kernel (`ir.plain.build`) computes it.
    """

    program: Program
    plain: bool


@lru_cache(maxsize=256)
def phases_of(
    program: Program, room: int = 0, whole: bool = False, handing: bool = False
) -> tuple[Phase, ...]:
    """The phases of a program in order; of most there is one, which is the program itself.

    `room`: bytes a group of threads has to itself. Phases in a row, each of what is elementwise
    in values of the one before at other points of the same rows, are one where a row's values fit.
    `whole`: what only the steps of a loop read is computed there. `handing`: a state that products
    are added to (`ir.handed`) is in the phase of these.
    """
    if not any(isinstance(node.op, (Read, *PLAIN)) for node in program.nodes):
        return (Phase(program, False),)
    phases = tuple(_Phases(program, room, whole, handing).run())
    own = frozenset(spec.name for spec in program.tensors)
    programs = stored_narrow([phase.program for phase in phases], own)
    return tuple(Phase(one, phase.plain) for one, phase in zip(programs, phases, strict=True))


class _Phases:
    """Levels: a value that is read elsewhere, or that a plain kernel computes, is one level above
    what it is made of. Of each level what is not plain is one phase; what is plain follows. What
    only later phases read is computed there: nothing is kept for them that they can make."""

    def __init__(self, program: Program, room: int, whole: bool, handing: bool) -> None:
        self.program, self.room = program, room
        self.nodes = program.nodes
        self.handed = {one.state for one in all_handed(program)} if handing else set[int]()
        self.loops = loops_of(program)
        if whole:
            self.loops = tuple(widened(program, loop) for loop in self.loops)
        self._loop = {position: loop for loop in self.loops for position in loop.nodes}
        self._levels: dict[int, int] = {}
        self._lights: dict[int, bool] = {}
        self._laters: dict[int, frozenset[int]] = {}
        self._waiting: set[int] = set()
        for position in range(len(self.nodes)):  # of early ones first: chains may be long
            self.light(position)
            self.level(position)
        self.groups = list(self._groups())
        self._delay()
        reads = (node.args[0] for node in self.nodes if isinstance(node.op, Read))
        self.read = {arg for arg in reads if not self.is_plain(arg)}  # at other points
        self.kept = self._kept()
        self.temps: dict[int, TensorSpec] = {}  # what is in memory by now
        self._count = 0

    # --- levels -----------------------------------------------------------------------------------

    def is_plain(self, position: int) -> bool:
        """Whether a plain kernel computes a value."""
        if position in self.handed:
            return False
        return position in self._loop or isinstance(self.nodes[position].op, PLAIN)

    def level(self, position: int) -> int:
        """How many times what a value is made of has to be in memory first."""
        if position not in self._levels:
            if position in self._waiting:
                raise ProgramError(
                    f"{self.program.name}: a step of a loop needs what the loop gives at its end"
                )
            self._waiting.add(position)
            self._levels[position] = self._level(position)
            self._waiting.discard(position)
        return self._levels[position]

    def _level(self, position: int) -> int:
        node, loop = self.nodes[position], self._loop.get(position)
        if loop is not None:
            outside = {a for p in loop.nodes for a in self.nodes[p].args} - loop.nodes
            return max((self.level(arg) for arg in outside), default=0) + 1
        stored = isinstance(node.op, Store)
        levels = (self.level(a) + (a in self.handed and not stored) for a in node.args)
        found = max(levels, default=0)
        if self.is_plain(position):
            return found + 1
        if isinstance(node.op, Read) and not self.is_plain(node.args[0]):
            return max(found, self.level(node.args[0]) + 1)
        return found

    def _delay(self) -> None:
        """Raise the levels of what is not elementwise as far as its readers allow."""
        behind = {p for group in self.groups for p in self._behind(group)}
        for position in range(len(self.nodes) - 1, -1, -1):
            users = self.program.users(position)
            if users and not self.light(position) and position not in behind:
                latest = (self._latest(position, user, user in behind) for user in users)
                self._levels[position] = min(latest)

    def _latest(self, position: int, user: int, behind: bool) -> int:
        """The last level at which a reader may find a value; `behind`: a plain kernel's own."""
        op, args = self.nodes[user].op, self.nodes[user].args
        elsewhere = isinstance(op, Read) and args[0] == position
        elsewhere = elsewhere or (position in self.handed and not isinstance(op, Store))
        return self.level(user) - (elsewhere or behind or self.is_plain(user))

    def _behind(self, group: tuple[int, ...]) -> set[int]:
        """What a plain kernel computes of its values before it writes outputs."""
        found: set[int] = set()
        pending = [self.nodes[store].args[0] for store in self._direct(group)]
        while pending:
            here = pending.pop()
            if here not in found | {*group} and self.level(here) == self.level(group[0]):
                found.add(here)
                pending.extend(self.nodes[here].args)
        return found

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Nodes that one plain kernel computes."""
        known: dict[object, list[int]] = {}
        for position, node in enumerate(self.nodes):
            loop = self._loop.get(position)
            if loop is not None:
                known.setdefault(loop, []).append(position)
            elif isinstance(node.op, Fold) and position not in self.handed:
                known.setdefault((replace(node.op, part=0), node.args), []).append(position)
            elif isinstance(node.op, Top):
                known.setdefault((replace(node.op, where=False), node.args), []).append(position)
            elif isinstance(node.op, Scatter):
                known[position] = [position]
        for group in known.values():
            yield tuple(group)

    # --- what is kept in memory -------------------------------------------------------------------

    def light(self, position: int) -> bool:
        """Whether a value is elementwise in what is in memory, and so computed where it is used."""
        if position not in self._lights:
            node = self.nodes[position]
            read = isinstance(node.op, Read)
            args = node.args[1:] if read else node.args
            light = (read or isinstance(node.op, _LIGHT)) and all(map(self.light, args))
            self._lights[position] = light or self.is_plain(position) or position in self.handed
        return self._lights[position]

    def _kept(self) -> set[int]:
        """Values that are not plain and have to be in memory."""
        found = set(self.read)
        for position, node in enumerate(self.nodes):
            for arg in node.args:
                if arg in self.handed and not isinstance(node.op, Store):
                    found.add(arg)
                late = self.level(position) > self.level(arg)
                if late and not self.is_plain(arg) and not self.light(arg):
                    found |= self._for_later(arg)
        return found

    def _for_later(self, position: int) -> frozenset[int]:
        """What later phases have in memory of a value: itself, or if that takes less, what it is
        elementwise made of: the indices instead of what is read there."""
        if position not in self._laters:
            itself, node = frozenset((position,)), self.nodes[position]
            made_of = [self._for_later(arg) for arg in node.args if not self.light(arg)]
            found = frozenset().union(*made_of) if isinstance(node.op, _LIGHT) else itself
            less = sum(map(self._bytes, found)) < self._bytes(position)
            there = position in self.read  # itself, in any case
            self._laters[position] = found if less and not there else itself
        return self._laters[position]

    def _bytes(self, position: int) -> int:
        node = self.nodes[position]
        return prod(self.program.scope.shape(node.axes)) * dtype_of(node.dtype).bytes

    # --- programs ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Phase]:
        direct = {group: self._direct(group) for group in self.groups}
        plain = {store for stores in direct.values() for store in stores}
        stores = [p for p, _ in self.program.stores() if p not in plain]
        done = -1  # the level up to which phases are joined
        for level in range(self._top() + 1):
            chain = self._chain(level, stores) if level > done else None
            if chain is not None:
                done = chain[0]
                yield chain[1]
            kept = [p for p in sorted(self.kept) if self.level(p) == level > done]
            here = [p for p in stores if self.level(p) == level > done]
            if kept or here:
                yield Phase(self._program(kept, here), False)
            for group in self.groups:
                if self.level(group[0]) == level + 1:
                    stored = direct[group]
                    kept = [p for p in group if self._is_read(p, set(group), stored)]
                    yield Phase(self._program(kept, stored, frozenset(group)), True)

    def _top(self) -> int:
        return max(self.level(p) for p in range(len(self.nodes)))

    # --- chains of reads --------------------------------------------------------------------------

    def _chain(self, first: int, stores: Sequence[int]) -> tuple[int, Phase] | None:
        """As many levels from `first` on as are one phase, and that phase."""
        plain = {self.level(group[0]) for group in self.groups}
        last = first
        while last < self._top() and last + 1 not in plain:
            last += 1
        while self.room and last > first:
            phase = self._joined(first, last, stores)
            if phase is not None:
                return last, phase
            last -= 1
        return None

    def _joined(self, first: int, last: int, stores: Sequence[int]) -> Phase | None:
        """Levels as one phase: of reads and what is elementwise alone, in rows that have room."""
        here = [p for p in stores if first <= self.level(p) <= last]
        own = [p for p in sorted(self.kept) if first <= self.level(p) <= last]
        kept = self._needed(own, last, stores)
        if len({self.level(p) for p in (*own, *here)}) < 2:
            return None
        nothing = frozenset[int]()
        for p in self._used([*kept, *(self.nodes[store].args[0] for store in here)], nothing):
            if not self._cut(p, nothing) and not isinstance(self.nodes[p].op, (Read, *_LIGHT)):
                return None
        before, count = dict(self.temps), self._count
        program = self._program(kept, here)
        chain = chain_of(program) if self._has_reads(program) else None
        if chain is None or not chain.points or chain.bytes > self.room:
            self.temps, self._count = before, count
            return None
        return Phase(program, True)

    @staticmethod
    def _has_reads(program: Program) -> bool:
        return any(isinstance(node.op, Read) for node in program.nodes)

    def _needed(self, own: Sequence[int], last: int, stores: Sequence[int]) -> list[int]:
        """Which values of a chain are read behind it."""
        later = [p for p in (*self.kept, *stores) if self.level(p) > last]
        later += [p for group in self.groups for p in group if self.level(p) > last]
        pending, seen = later, set[int]()
        while pending:
            here = pending.pop()
            if here not in seen:
                seen.add(here)
                pending.extend(self.nodes[here].args if here not in own else ())
        return [p for p in own if p in seen]

    def _direct(self, group: tuple[int, ...]) -> list[int]:
        """Outputs that a plain kernel writes itself: its values as they are, or converted; of
        folds, what is elementwise made of them too."""
        found = []
        for position, store in self.program.stores():
            source = self.nodes[position].args[0]
            if self._is_made_of(source, group):
                found.append(position)
                continue
            if isinstance(self.nodes[source].op, Cast) and not self._is_scatter(group):
                source = self.nodes[source].args[0]
            alike = set(store.axes) == set(self.nodes[source].axes)
            if self._is_scatter(group) and len(self.program.users(source)) > 1:
                continue  # it combines in one tensor
            if source in group and alike and not isinstance(self.nodes[source].op, Before):
                found.append(position)
        if self._is_scatter(group) and list(self.program.users(group[0])) != found:
            return []  # a scatter is stored once; the rest is copied from there
        return found

    def _is_made_of(self, position: int, group: tuple[int, ...]) -> bool:
        """Whether a value at each point of folds' results is elementwise made of these, and of
        what is in memory before them."""
        if not isinstance(self.nodes[group[0]].op, Fold) or group[0] in self._loop:
            return False
        level, axes = self.level(group[0]), set(self.nodes[group[0]].axes)
        if self.level(position) < level or set(self.nodes[position].axes) != axes:
            return False
        pending, seen = [position], set[int]()
        while pending:
            here = pending.pop()
            if here in seen or here in group or self.level(here) < level:
                continue
            seen.add(here)
            if self.is_plain(here) or not isinstance(self.nodes[here].op, Map | Cast):
                return False
            pending.extend(self.nodes[here].args)
        return True

    def _is_scatter(self, group: tuple[int, ...]) -> bool:
        return isinstance(self.nodes[group[0]].op, Scatter)

    def _is_read(self, position: int, group: set[int], stored: list[int]) -> bool:
        """Whether anything but its own kernel reads a plain value, as it is or made into more."""
        pending, seen = [position], set[int]()
        while pending:
            for user in self.program.users(pending.pop()):
                if user in seen or user in group or user in stored:
                    continue
                seen.add(user)
                if not isinstance(self.nodes[user].op, Map | Cast):
                    return True
                pending.append(user)
        return False

    def _program(
        self, kept: Iterable[int], stores: Iterable[int], own: frozenset[int] = frozenset()
    ) -> Program:
        """The program that writes `kept` to tensors of their own and computes `stores`; `own` are
        the plain values that it may compute."""
        new = {position: self._temp(position) for position in kept}
        ends = (p for p in own if isinstance(self.nodes[p].op, Recur))
        roots = [*new, *(self.nodes[store].args[0] for store in stores), *ends]
        used = self._used(roots, own)
        tensors = self._tensors(used, own)
        for store in stores:
            op = self.nodes[store].op
            assert isinstance(op, Store)
            tensors[op.tensor] = self.program.scope.tensors[op.tensor]
        tensors |= {spec.name: spec for spec in new.values()}
        axes = {axis for p in (*used, *stores) for axis in self.nodes[p].axes}
        axes |= {axis for p in used if not self._cut(p, own) for axis in self._around(p)}
        extents = {name: extent for name, extent in self.program.extents if name in axes}
        self._count += 1
        graph = Graph.like(self._name(), extents, tuple(tensors.values()), ())
        made: dict[int, Tile] = {}
        for position in sorted(used):
            made[position] = self._made(graph, position, made, own)
        for position, spec in new.items():
            graph.add(Store(spec.name, self._lying(position)), made[position])
        for store in stores:
            graph.add(self.nodes[store].op, made[self.nodes[store].args[0]])
        self.temps |= {p: replace(spec, role="input") for p, spec in new.items()}
        return graph.program()

    def _name(self) -> str:
        end = f"_p{self._count - 1}"
        return f"{self.program.name[: LONGEST_NAME - len(end)]}{end}"

    def _temp(self, position: int) -> TensorSpec:
        node, name = self.nodes[position], f"v{position}"
        while name in self.program.scope.tensors:
            name = f"kept_{name}"
        shape = self.program.scope.shape(self._lying(position))
        return TensorSpec(name, shape, node.dtype, "output")

    def _lying(self, position: int) -> tuple[str, ...]:
        """The axes of a value in memory: those of what it is elementwise made of, or folded of, as
        they lie there, whatever lacks some of them comes to it first (a mask of its two axes)."""
        own, node = {*self.nodes[position].axes}, self.nodes[position]
        while isinstance(node.op, Map | Cast | Fold):
            axes = {*node.axes}
            whole = (self.nodes[arg] for arg in node.args if {*self.nodes[arg].axes} >= axes)
            made = next(whole, None)
            if made is None:
                break
            node = made
        return tuple(axis for axis in node.axes if axis in own)

    def _cut(self, position: int, own: frozenset[int]) -> bool:
        """Whether a value is loaded in a phase that computes `own`."""
        return position in self.temps and position not in own

    def _used(self, roots: Iterable[int], own: frozenset[int]) -> set[int]:
        used: set[int] = set()
        pending = list(roots)
        while pending:
            here = pending.pop()
            if here in used:
                continue
            used.add(here)
            if not self._cut(here, own):
                args = self.nodes[here].args
                pending.extend(args[1:] if self._reads_memory(here, own) else args)
        return used

    def _reads_memory(self, position: int, own: frozenset[int]) -> bool:
        """Whether a read is one of a tensor that is there."""
        node = self.nodes[position]
        return isinstance(node.op, Read) and self._cut(node.args[0], own)

    def _around(self, position: int) -> tuple[str, ...]:
        """Axes of a node's arguments, of which it may combine."""
        return tuple(axis for arg in self.nodes[position].args for axis in self.nodes[arg].axes)

    def _tensors(self, used: set[int], own: frozenset[int]) -> dict[str, TensorSpec]:
        found: dict[str, TensorSpec] = {}
        for position in sorted(used):
            op = self.nodes[position].op
            spec = None
            if self._cut(position, own):
                spec = self.temps[position]
            elif self._reads_memory(position, own):
                spec = self.temps[self.nodes[position].args[0]]
            elif isinstance(op, Load):
                spec = self.program.scope.tensors[op.tensor]
            if spec is not None:
                found[spec.name] = spec
        return found

    def _made(
        self, graph: Graph, position: int, made: dict[int, Tile], own: frozenset[int]
    ) -> Tile:
        node = self.nodes[position]
        if self._cut(position, own):
            index = tuple(Index(((axis, 1),)) for axis in self._lying(position))
            return graph.add(Load(self.temps[position].name, index))
        if self._reads_memory(position, own):
            return self._loaded(graph, node, made)
        return graph.add(node.op, *(made[arg] for arg in node.args))

    def _loaded(self, graph: Graph, node: Node, made: dict[int, Tile]) -> Tile:
        """A read of what is in memory, as a load."""
        op = node.op
        assert isinstance(op, Read)
        axes, lying = self.nodes[node.args[0]].axes, self._lying(node.args[0])
        index = tuple(i if i.gather is None else replace(i, gather=i.gather - 1) for i in op.index)
        index = tuple(index[axes.index(axis)] for axis in lying)
        name = self.temps[node.args[0]].name
        return graph.add(Load(name, index, op.fill), *(made[arg] for arg in node.args[1:]))
