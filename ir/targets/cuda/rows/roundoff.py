"""How the tensor cores add up products, as published measurements and our own found it.

Data only. Products of one instruction are aligned to the largest exponent among them and the
accumulator, and truncated: a bit or two below f32's last for 16-bit operands and tf32, to 14 bits
for bytes on Hopper (docs/checking.md has the sources).
"""

from __future__ import annotations

from ir.roundoff import Accumulation, Accumulations

_SIXTEEN = Accumulation(2.0**-22, 16, truncates=True)
_TF32 = Accumulation(2.0**-22, 8, truncates=True)
_BYTES = Accumulation(2.0**-13, 32, truncates=True)

ACCUMULATIONS: Accumulations = (
    (("bf16", "bf16"), _SIXTEEN),
    (("f16", "f16"), _SIXTEEN),
    (("tf32", "tf32"), _TF32),
    (("e4m3", "e4m3"), _BYTES),
    (("e5m2", "e5m2"), _BYTES),
    (("e4m3", "e5m2"), _BYTES),
)
