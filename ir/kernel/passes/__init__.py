"""Passes: frozen dataclasses that make one kernel of another, each in a file of its own.

A target builds a kernel as one thread would run it, block after block. `Roles` gives copies to a
role of their own, `Pipeline`, `Pieces` and `Pairs` let iterations overlap, `Synchronise` inserts
what that needs, `InOrder` takes it away where products end before what follows, `Place` gives
values registers where they live. `Apart` gives what others multiply by to a role of its own, with
`Relay` between them. Where threads copy for themselves, `LoadAhead` makes loads of
later steps run ahead, and `Waits` inserts what they wait for. `Ahead` lets their copies run ahead
and `Meet` inserts barriers.
"""

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.kernel.passes.ahead import Ahead
    from ir.kernel.passes.apart import Apart
    from ir.kernel.passes.base import Pass, after_each
    from ir.kernel.passes.early import Early
    from ir.kernel.passes.in_order import InOrder
    from ir.kernel.passes.load_ahead import LoadAhead
    from ir.kernel.passes.meet import Meet
    from ir.kernel.passes.pairs import Pairs
    from ir.kernel.passes.pieces import Pieces
    from ir.kernel.passes.pipeline import Pipeline
    from ir.kernel.passes.place import Place
    from ir.kernel.passes.relay import Relay
    from ir.kernel.passes.roles import Roles
    from ir.kernel.passes.synchronise import Synchronise
    from ir.kernel.passes.waits import Waits

__all__ = [
    "Ahead",
    "Apart",
    "Early",
    "InOrder",
    "LoadAhead",
    "Meet",
    "Pairs",
    "Pass",
    "Pieces",
    "Pipeline",
    "Place",
    "Relay",
    "Roles",
    "Synchronise",
    "Waits",
    "after_each",
]

__getattr__ = exports(
    __name__,
    {
        "Ahead": "ahead",
        "Early": "early",
        "InOrder": "in_order",
        "LoadAhead": "load_ahead",
        "Apart": "apart",
        "Meet": "meet",
        "Pairs": "pairs",
        "Pass": "base",
        "Pieces": "pieces",
        "Pipeline": "pipeline",
        "Place": "place",
        "Relay": "relay",
        "Roles": "roles",
        "Synchronise": "synchronise",
        "Waits": "waits",
        "after_each": "base",
    },
)
