"""Conditions on the blocks of a main loop, as text."""

from __future__ import annotations

from ir.kernel.tile_kernel import AGAIN, ALWAYS, EVERY, NEVER, WITHIN, When


def when_text(when: When) -> str:
    """A condition."""
    if when.of in (ALWAYS, NEVER):
        return "true" if when.of == ALWAYS else "false"
    if when.of == EVERY:
        return f"block % {when.least} == {when.least - 1}"
    if when.of == WITHIN:
        return f"block % {when.least} > 0"
    if when.of == AGAIN:
        return f"block > 0 && block % {when.least} == 0"
    return f"{when.of} > 0" if when.least == 1 else f"{when.of} >= {when.least}"
