"""The one error that everything about layouts raises, and the reason codes it carries.

Knows no layout; a message names both numbers that do not fit.
"""

from __future__ import annotations

from ir.errors import UsageError

CODES = {
    "parse": "text that is no layout, swizzle or composition of them",
    "congruence": "shape and stride trees of different form",
    "extent": "an extent below 1, or a size that does not fit",
    "coordinate": "a coordinate outside the shape, or of another form",
    "divisibility": "extents and strides that do not divide one another",
    "not-injective": "a layout that meets an offset twice where each must be met once",
    "not-admissible": "a composition whose outer layout is left by the inner one",
    "rank": "a profile or mode number that the layout does not have",
    "swizzle-range": "a swizzle whose bit fields overlap or do not fit the layout",
}


class LayoutError(UsageError):
    """A layout, swizzle or instruction that does not fit; `code` is one word for why.

    Codes of this package are in CODES; instruction tables and the synthesis add theirs.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
