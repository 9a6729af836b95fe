"""What `tilewright tune` needs a second for is started before its words are understood.

A look at the words tells whether a search is likely to measure, and where; a wrong guess costs a
process that is ended at once. Imports nothing that is slow to import.
"""

from __future__ import annotations

from collections.abc import Sequence

_TARGET = "--target"
# no search, or one of a target that stands elsewhere, or on other machines
_NO_SEARCH = ("--help", "--replay", "--resume", "--jobs", "--workers")


def boot_for(arguments: Sequence[str]) -> None:
    """Start the processes from which a search's workers are forked, if these words ask for one."""
    if list(arguments[:1]) != ["tune"] or len(arguments) < 2:
        return
    if any(word.partition("=")[0] in _NO_SEARCH for word in arguments):
        return
    from explorer.runtime.process import boot
    from explorer.settings import cache_dir
    from ir.errors import TilewrightError

    try:
        boot(_target_of(arguments), cache_dir())
    except (TilewrightError, OSError):
        return  # the verb meets it, too, and says it


def _target_of(arguments: Sequence[str]) -> str:
    for place, word in enumerate(arguments):
        name, given, value = word.partition("=")
        if name == _TARGET:
            return value if given else "".join(arguments[place + 1 : place + 2])
    return "cpu"
