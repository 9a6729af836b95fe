"""A kernel's machine code for readers: its loops, and the one in which it spends its time.

Which loop is hot is read off the text, not sampled: the innermost one with most arithmetic.
Instructions come from a worker process; nothing is compiled here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from explorer.errors import WorkerError
from explorer.story import Story
from ir.errors import MissingTarget, TilewrightError

MOST_LINES = 20_000  # of a listing that a page shows
_LABEL = re.compile(r"^\s*(\.?[A-Za-z_$][\w.$]*):")
_SASS = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+")
_COMMENT = re.compile(r"^\s*(#|//|/\*)")
_PREFIX = re.compile(r"^(?:@!?U?P\w+\s+)?(?:lock\s+|rep\s+)?")
_NAME = re.compile(r"\.?[A-Za-z_$][\w.$]*")
_JUMPS = re.compile(r"^(j[a-z]+|BRA\S*)\b")
_ARITHMETIC = re.compile(  # of x86, then of NVIDIA's machines
    r"v?fn?m(add|sub)|vp?dp|tdp|v?p?mul|v?(add|sub|div|max|min|sqrt|rcp)[ps][sdh]|vpmadd|vpadd"
    r"|[HIQF]GMMA|[HID]MMA|[FHD](FMA|ADD|MUL)|MUFU|IMAD|IDP|FMNMX|HFMA2|HADD2"
)


@dataclass(frozen=True, slots=True)
class Loop:
    """Lines `start` to `end` (excluded) of a listing, and what the loop is made of, by mnemonic."""

    start: int
    end: int
    mnemonics: tuple[tuple[str, int], ...]

    @property
    def instructions(self) -> int:
        return sum(count for _, count in self.mnemonics)

    @property
    def arithmetic(self) -> int:
        return sum(count for name, count in self.mnemonics if _ARITHMETIC.match(name))


@dataclass(frozen=True, slots=True)
class Listing:
    """Machine code as text, and its hot loop if it has a loop; or `why` there is none."""

    lines: tuple[str, ...] = ()
    hot: Loop | None = None
    loops: int = 0
    why: str = ""

    @property
    def hot_text(self) -> str:
        return "" if self.hot is None else "\n".join(self.lines[self.hot.start : self.hot.end])

    @property
    def text(self) -> str:
        """All of it, or its beginning."""
        shown = self.lines[:MOST_LINES]
        left = len(self.lines) - len(shown)
        return "\n".join([*shown, *([f"... and {left:,} lines more"] if left else [])])


def disassembled(story: Story) -> Listing:
    """The best kernel of a job on the machine that it was measured on."""
    from explorer.runtime.base import get_runtime
    from explorer.runtime.once import disassembly_once

    try:
        if not get_runtime(story.job.target).apart and not _here(story):
            return Listing(why="the job ran on another machine, for which this one cannot compile")
        return listing(disassembly_once(story.kernel(story.best_schedule)))
    except (TilewrightError, WorkerError, KeyError) as error:
        return Listing(why=str(error))


def _here(story: Story) -> bool:
    """Whether the job ran on a machine like this one, up to its threads."""
    try:
        here = story.workload.backend.hardware(story.hardware.threads)
    except MissingTarget:
        return False
    return (here.name, here.isa) == (story.hardware.name, story.hardware.isa)


def listing(text: str) -> Listing:
    """Instructions and labels of a disassembler's or compiler's output, and the hot loop.

    >>> found = listing("f:\\n.LBB0_1:\\n vfmadd231ps %zmm0, %zmm1, %zmm2\\n jne .LBB0_1\\n ret")
    >>> found.hot_text
    '.LBB0_1:\\n vfmadd231ps %zmm0, %zmm1, %zmm2\\n jne .LBB0_1'
    """
    lines = tuple(line.rstrip() for line in text.splitlines() if _kept(line))
    found = innermost(lines)
    hot = max(found, key=lambda loop: (loop.arithmetic, loop.instructions), default=None)
    return Listing(lines, hot, len(found))


def _kept(line: str) -> bool:
    """Labels and instructions: no directives, no encodings alone, no comments alone."""
    if _SASS.match(line):
        return ";" in line
    bare = line.strip()
    return bool(bare) and not _COMMENT.match(line) and (not bare.startswith(".") or ":" in bare)


def innermost(lines: Sequence[str]) -> list[Loop]:
    """From each label to a later jump back to it, where no smaller such range lies inside."""
    labels = {
        match[1]: number for number, line in enumerate(lines) if (match := _LABEL.match(line))
    }
    spans: dict[int, int] = {}
    for number, line in enumerate(lines):
        words = _instruction(line)
        if not _JUMPS.match(words):
            continue
        back = [
            labels[name] for name in re.findall(r"\.?[A-Za-z_$][\w.$]*", words) if name in labels
        ]
        for start in (place for place in back if place <= number):
            spans[start] = max(spans.get(start, 0), number + 1)
    ordered = sorted(spans.items(), key=lambda span: (span[0], -span[1]))
    inner = [one for one, after in pairwise(ordered) if after[0] >= one[1]] + ordered[-1:]
    return [Loop(start, end, _mnemonics(lines[start:end])) for start, end in inner]


def _instruction(line: str) -> str:
    return _PREFIX.sub("", _SASS.sub("", line).strip())


def _mnemonics(lines: Sequence[str]) -> tuple[tuple[str, int], ...]:
    words = (_instruction(line).split() for line in lines if not _LABEL.match(line))
    return tuple(Counter(found[0].rstrip(";") for found in words if found).most_common())
