"""The errors that `ir` raises for its users. Each message is one line: what, why, what to do."""

from __future__ import annotations


class TilewrightError(Exception):
    """Root of every error that is meant to be read by a person."""


class UsageError(TilewrightError):
    """A wrong name, value or extent given by the caller (exit code 2)."""


class ProgramError(UsageError):
    """A program that breaks a shape, dtype or dataflow rule; the message names the op."""


class MissingTarget(TilewrightError):
    """A target or its toolchain is not there (exit code 6)."""


class Refusal(TilewrightError):
    """A schedule that a named constraint forbids, with the numbers."""

    def __init__(self, constraint: str, detail: str) -> None:
        super().__init__(f"{constraint}: {detail}")
        self.constraint = constraint
        self.detail = detail
