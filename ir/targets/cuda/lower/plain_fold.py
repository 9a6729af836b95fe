"""A fold along a loop by all threads of a block, in one pass over what it reads.

A chunk of the loop at a time, each thread takes neighbouring iterations of it. Threads of a warp
combine theirs by shuffles, warps through shared memory, always in the order of the loop: a merge
need not commute. What came out of the chunks before goes on to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ir.plain.accesses import read, written
from ir.plain.code import Accumulate, Name
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.lower.plain_text import PlainText

PLACE = 8  # bytes of a state in shared memory


def scratch_bytes(folds: Sequence[Accumulate], threads: int) -> int:
    """Shared memory in which warps leave their states: twice, so that they meet once a chunk."""
    return 2 * _slot_bytes(folds, threads) if threads > WARP else 0


def _slot_bytes(folds: Sequence[Accumulate], threads: int) -> int:
    most = max((len(fold.states) for fold in folds), default=0)
    return most * (threads // WARP) * PLACE


class SharedFold:
    """Writes one fold. The states are declared; behind it all threads have them alike."""

    def __init__(self, text: PlainText, fold: Accumulate, threads: int, run: int) -> None:
        self.text, self.w, self.names, self.fold = text, text.w, text.names, fold
        self.threads, self.run, self.warps = threads, run, threads // WARP
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
        w, chunk = self.w, self.threads * self.run
        if self.keeps:
            self.text.meet_if_late()
        with w.block(f"for (i64 first = 0; first < {self.fold.extent}; first += {chunk})"):
            w.line(f"const i64 mine = first + thread * {self.run};")
            w.line(f"const i64 left = {self.fold.extent} - first;")
            share = f"(left + {self.run - 1}) / {self.run}" if self.run > 1 else "left"
            w.line(f"const i32 live = (i32)min({share}, (i64){self.threads});")
            self._own()
            self._across_lanes()
            self._across_warps()
            if self.keeps:
                self._keep()
        if self.text.changing & written(self.fold.keep):
            self.text.meet()
        elif self.text.changing & read((self.fold,)):
            self.text.late = True

    @contextmanager
    def _iteration(self, step: str) -> Iterator[None]:
        """What is written inside is about an iteration of the thread, if there is one."""
        with self.w.block(f"if (mine + {step} < {self.fold.extent})"):
            at = f"mine + {step}"
            if self.fold.backward:
                at = f"{self.fold.extent - 1} - ({at})"
            self.w.line(f"const i64 {self.names[self.fold.variable.name]} = {at};")
            yield

    def _own(self) -> None:
        """Fold a thread's own iterations."""
        w = self.w
        self._declare_zeros(self.total)
        if self.keeps:
            for name, text in zip(self.prefix, self._texts(self.prefix), strict=True):
                w.line(f"{scalars.register_type(name.dtype)} {text}[{self.run}];")
        with w.unrolled("step", self.run):
            with self._iteration("step"):
                self.text.run(self.fold.body, False)
                values = self.text.values(self.fold)
                with w.block("if (step == 0)"):
                    self.text.assign(self.total, values)
                if self.run > 1:
                    with w.block("else"):
                        self._merge(self.total, self.total, values)
            if self.keeps:
                held, totals = self._texts(self.prefix, "[step]"), self._texts(self.total)
                for place, total in zip(held, totals, strict=True):
                    w.line(f"{place} = {total};")

    def _across_lanes(self) -> None:
        """Every thread gets its warp's total, and what is before it in the warp."""
        w = self.w
        if self.keeps:
            self._declare_zeros(self.before)
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
            with w.block("if (((thread & ~(turn - 1)) | turn) < live)"):
                self._merge(self.total, left, right)

    def _shuffled(self, state: Name) -> str:
        kind, text = scalars.register_type(state.dtype), self.names[state.name]
        if kind == "bool":
            return f"tw_shuffle_i32({text}, turn) != 0"
        return f"tw_shuffle_{kind}({text}, turn)"

    def _across_warps(self) -> None:
        """The states become those of all up to the end of the chunk."""
        w = self.w
        if self.warps == 1:
            self._next_warp("0", self.total)
            return
        size = _slot_bytes(self.text.folds, self.threads)
        w.line(f"u8* scratch = tw_shared_base() + slot * {size};")
        w.line("slot ^= 1;")
        with w.block("if (lane == 0)"):
            for place, total in zip(self._places("warp"), self._texts(self.total), strict=True):
                w.line(f"{place} = {total};")
        w.line("tw_sync();")
        with w.unrolled("turn", self.warps):
            w.line(f"if (turn * {WARP} >= live) break;")
            found = self._fresh("y")
            self._declare(found, self._places("turn"), constant=True)
            self._next_warp("turn", found)

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

    def _keep(self) -> None:
        """What is done with the states up to each iteration."""
        with self.w.unrolled("step", self.run), self._iteration("step"):
            held = self._fresh("k")
            self._declare(held, self._texts(self.prefix, "[step]"))
            with self.w.block("if (mine > 0)"):
                self._merge(held, self.before, held)
            self._declare(self.states, self._texts(held), constant=True)
            self.text.run(self.fold.keep, False)
