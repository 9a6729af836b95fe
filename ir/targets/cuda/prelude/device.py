"""The device text of the prelude: every PTX instruction behind one named wrapper.

Sections begin with `//@ name`; `prelude_text` emits those that a kernel uses. Facts of PTX ISA 9.0.
"""

TEXT = r"""
//@ types
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef int i32; typedef unsigned long long u64; typedef long long i64;
typedef float f32; typedef double f64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct alignas(64) tw_tensor_map { u64 words[16]; };
struct alignas(16) tw_vec16 { u32 w[4]; };
struct alignas(8) tw_vec8 { u32 w[2]; };
#define TW_INLINE static __device__ __forceinline__
#define TW_KERNEL extern "C" __global__ void
#define TW_INF __int_as_float(0x7f800000)
#define TW_INF64 __longlong_as_double(0x7ff0000000000000ll)
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
extern __shared__ __align__(1024) u8 tw_shared_memory[];
TW_INLINE u8* tw_shared_base() { return tw_shared_memory; }
//@ tw_column
// An array of which every thread of a block has one: neighbours' elements lie side by side.
template <typename T, int N> struct tw_column {
  T* first;
  __device__ __forceinline__ T& operator[](i64 place) const { return first[place * N]; }
};
//@ tw_shared_address
TW_INLINE u32 tw_shared_address(const void* pointer) {
  return (u32)__cvta_generic_to_shared(pointer);
}
//@ tw_uniform
// The same value in all lanes, known to the compiler as uniform.
TW_INLINE i32 tw_uniform(i32 value) { return __shfl_sync(0xffffffffu, value, 0); }
//@ tw_any
// The same value, of which the compiler knows nothing. Of the counter of a short loop it knows that
// quotients and remainders fit 8 bits, and then loses what an offset carries beyond (NVRTC 13.0, 13.5).
TW_INLINE i32 tw_any(i32 value) {
  asm("" : "+r"(value));
  return value;
}
TW_INLINE i64 tw_any(i64 value) {
  asm("" : "+l"(value));
  return value;
}
//@ tw_elect
TW_INLINE bool tw_elect() {
  u32 chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}
//@ tw_sync
TW_INLINE void tw_sync() { __syncthreads(); }
//@ tw_sync_warp
TW_INLINE void tw_sync_warp() { __syncwarp(); }
//@ tw_group_sync
// Named barrier `id` (1..15) among `threads` threads.
TW_INLINE void tw_group_sync(u32 id, u32 threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
//@ tw_group_arrive
TW_INLINE void tw_group_arrive(u32 id, u32 threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
//@ tw_barrier_init
TW_INLINE void tw_barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
//@ tw_fence_barrier_init
TW_INLINE void tw_fence_barrier_init() {
#if __CUDA_ARCH__ >= 900  // where other blocks, or copies of their own, may arrive
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
//@ tw_barrier_expect
// Arrive once and expect `bytes` of asynchronous copies in this phase.
TW_INLINE void tw_barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
//@ tw_barrier_arrive
TW_INLINE void tw_barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
//@ tw_barrier_arrive_at
// Arrive at the same barrier of cluster CTA `rank`.
TW_INLINE void tw_barrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank)
      : "memory");
}
//@ tw_barrier_publish_at
// The same; who waits by tw_barrier_await sees what was written before.
TW_INLINE void tw_barrier_publish_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank)
      : "memory");
}
//@ tw_barrier_try
TW_INLINE bool tw_barrier_try(u32 barrier, u32 parity) {
  u32 done;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 0x989680;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#else
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#endif
  return done != 0;
}
//@ tw_barrier_wait
// Until the phase of `parity` is complete.
TW_INLINE void tw_barrier_wait(u32 barrier, u32 parity) {
  while (!tw_barrier_try(barrier, parity)) {}
}
//@ tw_barrier_try_cluster
TW_INLINE bool tw_barrier_try_cluster(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 0x989680;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done != 0;
}
//@ tw_barrier_wait_cluster
// The same where CTAs of the cluster arrive.
TW_INLINE void tw_barrier_wait_cluster(u32 barrier, u32 parity) {
  while (!tw_barrier_try_cluster(barrier, parity)) {}
}
//@ tw_barrier_await
// Until the phase of `parity` is complete: what CTAs of the cluster published by it is visible.
TW_INLINE void tw_barrier_await(u32 barrier, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2, 0x989680;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
//@ tw_fence_async
// Ordinary writes to shared memory become visible to TMA and wgmma.
TW_INLINE void tw_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
//@ tw_cluster_rank
TW_INLINE u32 tw_cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
//@ tw_cluster_arrive
TW_INLINE void tw_cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
//@ tw_cluster_wait
TW_INLINE void tw_cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
//@ tw_cluster_sync
TW_INLINE void tw_cluster_sync() { tw_cluster_arrive(); tw_cluster_wait(); }
//@ tw_registers_down
template <int N> TW_INLINE void tw_registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
//@ tw_registers_up
template <int N> TW_INLINE void tw_registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
//@ tw_evict_first
TW_INLINE u64 tw_evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
//@ tw_prefetch_map
TW_INLINE void tw_prefetch_map(const tw_tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
//@ tw_store_commit
TW_INLINE void tw_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
//@ tw_store_wait
// Until at most N committed bulk stores are still under way.
template <int N> TW_INLINE void tw_store_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
//@ tw_store_wait_read
// Until at most N committed bulk stores still read shared memory.
template <int N> TW_INLINE void tw_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
//@ tw_wgmma_fence
TW_INLINE void tw_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
//@ tw_wgmma_commit
TW_INLINE void tw_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
//@ tw_wgmma_wait
template <int N> TW_INLINE void tw_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
//@ tw_hold
// Keeps the compiler from moving reads of registers above this point, and writes below it.
template <int N> TW_INLINE void tw_hold(f32 (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(values[i])::"memory");
}
template <int N> TW_INLINE void tw_hold(u32 (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(values[i])::"memory");
}
template <int N> TW_INLINE void tw_hold(i32 (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(values[i])::"memory");
}
//@ tw_descriptor
// wgmma matrix descriptor: byte address, leading and stride byte offsets, swizzle code 0..3.
TW_INLINE u64 tw_descriptor(u32 address, u32 leading, u32 stride, u32 swizzle) {
  return (u64)((address & 0x3ffffu) >> 4) | ((u64)((leading & 0x3ffffu) >> 4) << 16) |
         ((u64)((stride & 0x3ffffu) >> 4) << 32) | ((u64)swizzle << 62);
}
//@ tw_stmatrix_x4
TW_INLINE void tw_stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d) : "memory");
}
//@ tw_stmatrix_x2
TW_INLINE void tw_stmatrix_x2(u32 address, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}
//@ tw_stmatrix_x4_trans
TW_INLINE void tw_stmatrix_x4_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
               "r"(b), "r"(c), "r"(d) : "memory");
}
//@ tw_stmatrix_x2_trans
TW_INLINE void tw_stmatrix_x2_trans(u32 address, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b)
               : "memory");
}
//@ tw_ldmatrix_x4
TW_INLINE void tw_ldmatrix_x4(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
//@ tw_ldmatrix_x2
TW_INLINE void tw_ldmatrix_x2(u32 address, u32& a, u32& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
//@ tw_ldmatrix_x4_trans
TW_INLINE void tw_ldmatrix_x4_trans(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}
//@ tw_ldmatrix_x2_trans
TW_INLINE void tw_ldmatrix_x2_trans(u32 address, u32& a, u32& b) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
//@ tw_copy_async_16
// `bytes` (0..16) of `source` to shared memory, the rest of the 16 zero. Whole lines enter L2.
TW_INLINE void tw_copy_async_16(u32 destination, const void* source, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes) : "memory");
}
//@ tw_copy_async_8
TW_INLINE void tw_copy_async_8(u32 destination, const void* source, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(destination), "l"(source), "r"(bytes) : "memory");
}
//@ tw_copy_async_4
TW_INLINE void tw_copy_async_4(u32 destination, const void* source, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source), "r"(bytes) : "memory");
}
//@ tw_copy_async_commit
TW_INLINE void tw_copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
//@ tw_copy_async_wait
template <int N> TW_INLINE void tw_copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
//@ tw_copy_async_arrive
// One arrival, when all copies that this thread has started are there.
TW_INLINE void tw_copy_async_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
"""
