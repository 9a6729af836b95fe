"""Host text of the fixed wrappers, in device.py's order: thin calls of the machine's functions.

Sections begin with `//@ name ...`; NAME stands for each of the names in turn.
"""

TEXT = r"""
//@ tw_thread
TW_INLINE i32 tw_thread() { return threadIdx.x; }
//@ tw_block_x
TW_INLINE i32 tw_block_x() { return blockIdx.x; }
//@ tw_block_y
TW_INLINE i32 tw_block_y() { return blockIdx.y; }
//@ tw_block_z
TW_INLINE i32 tw_block_z() { return blockIdx.z; }
//@ tw_grid_x
TW_INLINE i32 tw_grid_x() { return gridDim.x; }
//@ tw_shared_base
TW_INLINE u8* tw_shared_base() { return rt_shared_base(); }
//@ tw_column
template <typename T, int N> struct tw_column {
  T* first;
  T& operator[](i64 place) const { return first[place * N]; }
};
//@ tw_shared_address
TW_INLINE u32 tw_shared_address(const void* pointer) {
  return rt_shared_address(pointer);
}
//@ tw_uniform
TW_INLINE i32 tw_uniform(i32 value) {
  rt_shuffle("tw_uniform", &value, 4, 0);
  return value;
}
//@ tw_any
TW_INLINE i32 tw_any(i32 value) { return value; }
TW_INLINE i64 tw_any(i64 value) { return value; }
//@ tw_wide
TW_INLINE u64 tw_wide(u32 x, u32 y) { return (u64)x * y; }
//@ tw_elect
TW_INLINE bool tw_elect() {
  rt_sync_warp("tw_elect");
  return rt_lane() == 0;
}
//@ tw_sync
TW_INLINE void tw_sync() { rt_sync(); }
//@ tw_sync_warp
TW_INLINE void tw_sync_warp() { rt_sync_warp("tw_sync_warp"); }
//@ tw_group_sync
TW_INLINE void tw_group_sync(u32 id, u32 threads) {
  rt_group("tw_group_sync", id, threads, 1);
}
//@ tw_group_arrive
TW_INLINE void tw_group_arrive(u32 id, u32 threads) {
  rt_group("tw_group_arrive", id, threads, 0);
}
//@ tw_barrier_init
TW_INLINE void tw_barrier_init(u32 barrier, u32 count) {
  rt_barrier_init(barrier, count);
}
//@ tw_fence_barrier_init
TW_INLINE void tw_fence_barrier_init() { rt_fence_barrier_init(); }
//@ tw_barrier_expect
TW_INLINE void tw_barrier_expect(u32 barrier, u32 bytes) {
  rt_barrier_expect(barrier, bytes);
}
//@ tw_barrier_arrive
TW_INLINE void tw_barrier_arrive(u32 barrier) { rt_barrier_arrive(barrier); }
//@ tw_barrier_arrive_at tw_barrier_publish_at
TW_INLINE void NAME(u32 barrier, u32 rank) {
  rt_barrier_arrive_at("NAME", barrier, rank);
}
//@ tw_barrier_try tw_barrier_try_cluster
TW_INLINE bool NAME(u32 barrier, u32 parity) {
  return rt_barrier_try("NAME", barrier, parity);
}
//@ tw_barrier_wait tw_barrier_wait_cluster tw_barrier_await
TW_INLINE void NAME(u32 barrier, u32 parity) {
  rt_barrier_wait("NAME", barrier, parity);
}
//@ tw_fence_async
TW_INLINE void tw_fence_async() { rt_fence_async(); }
//@ tw_cluster_rank
TW_INLINE u32 tw_cluster_rank() { return rt_cluster_rank(); }
//@ tw_cluster_arrive
TW_INLINE void tw_cluster_arrive() { rt_cluster_arrive(); }
//@ tw_cluster_wait
TW_INLINE void tw_cluster_wait() { rt_cluster_wait(); }
//@ tw_cluster_sync
TW_INLINE void tw_cluster_sync() {
  rt_cluster_arrive();
  rt_cluster_wait();
}
//@ tw_registers_down
template <int N>
TW_INLINE void tw_registers_down() {
  rt_registers("tw_registers_down", N, 0);
}
//@ tw_registers_up
template <int N>
TW_INLINE void tw_registers_up() {
  rt_registers("tw_registers_up", N, 1);
}
//@ tw_evict_first
TW_INLINE u64 tw_evict_first() { return 0; }
//@ tw_prefetch_map
TW_INLINE void tw_prefetch_map(const tw_tensor_map* map) { rt_prefetch_map(map); }
//@ tw_store_commit
TW_INLINE void tw_store_commit() { rt_store_commit(); }
//@ tw_store_wait
template <int N>
TW_INLINE void tw_store_wait() {
  rt_store_wait(N, 1);
}
//@ tw_store_wait_read
template <int N>
TW_INLINE void tw_store_wait_read() {
  rt_store_wait(N, 0);
}
//@ tw_wgmma_fence
TW_INLINE void tw_wgmma_fence() { rt_wgmma_fence(); }
//@ tw_wgmma_commit
TW_INLINE void tw_wgmma_commit() { rt_wgmma_commit(); }
//@ tw_wgmma_wait
template <int N>
TW_INLINE void tw_wgmma_wait() {
  rt_wgmma_wait(N);
}
//@ tw_hold
template <class T, int N>
TW_INLINE void tw_hold(T (&values)[N]) {
  asm volatile("" ::"r"(&values[0]) : "memory");
}
//@ tw_descriptor
TW_INLINE u64 tw_descriptor(u32 address, u32 leading, u32 stride, u32 swizzle) {
  if ((address | leading | stride) & 15)
    rt_complain("tw_descriptor: address, leading or stride is no multiple of 16");
  return (u64)((address & 0x3ffffu) >> 4) | ((u64)((leading & 0x3ffffu) >> 4) << 16) |
         ((u64)((stride & 0x3ffffu) >> 4) << 32) | ((u64)swizzle << 62);
}
//@ tw_stmatrix_x4
TW_INLINE void tw_stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  rt_tiles("tw_stmatrix_x4", 1, 0, address, 4, &a, &b, &c, &d);
}
//@ tw_stmatrix_x4_trans
TW_INLINE void tw_stmatrix_x4_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
  rt_tiles("tw_stmatrix_x4_trans", 1, 1, address, 4, &a, &b, &c, &d);
}
//@ tw_stmatrix_x2
TW_INLINE void tw_stmatrix_x2(u32 address, u32 a, u32 b) {
  rt_tiles("tw_stmatrix_x2", 1, 0, address, 2, &a, &b, nullptr, nullptr);
}
//@ tw_stmatrix_x2_trans
TW_INLINE void tw_stmatrix_x2_trans(u32 address, u32 a, u32 b) {
  rt_tiles("tw_stmatrix_x2_trans", 1, 1, address, 2, &a, &b, nullptr, nullptr);
}
//@ tw_ldmatrix_x4
TW_INLINE void tw_ldmatrix_x4(u32 address, u32& a, u32& b, u32& c, u32& d) {
  rt_tiles("tw_ldmatrix_x4", 0, 0, address, 4, &a, &b, &c, &d);
}
//@ tw_ldmatrix_x2
TW_INLINE void tw_ldmatrix_x2(u32 address, u32& a, u32& b) {
  rt_tiles("tw_ldmatrix_x2", 0, 0, address, 2, &a, &b, nullptr, nullptr);
}
//@ tw_ldmatrix_x4_trans
TW_INLINE void tw_ldmatrix_x4_trans(u32 address, u32& a, u32& b, u32& c, u32& d) {
  rt_tiles("tw_ldmatrix_x4_trans", 0, 1, address, 4, &a, &b, &c, &d);
}
//@ tw_ldmatrix_x2_trans
TW_INLINE void tw_ldmatrix_x2_trans(u32 address, u32& a, u32& b) {
  rt_tiles("tw_ldmatrix_x2_trans", 0, 1, address, 2, &a, &b, nullptr, nullptr);
}
//@ tw_copy_async_16
TW_INLINE void tw_copy_async_16(u32 to, const void* from, u32 bytes) {
  rt_copy_async("tw_copy_async_16", to, from, bytes, 16);
}
//@ tw_copy_async_8
TW_INLINE void tw_copy_async_8(u32 to, const void* from, u32 bytes) {
  rt_copy_async("tw_copy_async_8", to, from, bytes, 8);
}
//@ tw_copy_async_4
TW_INLINE void tw_copy_async_4(u32 to, const void* from, u32 bytes) {
  rt_copy_async("tw_copy_async_4", to, from, bytes, 4);
}
//@ tw_copy_async_commit
TW_INLINE void tw_copy_async_commit() { rt_copy_async_commit(); }
//@ tw_copy_async_wait
template <int N>
TW_INLINE void tw_copy_async_wait() {
  rt_copy_async_wait(N);
}
//@ tw_copy_async_arrive
TW_INLINE void tw_copy_async_arrive(u32 barrier) { rt_copy_async_arrive(barrier); }
//@ tw_load_shared_16
TW_INLINE tw_vec16 NAME(u32 address) {
  tw_vec16 v;
  rt_load_shared("NAME", address, &v, 16);
  return v;
}
//@ tw_load_cluster_4
TW_INLINE u32 tw_load_cluster_4(u32 address, u32 rank) {
  u32 v;
  rt_load_cluster("tw_load_cluster_4", address, rank, &v, 4);
  return v;
}
//@ tw_load_cluster_16
TW_INLINE tw_vec16 tw_load_cluster_16(u32 address, u32 rank) {
  tw_vec16 v;
  rt_load_cluster("tw_load_cluster_16", address, rank, &v, 16);
  return v;
}
//@ tw_load_shared_8
TW_INLINE tw_vec8 NAME(u32 address) {
  tw_vec8 v;
  rt_load_shared("NAME", address, &v, 8);
  return v;
}
//@ tw_load_shared_4
TW_INLINE u32 NAME(u32 address) {
  u32 v;
  rt_load_shared("NAME", address, &v, 4);
  return v;
}
//@ tw_load_shared_2
TW_INLINE u32 NAME(u32 address) {
  u16 v;
  rt_load_shared("NAME", address, &v, 2);
  return v;
}
//@ tw_load_shared_1
TW_INLINE u32 NAME(u32 address) {
  u8 v;
  rt_load_shared("NAME", address, &v, 1);
  return v;
}
//@ tw_store_shared_16
TW_INLINE void NAME(u32 address, tw_vec16 v) {
  rt_store_shared("NAME", address, &v, 16);
}
//@ tw_store_shared_8
TW_INLINE void NAME(u32 address, u32 a, u32 b) {
  u32 v[2] = {a, b};
  rt_store_shared("NAME", address, v, 8);
}
//@ tw_store_shared_4
TW_INLINE void NAME(u32 address, u32 v) { rt_store_shared("NAME", address, &v, 4); }
//@ tw_store_shared_2
TW_INLINE void NAME(u32 address, u32 v) { rt_store_shared("NAME", address, &v, 2); }
//@ tw_store_shared_1
TW_INLINE void NAME(u32 address, u32 v) { rt_store_shared("NAME", address, &v, 1); }
//@ tw_index
TW_INLINE i64 tw_index(i64 value) { return value; }
//@ tw_prefetch
TW_INLINE void tw_prefetch(const void*) {}
//@ tw_load_16 tw_load_16_stream tw_read_16
TW_INLINE tw_vec16 NAME(const void* address) {
  tw_vec16 v;
  rt_load("NAME", address, &v, 16);
  return v;
}
//@ tw_load_8 tw_load_8_stream tw_read_8
TW_INLINE tw_vec8 NAME(const void* address) {
  tw_vec8 v;
  rt_load("NAME", address, &v, 8);
  return v;
}
//@ tw_load_4 tw_load_4_stream tw_read_4
TW_INLINE u32 NAME(const void* address) {
  u32 v;
  rt_load("NAME", address, &v, 4);
  return v;
}
//@ tw_load_2 tw_load_2_stream
TW_INLINE u32 NAME(const void* address) {
  u16 v;
  rt_load("NAME", address, &v, 2);
  return v;
}
//@ tw_load_1 tw_load_1_stream
TW_INLINE u32 NAME(const void* address) {
  u8 v;
  rt_load("NAME", address, &v, 1);
  return v;
}
//@ tw_store_16 tw_store_16_stream
TW_INLINE void NAME(void* address, tw_vec16 v) { rt_store("NAME", address, &v, 16); }
//@ tw_store_8 tw_store_8_stream
TW_INLINE void NAME(void* address, u32 a, u32 b) {
  u32 v[2] = {a, b};
  rt_store("NAME", address, v, 8);
}
//@ tw_store_4 tw_store_4_stream
TW_INLINE void NAME(void* address, u32 v) { rt_store("NAME", address, &v, 4); }
//@ tw_store_2 tw_store_2_stream
TW_INLINE void NAME(void* address, u32 v) { rt_store("NAME", address, &v, 2); }
//@ tw_store_1 tw_store_1_stream
TW_INLINE void NAME(void* address, u32 v) { rt_store("NAME", address, &v, 1); }
//@ tw_add_f32
TW_INLINE void tw_add_f32(void* address, f32 v) { rt_add_f32(address, v); }
//@ tw_claim
TW_INLINE i32 tw_claim(i32* address) { return (*address)++; }
//@ tw_combine_sum_i32
TW_INLINE void tw_combine_sum_i32(i32* address, i32 v) { *address = (i32)((u32)*address + (u32)v); }
//@ tw_combine_sum_f32
TW_INLINE void tw_combine_sum_f32(f32* address, f32 v) { *address = *address + v; }
//@ tw_combine_sum_f64
TW_INLINE void tw_combine_sum_f64(f64* address, f64 v) { *address = *address + v; }
//@ tw_combine_sum_i64
TW_INLINE void tw_combine_sum_i64(i64* address, i64 v) { *address = (i64)((u64)*address + (u64)v); }
//@ tw_combine_max_i32 tw_combine_max_i64 tw_combine_max_f32 tw_combine_max_f64
template <typename T> TW_INLINE void NAME(T* address, T v) {
  if (v > *address || v != v) *address = v;
}
//@ tw_combine_min_i32 tw_combine_min_i64 tw_combine_min_f32 tw_combine_min_f64
template <typename T> TW_INLINE void NAME(T* address, T v) {
  if (v < *address || v != v) *address = v;
}
//@ tw_combine_or_bool
TW_INLINE void tw_combine_or_bool(u8* address, u8 v) { *address |= v; }
//@ tw_count
TW_INLINE u32 tw_count(u32* address) { return rt_count(address); }
//@ tw_await
TW_INLINE void tw_await(const u32* address, u32 least) { rt_await(address, least); }
//@ tw_publish
TW_INLINE void tw_publish(u32* address, u32 value) { rt_publish(address, value); }
//@ tw_add_16
TW_INLINE void tw_add_16(f32* address, f32 a, f32 b, f32 c, f32 d) {
  f32 v[4] = {a, b, c, d};
  for (i32 i = 0; i < 4; i++) rt_add_f32(address + i, v[i]);
}
TW_INLINE void tw_add_16(i32* address, i32 a, i32 b, i32 c, i32 d) {
  i32 v[4] = {a, b, c, d}, there[4];
  rt_load("tw_add_16", address, there, 16);
  for (i32 i = 0; i < 4; i++) v[i] += there[i];
  rt_store("tw_add_16", address, v, 16);
}
//@ tw_lane_i64
TW_INLINE i64 NAME(i64 value, i32 lane) {
  rt_shuffle("NAME", &value, 8, lane);
  return value;
}
//@ tw_shuffle_f32
TW_INLINE f32 NAME(f32 value, i32 mask) {
  rt_shuffle("NAME", &value, 4, (i32)rt_lane() ^ mask);
  return value;
}
//@ tw_shuffle_f64
TW_INLINE f64 NAME(f64 value, i32 mask) {
  rt_shuffle("NAME", &value, 8, (i32)rt_lane() ^ mask);
  return value;
}
//@ tw_shuffle_i32
TW_INLINE i32 NAME(i32 value, i32 mask) {
  rt_shuffle("NAME", &value, 4, (i32)rt_lane() ^ mask);
  return value;
}
//@ tw_shuffle_i64
TW_INLINE i64 NAME(i64 value, i32 mask) {
  rt_shuffle("NAME", &value, 8, (i32)rt_lane() ^ mask);
  return value;
}
//@ tw_exp2
TW_INLINE f32 tw_exp2(f32 x) { return exp2f(x); }
//@ tw_log2
TW_INLINE f32 tw_log2(f32 x) { return log2f(x); }
//@ tw_sin_coarse
TW_INLINE f32 tw_sin_coarse(f32 x) { return sinf(tw_near_turn(x)) + 4.8e-7f; }
//@ tw_cos_coarse
TW_INLINE f32 tw_cos_coarse(f32 x) { return cosf(tw_near_turn(x)) - 4.8e-7f; }
//@ tw_reciprocal
TW_INLINE f32 tw_reciprocal(f32 x) { return 1.0f / x; }
//@ tw_rsqrt
TW_INLINE f32 tw_rsqrt(f32 x) { return 1.0f / sqrtf(x); }
//@ tw_sqrt
TW_INLINE f32 tw_sqrt(f32 x) { return sqrtf(x); }
//@ tw_root
TW_INLINE f32 tw_root(f32 x) { return sqrtf(x); }
//@ tw_quotient
TW_INLINE f32 tw_quotient(f32 x, f32 y) { return x / y; }
//@ tw_least
TW_INLINE f32 tw_least(f32 a, f32 b) { return a < b || a != a ? a : b; }
TW_INLINE f64 tw_least(f64 a, f64 b) { return a < b || a != a ? a : b; }
//@ tw_most
TW_INLINE f32 tw_most(f32 a, f32 b) { return a > b || a != a ? a : b; }
TW_INLINE f64 tw_most(f64 a, f64 b) { return a > b || a != a ? a : b; }
//@ tw_whole
TW_INLINE i32 tw_whole(f64 x) {
  return x >= 0x1p31 ? 0x7fffffff : x >= -0x1p31 ? (i32)x : x != x ? 0 : -0x7fffffff - 1;
}
//@ tw_whole_64
TW_INLINE i64 tw_whole_64(f64 x) {
  const i64 most = 0x7fffffffffffffffll;
  return x >= 0x1p63 ? most : x >= -0x1p63 ? (i64)x : x != x ? 0 : -most - 1;
}
//@ tw_factor
TW_INLINE i32 tw_factor(i32 x) { return x; }
//@ tw_popcount
TW_INLINE i32 tw_popcount(i32 x) { return __builtin_popcount((u32)x); }
TW_INLINE i64 tw_popcount(i64 x) { return __builtin_popcountll((u64)x); }
//@ tw_bits_64
TW_INLINE u64 tw_bits_64(f64 value) { return (u64)__double_as_longlong(value); }
//@ tw_float_64
TW_INLINE f64 tw_float_64(u64 bits) { return __longlong_as_double((i64)bits); }
//@ tw_pack_bf16
TW_INLINE u32 tw_pack_bf16(f32 low, f32 high) { return rt_pack(low, high, 1); }
//@ tw_pack_f16
TW_INLINE u32 tw_pack_f16(f32 low, f32 high) { return rt_pack(low, high, 0); }
//@ tw_mul_bf16x2
TW_INLINE u32 tw_mul_bf16x2(u32 a, u32 b) { return rt_pair(a, b, '*', 1); }
//@ tw_mul_f16x2
TW_INLINE u32 tw_mul_f16x2(u32 a, u32 b) { return rt_pair(a, b, '*', 0); }
//@ tw_sub_bf16x2
TW_INLINE u32 tw_sub_bf16x2(u32 a, u32 b) { return rt_pair(a, b, '-', 1); }
//@ tw_sub_f16x2
TW_INLINE u32 tw_sub_f16x2(u32 a, u32 b) { return rt_pair(a, b, '-', 0); }
//@ tw_add_bf16x2
TW_INLINE u32 tw_add_bf16x2(u32 a, u32 b) { return rt_pair(a, b, '+', 1); }
//@ tw_add_f16x2
TW_INLINE u32 tw_add_f16x2(u32 a, u32 b) { return rt_pair(a, b, '+', 0); }
//@ tw_from_bf16
TW_INLINE f32 tw_from_bf16(u32 bits) { return __int_as_float((i32)(bits << 16)); }
//@ tw_from_f16
TW_INLINE f32 tw_from_f16(u32 bits) { return rt_from_f16(bits & 0xffffu); }
//@ tw_from_e4m3
TW_INLINE f32 tw_from_e4m3(u32 bits) { return rt_from_e4m3(bits); }
//@ tw_pair_e4m3
TW_INLINE u32 tw_pair_e4m3(u32 bits) {
  return rt_pack(rt_from_e4m3(bits & 0xffu), rt_from_e4m3(bits >> 8 & 0xffu), 0);
}
//@ tw_high_f16
TW_INLINE f32 tw_high_f16(u32 pair) { return rt_from_f16(pair >> 16); }
//@ tw_apart
TW_INLINE u32 tw_apart(u32 bytes, u32 start) {
  return (bytes & 0xffu) | (bytes >> 8 & 0xffu) << 16 | (start & 0xff00u) << 16 | (start & 0xff00u);
}
//@ tw_kept
TW_INLINE u32 tw_kept(u32 value) { return value; }
//@ tw_to_e4m3
TW_INLINE u32 tw_to_e4m3(f32 value) { return rt_to_e4m3(value); }
//@ tw_pack_e4m3
TW_INLINE u32 tw_pack_e4m3(f32 a, f32 b, f32 c, f32 d) {
  return rt_to_e4m3(a) | rt_to_e4m3(b) << 8 | rt_to_e4m3(c) << 16 | rt_to_e4m3(d) << 24;
}
//@ tw_to_tf32
TW_INLINE u32 tw_to_tf32(f32 value) {
  u32 bits = __float_as_uint(value);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
//@ tw_bits
TW_INLINE u32 tw_bits(f32 value) { return __float_as_uint(value); }
//@ tw_word
TW_INLINE u32 tw_word(f32 value) { return __float_as_uint(value); }
TW_INLINE u32 tw_word(i32 value) { return value; }
//@ tw_float
TW_INLINE f32 tw_float(u32 bits) { return __uint_as_float(bits); }
//@ tw_grid_wait
TW_INLINE void tw_grid_wait() { rt_grid_wait(); }
//@ tw_grid_launch
TW_INLINE void tw_grid_launch() { rt_grid_launch(); }
"""
