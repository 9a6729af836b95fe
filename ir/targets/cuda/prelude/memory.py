"""The device text of the prelude that reads and writes memory: shared, of a cluster, global; and what
lanes give each other. Facts of PTX ISA 9.0.
"""

TEXT = r"""
//@ tw_load_shared_16
TW_INLINE tw_vec16 tw_load_shared_16(u32 address) {
  tw_vec16 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "r"(address) : "memory");
  return v;
}
//@ tw_load_cluster_16
// From the same place in the shared memory of cluster CTA `rank`.
TW_INLINE tw_vec16 tw_load_cluster_16(u32 address, u32 rank) {
  tw_vec16 v;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [there];\n}"
      : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "r"(address), "r"(rank) : "memory");
  return v;
}
//@ tw_load_cluster_4
// From the same place in the shared memory of cluster CTA `rank`.
TW_INLINE u32 tw_load_cluster_4(u32 address, u32 rank) {
  u32 v;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.b32 %0, [there];\n}"
      : "=r"(v) : "r"(address), "r"(rank) : "memory");
  return v;
}
//@ tw_load_shared_4
TW_INLINE u32 tw_load_shared_4(u32 address) {
  u32 v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
//@ tw_load_shared_8
TW_INLINE tw_vec8 tw_load_shared_8(u32 address) {
  tw_vec8 v;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "r"(address) : "memory");
  return v;
}
//@ tw_load_shared_2
TW_INLINE u32 tw_load_shared_2(u32 address) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}
//@ tw_load_shared_1
TW_INLINE u32 tw_load_shared_1(u32 address) {
  u32 v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
//@ tw_store_shared_16
TW_INLINE void tw_store_shared_16(u32 address, tw_vec16 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
               "r"(v.w[3]) : "memory");
}
//@ tw_store_shared_8
TW_INLINE void tw_store_shared_8(u32 address, u32 a, u32 b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}
//@ tw_store_shared_4
TW_INLINE void tw_store_shared_4(u32 address, u32 v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
//@ tw_store_shared_2
TW_INLINE void tw_store_shared_2(u32 address, u32 v) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"((u16)v) : "memory");
}
//@ tw_store_shared_1
TW_INLINE void tw_store_shared_1(u32 address, u32 v) {
  asm volatile("st.shared.b8 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
//@ tw_index
// An index that is only known under a condition, opaque to the compiler. It would multiply it by the
// stride under that condition and take 0 elsewhere, and ptxas 13.0 reads such a product before its 0
// is there (CS2R, then a predicated IMAD.WIDE, for sm_90): addresses are off, now and then.
TW_INLINE i64 tw_index(i32 value) {
  asm("" : "+r"(value));
  return value;
}
TW_INLINE i64 tw_index(i64 value) {
  asm("" : "+l"(value));
  return value;
}
//@ tw_prefetch
// Asks the L2 cache, where all writes meet, for the line of `address`.
TW_INLINE void tw_prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
//@ tw_load_16
TW_INLINE tw_vec16 tw_load_16(const void* address) {
  tw_vec16 v;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(address));
  return v;
}
//@ tw_load_16_stream
// Read once: kept out of L1.
TW_INLINE tw_vec16 tw_load_16_stream(const void* address) {
  tw_vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(address));
  return v;
}
//@ tw_read_16
// As ordinary memory: what nobody uses is not read.
TW_INLINE tw_vec16 tw_read_16(const void* address) { return *(const tw_vec16*)address; }
//@ tw_read_8
TW_INLINE tw_vec8 tw_read_8(const void* address) { return *(const tw_vec8*)address; }
//@ tw_read_4
TW_INLINE u32 tw_read_4(const void* address) { return *(const u32*)address; }
//@ tw_load_8
TW_INLINE tw_vec8 tw_load_8(const void* address) {
  tw_vec8 v;
  asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(address));
  return v;
}
//@ tw_load_8_stream
TW_INLINE tw_vec8 tw_load_8_stream(const void* address) {
  tw_vec8 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(address));
  return v;
}
//@ tw_load_4
TW_INLINE u32 tw_load_4(const void* address) {
  u32 v;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
//@ tw_load_4_stream
TW_INLINE u32 tw_load_4_stream(const void* address) {
  u32 v;
  asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
//@ tw_load_2
TW_INLINE u32 tw_load_2(const void* address) { return *(const u16*)address; }
//@ tw_load_2_stream
TW_INLINE u32 tw_load_2_stream(const void* address) { return *(const u16*)address; }
//@ tw_load_1
TW_INLINE u32 tw_load_1(const void* address) { return *(const u8*)address; }
//@ tw_load_1_stream
TW_INLINE u32 tw_load_1_stream(const void* address) { return *(const u8*)address; }
//@ tw_store_16
TW_INLINE void tw_store_16(void* address, tw_vec16 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
               "r"(v.w[3]) : "memory");
}
//@ tw_store_16_stream
// Written and not read soon: the first to leave L2.
TW_INLINE void tw_store_16_stream(void* address, tw_vec16 v) {
  asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
               "r"(v.w[3]) : "memory");
}
//@ tw_store_8
TW_INLINE void tw_store_8(void* address, u32 a, u32 b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(a), "r"(b) : "memory");
}
//@ tw_store_8_stream
TW_INLINE void tw_store_8_stream(void* address, u32 a, u32 b) {
  asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(a), "r"(b) : "memory");
}
//@ tw_store_4
TW_INLINE void tw_store_4(void* address, u32 v) { *(u32*)address = v; }
//@ tw_store_4_stream
TW_INLINE void tw_store_4_stream(void* address, u32 v) {
  asm volatile("st.global.cs.b32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
//@ tw_store_2
TW_INLINE void tw_store_2(void* address, u32 v) { *(u16*)address = (u16)v; }
//@ tw_store_2_stream
TW_INLINE void tw_store_2_stream(void* address, u32 v) { *(u16*)address = (u16)v; }
//@ tw_store_1
TW_INLINE void tw_store_1(void* address, u32 v) { *(u8*)address = (u8)v; }
//@ tw_store_1_stream
TW_INLINE void tw_store_1_stream(void* address, u32 v) { *(u8*)address = (u8)v; }
//@ tw_add_f32
TW_INLINE void tw_add_f32(void* address, f32 v) { atomicAdd((f32*)address, v); }
//@ tw_count
TW_INLINE u32 tw_count(u32* address) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(address) : "memory");
  return before;
}
//@ tw_await
// Until the count is at least `least`; what its writers did before is visible then.
TW_INLINE void tw_await(const u32* address, u32 least) {
  u32 found;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(address) : "memory");
  } while (found < least);
}
//@ tw_publish
TW_INLINE void tw_publish(u32* address, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
//@ tw_add_16
// Adds four values to memory, each atomically.
TW_INLINE void tw_add_16(f32* address, f32 a, f32 b, f32 c, f32 d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(a), "f"(b), "f"(c),
               "f"(d) : "memory");
}
TW_INLINE void tw_add_16(i32* address, i32 a, i32 b, i32 c, i32 d) {
  i32 v[4] = {a, b, c, d};
#pragma unroll
  for (int i = 0; i < 4; i++)
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(address + i), "r"(v[i]) : "memory");
}
//@ tw_lane_i64
// What another lane has.
TW_INLINE i64 tw_lane_i64(i64 value, i32 lane) { return __shfl_sync(0xffffffffu, value, lane); }
//@ tw_shuffle_f32
TW_INLINE f32 tw_shuffle_f32(f32 value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
//@ tw_shuffle_f64
TW_INLINE f64 tw_shuffle_f64(f64 value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
//@ tw_shuffle_i32
TW_INLINE i32 tw_shuffle_i32(i32 value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
//@ tw_shuffle_i64
TW_INLINE i64 tw_shuffle_i64(i64 value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
"""
