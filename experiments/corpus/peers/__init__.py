"""What torch has for the operators of the library: for each, the calls that a user would write.

A file of this folder has peers of some families; importing this package knows them all.
"""

from __future__ import annotations

from importlib import import_module

from .plan import PEERS, Arguments, Plan, Tensors, of_numpy, outputs_of, plans

FILES = (
    "attention", "cached", "codes", "convolution", "graphs", "grids", "linear", "maps", "places",
    "products", "rows", "small",
)  # fmt: skip
for _name in FILES:
    import_module(f"{__name__}.{_name}")

__all__ = ["PEERS", "Arguments", "Plan", "Tensors", "of_numpy", "outputs_of", "plans"]
