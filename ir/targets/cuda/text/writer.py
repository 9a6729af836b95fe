"""Lines of C++ with indentation, and names that no two things share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects the body of one kernel."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.pointed: set[str] = set()  # tensors that are read or written through their pointers
        self._used: Counter[str] = Counter()

    def reserve(self, *names: str) -> None:
        """Names that are taken already."""
        self._used.update(names)

    def pointer(self, tensor: str) -> str:
        """The name of a tensor's first element, which the kernel then takes as a parameter."""
        self.pointed.add(tensor)
        return tensor

    def line(self, text: str = "") -> None:
        self.lines.append("  " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head {` ... `}`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, variable: str, count: int) -> Iterator[None]:
        self.line("#pragma unroll")
        with self.block(f"for (i32 {variable} = 0; {variable} < {count}; {variable}++)"):
            yield

    def name(self, stem: str) -> str:
        """A name that was not given before: `stem`, `stem_2`, ..."""
        self._used[stem] += 1
        number = self._used[stem]
        return stem if number == 1 else f"{stem}_{number}"

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
