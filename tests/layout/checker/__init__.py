"""An independent checker of layout solutions: everything expanded to integer tables and performed.

Shares no code with `ir.layout`'s solver: of `ir` it reads the problem's form alone.
"""

from tests.layout.checker.check import check
from tests.layout.checker.findings import Finding, Kind, Report

__all__ = ["Finding", "Kind", "Report", "check"]
