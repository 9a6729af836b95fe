"""The ops a program is made of. A new op is one file here and one entry in `table`."""

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.ops.table import OPS

__all__ = ["OPS"]

__getattr__ = exports(__name__, {"OPS": "table"})
