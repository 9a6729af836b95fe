"""The CPU thread pool, twice: as LLVM IR (what tuned kernels run on) and as C (what exports carry).

Both texts do the same on the same state. Exported kernels have their own code and share the state
with all kernels of the process that have this version of the pool (`pool_shared`). Owns text only:
compiling and running it is the runtime's business.
"""

from __future__ import annotations

import hashlib
import platform
import re
from functools import cache

from ir.targets.cpu import pool_pins_llvm, pool_text_c, pool_text_llvm

# Byte offsets in the team. Every hot word has a cache line of its own.
#     0 word: launch number << 16 | threads      8 body    16 args     (written once per launch)
#    64 running: workers that have not finished
#   128 arrived: threads waiting at the barrier
#   192 generation of the barrier
#   256 threads of this launch
#   320 tickets[64], zero at the start of a launch
TEAM_BYTES = 832
TICKETS = 64
SPINS = 20_000  # pauses before a waiting thread begins to yield
CROWDED_SPINS = 100  # the same when there are more threads than processors
YIELDS = 2_000  # yields before an idle worker takes naps of 50 us
NAPS = 2_000  # naps (a fifth of a second or so) before it sleeps until it is woken

SYMBOLS = ("tilewright_launch", "tilewright_repeat", "tilewright_barrier", "tilewright_ticket")

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_NO_PAUSE = ("", 'fence syncscope("singlethread") seq_cst')
_STATE = re.compile(r"^@tilewright_(\w+) = weak global (%team|i64|\[\d+ x i8\]) .*$", re.MULTILINE)


def pool_llvm(machine: str | None = None, system: str | None = None) -> str:
    """The pool as an LLVM module without a target triple, for this machine unless told another."""
    declare, pause = _PAUSE.get(machine or platform.machine(), _NO_PAUSE)
    linux = (system or platform.system()) == "Linux"
    chain = "\n".join(
        f"  %y{i} = mul i64 %x{i}, %factor\n  %x{i + 1} = xor i64 %y{i}, %factor" for i in range(8)
    )
    text = pool_text_llvm.LLVM.replace("@DECLARE_PAUSE@", declare).replace("@PAUSE@", pause)
    text = text.replace("@DECLARE_AFFINITY@", pool_pins_llvm.DECLARATIONS if linux else "")
    text = text.replace("@ADVISE@", pool_text_llvm.ADVISE_HUGE_PAGES if linux else "")
    text = text.replace(
        "@PIN@", pool_pins_llvm.LINUX if linux else pool_pins_llvm.UNPINNED
    ).replace("@CHAIN@", chain)
    return _fill_waiting(text)


def pool_shared(machine: str | None = None, system: str | None = None) -> str:
    """The pool of an exported kernel as LLVM IR, its state shared by the whole process.

    A unique symbol is one object in a process, even for libraries loaded with RTLD_LOCAL; weak
    ones, which are all that other systems have, are one object in each library.
    """
    text = pool_llvm(machine, system)
    linux = (system or platform.system()) == "Linux"
    if linux:
        text = _STATE.sub(r"@tilewright_\1 = external global \2, align 64", text)
        text = f"{_unique_state()}\n{text}"
    for name, _ in state():
        text = re.sub(rf"@tilewright_{name}\b", f"@{prefix()}{name}", text)
    return text


def pool_c() -> str:
    """The pool as C with pthreads, to stand before a kernel's C text."""
    rows = "\n".join(f"    TILEWRIGHT_UNIQUE({name}, {size})" for name, size in state())
    text = pool_text_c.C.replace("@UNIQUE_STATE@", rows)
    text = text.replace("@GROUP@", prefix().rstrip("_")).replace("@VERSION@", version())
    return _fill_waiting(text)


@cache
def version() -> str:
    """Names what kernels must agree on to share threads: a hash of both texts."""
    constants = [SPINS, CROWDED_SPINS, YIELDS, NAPS]
    texts = [pool_text_llvm.LLVM, pool_pins_llvm.LINUX, pool_text_c.C, repr(constants)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def prefix() -> str:
    """What the symbols of the shared state begin with."""
    return f"tilewright_pool_{version()}_"


@cache
def state() -> tuple[tuple[str, int], ...]:
    """Name and bytes of each variable that kernels share, as the LLVM text has them."""
    sizes = {"%team": TEAM_BYTES, "i64": 8}
    found = _STATE.findall(pool_text_llvm.LLVM)
    return tuple((name, sizes.get(kind) or int(kind[1:].split()[0])) for name, kind in found)


def _unique_state() -> str:
    """Assembly that defines the shared state, once in whatever it is linked into."""
    group = prefix().rstrip("_")
    lines = [
        f".ifndef {prefix()}{state()[0][0]}",
        f".pushsection .bss.{group},\\22awG\\22,%nobits,{group},comdat",
        *(_unique(f"{prefix()}{name}", size) for name, size in state()),
        ".popsection",
        ".endif",
    ]
    return "\n".join(f'module asm "{line}"' for line in lines)


def _unique(symbol: str, size: int) -> str:
    kind = f".type {symbol},%gnu_unique_object"
    return f".balign 64; {kind}; .size {symbol},{size}; {symbol}: .zero {size}"


def _fill_waiting(text: str) -> str:
    awake = SPINS + YIELDS
    text = text.replace("@CROWDED_SPINS@", str(CROWDED_SPINS))
    text = text.replace("@SPINS@", str(SPINS)).replace("@AWAKE@", str(awake))
    return text.replace("@PATIENCE@", str(awake + NAPS))
