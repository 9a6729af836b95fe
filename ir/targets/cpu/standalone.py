"""What a CPU kernel needs beside its body to run without Tilewright: pool, plain entry, flags."""

from __future__ import annotations

from ir.kernel import Kernel, KernelTable, Standalone
from ir.targets.cpu.dispatch import Dispatch
from ir.targets.cpu.entry import Entry
from ir.targets.cpu.joining import joined_c, renamed
from ir.targets.cpu.pool import pool_c, pool_shared

# The pool's threads run code of the library that started them, so none may be unloaded.
_SHARED = "-fPIC -shared -pthread -Wl,-z,nodelete"
C_FLAGS = f"-O3 -march=native -ffp-contract=fast -fno-math-errno -fwrapv -Wno-psabi {_SHARED}"


def standalone(kernel: Kernel, symbol: str = "") -> Standalone:
    """The surroundings of `kernel`, in C and as LLVM IR."""
    entry = Entry.of(kernel, symbol)
    return Standalone(
        language="c",
        symbol=entry.symbol,
        signature=entry.signature(),
        header=entry.header(),
        source="\n".join([pool_c(), kernel.text("c"), entry.c()]),
        texts=(pool_shared(), entry.llvm()),
        build=f"cc {C_FLAGS} -o lib{kernel.name}.so {kernel.name}.c",
    )


def standalone_table(table: KernelTable, symbol: str = "") -> Standalone:
    """The surroundings of several kernels, each with names of its own, and the kernels themselves.

    Of `texts` the first is a kernel's, too.
    """
    bodies = [renamed(kernel, f"_{number}") for number, kernel in enumerate(table.kernels)]
    dispatch = Dispatch.of(table, bodies, symbol)
    kernels = tuple(kernel.texts[0][1] for kernel in bodies)
    return Standalone(
        language="c",
        symbol=dispatch.symbol,
        signature=dispatch.signature(),
        header=dispatch.header(),
        source="\n".join([pool_c(), joined_c(bodies), "", dispatch.c()]),
        texts=(*kernels, pool_shared(), dispatch.llvm()),
        build=f"cc {C_FLAGS} -o lib{table.name}.so {table.name}.c",
    )
