"""What is in a cubin, by the disassembler of the package nvidia-cuda-nvdisasm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from explorer.runtime.nvdisasm import text_of

_OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);")
_PRODUCT = re.compile(r"[HIQ]GMMA\.64x(?P<columns>\d+)x\d+\.\S+ R(?P<first>\d+),")
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(?P<left>[0-9a-f]+)")
_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+([^;]+);|^\s*(\.L_x_\d+):", re.MULTILINE)
_JUMP = re.compile(r"BRA\S*(?: \S+,)? `\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")


def opcodes(cubin: bytes) -> Counter[str]:
    """How often each opcode, with its suffixes, occurs."""
    return Counter(_OPCODE.findall(text_of(cubin)))


def early_reads(cubin: bytes) -> list[str]:
    """Instructions of a cubin that read sums of wgmma before the wait for their products.

    Loops with products are followed for two turns, and out of them.
    """
    text = text_of(cubin)
    found = early_reads_of(_INSTRUCTION.findall(text))
    for loop, behind in product_loops(text):
        found += early_reads_of([*loop, *loop, *behind])
    return found


def product_loops(text: str) -> list[tuple[list[str], list[str]]]:
    """The innermost loops that have products, and the instructions behind each."""
    lines: list[str] = []
    places: dict[str, int] = {}
    found: dict[int, tuple[list[str], list[str]]] = {}
    listed = [(match[1], match[2]) for match in _LINE.finditer(text)]
    instructions = [instruction for instruction, label in listed if not label]
    for instruction, label in listed:
        if label:
            places[label] = len(lines)
            continue
        lines.append(instruction)
        jump = _JUMP.search(instruction)
        start = places.get(jump[1], len(lines)) if jump else len(lines)
        if any(_PRODUCT.search(line) for line in lines[start:]):
            found.setdefault(start, (lines[start:], instructions[len(lines) :]))
    return list(found.values())


def early_reads_of(instructions: Iterable[str]) -> list[str]:
    """See `early_reads`.

    Follows the text from top to bottom, in which an HGMMA with `gsb0` ends a group, and
    `DEPBAR.LE gsb0, N` lets the last N groups run on.
    """
    groups: list[set[int]] = []
    found, begun = [], set[int]()
    for line in instructions:
        product = _PRODUCT.search(line)
        wait = _WAIT.search(line)
        if product:
            first, columns = int(product["first"]), int(product["columns"])
            begun |= set(range(first, first + columns // 2))
            if "gsb0" in line:
                groups, begun = [*groups, begun], set()
        elif wait:
            groups = groups[max(0, len(groups) - int(wait["left"])) :] if int(wait["left"]) else []
        else:
            read = {int(number) for number in _REGISTER.findall(line.partition(",")[2])}
            if any(read & group for group in (*groups, begun)):
                found.append(line)
    return found
