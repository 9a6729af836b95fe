"""Text of the prelude that the device and the host share: narrow floats by integer arithmetic.

Formats without an instruction on the machines that this target knows. Sections as in `device`.
"""

TEXT = r"""
//@ tw_from_e5m2
TW_INLINE f32 tw_from_e5m2(u32 bits) { return tw_from_f16((bits & 0xffu) << 8); }
//@ tw_to_e5m2
// Below the normal numbers an addition rounds to a multiple of the smallest.
TW_INLINE u32 tw_to_e5m2(f32 value) {
  u32 bits = tw_bits(value), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (size > 0x7f800000u) return sign | 0x7eu;
  if (size >= 0x47800000u) return sign | 0x7cu;
  if (size < 0x38800000u) return sign | (tw_bits(tw_float(size) + 128.0f) - 0x43000000u);
  return sign | (size - 0x38000000u + 0xfffffu + (size >> 21 & 1u)) >> 21;
}
//@ tw_from_e2m1
// The lowest three bits as those of an f32, 2^126 times too small.
TW_INLINE f32 tw_from_e2m1(u32 bits) {
  return tw_float((bits & 7u) << 22 | (bits & 8u) << 28) * 8.5070591730234616e37f;
}
//@ tw_coded
// The lowest bits of a code as those of an f32, times what that is too small; the next is its sign,
// which 0 has not.
TW_INLINE f32 tw_coded(u32 code, i32 size, i32 up, f32 scale) {
  u32 sign = (code >> size) << 31, low = (code & ((1u << size) - 1u)) << up;
  return fmaf(tw_float(sign | low), scale, 0.0f);
}
//@ tw_to_e2m1
// 8388608 and more rounds to a whole number, whose lowest bits are the code: of twice the size, of
// the size and 2, or of half of it and 4, whichever is least. Half way the even pattern is taken; 7
// stands for what is larger and for NaN.
TW_INLINE u32 tw_to_e2m1(f32 value) {
  const f32 size = fabsf(value);
  const f32 least = fminf(fminf(fmaf(size, 2.0f, 8388608.0f), size + 8388610.0f), 8388615.0f);
  const u32 code = tw_bits(fminf(least, fmaf(size, 0.5f, 8388612.0f))) & 7u;
  return code | (size == size ? tw_bits(value) >> 28 & 8u : 0u);
}
//@ tw_from_e8m0
// The exponent of an f32; the least is half a step of it, the last is NaN.
TW_INLINE f32 tw_from_e8m0(u32 bits) {
  bits &= 0xffu;
  return tw_float(bits << 23 | (((bits + 1u) & 0xffu) <= 1u ? 0x400000u : 0u));
}
//@ tw_to_e8m0
// To nearest, ties to an even exponent; what is below the least power becomes that.
TW_INLINE u32 tw_to_e8m0(f32 value) {
  u32 bits = tw_bits(value), size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return 255u;
  if (bits >> 31) return 0u;
  if (size < 0x800000u) return size > 0x600000u;
  u32 found = (size + 0x3fffffu + (size >> 23 & 1u)) >> 23;
  return found < 254u ? found : 254u;
}
"""
