"""Why a record, an import file or a store was refused. Each message is one line.

The line says what, why and what to do. Callers tell refusals apart by class, never by text;
`exit_code` is what the command line ends with.
"""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    """Root of everything that `records` raises for its users."""

    exit_code: ClassVar[int] = 8


class InvalidRecord(StoreError, ValueError):
    """A record or job whose fields contradict themselves."""


class UnknownJob(StoreError, LookupError):
    """No job, or more than one, answers to the given identifier."""

    exit_code: ClassVar[int] = 2


class UnusableLocation(StoreError):
    """The path or URL names nothing that could be a store."""


class StoreUnavailable(StoreError):
    """The store cannot be reached: no server, no driver, an input or output error."""


class ServerAway(StoreUnavailable):
    """The server does not answer, or went away; it may come back."""


class ForeignFile(StoreError):
    """The file is there, but it is no store: not a database, or somebody else's."""


class DamagedStore(StoreError):
    """The store's content contradicts itself."""


class NewerStore(StoreError):
    """The store was written by a later version than this one understands."""


class LockedStore(StoreError):
    """Another process held the store for longer than the busy timeout."""


class ReadOnlyStore(StoreError):
    """The store, or the folder it lives in, cannot be written."""


class FullStore(StoreError):
    """No room is left for the store; what was acknowledged before is still in it."""


class MovedStore(StoreError):
    """The file was deleted, moved or replaced while the store was open."""


class DamagedExport(StoreError):
    """An exported file fails its checksums, ends early, or is of another form."""


class UntrustedBundle(StoreError):
    """A bundle of records that nobody who is trusted has signed as it is."""
