"""What the checker reports: typed findings, each with where it was seen and the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """Every way in which a solution can be wrong."""

    WRONG_VALUE = "an element's value differs from the oracle's"
    UNCOVERED = "an element that nobody owns or writes"
    DOUBLE_OWNERSHIP = "one place for two elements, or one element twice in a thread"
    FALSE_REPLICATION = "copies of one element that do not agree"
    MISALIGNED = "an access whose address is no multiple of its width"
    NOT_CONTIGUOUS = "a vector whose elements do not lie side by side"
    CONFLICTS = "bank conflicts other than stated"
    ILLEGAL_BOX = "a TMA box that the hardware refuses, or that moves other elements"
    WRONG_DESCRIPTOR = "a wgmma descriptor that does not address the operand"
    WRONG_FRAGMENT = "registers that do not lie as the instruction wants them"
    NO_SUCH_PATH = "an instruction between memories that it does not join"
    OUT_OF_RANGE = "an index beyond the tile, the threads or the allocation"
    UNKNOWN = "a form that the checker cannot read"


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect: its kind, the op or tile where it shows, and a sentence with the numbers."""

    kind: Kind
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.name} at {self.where}: {self.detail}"


@dataclass(slots=True)
class Report:
    """Findings in the order seen; empty means that the solution is right."""

    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: Kind, where: str, detail: str) -> None:
        self.findings.append(Finding(kind, where, detail))

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(finding.kind for finding in self.findings)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing found"
