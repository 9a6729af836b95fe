"""The prelude: what a kernel's text may call. `prelude_text` emits what one kernel uses."""

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.targets.cuda.prelude.text import prelude_text, sections, wrapper_names

__all__ = ["prelude_text", "sections", "wrapper_names"]

__getattr__ = exports(__name__, dict.fromkeys(__all__, "text"))
