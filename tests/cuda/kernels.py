"""Kernels written by hand with the prelude's wrappers, and their plans."""

from __future__ import annotations

from typing import Any

Plan = dict[str, Any]


def pointer(argument: str, offset: int = 0) -> Plan:
    return {"kind": "pointer", "argument": argument, "offset": offset}


def tensor_map(
    argument: str,
    dtype: str,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int = 0,
) -> Plan:
    """A map parameter; innermost axis first, strides in bytes of the axes after it."""
    return {
        "kind": "map",
        "argument": argument,
        "offset": 0,
        "dtype": dtype,
        "dims": list(dims),
        "strides": list(strides),
        "box": list(box),
        "swizzle": swizzle,
        "l2": 0,
    }


def plan(
    name: str,
    parameters: list[Plan],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int = 128,
    cluster: tuple[int, int, int] = (1, 1, 1),
    shared: int = 0,
) -> Plan:
    kernel = {
        "name": name,
        "grid": list(grid),
        "block": block,
        "cluster": list(cluster),
        "shared": shared,
        "parameters": parameters,
        "zero": [],
    }
    return {"arch": "sm_90a", "options": [], "workspace_bytes": 0, "kernels": [kernel]}


VECTOR_ADD = """
TW_KERNEL __launch_bounds__(128) vector_add(const f32* a, const f32* b, f32* c) {
  const i32 first = 4 * (tw_block_x() * 128 + tw_thread());
  const tw_vec16 x = tw_load_16(a + first), y = tw_load_16_stream(b + first);
  tw_vec16 z;
#pragma unroll
  for (int i = 0; i < 4; i++) z.w[i] = tw_bits(tw_float(x.w[i]) + tw_float(y.w[i]));
  tw_store_16(c + first, z);
}
"""


def vector_add_plan(blocks: int) -> Plan:
    """`blocks` x 512 elements of f32."""
    return plan("vector_add", [pointer(name) for name in "abc"], grid=(blocks, 1, 1))


_GEMM = """
constexpr i32 M = {m}, N = {n}, K = {k}, BM = {bm}, BN = {bn}, STAGES = {stages},
              GROUPS = BM / 64;
constexpr i32 CLUSTER = {cluster}, MASK = (1 << CLUSTER) - 1, ROWS = M / BM / CLUSTER,
              TILES = ROWS * (N / BN);
constexpr i32 A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr i32 PANEL = 64 * 128, PANELS = BN / 64, STAGING = STAGES * STAGE_BYTES;
constexpr i32 BARRIERS = STAGING + GROUPS * PANELS * PANEL;

TW_KERNEL __launch_bounds__(128 + 128 * GROUPS, 1) __cluster_dims__({cluster}, 1, 1)
    gemm(const __grid_constant__ tw_tensor_map a, const __grid_constant__ tw_tensor_map b,
         const __grid_constant__ tw_tensor_map c) {{
  const u32 base = tw_shared_address(tw_shared_base());
  const u32 full = base + BARRIERS, empty = full + 8 * STAGES;
  const i32 group = tw_uniform(tw_thread() / 128), thread = tw_thread() % 128;
  const u32 rank = tw_cluster_rank();
  if (tw_thread() == 0) {{
    for (i32 s = 0; s < STAGES; s++) {{
      tw_barrier_init(full + 8 * s, 1);
      tw_barrier_init(empty + 8 * s, GROUPS * CLUSTER);
    }}
    tw_fence_barrier_init();
  }}
  tw_cluster_sync();
  if (group == 0) {{
    tw_registers_down<40>();
    if (tw_uniform(tw_thread() / 32) == 0 && tw_elect()) {{
      u32 stage = 0, parity = 1;
      for (i32 tile = tw_block_x() / CLUSTER; tile < TILES; tile += tw_grid_x() / CLUSTER) {{
        const i32 row = (tile % ROWS * CLUSTER + rank) * BM, column = tile / ROWS * BN;
        for (i32 k = 0; k < K; k += 64) {{
          const u32 slot = base + stage * STAGE_BYTES, barrier = full + 8 * stage;
          tw_barrier_wait_cluster(empty + 8 * stage, parity);
          tw_barrier_expect(barrier, STAGE_BYTES);
          tw_tma_load_2d(slot, &a, barrier, k, row);
          tw_tma_load_2d_multicast(slot + A_BYTES + rank * (B_BYTES / CLUSTER), &b, barrier, MASK,
                                   k, column + rank * (BN / CLUSTER));
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }}
      }}
    }}
  }} else {{
    tw_registers_up<232>();
    u32 stage = 0, parity = 0, previous = 0;
    f32 d[BN / 2];
    for (i32 tile = tw_block_x() / CLUSTER; tile < TILES; tile += tw_grid_x() / CLUSTER) {{
      const i32 row = (tile % ROWS * CLUSTER + rank) * BM, column = tile / ROWS * BN;
      for (i32 k = 0; k < K; k += 64) {{
        const u32 slot = base + stage * STAGE_BYTES;
        tw_barrier_wait(full + 8 * stage, parity);
        tw_wgmma_fence();
#pragma unroll
        for (i32 i = 0; i < 4; i++)
          tw_wgmma_m64n{bn}k16_bf16_ss(
              d, tw_descriptor(slot + (group - 1) * PANEL + 32 * i, 16, 1024, 1),
              tw_descriptor(slot + A_BYTES + 32 * i, 16, 1024, 1), k > 0 || i > 0);
        tw_wgmma_commit();
        tw_wgmma_wait<1>();
        if (k > 0 && thread < CLUSTER) tw_barrier_arrive_at(empty + 8 * previous, thread);
        previous = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }}
      tw_wgmma_wait<0>();
      tw_hold(d);
      if (thread < CLUSTER) tw_barrier_arrive_at(empty + 8 * previous, thread);
      const u32 staging = base + STAGING + (group - 1) * PANELS * PANEL;
      if (thread == 0) tw_store_wait_read<0>();
      tw_group_sync(group, 128);
      const i32 lane = thread % 32, line = thread / 32 * 16 + lane % 8 + lane / 8 % 2 * 8;
#pragma unroll
      for (i32 j = 0; j < BN / 16; j++) {{
        const i32 chunk = 2 * j + lane / 16;
        tw_stmatrix_x4(
            staging + chunk / 8 * PANEL + line * 128 + (chunk % 8 ^ line % 8) * 16,
            tw_pack_bf16(d[8 * j], d[8 * j + 1]), tw_pack_bf16(d[8 * j + 2], d[8 * j + 3]),
            tw_pack_bf16(d[8 * j + 4], d[8 * j + 5]), tw_pack_bf16(d[8 * j + 6], d[8 * j + 7]));
      }}
      tw_fence_async();
      tw_group_sync(group, 128);
      if (thread == 0) {{
        for (i32 p = 0; p < PANELS; p++)
          tw_tma_store_2d(&c, staging + p * PANEL, column + 64 * p, row + (group - 1) * 64);
        tw_store_commit();
      }}
    }}
    if (thread == 0) tw_store_wait<0>();
  }}
  tw_cluster_sync();
}}
"""


def gemm(m: int, n: int, k: int, bm: int, bn: int, stages: int = 3, cluster: int = 2) -> str:
    """C[m, n] = A[m, k] B[n, k]^T in bf16: a producer, bm / 64 consumer groups, persistent."""
    return _GEMM.format(m=m, n=n, k=k, bm=bm, bn=bn, stages=stages, cluster=cluster)


def gemm_plan(
    m: int, n: int, k: int, bm: int, bn: int, stages: int = 3, cluster: int = 2, clusters: int = 1
) -> Plan:
    """The plan of `gemm` on `clusters` clusters."""
    shared = stages * (bm + bn) * 128 + bm * bn * 2 + 16 * stages
    maps = [
        tensor_map("a", "bf16", (k, m), (2 * k,), (64, bm), 128),
        tensor_map("b", "bf16", (k, n), (2 * k,), (64, bn // cluster), 128),
        tensor_map("c", "bf16", (n, m), (2 * n,), (64, 64), 128),
    ]
    return plan(
        "gemm",
        maps,
        grid=(clusters * cluster, 1, 1),
        block=128 + 2 * bm,
        cluster=(cluster, 1, 1),
        shared=shared,
    )


_MMA_GEMM = """
constexpr i32 M = {m}, N = {n}, K = {k}, STAGES = 3, A_BYTES = 64 * 64,
              STAGE_BYTES = 2 * A_BYTES;

// A tile: 64 rows of 32 k; B tile: 32 rows of 64 n. Chunks of 16 bytes, turned by the row.
TW_INLINE u32 a_place(u32 slot, i32 row, i32 chunk) {{
  return slot + row * 64 + (chunk ^ row / 2 % 4) * 16;
}}
TW_INLINE u32 b_place(u32 slot, i32 row, i32 chunk) {{
  return slot + A_BYTES + row * 128 + (chunk ^ row % 8) * 16;
}}

TW_INLINE void fetch(u32 slot, const bf16* a, const bf16* b, i32 row, i32 column,
                                 i32 k) {{
#pragma unroll
  for (i32 i = tw_thread(); i < 256; i += 128) {{
    tw_copy_async_16(a_place(slot, i / 4, i % 4), a + (row + i / 4) * K + k + i % 4 * 8,
                     k < K ? 16 : 0);
    tw_copy_async_16(b_place(slot, i / 8, i % 8), b + (k + i / 8) * N + column + i % 8 * 8,
                     k < K ? 16 : 0);
  }}
}}

TW_KERNEL __launch_bounds__(128) mma_gemm(const bf16* a, const bf16* b, f32* c) {{
  const u32 base = tw_shared_address(tw_shared_base());
  const i32 row = tw_block_x() * 64, column = tw_block_y() * 64;
  const i32 warp = tw_uniform(tw_thread() / 32), lane = tw_thread() % 32;
  const i32 line = warp % 2 * 32 + lane % 8 + lane / 8 % 2 * 8, half = lane / 16;
  f32 d[2][4][4] = {{}};
  for (i32 s = 0; s < STAGES - 1; s++) {{
    fetch(base + s * STAGE_BYTES, a, b, row, column, s * 32);
    tw_copy_async_commit();
  }}
  for (i32 step = 0; step < K / 32; step++) {{
    const u32 slot = base + step % STAGES * STAGE_BYTES;
    tw_copy_async_wait<STAGES - 2>();
    tw_sync();
#pragma unroll
    for (i32 k = 0; k < 2; k++) {{
      u32 x[2][4], y[4][2];
#pragma unroll
      for (i32 i = 0; i < 2; i++)
        tw_ldmatrix_x4(a_place(slot, line + 16 * i, 2 * k + half), x[i][0], x[i][1], x[i][2],
                       x[i][3]);
#pragma unroll
      for (i32 j = 0; j < 4; j += 2)
        tw_ldmatrix_x4_trans(b_place(slot, 16 * k + lane % 16, warp / 2 * 4 + j + half), y[j][0],
                             y[j][1], y[j + 1][0], y[j + 1][1]);
#pragma unroll
      for (i32 i = 0; i < 2; i++)
#pragma unroll
        for (i32 j = 0; j < 4; j++) tw_mma_m16n8k16_bf16(d[i][j], x[i], y[j]);
    }}
    const i32 next = step + STAGES - 1;
    fetch(base + next % STAGES * STAGE_BYTES, a, b, row, column, next * 32);
    tw_copy_async_commit();
  }}
  tw_copy_async_wait<0>();
#pragma unroll
  for (i32 i = 0; i < 2; i++)
#pragma unroll
    for (i32 j = 0; j < 4; j++) {{
      f32* to = c + (row + warp % 2 * 32 + 16 * i + lane / 4) * N + column + warp / 2 * 32 + 8 * j +
                lane % 4 * 2;
      tw_store_8(to, tw_bits(d[i][j][0]), tw_bits(d[i][j][1]));
      tw_store_8(to + 8 * N, tw_bits(d[i][j][2]), tw_bits(d[i][j][3]));
    }}
}}
"""


def mma_gemm(m: int, n: int, k: int) -> str:
    """C[m, n] = A[m, k] B[k, n], bf16 into f32, by mma.sync, ldmatrix and cp.async."""
    return _MMA_GEMM.format(m=m, n=n, k=k)


def mma_gemm_plan(m: int, n: int) -> Plan:
    parameters = [pointer(name) for name in "abc"]
    return plan("mma_gemm", parameters, grid=(m // 64, n // 64, 1), shared=3 * 8192)


_COPY = """
TW_KERNEL __launch_bounds__(128)
    box_copy(const __grid_constant__ tw_tensor_map from, const i32* at, u8* to) {{
  const u32 base = tw_shared_address(tw_shared_base()), barrier = base + {bytes};
  for (i32 i = 16 * tw_thread(); i < {bytes}; i += 16 * 128)
    tw_store_shared_16(base + i, tw_vec16{{}});
  tw_fence_async();
  if (tw_thread() == 0) {{
    tw_barrier_init(barrier, 1);
    tw_fence_barrier_init();
  }}
  tw_sync();
  if (tw_thread() == 0) {{
    tw_barrier_expect(barrier, {expect});
    tw_tma_load_{rank}d(base, &from, barrier, {coordinates});
  }}
  tw_barrier_wait(barrier, 0);
  for (i32 i = 16 * tw_thread(); i < {bytes}; i += 16 * 128)
    tw_store_16(to + i, tw_load_shared_16(base + i));
}}
"""


def box_copy(rank: int, expect: int, footprint: int) -> str:
    """One TMA box to shared memory, then all `footprint` bytes of it to global memory."""
    coordinates = ", ".join(f"(i32)tw_load_4(at + {i})" for i in range(rank))
    return _COPY.format(rank=rank, expect=expect, bytes=footprint, coordinates=coordinates)


def box_copy_plan(source: Plan, footprint: int) -> Plan:
    parameters = [source, pointer("at"), pointer("to")]
    return plan("box_copy", parameters, shared=footprint + 16)


_BOX_STORE = """
TW_KERNEL __launch_bounds__(128)
    box_store(const u8* from, const i32* at, const __grid_constant__ tw_tensor_map to) {{
  const u32 base = tw_shared_address(tw_shared_base());
  for (i32 i = 16 * tw_thread(); i < {bytes}; i += 16 * 128)
    tw_store_shared_16(base + i, tw_load_16(from + i));
  tw_fence_async();
  tw_sync();
  if (tw_thread() == 0) {{
    tw_tma_{verb}_{rank}d(&to, base, {coordinates});
    tw_store_commit();
    tw_store_wait<0>();
  }}
}}
"""


def box_store(rank: int, footprint: int, add: bool) -> str:
    """`footprint` bytes to shared memory, then one TMA box of them to global memory."""
    coordinates = ", ".join(f"(i32)tw_load_4(at + {i})" for i in range(rank))
    verb = "add" if add else "store"
    return _BOX_STORE.format(verb=verb, rank=rank, bytes=footprint, coordinates=coordinates)


def box_store_plan(target: Plan, footprint: int) -> Plan:
    return plan("box_store", [pointer("from"), pointer("at"), target], shared=footprint)


_WGMMA = """
TW_KERNEL __launch_bounds__(128)
    one_wgmma(const u8* memory, const u64* words, const u32* fragment, {scalar}* out) {{
  const u32 base = tw_shared_address(tw_shared_base());
  const i32 thread = tw_thread();
  for (i32 i = 16 * thread; i < {bytes}; i += 16 * 128)
    tw_store_shared_16(base + i, tw_load_16(memory + i));
  tw_fence_async();
  tw_sync();
  const tw_vec8 x = tw_load_8(words), y = tw_load_8(words + 1);
  const u64 a = x.w[0] | (u64)x.w[1] << 32, b = y.w[0] | (u64)y.w[1] << 32;
  u32 registers[4];
  {scalar} d[{count}];
#pragma unroll
  for (i32 i = 0; i < 4; i++) registers[i] = tw_load_4(fragment + 4 * thread + i);
#pragma unroll
  for (i32 i = 0; i < {count}; i++) d[i] = ({scalar})i;
  tw_wgmma_fence();
  {name}(d, {operand}, b, 1);
  tw_wgmma_commit();
  tw_wgmma_wait<0>();
#pragma unroll
  for (i32 i = 0; i < {count}; i++) tw_store_4(out + {count} * thread + i, {stored});
}}
"""


def one_wgmma(name: str, n: int, integer: bool, shared_a: bool, footprint: int) -> str:
    """D += A B of one wgmma on `footprint` bytes of shared memory; C[thread, i] is i."""
    return _WGMMA.format(
        name=name,
        count=n // 2,
        bytes=footprint,
        scalar="i32" if integer else "f32",
        operand="a" if shared_a else "registers",
        stored="(u32)d[i]" if integer else "tw_bits(d[i])",
    )


def one_wgmma_plan(footprint: int) -> Plan:
    parameters = [pointer(name) for name in ("memory", "words", "fragment", "out")]
    return plan("one_wgmma", parameters, shared=footprint)


_ONE_MMA = """
TW_KERNEL __launch_bounds__(32) one_mma(const u32* a, const u32* b, {scalar}* out) {{
  const i32 lane = tw_thread();
  u32 x[4], y[2];
  {scalar} d[4];
  for (i32 i = 0; i < 4; i++) x[i] = tw_load_4(a + 4 * lane + i), d[i] = ({scalar})i;
  for (i32 i = 0; i < 2; i++) y[i] = tw_load_4(b + 2 * lane + i);
  {name}(d, x, y);
  for (i32 i = 0; i < 4; i++) tw_store_4(out + 4 * lane + i, {stored});
}}
"""


def one_mma(name: str, integer: bool) -> str:
    scalar, stored = ("i32", "(u32)d[i]") if integer else ("f32", "tw_bits(d[i])")
    return _ONE_MMA.format(name=name, scalar=scalar, stored=stored)


def one_mma_plan() -> Plan:
    return plan("one_mma", [pointer("a"), pointer("b"), pointer("out")], block=32)


_TILES = """
TW_KERNEL __launch_bounds__(32)
    tiles(const u8* memory, const u32* places, u32* registers, u8* after) {{
  const u32 base = tw_shared_address(tw_shared_base());
  const i32 lane = tw_thread();
  for (i32 i = 16 * lane; i < {bytes}; i += 512)
    tw_store_shared_16(base + i, tw_load_16(memory + i));
  tw_sync();
  const u32 address = base + tw_load_4(places + lane);
  u32 r[4];
  for (i32 i = 0; i < {count}; i++) r[i] = tw_load_4(registers + {count} * lane + i);
  {name}(address, {operands});
  for (i32 i = 0; i < {count}; i++) tw_store_4(registers + {count} * lane + i, r[i]);
  tw_sync();
  for (i32 i = 16 * lane; i < {bytes}; i += 512)
    tw_store_16(after + i, tw_load_shared_16(base + i));
}}
"""


def tiles(name: str, count: int, footprint: int) -> str:
    """One ldmatrix or stmatrix of `count` matrices."""
    operands = ", ".join(f"r[{i}]" for i in range(count))
    return _TILES.format(name=name, count=count, bytes=footprint, operands=operands)


def tiles_plan(footprint: int) -> Plan:
    parameters = [pointer(name) for name in ("memory", "places", "registers", "after")]
    return plan("tiles", parameters, block=32, shared=footprint)
