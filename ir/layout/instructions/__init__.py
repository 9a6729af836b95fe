"""The registry of instruction rows: `find` by name, `matrix_rows` by type and target.

An instruction set is one module with a tuple ROWS; a new one is added to `registry.FAMILIES`.
"""

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.layout.instructions.registry import FAMILIES, ROWS, find, matrix_rows
    from ir.layout.instructions.rows import (
        SHUFFLE,
        CopyRow,
        Cost,
        MatrixRow,
        Operand,
        Row,
        TmaRow,
    )

__all__ = [
    "FAMILIES",
    "ROWS",
    "SHUFFLE",
    "CopyRow",
    "Cost",
    "MatrixRow",
    "Operand",
    "Row",
    "TmaRow",
    "find",
    "matrix_rows",
]

__getattr__ = exports(
    __name__,
    {
        "FAMILIES": "registry",
        "ROWS": "registry",
        "SHUFFLE": "rows",
        "CopyRow": "rows",
        "Cost": "rows",
        "MatrixRow": "rows",
        "Operand": "rows",
        "Row": "rows",
        "TmaRow": "rows",
        "find": "registry",
        "matrix_rows": "registry",
    },
)
