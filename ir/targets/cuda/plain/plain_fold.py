"""A fold along a loop by all threads of a block, in one pass over what it reads.

Each lane of a warp takes neighbouring iterations at a time. Lanes combine theirs by shuffles, warps
through shared memory, always in the order of the loop: a merge need not commute. If something is
done at each iteration, warps take turns, and meet once a chunk of all of them; if the end alone
matters, each warp has a part of the loop to itself, and they meet at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ir.dtypes import is_float
from ir.plain.code import Accumulate, Call, Element, Name, Scalar
from ir.plain.meetings import anywhere
from ir.plain.scalars import index
from ir.plain.scaled import Scaled, scaled_of
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_stream import streams_of
from ir.targets.cuda.plain.plain_tiles import FoldTiles
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import Group, PlainText

PLACE = 8  # bytes of a state in shared memory


def scratch_bytes(folds: Sequence[Accumulate], threads: int) -> int:
    """Shared memory in which warps leave their states: twice, so that they meet once a chunk."""
    return 2 * _slot_bytes(folds, threads) if threads > WARP else 0


def _slot_bytes(folds: Sequence[Accumulate], threads: int) -> int:
    most = max((len(fold.states) for fold in folds), default=0)
    return most * (threads // WARP) * PLACE


class SharedFold:
    """Writes one fold. The states are declared; behind it all threads have them alike."""

    def __init__(self, text: PlainText, fold: Accumulate, group: Group) -> None:
        self.text, self.w, self.names, self.fold = text, text.w, text.names, fold
        self.threads, self.run, self.warps = group.threads, group.run, group.threads // WARP
        streams = streams_of(text.kernel, fold)
        self.tiles = FoldTiles(text, fold, streams, group.run, group.ahead, group.ring)
        alike = len({state.dtype for state in fold.states}) == 1
        few = fold.keep or group.run == 1 or not is_float(fold.states[0].dtype)
        self.scaled = scaled_of(fold.merge) if alike and not few else None
        room = (group.ahead + 3) * self.threads * self.run
        self.kind = "i32" if fold.extent + room < 2**31 else "i64"
        self.keeps = bool(fold.keep)
        self.states = fold.states
        self.total = self._fresh("t")  # of a thread, then of its warp
        self.before = self._fresh("b")  # what comes before a thread's own
        self.prefix = self._fresh("h")  # up to each of a thread's iterations

    def _fresh(self, stem: str) -> list[Name]:
        return self.text.fresh(stem, self.fold.states)

    def _merge(self, targets: Sequence[Name], left: Sequence[Name], right: Sequence[Name]) -> None:
        self.text.merge(self.fold, targets, left, right)

    def _declare(self, names: Sequence[Name], texts: Sequence[str], constant: bool = False) -> None:
        for name, text in zip(names, texts, strict=True):
            self.text.declare(name, text, constant)

    def _declare_zeros(self, names: Sequence[Name]) -> None:
        self._declare(names, [scalars.literal(0, name.dtype) for name in names])

    def _texts(self, names: Sequence[Name], end: str = "") -> list[str]:
        return [f"{self.names[name.name]}{end}" for name in names]

    def write(self) -> None:
        """A block of its own, which begins and ends with all threads."""
        self.text.meet_before(anywhere((self.fold,)))
        with self.w.block(""):
            if self.keeps:
                self._in_turns()
            else:
                self._in_parts()

    def _in_turns(self) -> None:
        """Every warp has its tile of each chunk."""
        w, chunk = self.w, self.threads * self.run
        w.line(f"{self.kind} start = warp * {WARP * self.run};")
        w.line(f"const {self.kind} limit = {self.fold.extent};")
        self.tiles.begin(chunk)
        head = f"for ({self.kind} first = 0; first < limit; first += {chunk}, start += {chunk})"
        with w.block(head):
            self.tiles.next(chunk)
            w.line(f"const {self.kind} mine = start + lane * {self.run};")
            self._declare_zeros(self.total)
            self._declare_zeros(self.before)
            for name, text in zip(self.prefix, self._texts(self.prefix), strict=True):
                w.line(f"{scalars.register_type(name.dtype)} {text}[{self.run}];")
            self._tile()
            self._live()
            self._across_lanes()
            self._across_warps()
            with w.block(f"if ({self._whole()})"):
                self.tiles.declare_out()
                self._keep(True)
                self.tiles.store()
            with w.block("else"):
                self._keep(False)
            self.tiles.turn()
        self.tiles.end()

    def _in_parts(self) -> None:
        """Every warp has a part of the loop."""
        w, tile = self.w, WARP * self.run
        share = -(-self.fold.extent // (self.warps * tile)) * tile
        w.line(f"{self.kind} start = ({self.kind})warp * {share};")
        w.line(f"const {self.kind} limit = min(({self.kind}){self.fold.extent}, start + {share});")
        w.line("bool some = false;")
        self.tiles.begin(tile)
        with w.block(f"for (; start < limit; start += {tile})"):
            self.tiles.next(tile)
            w.line(f"const {self.kind} mine = start + lane * {self.run};")
            self._declare_zeros(self.total)
            self._tile()
            self._live()
            self._across_lanes()
            with w.block("if (some)"):
                self._merge(self.states, self.states, self.total)
            with w.block("else"):
                self.text.assign(self.states, self.total)
            w.line("some = true;")
            self.tiles.turn()
        self.tiles.end()
        self._of_parts(share)

    def _whole(self) -> str:
        return f"start + {WARP * self.run} <= limit"

    def _tile(self) -> None:
        """A lane's own iterations become its total."""
        with self.w.block(f"if ({self._whole()})"):
            self._own(True)
        with self.w.block("else"):
            self._own(False)

    def _live(self) -> None:
        """How many lanes have iterations: none, or more than there are, too."""
        more = f" + {self.run - 1}) / {self.run}" if self.run > 1 else ")"
        self.w.line(f"const {self.kind} live = (limit - start{more};")

    @contextmanager
    def _iteration(self, step: str, whole: bool) -> Iterator[None]:
        """What is written inside is about an iteration of the thread, if there is one."""
        at = f"mine + {step}"
        with self.w.block("" if whole else f"if ({at} < limit)"):
            if self.fold.backward:
                at = f"{self.fold.extent - 1} - ({at})"
            self.w.line(f"const i64 {self.names[self.fold.variable.name]} = {at};")
            yield

    def _own(self, whole: bool) -> None:
        """Fold a thread's own iterations."""
        w, step = self.w, self.tiles.number
        self.tiles.take(whole)
        if whole and self.scaled is not None:
            self._many(self.scaled)
            return
        with w.unrolled(step, self.run):
            with self._iteration(step, whole):
                self.text.run(self.tiles.body(), False)
                values = self.tiles.values()
                with w.block(f"if ({step} == 0)"):
                    self.text.assign(self.total, values)
                if self.run > 1:
                    with w.block("else"):
                        self._merge(self.total, self.total, values)
            if self.keeps:
                held, totals = self._texts(self.prefix, f"[{step}]"), self._texts(self.total)
                for place, total in zip(held, totals, strict=True):
                    w.line(f"{place} = {total};")

    def _many(self, scaled: Scaled) -> None:
        """All of a thread's iterations at once: the extreme first, then the sums beside it."""
        w, step = self.w, self.tiles.number
        arrays = [self.names.new("all") for _ in self.states]
        for array, state in zip(arrays, self.states, strict=True):
            self.text.scalars.dtypes[array] = state.dtype
            w.line(f"{scalars.register_type(state.dtype)} {self.names[array]}[{self.run}];")
        with w.unrolled(step, self.run), self._iteration(step, True):
            self.text.run(self.tiles.body(), False)
            for array, value in zip(arrays, self.tiles.values(), strict=True):
                w.line(f"{self.names[array]}[{step}] = {self.names[value.name]};")
        total, dtype = self.total[scaled.extreme], self.states[scaled.extreme].dtype
        here = [Element(array, self.tiles.step, dtype) for array in arrays]
        first = Element(arrays[scaled.extreme], index(0), dtype)
        self.text.assign((total,), (first,))
        most = Call(scaled.function, (total, here[scaled.extreme]), dtype)
        with w.unrolled(step, self.run):
            self.text.assign((total,), (most,))
        apart: tuple[Scalar, ...] = (here[scaled.extreme], total)
        apart = apart if scaled.function == "max" else apart[::-1]
        factor = Call("exp", (Call("sub", apart, dtype),), dtype)
        with w.unrolled(step, self.run):
            known = Name(self.names.new("f"), dtype)
            self.text.declare(known, self.text.scalars.text(factor), constant=True)
            for number, (state, element) in enumerate(zip(self.total, here, strict=True)):
                if number != scaled.extreme:
                    more = Call("mul", (element, known), dtype)
                    self.text.assign((state,), (Call("add", (state, more), dtype),))

    def _across_lanes(self) -> None:
        """Every thread gets its warp's total, and what is before it in the warp."""
        w = self.w
        w.line("#pragma unroll")
        with w.block(f"for (i32 turn = 1; turn < {WARP}; turn *= 2)"):
            other, left, right = self._fresh("o"), self._fresh("l"), self._fresh("r")
            self._declare(other, list(map(self._shuffled, self.total)), constant=True)
            w.line("const bool upper = lane & turn;")
            if self.keeps:
                with w.block("if (upper)"):
                    with w.block("if (lane & (turn - 1))"):
                        self._merge(self.before, other, self.before)
                    with w.block("else"):
                        self.text.assign(self.before, other)
            pairs = list(zip(self._texts(other), self._texts(self.total), strict=True))
            self._declare(left, [f"upper ? {o} : {t}" for o, t in pairs], constant=True)
            self._declare(right, [f"upper ? {t} : {o}" for o, t in pairs], constant=True)
            self.text.assign(self.total, left)
            with w.block("if (((lane & ~(turn - 1)) | turn) < live)"):
                self._merge(self.total, left, right)

    def _shuffled(self, state: Name) -> str:
        kind, text = scalars.register_type(state.dtype), self.names[state.name]
        if kind == "bool":
            return f"tw_shuffle_i32({text}, turn) != 0"
        return f"tw_shuffle_{kind}({text}, turn)"

    def _leave(self) -> None:
        """What a warp's first lane knows of it, for all warps."""
        w, size = self.w, _slot_bytes(self.text.folds, self.threads)
        w.line(f"u8* scratch = tw_shared_base() + slot * {size};")
        w.line("slot ^= 1;")
        with w.block("if (lane == 0)"):
            for place, total in zip(self._places("warp"), self._texts(self.total), strict=True):
                w.line(f"{place} = {total};")
        w.line("tw_sync();")

    def _across_warps(self) -> None:
        """The states become those of all up to the end of the chunk."""
        w = self.w
        if self.warps == 1:
            self._next_warp("0", self.total)
            return
        self._leave()
        with w.unrolled("turn", self.warps):
            w.line(f"if (first + turn * {WARP * self.run} >= limit) break;")
            found = self._fresh("y")
            self._declare(found, self._places("turn"), constant=True)
            self._next_warp("turn", found)

    def _of_parts(self, share: int) -> None:
        """The states become those of all warps' parts."""
        w = self.w
        if self.warps == 1:
            return
        self._declare(self.total, self._texts(self.states))
        self._leave()
        with w.unrolled("turn", self.warps):
            w.line(f"if (turn * ({self.kind}){share} >= {self.fold.extent}) break;")
            found = self._fresh("y")
            self._declare(found, self._places("turn"), constant=True)
            with w.block("if (turn == 0)"):
                self.text.assign(self.states, found)
            with w.block("else"):
                self._merge(self.states, self.states, found)

    def _places(self, warp: str) -> list[str]:
        """Where a warp leaves its states."""
        size, kinds = self.warps * PLACE, [scalars.register_type(s.dtype) for s in self.states]
        return [f"(({kind}*)(scratch + {n * size}))[{warp}]" for n, kind in enumerate(kinds)]

    def _next_warp(self, turn: str, found: Sequence[Name]) -> None:
        """One warp's total joins the states; its own threads take what was there before."""
        w = self.w
        with w.block(f"if ({turn} > 0 || first > 0)"):
            if self.keeps:
                with w.block(f"if (warp == {turn})"):
                    with w.block("if (lane > 0)"):
                        self._merge(self.before, self.states, self.before)
                    with w.block("else"):
                        self.text.assign(self.before, self.states)
            self._merge(self.states, self.states, found)
        with w.block("else"):
            self.text.assign(self.states, found)

    def _keep(self, whole: bool) -> None:
        """What is done with the states up to each iteration."""
        step = self.tiles.number
        with self.w.unrolled(step, self.run), self._iteration(step, whole):
            held = self._fresh("k")
            self._declare(held, self._texts(self.prefix, f"[{step}]"))
            with self.w.block("if (mine > 0)"):
                self._merge(held, self.before, held)
            self._declare(self.states, self._texts(held), constant=True)
            self.text.run(self.tiles.keep(whole), False)
