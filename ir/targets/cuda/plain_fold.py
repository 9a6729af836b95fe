"""A fold along a loop by all threads of a block, in one pass over what it reads.

A chunk of the loop at a time, each thread takes neighbouring iterations of it. Threads of a warp
combine theirs by shuffles, warps through shared memory, always in the order of the loop: a merge
need not commute. What came out of the chunks before goes on to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ir.plain.code import Accumulate
from ir.targets.cuda import scalars
from ir.targets.cuda.frame import WARP
from ir.targets.cuda.plain_scalars import Typed
from ir.targets.cuda.plain_shape import read

if TYPE_CHECKING:
    from ir.targets.cuda.plain_text import PlainText

PLACE = 8  # bytes of a state in shared memory


def scratch_bytes(folds: Sequence[Accumulate], threads: int) -> int:
    """Shared memory in which warps leave their states: twice, so that they meet once a chunk."""
    most = max((len(fold.states) for fold in folds), default=0)
    return 2 * _slot_bytes(most, threads) if threads > WARP else 0


def _slot_bytes(states: int, threads: int) -> int:
    return states * (threads // WARP) * PLACE


class SharedFold:
    """Writes one fold. The states are declared; behind it all threads have them alike."""

    def __init__(self, text: PlainText, fold: Accumulate, threads: int, run: int) -> None:
        self.text, self.w, self.names, self.fold = text, text.w, text.names, fold
        self.threads, self.run, self.warps = threads, run, threads // WARP
        self.dtypes = [state.dtype for state in fold.states]
        self.kinds = [scalars.register_type(dtype) for dtype in self.dtypes]
        self.keeps = bool(fold.keep)
        self.states = [self.names[state.name] for state in fold.states]
        self.total = self._fresh("t")  # of a thread, then of its warp
        self.before = self._fresh("b")  # what comes before a thread's own
        self.prefix = self._fresh("h")  # up to each of a thread's iterations

    def _fresh(self, stem: str) -> list[str]:
        return [self.names.fresh(stem) for _ in self.kinds]

    def _typed(self, texts: Sequence[str]) -> list[Typed]:
        return [Typed(text, dtype) for text, dtype in zip(texts, self.dtypes, strict=True)]

    def _merge(self, targets: Sequence[str], left: Sequence[str], right: Sequence[str]) -> None:
        self.text.merge_into(self.fold, targets, self._typed(left), self._typed(right))

    def _declare(self, names: Sequence[str], texts: Sequence[str], constant: bool = False) -> None:
        word = "const " if constant else ""
        for kind, name, text in zip(self.kinds, names, texts, strict=True):
            self.w.line(f"{word}{kind} {name} = {text};")

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
        if self.keeps:
            self.text.meet()
        elif self.text.changing & read(self.fold.body):
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
        w, zeros = self.w, [scalars.literal(0, dtype) for dtype in self.dtypes]
        self._declare(self.total, zeros)
        if self.keeps:
            for kind, name in zip(self.kinds, self.prefix, strict=True):
                w.line(f"{kind} {name}[{self.run}];")
        with w.unrolled("step", self.run):
            with self._iteration("step"):
                self.text.run(self.fold.body, False)
                values = [value.text for value in self.text.values(self.fold)]
                with w.block("if (step == 0)"):
                    self.text.assign(self.total, values)
                if self.run > 1:
                    with w.block("else"):
                        self._merge(self.total, self.total, values)
            if self.keeps:
                self.text.assign([f"{name}[step]" for name in self.prefix], self.total)

    def _across_lanes(self) -> None:
        """Every thread gets its warp's total, and what is before it in the warp."""
        w = self.w
        if self.keeps:
            self._declare(self.before, [scalars.literal(0, dtype) for dtype in self.dtypes])
        w.line("#pragma unroll")
        with w.block(f"for (i32 turn = 1; turn < {WARP}; turn *= 2)"):
            other, left, right = self._fresh("o"), self._fresh("l"), self._fresh("r")
            self._declare(other, [self._shuffled(*one) for one in zip(self.kinds, self.total)],
                          constant=True)  # fmt: skip
            w.line("const bool upper = lane & turn;")
            if self.keeps:
                with w.block("if (upper)"):
                    with w.block("if (lane & (turn - 1))"):
                        self._merge(self.before, other, self.before)
                    with w.block("else"):
                        self.text.assign(self.before, other)
            pairs = list(zip(other, self.total, strict=True))
            self._declare(left, [f"upper ? {o} : {t}" for o, t in pairs], constant=True)
            self._declare(right, [f"upper ? {t} : {o}" for o, t in pairs], constant=True)
            self.text.assign(self.total, left)
            with w.block("if (((thread & ~(turn - 1)) | turn) < live)"):
                self._merge(self.total, left, right)

    def _shuffled(self, kind: str, name: str) -> str:
        if kind == "bool":
            return f"tw_shuffle_i32({name}, turn) != 0"
        return f"tw_shuffle_{kind}({name}, turn)"

    def _across_warps(self) -> None:
        """The states become those of all up to the end of the chunk."""
        w = self.w
        if self.warps == 1:
            self._next_warp("0", self.total)
            return
        size = _slot_bytes(len(self.kinds), self.threads)
        w.line(f"u8* scratch = tw_shared_base() + slot * {size};")
        w.line("slot ^= 1;")
        with w.block("if (lane == 0)"):
            places = [self._place(number, "warp") for number in range(len(self.kinds))]
            self.text.assign(places, self.total)
        w.line("tw_sync();")
        with w.unrolled("turn", self.warps):
            w.line(f"if (turn * {WARP} >= live) break;")
            found = self._fresh("y")
            places = [self._place(number, "turn") for number in range(len(self.kinds))]
            self._declare(found, places, constant=True)
            self._next_warp("turn", found)

    def _place(self, number: int, warp: str) -> str:
        start = number * self.warps * PLACE
        return f"(({self.kinds[number]}*)(scratch + {start}))[{warp}]"

    def _next_warp(self, turn: str, found: Sequence[str]) -> None:
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
            self._declare(held, [f"{name}[step]" for name in self.prefix])
            with self.w.block("if (mine > 0)"):
                self._merge(held, self.before, held)
            self._declare(self.states, held, constant=True)
            self.text.run(self.fold.keep, False)


