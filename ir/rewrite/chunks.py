"""Causal sums by chunks with a carried state: linear work where the text has a square.

Where o[i] is a sum over j <= i of w(i, j) v[j], and w is a product of a function of i and one of j
(an inner product counts as one, over its axis; so does the exponential of a difference), what lies
before a chunk of i is a state: the sum over those j of the function of j times v. A chunk adds to
it, and what was there before decays by the exponent's difference between ends of chunks. Inside a
chunk the sum stays as it is written. So does a state that each step scales and adds a product to.
Known as the chunked form of linear attention (Hua and others, 2022; Sun and others, 2023; Yang and
others, 2024; Dao and Gu, 2024). Exponents are taken relative to ends of chunks, so that they stay
as small as they are in the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ir.axes import Axis
from ir.builder import Graph, cast, contract, reduce, where
from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.folding import cumulative, recurrence
from ir.ops.map import Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Contract
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.graft import copy_node
from ir.rewrite.patterns import matches, parsed
from ir.rewrite.substitution import Place, Substitution, Unsplit, cut_tensors, reshaped
from ir.tiles import Tile, apply

CHUNKS = (32, 64, 128)
NAME = "chunks"
WHY = "what comes before a chunk is one state, a sum that each chunk scales and adds to"


def chunked(program: Program) -> Iterator[tuple[str, int, Program]]:
    """The program by chunks of several lengths: a name, the node of the sum or state, the form."""
    for position, node in enumerate(program.nodes):
        found: _Causal | _Stepped | None = None
        if isinstance(node.op, Contract) and is_float(node.dtype):
            found = _causal(program, position)
        elif isinstance(node.op, Recur):
            found = _stepped(program, position)
        for chunk in CHUNKS if found else ():
            made = _made(found, chunk) if found else None
            if made is not None:
                yield f"{NAME}-{chunk}", position, made


def _made(found: _Causal | _Stepped, chunk: int) -> Program | None:
    """The form, with inputs cut as well where they can be."""
    for whole in (False, True):
        try:
            return found.form(chunk, whole)
        except (Unsplit, ProgramError):
            continue
    return None


class _Cut:
    """A graph in which axes of one length are cut into chunks."""

    def __init__(self, program: Program, axes: tuple[str, ...], chunk: int, whole: bool) -> None:
        """With `whole`, inputs keep their dimensions; the first axis is that of outputs."""
        extent = program.axes[axes[0]]
        self.count, self.length = extent // chunk, chunk
        dims = cut_tensors(program, dict.fromkeys(axes, chunk))
        if whole:
            dims |= {spec.name: () for spec in program.inputs}
        taken = set(program.axes)
        self.outer = _fresh("chunk", taken)
        self.inner = tuple(_fresh(f"{axis}_in", taken) for axis in axes)
        extents = {**program.axes, self.outer: self.count, **dict.fromkeys(self.inner, chunk)}
        tensors = reshaped(program.tensors, dims, chunk)
        self.graph = Graph.like(program.name, extents, tensors, program.pins)
        bound = {axes[0]: self.place(self.inner[0])}
        self.values = Substitution(program, self.graph, dims, bound)

    def apart(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes as long as these that nothing else has."""
        taken = set(self.graph.extents)
        names = tuple(_fresh(f"{axis}_state", taken) for axis in axes)
        for axis, name in zip(axes, names, strict=True):
            self.graph.axis(name, self.graph.extents[axis])
        return names

    def axis(self, name: str) -> Axis:
        return Axis(name, self.graph.extents[name])

    def place(self, inner: str) -> Place:
        """Every point of a chunk."""
        return Place(self.outer, self.length, inner)

    @property
    def last(self) -> Place:
        """The end of a chunk."""
        return Place(self.outer, self.length, constant=self.length - 1)

    @property
    def before(self) -> Place:
        """The end of the chunk before; of none, in front of the first."""
        return Place(self.outer, self.length, constant=-1, fill=True)

    def state(self, factor: Tile | None, added: Tile) -> Tile:
        """What there is behind each chunk."""
        along = self.axis(self.outer)
        if factor is None:
            return cumulative("sum", added, along)
        return recurrence(factor, added, along)

    def handed(self, state: Tile) -> Tile:
        """What there is in front of each chunk."""
        along = self.axis(self.outer)
        return state.at({along: along - 1}, fill=0)

    def finished(self, places: Mapping[str, Place]) -> Program:
        """The program with all outputs stored where the axes are cut."""
        for position, node in enumerate(self.values.program.nodes):
            if isinstance(node.op, Store):
                self.values.at(position, places)
        return pruned(self.graph.program())


def pruned(program: Program) -> Program:
    """The program without axes that nothing has."""
    used = {axis for node in program.nodes for axis in node.axes}
    extents = {axis: extent for axis, extent in program.extents if axis in used}
    graph = Graph.like(program.name, extents, program.tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
    return graph.program()


def _fresh(stem: str, taken: set[str]) -> str:
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}{number}", number + 1
    taken.add(name)
    return name


# --- sums -----------------------------------------------------------------------------------------


@dataclass
class _Causal:
    """o = sum over `j` up to `i` of the product of the factors and of `value`."""

    program: Program
    root: int
    i: str
    j: str
    value: int
    masks: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # factors without j
    columns: list[int] = field(default_factory=list)  # factors without i
    inner: int | None = None  # the inner product
    exponents: list[int] = field(default_factory=list)

    def form(self, chunk: int, whole: bool) -> Program | None:
        extent = self.program.axes[self.i]
        if extent % chunk or extent < 2 * chunk:
            return None
        cut = _Cut(self.program, (self.i, self.j), chunk, whole)
        i, j = cut.inner
        here = {self.i: cut.place(i), self.j: cut.place(j)}
        seen = cut.graph.add(Iota(j)) <= cut.graph.add(Iota(i))
        for mask in self.masks:
            cut.values.give(mask, here, seen)
        diagonal = contract_of(self.program, self.root, cut, here, j)
        total = diagonal + self._past(cut, here)
        cut.values.give(self.root, here, total)
        return cut.finished(here)

    def _past(self, cut: _Cut, here: Mapping[str, Place]) -> Tile:
        """The part of all chunks before, by way of their state."""
        values, (_, j) = cut.values, cut.inner
        query, key, over = self._factors(cut, here)
        places = {self.i: cut.last, self.j: here[self.j]}
        rest = [values.at(exponent, places) for exponent in self.exponents]
        for column in self.columns:
            key = _times(key, values.at(column, here))
        for exponent in rest:
            key = _times(key, apply("exp", exponent))
        value = values.at(self.value, here)
        if key is None:
            added = reduce("sum", cast(value, self._acc), cut.axis(j))
        else:
            added = contract(key, value, cut.axis(j), self._acc)
        factor = self._decay(cut)
        carried = cut.handed(cut.state(factor, added))
        for row in self.rows:
            query = _times(query, values.at(row, here))
        for e in self.exponents:
            since = self._since(cut, e, here)
            query = _times(query, apply("exp", since))
        if over:
            assert query is not None
            return contract(query, carried, tuple(cut.axis(a) for a in over), self._acc)
        return carried if query is None else query * carried

    @property
    def _acc(self) -> str:
        return self.program.nodes[self.root].dtype

    def _factors(
        self, cut: _Cut, here: Mapping[str, Place]
    ) -> tuple[Tile | None, Tile | None, tuple[str, ...]]:
        """Both factors of the inner product, that of i first."""
        if self.inner is None:
            return None, None, ()
        node = self.program.nodes[self.inner]
        assert isinstance(node.op, Contract)
        left, right = node.args
        if self.j in self.program.nodes[left].axes:
            left, right = right, left
        named = dict(zip(node.op.over, cut.apart(node.op.over), strict=True))
        there = {**here, **{axis: Place(name, 1) for axis, name in named.items()}}
        sides = (cut.values.at(side, there) for side in (left, right))
        return next(sides), next(sides), tuple(named.values())

    def _since(self, cut: _Cut, position: int, here: Mapping[str, Place]) -> Tile:
        """How an exponent changes from the end of the chunk before to each i: the part of j does
        not count."""
        parts = _parted(self.program, position, self.i, self.j)
        assert parts is not None
        return self._change(cut, parts[0], here[self.i], cut.before)

    def _change(self, cut: _Cut, parts: list[tuple[int, int]], to: Place, since: Place) -> Tile:
        """The sum of signed parts at a place less that at an earlier one; 0 in front of all."""
        total: Tile | None = None
        for sign, part in parts:
            difference = cut.values.at(part, {self.i: to}) - cut.values.at(part, {self.i: since})
            difference = difference if sign > 0 else -difference
            total = difference if total is None else total + difference
        if total is None:
            return cut.graph.constant(0.0, self._acc)
        first = cut.graph.add(Iota(cut.outer)) > 0
        return where(first, total, 0.0)

    def _decay(self, cut: _Cut) -> Tile | None:
        """By what the state is scaled from the end of a chunk to the end of the next."""
        found: Tile | None = None
        for position in self.exponents:
            parts = _parted(self.program, position, self.i, self.j)
            assert parts is not None
            change = self._change(cut, parts[0], cut.last, cut.before)
            found = change if found is None else found + change
        return None if found is None else apply("exp", found)


def contract_of(program: Program, root: int, cut: _Cut, here: Mapping[str, Place], j: str) -> Tile:
    """The sum as it is written, over the chunk alone."""
    node = program.nodes[root]
    assert isinstance(node.op, Contract)
    args = [cut.values.at(arg, here) for arg in node.args]
    return contract(args[0], args[1], cut.axis(j), node.op.acc)


def _times(left: Tile | None, right: Tile) -> Tile:
    return right if left is None else left * right


def _causal(program: Program, root: int) -> _Causal | None:
    """The sum as a causal one with separable weights, if it is one."""
    node = program.nodes[root]
    assert isinstance(node.op, Contract)
    if len(node.op.over) != 1:
        return None
    (j,) = node.op.over
    for weights, value in (node.args, node.args[::-1]):
        own = set(program.nodes[weights].axes) - set(program.nodes[value].axes)
        axes = [axis for axis in program.axes if axis in own]
        for i in axes if j in program.nodes[value].axes else ():
            if program.axes[i] != program.axes[j]:
                continue
            found = _Causal(program, root, i, j, value)
            if _factored(found, weights) and found.masks and _only_there(found):
                return found
    return None


def _only_there(sum_: _Causal) -> bool:
    """Whether nothing but the sum goes along its axis, and the axis of the inner product is none
    of what is summed."""
    program = sum_.program
    for position, node in enumerate(program.nodes):
        if sum_.j in node.axes:
            users = (program.nodes[user] for user in program.users(position) if user != sum_.root)
            if any(sum_.j not in user.axes and not isinstance(user.op, Read) for user in users):
                return False
    return True


def _factored(sum_: _Causal, position: int) -> bool:
    """Whether a weight is a product of masks, functions of i, of j, and exponents of both."""
    program, i, j = sum_.program, sum_.i, sum_.j
    node = program.nodes[position]
    has_i, has_j = i in node.axes, j in node.axes
    if not (has_i and has_j):
        (sum_.columns if has_j else sum_.rows).append(position)
        return True
    op = node.op
    if isinstance(op, Map) and op.function == "mul":
        return all(_factored(sum_, arg) for arg in node.args)
    if isinstance(op, Map) and op.function == "where":
        condition, yes, no = node.args
        if not _is_causal(program, condition, i, j) or _number(program, no) != 0:
            return False
        sum_.masks.append(condition)
        return _factored(sum_, yes)
    if isinstance(op, Map) and op.function == "exp":
        inside = _unmasked(sum_, node.args[0])
        if _parted(program, inside, i, j) is None:
            return False
        sum_.exponents.append(inside)
        return True
    if isinstance(op, Contract) and sum_.inner is None and not {i, j} & set(op.over):
        sides = [{i, j} & set(program.nodes[arg].axes) for arg in node.args]
        if sorted(map(sorted, sides)) == sorted(([i], [j])):
            sum_.inner = position
            return True
    return False


def _unmasked(sum_: _Causal, position: int) -> int:
    """An exponent without its mask: -inf where j is behind i."""
    node = sum_.program.nodes[position]
    if isinstance(node.op, Map) and node.op.function == "where":
        condition, yes, no = node.args
        masked = _number(sum_.program, no) == -math.inf
        if masked and _is_causal(sum_.program, condition, sum_.i, sum_.j):
            sum_.masks.append(condition)
            return yes
    return position


def _is_causal(program: Program, position: int, i: str, j: str) -> bool:
    """Whether a condition says j <= i."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function not in ("le", "lt", "not"):
        return False
    if node.op.function == "not":
        inner = program.nodes[node.args[0]]
        return inner.op == Map("lt") and _coordinates(program, inner.args) == (i, j)
    return node.op.function == "le" and _coordinates(program, node.args) == (j, i)


def _coordinates(program: Program, args: tuple[int, ...]) -> tuple[str, ...]:
    ops = (program.nodes[arg].op for arg in args)
    return tuple(op.axis if isinstance(op, Iota) else "" for op in ops)


def _number(program: Program, position: int) -> float | None:
    op = program.nodes[position].op
    return op.value if isinstance(op, Constant) else None


Parts = tuple[list[tuple[int, int]], list[tuple[int, int]]]  # (sign, node) without j, without i


def _parted(program: Program, position: int, i: str, j: str, sign: int = 1) -> Parts | None:
    """An exponent as signed parts, each a function of i or of j alone."""
    node = program.nodes[position]
    has_i, has_j = i in node.axes, j in node.axes
    if not (has_i and has_j):
        part = [(sign, position)]
        return ([], part) if has_j else (part, [])
    op = node.op
    if not isinstance(op, Map) or op.function not in ("add", "sub", "neg"):
        return None
    signs: tuple[int, ...] = (sign, -sign) if op.function == "sub" else (sign, sign)
    if op.function == "neg":
        signs = (-sign,)
    found: Parts = ([], [])
    for arg, own in zip(node.args, signs, strict=True):
        parts = _parted(program, arg, i, j, own)
        if parts is None:
            return None
        found[0].extend(parts[0])
        found[1].extend(parts[1])
    return found


# --- states ---------------------------------------------------------------------------------------


@dataclass
class _Stepped:
    """S = factor * S + left * right at each step, read as a sum of products over `depth`."""

    program: Program
    before: int
    after: int
    recur: int
    time: str
    gate: int | None  # the logarithm of the factor
    left: int
    right: int
    reads: list[int]

    def form(self, chunk: int, whole: bool) -> Program | None:
        extent = self.program.axes[self.time]
        if extent % chunk or extent < 2 * chunk:
            return None
        cut = _Cut(self.program, (self.time,), chunk, whole)
        (i,) = cut.inner
        j = _fresh(f"{self.time}_before", set(cut.graph.extents))
        jj = cut.graph.axis(j, chunk)
        here, there = {self.time: cut.place(i)}, {self.time: cut.place(j)}
        decays = self._decays(cut, here, i, jj)
        state = None
        for read in self.reads:
            node = self.program.nodes[read]
            query = next(arg for arg in node.args if arg != self.after)
            key, value = self._sides(read)
            if state is None:
                sides = [cut.values.at(side, there) for side in (key, value)]
                if decays is not None:
                    left = apply("exp", decays.whole - decays.others)
                    side = int(set(left.axes) <= set(sides[1].axes))
                    sides[side] = sides[side] * left
                added = contract(sides[0], sides[1], jj, node.dtype)
                factor = None if decays is None else apply("exp", decays.whole)
                state = cut.state(factor, added)
            made = self._read(cut, read, query, (key, value), decays, here, there, state, i, jj)
            cut.values.give(read, here, made)
        if state is None:
            return None
        last = cut.axis(cut.outer)
        cut.values.give(self.recur, {}, state.at({last: cut.count - 1}))
        return cut.finished(here)

    def _sides(self, read: int) -> tuple[int, int]:
        """The factor of the step's product that has the axis of the read's sum, and the other."""
        op = self.program.nodes[read].op
        assert isinstance(op, Contract)
        within = set(op.over) <= set(self.program.nodes[self.left].axes)
        return (self.left, self.right) if within else (self.right, self.left)

    def _decays(self, cut: _Cut, here: Mapping[str, Place], i: str, jj: Axis) -> _Decays | None:
        if self.gate is None:
            return None
        gate, inner = cut.values.at(self.gate, here), cut.axis(i)
        if i not in gate.axes:
            steps = cast(cut.graph.iota(inner) + 1, gate.dtype)
            others = cast(cut.graph.iota(jj) + 1, gate.dtype)
            return _Decays(gate * steps, gate * others, gate * float(cut.length))
        total = cumulative("sum", gate, inner)
        return _Decays(total, total.at({inner: jj}), reduce("sum", gate, inner))

    def _read(
        self, cut: _Cut, read: int, query: int, sides: tuple[int, int], decays: _Decays | None,
        here: Mapping[str, Place], there: Mapping[str, Place], state: Tile, i: str, jj: Axis,
    ) -> Tile:  # fmt: skip
        node = self.program.nodes[read]
        assert isinstance(node.op, Contract)
        over = tuple(cut.axis(axis) for axis in node.op.over)
        q, k = cut.values.at(query, here), cut.values.at(sides[0], there)
        v, seen = cut.values.at(sides[1], there), cut.graph.iota(jj) <= cut.graph.add(Iota(i))
        if decays is None:
            weights = where(seen, contract(q, k, over, node.dtype), 0.0)
        elif set(decays.total.axes) & set(node.op.over):
            apart = where(seen, decays.total - decays.others, -math.inf)
            weights = reduce("sum", q * k * apply("exp", apart), over)
        else:
            apart = where(seen, decays.total - decays.others, -math.inf)
            weights = contract(q, k, over, node.dtype) * apply("exp", apart)
        inside = contract(weights, v, jj, node.dtype)
        before = cut.handed(state)
        if decays is None:
            return inside + contract(q, before, over, node.dtype)
        left = apply("exp", decays.total)
        if set(left.axes) & set(node.op.over):
            return inside + contract(q * left, before, over, node.dtype)
        return inside + contract(q, before, over, node.dtype) * left


@dataclass(frozen=True)
class _Decays:
    """Logarithms of what is left of the state in front of the chunk: at each point, at each point
    before, and at the end."""

    total: Tile
    others: Tile
    whole: Tile


_STEPS = tuple(map(parsed, ("add(mul(s, f), mul(a, b))", "add(s, mul(a, b))")))


def _stepped(program: Program, recur: int) -> _Stepped | None:
    """A state that each step scales and adds a product to, if it is one."""
    before, after = program.nodes[recur].args
    op = program.nodes[before].op
    assert isinstance(op, Before)
    start = program.nodes[program.nodes[before].args[0]].op
    if not (isinstance(start, Constant) and start.value == 0):
        return None
    reads = [user for user in program.users(after) if user != recur]
    if not reads or set(program.users(before)) - {recur, after, *program.nodes[after].args}:
        return None
    for pattern in _STEPS:
        for match in matches(pattern, program, after):
            tiles = match.tiles
            if tiles["s"] != before:
                continue
            gate = _logarithm(program, tiles["f"]) if "f" in tiles else None
            if "f" in tiles and gate is None:
                continue
            found = _Stepped(
                program, before, after, recur, op.axis, gate, tiles["a"], tiles["b"], reads
            )
            if _is_linear(found):
                return found
    return None


def _is_linear(state: _Stepped) -> bool:
    """Whether all reads are sums over axes that one factor of the step's product alone has."""
    program = state.program
    left, right = (set(program.nodes[n].axes) for n in (state.left, state.right))
    for read in state.reads:
        node = program.nodes[read]
        if not isinstance(node.op, Contract) or node.args.count(state.after) != 1:
            return False
        over = set(node.op.over)
        key, value = (left, right) if over <= left else (right, left)
        if not over <= key or over & value or state.time in over:
            return False
    return True


def _logarithm(program: Program, position: int) -> int | None:
    """What a factor is the exponential of."""
    node = program.nodes[position]
    return node.args[0] if node.op == Map("exp") else None
