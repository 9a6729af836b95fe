"""Kernels: what a target made of a program, and the loop bodies that a target schedules.

`compiled` is a kernel's text with its launch, `table` several kernels for as many extents; `body`,
`modulo` and `synchronise` are operations of a loop, the orders in which iterations may overlap, and
the waits that an order asks for. `strip` has blocks that go piece by piece, `barriers` loops whose
threads share values; `listing` prints both.
"""

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.kernel.compiled import Argument, Kernel, Standalone
    from ir.kernel.table import KernelTable

__all__ = ["Argument", "Kernel", "KernelTable", "Standalone"]

__getattr__ = exports(
    __name__,
    {name: "table" if name == "KernelTable" else "compiled" for name in __all__},
)
