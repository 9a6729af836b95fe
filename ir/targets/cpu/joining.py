"""Several kernels in one text: names of their own, and what they have in common once.

Text only, of C and of LLVM IR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ir.kernel import Kernel

_LLVM_DEFINED = re.compile(r"^(?:define [^@\n]*@|@)([\w.$]+)(?= =|\()", re.MULTILINE)
_C_DEFINED = re.compile(r"^[^\s#/].*\b(\w+)\([^();\n]*\) \{$", re.MULTILINE)
_NOT_OWN = ("llvm.", "tilewright_")


def renamed(kernel: Kernel, ending: str) -> Kernel:
    """The kernel with `ending` behind the names of all that it defines, its entry included."""
    llvm, entry = kernel.texts[0][1], f"{kernel.entry}{ending}"
    defined = {n for n in _LLVM_DEFINED.findall(llvm) if not n.startswith(_NOT_OWN)}
    for name in sorted(defined):
        llvm = re.sub(rf"@{re.escape(name)}(?![\w.$])", f"@{name}{ending}", llvm)
    texts = {kernel.texts[0][0]: llvm, "c": _word(kernel.text("c"), kernel.entry, entry)}
    whole = tuple((language, texts.get(language, text)) for language, text in kernel.texts)
    return replace(kernel, entry=entry, texts=whole)


def joined_c(kernels: Iterable[Kernel]) -> str:
    """The C texts one behind the other: helpers that are the same in several stand there once.

    Where two kernels call different helpers alike, the later one's gets another name.
    """
    seen: set[str] = set()
    taken: set[str] = set()
    texts = []
    for number, kernel in enumerate(kernels):
        helpers, body = _parted(kernel)
        while clashing := _names(helper for helper in helpers if helper not in seen) & taken:
            for name in clashing:
                helpers = [_word(helper, name, f"{name}_{number}") for helper in helpers]
                body = _word(body, name, f"{name}_{number}")
        fresh = [helper for helper in helpers if helper not in seen]
        seen.update(fresh)
        taken |= _names([*fresh, body])
        texts.append("\n\n".join([*fresh, body]))
    return "\n\n".join(texts)


def _names(chunks: Iterable[str]) -> set[str]:
    """The functions that C texts define."""
    return {name for chunk in chunks for name in _C_DEFINED.findall(chunk)}


def _parted(kernel: Kernel) -> tuple[list[str], str]:
    """The helpers of a C text, and the kernel's own function behind them."""
    text = kernel.text("c").strip("\n")
    at = text.find(f"/* {kernel.entry}: ")
    if at <= 0:
        return [], text
    chunks: list[str] = []
    for piece in re.split(r"\n\n+", text[:at].strip("\n")):
        if piece.startswith("typedef "):
            chunks += piece.splitlines()  # kernels need different ones of them
        else:
            chunks.append(piece)
    return chunks, text[at:]


def _word(text: str, name: str, instead: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", instead, text)
