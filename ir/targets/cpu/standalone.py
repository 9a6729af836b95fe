"""What a CPU kernel needs beside its body to run without Tilewright: pool, plain entry, flags."""

from __future__ import annotations

from ir.kernel import Kernel, Standalone
from ir.targets.cpu.entry import entry_c, entry_llvm, signature_c
from ir.targets.cpu.pool import pool_c, pool_llvm

C_FLAGS = "-O3 -march=native -ffp-contract=fast -fno-math-errno -fwrapv -fPIC -shared -pthread"


def standalone(kernel: Kernel) -> Standalone:
    """The surroundings of `kernel`, in C and as LLVM IR."""
    return Standalone(
        language="c",
        signature=signature_c(kernel),
        source="\n".join([pool_c(), kernel.text("c"), entry_c(kernel)]),
        texts=(pool_llvm(), entry_llvm(kernel)),
        build=f"cc {C_FLAGS} -o lib{kernel.name}.so {kernel.name}.c",
    )
