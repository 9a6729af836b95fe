"""The prelude: what a kernel's text may call. `prelude_text` emits what one kernel uses."""

from __future__ import annotations

import re
from functools import cache, lru_cache

from ir.targets.cuda.prelude import device, memory, narrow, values
from ir.targets.cuda.prelude.families import family_text

_NAME = re.compile(r"\btw_[a-z0-9_]+")


@cache
def sections() -> dict[str, str]:
    """Wrapper name -> device text, in the order of the file; `types` comes with every kernel."""
    found: dict[str, str] = {}
    for whole in (device.TEXT, memory.TEXT, values.TEXT, narrow.TEXT):
        for part in whole.split("//@ ")[1:]:
            name, _, text = part.partition("\n")
            found[name.strip()] = text
    return found


def wrapper_names(text: str) -> tuple[str, ...]:
    """Wrappers that `text` calls, and what those call, in the prelude's order; generated ones are
    last, but for those that others call."""
    known, wanted = sections(), set[str]()
    pending = list(dict.fromkeys(_NAME.findall(text)))
    while pending:
        name = pending.pop()
        if name in wanted:
            continue
        called = _called(name)
        if called is not None:
            wanted.add(name)
            pending.extend(called)
    fixed = [name for name in known if name in wanted]
    others = wanted - set(fixed)
    ahead = others & {one for name in fixed for one in _called(name) or ()}
    return (*sorted(ahead), *fixed, *sorted(others - ahead))


@lru_cache(maxsize=4096)
def _called(name: str) -> tuple[str, ...] | None:
    """Wrappers that a wrapper calls; None for what is none."""
    body = sections().get(name) or family_text(name)
    if body is None:
        return None
    return tuple(dict.fromkeys(n for n in _NAME.findall(body) if n != name))


def prelude_text(text: str) -> str:
    """Device text of the types and of every wrapper that `text` needs."""
    parts = [sections()["types"]]
    for name in wrapper_names(text):
        parts.append(sections().get(name) or family_text(name) or "")
    return "".join(parts)
