"""The errors that `explorer` raises for its users, on the tree of `ir.errors`."""

from __future__ import annotations

from ir.errors import MissingTarget, TilewrightError, UsageError


class WorkerError(TilewrightError):
    """A worker process could not do what a job cannot go on without; the message says why."""


class ServerLost(WorkerError):
    """The process that forks workers does not answer any more, nor does its successor.

    A job that it ends may be resumed (exit code 7).
    """


class ExportError(TilewrightError):
    """A kernel could not be exported; nothing was written."""


class NothingValid(TilewrightError):
    """No candidate was right and in time (exit code 3)."""


class DeviceLost(TilewrightError):
    """The device stopped answering in the middle of a job, which may be resumed (exit code 7)."""


class FarmLost(DeviceLost):
    """The scheduler or all workers that measured are gone in the middle of a job (exit code 7)."""


class NoFarm(MissingTarget):
    """There is no scheduler, no worker that measures what is wanted, or no Dask (exit code 6)."""


class Uncheckable(UsageError):
    """No kernel of a program could be told from a wrong one on its random inputs (exit code 2)."""
