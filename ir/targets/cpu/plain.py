"""Emits plain kernels (`ir.plain.code`) as a nest of scalars: threads share the points.

A group is one thread here: `Spread` is loops, and a group's arrays are in a thread's workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from ir.dtypes import compute_dtype, dtype_of
from ir.errors import Refusal
from ir.ops.map import Map
from ir.plain.code import (
    GROUP,
    TENSOR,
    THREAD,
    Array,
    Assign,
    Between,
    Call,
    Claim,
    Combine,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.pieces import parts_in
from ir.program import Program
from ir.targets.cpu import integers
from ir.targets.cpu.evaluate import cast, scalar_of
from ir.targets.cpu.frame import PAGE, Frame, Room, bytes_of
from ir.targets.cpu.functions import apply_function
from ir.targets.cpu.instructions import VectorRow
from ir.targets.cpu.mathlib import Arithmetic
from ir.targets.cpu.nest import BIT, I64, Index, Type, Value
from ir.targets.cpu.plain_any_lanes import lanes_of
from ir.targets.cpu.plain_fold_lanes import fold_arrays, laned
from ir.targets.cpu.plain_folds import FoldLowering, Variables, assigned
from ir.targets.cpu.plain_lanes import TURNS, summed
from ir.targets.cpu.plain_stretches import stretched
from ir.targets.cpu.plan import round_up

LINE = 64
_FEW = 4  # lanes of what whole vectors leave
_OF_INDICES = {"add": "iadd", "sub": "isub", "mul": "imul", "max": "imax", "min": "imin"}
_COMPARISONS = ("lt", "le", "eq")


def own_arrays(
    kernel: PlainKernel, beside: int = 1, shares: bool = False
) -> list[tuple[Array, int, int]]:
    """Arrays of threads, and of groups unless all threads share these, where each is in a thread's
    workspace, and its bytes, where so many points run beside each other."""
    found, place = [], 0
    for array in (*kernel.arrays, *(fold_arrays(kernel) if beside == 1 and not shares else ())):
        if array.place == THREAD or (array.place == GROUP and not shares):
            size = beside * array.size * dtype_of(array.dtype).bytes
            found.append((array, place, size))
            place += round_up(size, LINE)
    return found


def shared_parts(program: Program, kernels: Iterable[PlainKernel]) -> dict[str, int]:
    """Tensors between kernels, and where each is in what threads share."""
    found, place = {}, 0
    for spec in parts_in(program, kernels):
        found[spec.name] = place
        place += round_up(bytes_of(spec), PAGE)
    return found


def plain_room(
    *kernels: PlainKernel,
    parts: Mapping[str, int] | None = None,
    beside: Sequence[int] = (),
    shares: Sequence[bool] = (),
) -> Room:
    """The workspace of plain kernels that run one after the other, of which each has so many
    points `beside` each other, or (`shares`) all threads at a point."""
    lanes, alike = beside or [1] * len(kernels), shares or [False] * len(kernels)
    own = (
        place + size
        for kernel, count, shared in zip(kernels, lanes, alike, strict=True)
        for _, place, size in own_arrays(kernel, count, shared)
    )
    shared = (
        (parts or {})[spec.name] + bytes_of(spec)
        for kernel in kernels
        for spec in kernel.tensors
        if spec.name in (parts or {})
    )
    return Room(round_up(max(shared, default=0), PAGE), round_up(max(own, default=0), PAGE))


class PlainLowering(FoldLowering):
    """State of one lowering: where arrays are, and what variables hold in the current block.

    `parts` are tensors in what threads share, each with its place. `beside` points have an element
    each where an array of a thread has one. `folds`: iterations are those of a fold, and may be
    vectors of anything.
    """

    beside = 1
    shares = False  # whether all threads share what a group has

    def __init__(
        self,
        kernel: PlainKernel,
        frame: Frame,
        vector: VectorRow,
        parts: Mapping[str, int] | None = None,
        folds: bool = False,
    ) -> None:
        self.kernel, self.frame, self.b = kernel, frame, frame.b
        self.folds = folds
        self.arith, self.lanes = Arithmetic(frame.b, vector.fma), vector.lanes
        self.arrays = {array.name: array for array in kernel.arrays}
        self.bases = {array.name: frame.b.offset(frame.private, at) for array, at, _ in
                      own_arrays(kernel, self.beside, self.shares)}  # fmt: skip
        for name, base in self.bases.items():
            base.name = base.name or name
        for name in (array.name for array in kernel.arrays if array.place == TENSOR):
            place = (parts or {}).get(name)
            at = frame.pointers[name] if place is None else frame.b.offset(frame.shared, place)
            at.name = at.name or name
            self.bases[name] = at

    def run(self, chunk: str) -> None:
        """Emit the body at every point, in every round; a thread's points are as `chunk` says."""
        if self.kernel.rounds is None:
            self._points(chunk, {}, True)
            return
        name, count = self.kernel.rounds
        with self.b.loop(name.name, 0, count, 1) as rounds:
            self._points(chunk, {name.name: rounds.variable}, False)
            self.frame.barrier()

    def _points(self, chunk: str, around: Variables, once: bool) -> None:
        counts = [self.steps(name, extent) for name, extent in self.kernel.points]
        points = prod(extent for _, extent in self.kernel.points)
        self.b.comment(f"{self.kernel.name}: {points} points")
        with self.frame.iterations(prod(counts), chunk, once) as point:
            variables: Variables = dict(around)
            for (name, extent), count in zip(
                reversed(self.kernel.points), counts[::-1], strict=True
            ):
                step = self.b.index("irem", point, count) if count > 1 else 0
                variables[name.name] = self.first(name, extent, step)
                point = self.b.index("idiv", point, count)
            self._block(self.kernel.body, variables)

    # --- what another way to run points does otherwise ------------------------------------------

    def steps(self, name: Name, extent: int) -> int:
        """How many steps there are along an axis of points."""
        return extent

    def first(self, name: Name, extent: int, step: Index) -> Index:
        """The first point of a step."""
        return step

    def held(self, name: Name, value: Index) -> Index:
        """A value as a variable holds it."""
        return value

    # --- statements ---------------------------------------------------------------------------

    def _block(self, body: Iterable[Statement], variables: Variables) -> None:
        for statement in body:
            self._statement(statement, variables)

    def _statement(self, s: Statement, variables: Variables) -> None:
        if isinstance(s, Let | Assign):
            variables[s.name.name] = self.held(s.name, self.scalar(s.value, variables))
        elif isinstance(s, Write):
            self._write(s, variables)
        elif isinstance(s, Combine):
            raise Refusal("atomic", f"{self.kernel.name}: the cpu target combines in order only")
        elif isinstance(s, Claim):
            self._claim(s, variables)
        elif isinstance(s, If):
            self._if(s, variables)
        elif isinstance(s, Loop):
            self._loop(s, variables)
        elif isinstance(s, Between):
            first, end = (self.scalar(bound, variables) for bound in (s.first, s.end))
            self._iterated(s, first, end, variables)
        elif isinstance(s, Spread):
            self._spread(s, variables)
        elif not any(way(self, s, variables, self.lanes) for way in (laned, stretched)):
            self._accumulate(s, variables)

    def statements(self, body: Iterable[Statement], variables: Variables) -> None:
        """Emit a block at an iteration of a loop that somebody else has opened."""
        self._block(body, variables)

    def _write(self, s: Write, variables: Variables) -> None:
        array = self.arrays[s.array]
        self._store(array, s.index, self._stored(array, s.value, variables), variables)

    def _stored(self, array: Array, scalar: Scalar, variables: Variables) -> Value:
        """A scalar as an array has it."""
        return self.rounded(array, self.value(scalar, variables), scalar.dtype)

    def rounded(self, array: Array, value: Value, dtype: str) -> Value:
        """A value of a compute type as an array has it."""
        value = cast(self.b, value, array.dtype, _unsigned(dtype))
        value = self.b.convert(value, scalar_of(array.dtype))
        return self.b.convert(value, "i8", True) if value.type.scalar == "i1" else value

    def _store(self, array: Array, index: Scalar, value: Value, variables: Variables) -> None:
        self.b.store(value, self.address(array, index, variables))

    def _if(self, s: If, variables: Variables) -> None:
        changed = [name for name in assigned((*s.body, *s.other)) if name in variables]
        with self.b.branch(self.value(s.condition, variables)) as branch:
            branch.then.yields = self._side(s.body, variables, changed)
            self.b.otherwise(branch)
            branch.other.yields = self._side(s.other, variables, changed)
        variables.update(zip(changed, branch.results, strict=True))

    def _side(
        self, body: Iterable[Statement], variables: Variables, changed: Iterable[str]
    ) -> tuple[Index, ...]:
        """One side of a branch."""
        return self._inner(body, variables, changed)

    def _inner(
        self, body: Iterable[Statement], variables: Variables, changed: Iterable[str]
    ) -> tuple[Index, ...]:
        """Emit a block of its own; what it leaves in the variables `changed`."""
        inner = dict(variables)
        self._block(body, inner)
        return tuple(inner[name] for name in changed)

    def _loop(self, s: Loop, variables: Variables) -> None:
        if s.extent == 1:
            changed = [name for name in assigned(s.body) if name in variables]
            here = {**variables, s.variable.name: 0}
            variables.update(zip(changed, self._inner(s.body, here, changed), strict=True))
            return
        found = summed(self, s, variables, self.lanes) if self.beside == 1 else None
        if found is None:
            self._iterated(s, 0, s.extent, variables)
            return
        sums, whole = found
        variables.update(sums)
        if whole < s.extent:
            self._iterated(s, whole, s.extent, variables)

    def _iterated(self, s: Loop | Between, first: Index, end: Index, variables: Variables) -> None:
        """One iteration after the other, with what they change carried from one to the next."""
        changed = [name for name in assigned(s.body) if name in variables]
        initial = [variables[name] for name in changed]
        with self.b.loop(s.variable.name, first, end, 1, initial, isinstance(s, Loop)) as loop:
            here = {**variables, **dict(zip(changed, loop.carried, strict=True))}
            here[s.variable.name] = loop.variable
            if isinstance(s, Loop):
                here[s.variable.name] = self._turned(loop.variable, s.extent, s.backward)
            loop.block.yields = self._inner(s.body, here, changed)
        variables.update(zip(changed, loop.results, strict=True))

    def _claim(self, s: Claim, variables: Variables) -> None:
        """A group is one thread, so that nobody else is at the element."""
        address = self.address(self.arrays[s.array], s.index, variables)
        before = self.b.load(Type("i32"), address)
        variables[s.name.name] = before
        one = self.b.constant(1, before.type)
        self.b.store(apply_function(self.arith, "add", [before, one]), address)

    def _spread(self, s: Spread, variables: Variables) -> None:
        """Vectors of what there are along the last variable, and loops over the rest."""
        if not s.variables:
            self._block(s.body, variables)
            return
        with self._rows(s, variables) as (here, low, high):
            found = lanes_of(self, s, here, self.lanes)
            if found is None:
                self._each(s, here, low, high)
                return
            begin, last = found.span()
            first = self.b.minimum(self.b.maximum(low, begin), high)
            end = self.b.maximum(self.b.minimum(high, last), first)
            self._each(s, here, low, first)
            rest: Index = first
            several = (TURNS * self.lanes,) if found.loops else ()
            for lanes in (*several, self.lanes, _FEW):
                vectors = lanes_of(self, s, here, lanes)
                rest = rest if vectors is None else vectors.run(rest, end)
            self._each(s, here, rest, high)

    @contextmanager
    def _rows(self, s: Spread, variables: Variables) -> Iterator[tuple[Variables, Index, Index]]:
        """Loops over all variables but the last; what variables hold there, and where iterations
        along the last one begin and end."""
        here = dict(variables)
        with ExitStack() as loops:
            for name, extent in s.variables[:-1]:
                if extent == 1:
                    here[name.name] = 0
                    continue
                loop = loops.enter_context(self.b.loop(name.name, 0, extent, 1))
                here[name.name] = loop.variable
            yield here, 0, s.variables[-1][1]

    def _each(self, s: Spread, variables: Variables, low: Index, high: Index) -> None:
        """Iterations along the last variable, one after the other."""
        if low == high:
            return
        name = s.variables[-1][0].name
        if isinstance(low, int) and isinstance(high, int) and high - low == 1:
            self._block(s.body, {**variables, name: low})
            return
        runs = isinstance(low, int) and isinstance(high, int)
        with self.b.loop(name, low, high, 1, runs=runs) as loop:
            self._block(s.body, {**variables, name: loop.variable})

    def _looped(self, s: Spread, variables: Variables) -> None:
        body: tuple[Statement, ...] = s.body
        for name, extent in reversed(s.variables):
            body = (Loop(name, extent, body),)
        self._block(body, variables)

    # --- scalars ------------------------------------------------------------------------------

    def value(
        self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index] | None = None
    ) -> Value:
        """A scalar as a value of the nest."""
        found = self.scalar(s, variables, known)
        return found if isinstance(found, Value) else self.b.constant(found, I64)

    def scalar(
        self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index] | None = None
    ) -> Index:
        """A scalar, of which an index may be a number; each object in `known` is made once."""
        known = {} if known is None else known
        if id(s) not in known:
            known[id(s)] = self._scalar(s, variables, known)
        return known[id(s)]

    def _scalar(self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index]) -> Index:
        if isinstance(s, Name):
            return variables[s.name]
        if isinstance(s, Number):
            kind = Type(scalar_of(s.dtype))
            return int(s.value) if s.dtype == "i64" else self.b.constant(s.value, kind)
        if isinstance(s, Element):
            return self._element(s, variables)
        if isinstance(s, Convert):
            return self._converted(s, self.value(s.arg, variables, known))
        args = [self.scalar(arg, variables, known) for arg in s.args]
        if all(arg.dtype == "i64" for arg in s.args):
            found = self._of_indices(s.function, args)
            if found is not None:
                return found
        whole = [a if isinstance(a, Value) else self.b.constant(a, I64) for a in args]
        if s.like is not None:
            return self.special(s, s.like, whole[0])
        if s.function in ("shl", "shr"):
            return integers.shifted(self.b, s.function, whole[0], whole[1], False)
        return apply_function(self.arith, s.function, whole)

    def special(self, s: Call, op: Map, value: Value) -> Value:
        """A lookup, or the bits of a value."""
        assert op.dtype is not None
        if s.function == "lookup":
            return integers.lookup(self.b, value, op.entries, scalar_of(s.dtype))
        value = self.b.convert(value, scalar_of(s.source))
        found = self.b.bitcast(value, value.type.of(scalar_of(op.dtype)))
        return self.b.convert(found, scalar_of(s.dtype), _unsigned(op.dtype))

    def _of_indices(self, function: str, args: Sequence[Index]) -> Index | None:
        """Index arithmetic, which folds; None for other functions."""
        if function in _OF_INDICES:
            return self.b.index(_OF_INDICES[function], args[0], args[1], wraps=True)
        if function in _COMPARISONS:
            found = self.b.compare(function, *args)
            return found if isinstance(found, Value) else self.b.constant(found, BIT)
        return None

    def _converted(self, s: Convert, value: Value) -> Value:
        found = cast(self.b, value, s.to, _unsigned(s.arg.dtype))
        return self.b.convert(found, scalar_of(s.dtype), _unsigned(s.to))

    def _element(self, s: Element, variables: Mapping[str, Index]) -> Value:
        array = self.arrays[s.array]
        scalar = "i8" if array.dtype == "bool" else scalar_of(array.dtype)
        value = self._load(array, s.index, scalar, variables)
        if array.dtype == "bool":
            return self.b.test("ne", value, self.b.constant(0, value.type))
        return self.b.convert(value, scalar_of(compute_dtype(array.dtype)), _unsigned(array.dtype))

    def _load(
        self, array: Array, index: Scalar, scalar: str, variables: Mapping[str, Index]
    ) -> Value:
        return self.b.load(Type(scalar), self.address(array, index, variables))

    def address(self, array: Array, index: Scalar, variables: Mapping[str, Index]) -> Value:
        place = self.b.mul(self.scalar(index, variables), dtype_of(array.dtype).bytes)
        return self.b.offset(self.bases[array.name], place)


def _unsigned(dtype: str) -> bool:
    return dtype_of(dtype).kind in ("uint", "bool")
