"""Device text of the prelude, behind that of `device`: functions of numbers, conversions, and the
order of kernels. Sections as there.
"""

TEXT = r"""
//@ tw_bits
TW_INLINE u32 tw_bits(f32 value) { return (u32)__float_as_int(value); }
//@ tw_exp2
TW_INLINE f32 tw_exp2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_log2
TW_INLINE f32 tw_log2(f32 x) {
  f32 y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_reciprocal
TW_INLINE f32 tw_reciprocal(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_rsqrt
TW_INLINE f32 tw_rsqrt(f32 x) {
  f32 y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_sqrt
TW_INLINE f32 tw_sqrt(f32 x) {
  f32 y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_root
// Within a unit in the last place, without a branch.
TW_INLINE f32 tw_root(f32 x) {
  f32 y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ tw_quotient
// Within two units in the last place, without a branch.
TW_INLINE f32 tw_quotient(f32 x, f32 y) {
  f32 z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
//@ tw_divide
// To nearest. The compiler's own division takes its slow road wherever the dividend is 0.
TW_INLINE f32 tw_divide(f32 x, f32 y) {
  const f32 size = fabsf(x), by = fabsf(y);
  if (by > 1e-15f && by < 1e15f && size < 1e15f && (size > 1e-15f || size == 0.0f)) {
    f32 inverse = tw_reciprocal(y);
    inverse = fmaf(inverse, fmaf(-y, inverse, 1.0f), inverse);
    const f32 near = x * inverse;
    return size == 0.0f ? near : fmaf(fmaf(-y, near, x), inverse, near);
  }
  return x / y;
}
//@ tw_sigmoid
TW_INLINE f32 tw_sigmoid(f32 x) { return tw_reciprocal(1.0f + tw_exp2(-1.4426950408889634f * x)); }
//@ tw_tanh
// 1 - 2 / (e^2x + 1), by its odd series near 0 where the difference cancels.
TW_INLINE f32 tw_tanh(f32 x) {
  f32 square = x * x;
  f32 series = x * (1.0f + square * (-0.33333333f + square * (0.13333333f - square * 0.053968254f)));
  f32 whole = 1.0f - 2.0f * tw_reciprocal(tw_exp2(2.8853900817779268f * x) + 1.0f);
  return square < 0.04f ? series : whole;
}
//@ tw_turned
// Less whole turns, of which there are more than f32 multiplies exactly: right up to 1e15, and some
// number of the range beyond. Infinity becomes NaN.
TW_INLINE f32 tw_turned(f32 x) {
  const f64 turns = rint((f64)x * 0.15915494309189535);
  x = (f32)fma(-turns, 2.4492935982947064e-16, fma(-turns, 6.283185307179586, (f64)x));
  return fabsf(x) < 8.0f ? x : x * 0.0f;
}
//@ tw_wave
// sin(x + quarters pi/2): the nearest multiple of pi/2 apart, of the rest a series.
TW_INLINE f32 tw_wave(f32 x, i32 quarters) {
  if (fabsf(x) > 1e5f) x = tw_turned(x);
  const f32 moved = fmaf(x, 0.63661977f, 12582912.0f), count = moved - 12582912.0f;
  const f32 rest = fmaf(-count, -4.3711388e-8f, fmaf(-count, 1.5707964f, x)), square = rest * rest;
  const i32 turn = (i32)tw_bits(moved) + quarters;
  f32 sine = fmaf(square, -1.9515296e-4f, 8.3321609e-3f);
  sine = fmaf(square * rest, fmaf(square, sine, -1.6666655e-1f), rest);
  f32 cosine = fmaf(square, 2.4433157e-5f, -1.3887316e-3f);
  cosine = fmaf(square, fmaf(square, fmaf(square, cosine, 4.1666646e-2f), -0.5f), 1.0f);
  const f32 found = turn & 1 ? cosine : sine;
  return turn & 2 ? -found : found;
}
//@ tw_sin
TW_INLINE f32 tw_sin(f32 x) { return tw_wave(x, 0); }
//@ tw_cos
TW_INLINE f32 tw_cos(f32 x) { return tw_wave(x, 1); }
//@ tw_near_turn
// What is left of x beside the nearest whole turn.
TW_INLINE f32 tw_near_turn(f32 x) {
  if (fabsf(x) > 1e5f) x = tw_turned(x);
  const f32 count = fmaf(x, 0.15915494f, 12582912.0f) - 12582912.0f;
  return fmaf(-count, -1.7484555e-7f, fmaf(-count, 6.2831855f, x));
}
//@ tw_sin_coarse
// Off by 2^-20.
TW_INLINE f32 tw_sin_coarse(f32 x) {
  f32 y;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(tw_near_turn(x)));
  return y;
}
//@ tw_cos_coarse
TW_INLINE f32 tw_cos_coarse(f32 x) {
  f32 y;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(tw_near_turn(x)));
  return y;
}
//@ tw_erf
TW_INLINE f32 tw_erf(f32 x) { return erff(x); }
//@ tw_least
// The smaller one; NaN if either is.
TW_INLINE f32 tw_least(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
  f32 y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a < b || a != a ? a : b;
#endif
}
TW_INLINE f64 tw_least(f64 a, f64 b) { return a < b || a != a ? a : b; }
//@ tw_most
// The larger one; NaN if either is.
TW_INLINE f32 tw_most(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
  f32 y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a > b || a != a ? a : b;
#endif
}
TW_INLINE f64 tw_most(f64 a, f64 b) { return a > b || a != a ? a : b; }
//@ tw_whole
// On the way to 0 to the nearest whole number that there is; 0 of NaN.
TW_INLINE i32 tw_whole(f32 x) { return x == x ? __float2int_rz(x) : 0; }
TW_INLINE i32 tw_whole(f64 x) { return x == x ? __double2int_rz(x) : 0; }
//@ tw_whole_64
TW_INLINE i64 tw_whole_64(f32 x) { return x == x ? __float2ll_rz(x) : 0; }
TW_INLINE i64 tw_whole_64(f64 x) { return x == x ? __double2ll_rz(x) : 0; }
//@ tw_mod
// The remainder with the divisor's sign; 0 where that is 0.
TW_INLINE i32 tw_mod(i32 x, i32 y) {
  if (y == 0 || y == -1) return 0;
  i32 r = x % y;
  return r != 0 && (r ^ y) < 0 ? r + y : r;
}
TW_INLINE i64 tw_mod(i64 x, i64 y) {
  if (y == 0 || y == -1) return 0;
  i64 r = x % y;
  return r != 0 && (r ^ y) < 0 ? r + y : r;
}
//@ tw_floordiv
// The quotient rounded down; 0 where the divisor is 0.
TW_INLINE i32 tw_floordiv(i32 x, i32 y) {
  if (y == 0) return 0;
  if (y == -1) return (i32)(0u - (u32)x);
  i32 r = x % y;
  return x / y - (r != 0 && (r ^ y) < 0 ? 1 : 0);
}
TW_INLINE i64 tw_floordiv(i64 x, i64 y) {
  if (y == 0) return 0;
  if (y == -1) return (i64)(0ull - (u64)x);
  i64 r = x % y;
  return x / y - (r != 0 && (r ^ y) < 0 ? 1 : 0);
}
//@ tw_shl
// No bit is left where the amount is not below the width.
TW_INLINE i32 tw_shl(i32 x, i32 n) { return (u32)n < 32u ? (i32)((u32)x << n) : 0; }
TW_INLINE i64 tw_shl(i64 x, i64 n) { return (u64)n < 64ull ? (i64)((u64)x << n) : 0; }
//@ tw_shr
TW_INLINE i32 tw_shr(i32 x, i32 n) { return x >> ((u32)n < 32u ? n : 31); }
TW_INLINE i64 tw_shr(i64 x, i64 n) { return x >> ((u64)n < 64ull ? n : 63); }
//@ tw_popcount
TW_INLINE i32 tw_popcount(i32 x) { return __popc((u32)x); }
TW_INLINE i64 tw_popcount(i64 x) { return __popcll((u64)x); }
//@ tw_factor
// A factor of whole numbers that is made of others. NVRTC 13 (13.5 for one) makes sums of
// products of narrow numbers one dot product of bytes or halves, and takes the whole byte for a
// number that was a part of it with its sign spread: (x << 30) >> 30 is x to it.
TW_INLINE i32 tw_factor(i32 x) {
  asm("" : "+r"(x));
  return x;
}
//@ tw_inside
// An index moved into a table of `count` entries.
TW_INLINE i32 tw_inside(i32 i, i32 count) { return i < 0 ? 0 : i < count ? i : count - 1; }
TW_INLINE i32 tw_inside(i64 i, i32 count) { return i < 0 ? 0 : i < count ? (i32)i : count - 1; }
//@ tw_wide
// The whole product. Left to the compiler, a factor from 2^31 on costs another addition.
TW_INLINE u64 tw_wide(u32 x, u32 y) {
  u64 product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(x), "r"(y));
  return product;
}
//@ tw_philox
// Philox 4x32-10: word `word` of the block at (counter, stream) under the key `seed`. A compiler
// that knows by how much counters differ keeps a sum of its own for each of them.
TW_INLINE i64 tw_philox(i64 counter, i64 stream, i64 seed, i64 word) {
  counter = tw_any(counter);
  u32 a = (u32)counter, b = (u32)((u64)counter >> 32);
  u32 c = (u32)stream, d = (u32)((u64)stream >> 32);
  u32 k = (u32)seed, l = (u32)((u64)seed >> 32);
  for (i32 round = 0; round < 10; round++) {
    const u64 low = tw_wide(a, 0xd2511f53u), high = tw_wide(c, 0xcd9e8d57u);
    a = (u32)(high >> 32) ^ b ^ k;
    b = (u32)high;
    c = (u32)(low >> 32) ^ d ^ l;
    d = (u32)low;
    k += 0x9e3779b9u;
    l += 0xbb67ae85u;
  }
  return (i64)(word & 2 ? word & 1 ? d : c : word & 1 ? b : a);
}
//@ tw_unit
// The upper 24 bits of a word of 32 as a number of [0, 1).
TW_INLINE f32 tw_unit(i64 word) { return (f32)((u32)word >> 8) * 5.9604644775390625e-8f; }
//@ tw_bits_64
TW_INLINE u64 tw_bits_64(f64 value) { return (u64)__double_as_longlong(value); }
//@ tw_float_64
TW_INLINE f64 tw_float_64(u64 bits) { return __longlong_as_double((i64)bits); }
//@ tw_gelu
// x * (1 + erf(x / sqrt 2)) / 2 as max(x, 0) - |x| * 2^p(|x|), where 2^p fits the normal tail. Its
// error is 3.4e-7 at most, and 3.3e-4 of it down to -6: less than that of the formula in f32. The
// maximum as (x + |x|) / 2 is NaN at -inf, as the formula is.
TW_INLINE f32 tw_gelu(f32 x) {
  f32 a = tw_least(fabsf(x), 13.0f);
  f32 p = fmaf(a, 3.0726471e-5f, -7.3611835e-4f);
  p = fmaf(a, p, 7.9328874e-3f);
  p = fmaf(a, p, -0.053127754f);
  p = fmaf(a, p, -0.45901668f);
  p = fmaf(a, p, -1.1511174f);
  p = fmaf(a, p, -1.0f);
  return fmaf(-a, tw_exp2(p), fmaf(0.5f, fabsf(x), 0.5f * x));
}
//@ tw_within_f16
// Infinite from half a step above the largest number on.
TW_INLINE f32 tw_within_f16(f32 x) { return fabsf(x) >= 65520.0f ? x * TW_INF : x; }
//@ tw_within_e4m3
TW_INLINE f32 tw_within_e4m3(f32 x) { return tw_least(tw_most(x, -448.0f), 448.0f); }
//@ tw_from_bf16
TW_INLINE f32 tw_from_bf16(u32 bits) { return __int_as_float((i32)(bits << 16)); }
//@ tw_from_f16
TW_INLINE f32 tw_from_f16(u32 bits) {
  f32 v;
  asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(v) : "r"(bits));
  return v;
}
//@ tw_from_e4m3
TW_INLINE f32 tw_from_e4m3(u32 bits) {
  u32 pair;
  asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.rn.f16x2.e4m3x2 %0, h;\n}" : "=r"(pair) : "r"(bits & 0xffu));
  return tw_from_f16(pair & 0xffffu);
}
//@ tw_pair_e4m3
// Two numbers of e4m3, in the low half of a word, as two of f16.
TW_INLINE u32 tw_pair_e4m3(u32 bits) {
  u32 pair;
  asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.rn.f16x2.e4m3x2 %0, h;\n}" : "=r"(pair) : "r"(bits));
  return pair;
}
//@ tw_high_f16
TW_INLINE f32 tw_high_f16(u32 pair) {
  f32 v;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(v) : "r"(pair));
  return v;
}
//@ tw_apart
// The two bytes in the low half of a word, each below the high byte of a half of `start`.
TW_INLINE u32 tw_apart(u32 bytes, u32 start) { return __byte_perm(bytes, start, 0x5150u); }
//@ tw_kept
// A constant that stays in its register: as far as the compiler knows, a bit of it may be set.
TW_INLINE u32 tw_kept(u32 value) {
  u32 processor;
  asm("mov.u32 %0, %%smid;" : "=r"(processor));
  return value | processor >> 31;
}
//@ tw_fields
// Bits of `mask` of x from the bits `low` and `high` on, in the halves of a word: so far apart that
// x moved from one to the other does not meet itself.
TW_INLINE u32 tw_fields(u32 x, i32 low, i32 high, u32 mask) {
  return (x * (1u + (1u << (16 - high + low))) >> low) & mask * 0x10001u;
}
//@ tw_to_e4m3
TW_INLINE u32 tw_to_e4m3(f32 value) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return pair & 0xffu;
}
//@ tw_pack_e4m3
TW_INLINE u32 tw_pack_e4m3(f32 a, f32 b, f32 c, f32 d) {
  u32 word;
  asm("{\n.reg .b16 l, h;\ncvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\nmov.b32 %0, {l, h};\n}"
      : "=r"(word) : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}
//@ tw_to_tf32
TW_INLINE u32 tw_to_tf32(f32 value) {
  u32 v;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "f"(value));
  return v;
}
//@ tw_word
// The bits of a 32-bit value.
TW_INLINE u32 tw_word(f32 value) { return (u32)__float_as_int(value); }
TW_INLINE u32 tw_word(i32 value) { return (u32)value; }
//@ tw_float
TW_INLINE f32 tw_float(u32 bits) { return __int_as_float((i32)bits); }
//@ tw_split_bf16
// Two numbers as sums of three of 8 bits each: what one is off by goes to the next.
TW_INLINE void tw_split_bf16(f32 a, f32 b, u32& first, u32& second, u32& third) {
  first = tw_pack_bf16(a, b);
  const f32 a_left = a - tw_float(first << 16), b_left = b - tw_float(first & 0xffff0000u);
  second = tw_pack_bf16(a_left, b_left);
  third = tw_pack_bf16(a_left - tw_float(second << 16), b_left - tw_float(second & 0xffff0000u));
}
//@ tw_log
// Within two units in the last place, those of numbers near 1 as well, and no more than 0 of what is
// no more than 1: the power of two apart, of the rest x - x^2 / 2 and a series.
TW_INLINE f32 tw_log(f32 x) {
  const i32 bits = (i32)tw_bits(x), power = (bits - 0x3f2aaaab) & (i32)0xff800000;
  const f32 rest = tw_float((u32)(bits - power)) - 1.0f;
  f32 series = fmaf(rest, -0.12891601f, 0.13984467f);
  series = fmaf(rest, fmaf(rest, series, -0.12184278f), 0.14005862f);
  series = fmaf(rest, fmaf(rest, series, -0.16680487f), 0.20010406f);
  series = fmaf(rest, fmaf(rest, series, -0.24999797f), 0.33333215f);
  series = fmaf(rest * rest, fmaf(rest, series, -0.5f), rest);
  const f32 found = fmaf((f32)power * 1.1920929e-7f, 0.69314718f, series);
  return x >= 1.1754944e-38f && x < tw_float(0x7f800000u) ? found : tw_log2(x) * 0.69314718f;
}
//@ tw_grid_wait
TW_INLINE void tw_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
//@ tw_grid_launch
TW_INLINE void tw_grid_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
//@ tw_claim
// The number that stands there, which is the caller's own; the next one gets one more.
TW_INLINE i32 tw_claim(i32* address) { return atomicAdd(address, 1); }
//@ tw_combine_sum_i32
// Combinations with what is in memory, each atomic; the order shows in sums of floats alone.
TW_INLINE void tw_combine_sum_i32(i32* address, i32 v) { atomicAdd(address, v); }
//@ tw_combine_sum_i64
TW_INLINE void tw_combine_sum_i64(i64* address, i64 v) { atomicAdd((unsigned long long*)address, (unsigned long long)v); }
//@ tw_combine_sum_f32
TW_INLINE void tw_combine_sum_f32(f32* address, f32 v) { atomicAdd(address, v); }
//@ tw_combine_sum_f64
TW_INLINE void tw_combine_sum_f64(f64* address, f64 v) { atomicAdd(address, v); }
//@ tw_combine_max_i32
TW_INLINE void tw_combine_max_i32(i32* address, i32 v) { atomicMax(address, v); }
//@ tw_combine_min_i32
TW_INLINE void tw_combine_min_i32(i32* address, i32 v) { atomicMin(address, v); }
//@ tw_combine_max_i64
TW_INLINE void tw_combine_max_i64(i64* address, i64 v) { atomicMax((long long*)address, (long long)v); }
//@ tw_combine_min_i64
TW_INLINE void tw_combine_min_i64(i64* address, i64 v) { atomicMin((long long*)address, (long long)v); }
//@ tw_combine_max_f32
// By the order of the bits, as whole numbers, in which -0 is below 0; NaN stays.
TW_INLINE void tw_combine_max_f32(f32* address, f32 v) {
  u32 bits = v == v ? tw_bits(v) : 0x7fc00000u;
  if ((i32)bits >= 0)
    atomicMax((i32*)address, (i32)bits);
  else
    atomicMin((u32*)address, bits);
}
//@ tw_combine_max_f64
TW_INLINE void tw_combine_max_f64(f64* address, f64 v) {
  u64 bits = v == v ? tw_bits_64(v) : 0x7ff8000000000000ull;
  if ((i64)bits >= 0)
    atomicMax((long long*)address, (long long)bits);
  else
    atomicMin((unsigned long long*)address, (unsigned long long)bits);
}
//@ tw_combine_min_f32
TW_INLINE void tw_combine_min_f32(f32* address, f32 v) {
  u32 bits = v == v ? tw_bits(v) : 0xffc00000u;
  if ((i32)bits >= 0)
    atomicMin((i32*)address, (i32)bits);
  else
    atomicMax((u32*)address, bits);
}
//@ tw_combine_min_f64
TW_INLINE void tw_combine_min_f64(f64* address, f64 v) {
  u64 bits = v == v ? tw_bits_64(v) : 0xfff8000000000000ull;
  if ((i64)bits >= 0)
    atomicMin((long long*)address, (long long)bits);
  else
    atomicMax((unsigned long long*)address, (unsigned long long)bits);
}
//@ tw_combine_or_bool
TW_INLINE void tw_combine_or_bool(u8* address, u8 v) {
  if (v) *(volatile u8*)address = 1;
}
"""
