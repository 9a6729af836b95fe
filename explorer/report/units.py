"""Times and rates as a page shows them: one unit for everything that is compared."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit in which `seconds` is a number of handy size."""

    scale: float
    name: str

    @classmethod
    def for_seconds(cls, seconds: float) -> TimeUnit:
        for scale, name in _UNITS:
            if seconds >= scale:
                return cls(scale, name)
        return cls(*_UNITS[-1])

    def number(self, seconds: float) -> str:
        """Four significant digits."""
        return f"{seconds / self.scale:.4g}"

    def short(self, seconds: float) -> str:
        """For the ticks of an axis."""
        return f"{seconds / self.scale:g}"

    def text(self, seconds: float) -> str:
        return f"{self.number(seconds)} {self.name}"


def rate(each_second: float, what: str = "FLOP") -> str:
    """Operations (or what else is counted) a second, in the unit that fits."""
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if each_second >= scale:
            return f"{each_second / scale:.4g} {prefix}{what}/s"
    return f"{each_second:.4g} {what}/s"
