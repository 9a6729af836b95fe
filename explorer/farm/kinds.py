"""Which workers measure the same: those of one machine's kind, target and versions.

Frozen values that travel between a client and its workers. Knows targets; no Dask, no measuring.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from explorer.budget import BATCH
from ir.target import Hardware, get_backend


@dataclass(frozen=True, slots=True)
class Versions:
    """What has to be the same on both sides: Tilewright, and the target's code generator."""

    tilewright: str
    generator: str
    python: str = ""  # for people: kernels do not depend on it

    @classmethod
    def here(cls, target: str) -> Versions:
        """Those of this process; raises UsageError for an unknown target."""
        generator = get_backend(target).generator
        try:
            found = version("tilewright")
        except PackageNotFoundError:
            found = "not installed"
        return cls(found, generator, platform.python_version())

    def agree(self, other: Versions) -> bool:
        return (self.tilewright, self.generator) == (other.tilewright, other.generator)

    def __str__(self) -> str:
        return f"tilewright {self.tilewright} with code generator {self.generator}"


@dataclass(frozen=True, slots=True)
class Described:
    """What a worker says of itself: where it measures, under which tag tasks find it, and how many
    candidates it takes at a time; without a `tag`, `why` not."""

    versions: Versions
    hardware: Hardware | None = None
    tag: str = ""
    slots: int = 0
    name: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """Workers whose times compare: one machine's kind, and so one workload of each program."""

    hardware: Hardware
    tag: str
    workers: tuple[str, ...]  # their names
    slots: int  # candidates at a time, over all of them

    @property
    def batch(self) -> int:
        """Candidates that are best asked for at a time: one for each that is measured then."""
        return max(BATCH, self.slots)

    @property
    def key(self) -> str:
        """The hardware's, under which records are kept."""
        return self.hardware.key


@dataclass(frozen=True, slots=True)
class Survey:
    """The kinds of workers of a target, most slots first, and why others are not among them."""

    kinds: tuple[Kind, ...]
    left_out: tuple[tuple[str, str], ...]  # a worker and the reason

    @classmethod
    def of(cls, found: Mapping[str, Described | str], ours: Versions) -> Survey:
        """What workers, by address, said of themselves; a text is why one could not say it."""
        left: list[tuple[str, str]] = []
        groups: dict[tuple[str, Hardware], list[Described]] = {}
        for address, said in sorted(found.items()):
            why = said if isinstance(said, str) else _unfit(said, ours)
            if isinstance(said, Described) and said.hardware is not None and not why:
                groups.setdefault((said.tag, said.hardware), []).append(said)
            else:
                left.append((address, why))
        kinds = [
            Kind(hardware, tag, tuple(d.name for d in group), sum(d.slots for d in group))
            for (tag, hardware), group in groups.items()
        ]
        return cls(*_told_apart(sorted(kinds, key=lambda kind: -kind.slots), left))


def _unfit(said: Described, ours: Versions) -> str:
    if not said.versions.agree(ours):
        return f"it has {said.versions}, here is {ours}: install the same"
    return said.why


def _told_apart(
    kinds: list[Kind], left: list[tuple[str, str]]
) -> tuple[tuple[Kind, ...], tuple[tuple[str, str], ...]]:
    """Of kinds that records could not tell apart the one with most slots."""
    kept: dict[str, Kind] = {}
    for kind in kinds:
        first = kept.setdefault(kind.key, kind)
        if first is not kind:
            why = f"another machine that is called {kind.key}, with other caches or instructions"
            left += [(name, why) for name in kind.workers]
    return tuple(kept.values()), tuple(left)


def tag_of(target: str) -> str:
    """The Dask resource of this process for a target: its machine's kind and its versions.

    Raises MissingTarget where there is none, UsageError for an unknown target.
    """
    hardware, versions = get_backend(target).hardware(), Versions.here(target)
    facts = repr((hardware.isa, hardware.facts, versions.tilewright, versions.generator))
    return f"{hardware.key}:{hashlib.sha256(facts.encode()).hexdigest()[:12]}"
