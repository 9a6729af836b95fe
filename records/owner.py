"""Who holds a lease: a name that says which process it is, so that its death can be seen.

A name tells the death of its process only on the machine that it was made on.
"""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


def new_owner() -> str:
    """A name for a searcher in this process, unlike any other."""
    pid = os.getpid()
    return "/".join((*_place(), str(pid), _started(pid) or "", secrets.token_hex(6)))


def described(owner: str) -> str:
    """A name of `new_owner` for people."""
    parts = owner.split("/")
    if len(parts) == 5 and parts[0] and tuple(parts[:2]) == _place():
        return f"process {parts[2]} of this machine"
    return "a process of another machine or container"


def is_gone(owner: str) -> bool:
    """Whether the process behind a name has surely ended; False where that cannot be known."""
    parts = owner.split("/")
    if len(parts) != 5 or not parts[0] or tuple(parts[:2]) != _place() or not parts[2].isdecimal():
        return False
    pid = int(parts[2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it is there, but another user's
    started = _started(pid)
    return started is not None and started != parts[3]


@cache
def _place() -> tuple[str, str]:
    """This boot of this machine, and the name space that its process numbers are of."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return "", ""


def _started(pid: int) -> str | None:
    """When a process began, which tells it from a later one of its number; "" for a dead one."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]
