"""The CPU thread pool, twice: as LLVM IR (what tuned kernels run on) and as C (what exports carry).

Both texts define the same symbols with the same team layout, all weak, so that objects linked into
one program share one pool. Owns text only: compiling and running it is the runtime's business.
"""

import platform

from ir.targets.cpu import pool_text_c, pool_text_llvm

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


def pool_llvm(machine: str | None = None, system: str | None = None) -> str:
    """The pool as an LLVM module without a target triple, for this machine unless told another."""
    declare, pause = _PAUSE.get(machine or platform.machine(), _NO_PAUSE)
    linux = (system or platform.system()) == "Linux"
    chain = "\n".join(
        f"  %y{i} = mul i64 %x{i}, %factor\n  %x{i + 1} = xor i64 %y{i}, %factor" for i in range(8)
    )
    text = pool_text_llvm.LLVM.replace("@DECLARE_PAUSE@", declare).replace("@PAUSE@", pause)
    text = text.replace("@DECLARE_AFFINITY@", pool_text_llvm.LINUX_DECLARATIONS if linux else "")
    text = text.replace("@ADVISE@", pool_text_llvm.ADVISE_HUGE_PAGES if linux else "")
    text = text.replace(
        "@PIN@", pool_text_llvm.LLVM_LINUX if linux else pool_text_llvm.LLVM_UNPINNED
    ).replace("@CHAIN@", chain)
    return _fill_waiting(text)


def pool_c() -> str:
    """The pool as C with pthreads, to stand before a kernel's C text."""
    return _fill_waiting(pool_text_c.C)


def _fill_waiting(text: str) -> str:
    awake = SPINS + YIELDS
    text = text.replace("@CROWDED_SPINS@", str(CROWDED_SPINS))
    text = text.replace("@SPINS@", str(SPINS)).replace("@AWAKE@", str(awake))
    return text.replace("@PATIENCE@", str(awake + NAPS))
