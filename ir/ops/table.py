"""All ops of programs, by their names."""

from __future__ import annotations

from ir.ops.base import Op
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top

OPS: dict[str, type[Op]] = {
    op.name: op
    for op in (
        Load, Map, Constant, Iota, Cast, Contract, Reduce, Carry, Now, Prior, Store,
        Read, Fold, Top, Scatter, Before, Recur,
    )
}  # fmt: skip
