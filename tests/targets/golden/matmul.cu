// launch: {"arch":"sm_90a","options":[],"workspace_bytes":0,"clean":[],"kernels":[{"name":"matmul","grid":[8,1,1],"block":384,"cluster":[2,1,1],"shared":90160,"parameters":[{"kind":"map","argument":"C","offset":0,"dtype":"bf16","dims":[256,256],"strides":[512],"box":[64,64],"swizzle":128,"l2":256},{"kind":"map","argument":"A","offset":0,"dtype":"bf16","dims":[256,256],"strides":[512],"box":[64,128],"swizzle":128,"l2":128},{"kind":"map","argument":"B","offset":0,"dtype":"bf16","dims":[256,256],"strides":[512],"box":[64,32],"swizzle":128,"l2":128}],"zero":[],"early":true}]}
TW_KERNEL __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1) matmul(const __grid_constant__ tw_tensor_map C_map, const __grid_constant__ tw_tensor_map A_map, const __grid_constant__ tw_tensor_map B_map) {
  const u32 smem = tw_shared_address(tw_shared_base());
  const i32 group = tw_uniform(tw_thread() / 128);
  const i32 rank = tw_cluster_rank();
  if (tw_thread() == 0) {
    tw_prefetch_map(&C_map);
    tw_prefetch_map(&A_map);
    tw_prefetch_map(&B_map);
    for (i32 slot = 0; slot < 3; slot++) {
      tw_barrier_init(smem + 90112 + 8 * slot, 1);
      tw_barrier_init(smem + 90136 + 8 * slot, 4);
    }
    tw_fence_barrier_init();
  }
  tw_cluster_sync();
  if (group == 0) {
    tw_registers_down<40>();
    if (tw_thread() == 0) {
      i32 outer_slot = 0; u32 outer_phase = 0;
      const u64 passing = tw_evict_first();
      tw_grid_wait();
      tw_grid_launch();
      for (i32 tile_2 = tw_block_x() / 2; tile_2 < 4; tile_2 += tw_grid_x() / 2) {
        const i32 row = tile_2 % 1, column = tile_2 / 1;
        const i32 m_first = ((row) % 1 * 2 + rank % 2) * 128;
        const i32 n_first = (column) * 64;
        const i32 blocks = (max(256 - 0, 0) + 63) / 64;
        for (i32 block = 0; block < blocks; block++) {
          const i32 k_at = block * 64;
          tw_barrier_wait_cluster(smem + 90136 + 8 * outer_slot, outer_phase ^ 1);
          tw_barrier_expect(smem + 90112 + 8 * outer_slot, 24576);
          tw_tma_load_2d(smem + 0 + outer_slot * 16384, &A_map, smem + 90112 + 8 * outer_slot, k_at, m_first);
          tw_tma_load_2d_multicast_hint(smem + 49152 + outer_slot * 8192 + (rank % 2) * 4096, &B_map, smem + 90112 + 8 * outer_slot, 3 << (rank / 2 * 2), passing, k_at, n_first + (rank % 2) * 32);
          if (++outer_slot == 3) {
            outer_slot = 0; outer_phase ^= 1;
          }
        }
      }
    }
  }
  else {
    tw_registers_up<232>();
    const i32 member = group - 1;
    const i32 thread = tw_thread() - 128;
    const i32 lane = thread % 128;
    const i32 m_thread = ((thread >> 1) & 112) + ((thread >> 2) & 7);
    const i32 n_thread = (thread << 1) & 6;
    i32 outer_slot = 0; u32 outer_phase = 0;
    tw_grid_wait();
    tw_grid_launch();
    for (i32 tile_2 = tw_block_x() / 2; tile_2 < 4; tile_2 += tw_grid_x() / 2) {
      const i32 row = tile_2 % 1, column = tile_2 / 1;
      const i32 m_first = ((row) % 1 * 2 + rank % 2) * 128;
      const i32 n_first = (column) * 64;
      const i32 blocks = (max(256 - 0, 0) + 63) / 64;
      f32 acc_2[1][32];
      for (i32 block = 0; block < blocks; block++) {
        const i32 k_at = block * 64;
        tw_barrier_wait(smem + 90112 + 8 * outer_slot, outer_phase);
        tw_wgmma_fence();
        const u64 B_tile = tw_descriptor(smem + 49152 + outer_slot * 8192, 16, 1024, 1);
        const u64 A_tile = tw_descriptor(smem + 0 + outer_slot * 16384 + member * 8192, 16, 1024, 1);
        tw_wgmma_m64n64k16_bf16_ss(acc_2[0], A_tile, B_tile, block > 0);
        tw_wgmma_m64n64k16_bf16_ss(acc_2[0], A_tile + 2, B_tile + 2, 1);
        tw_wgmma_m64n64k16_bf16_ss(acc_2[0], A_tile + 4, B_tile + 4, 1);
        tw_wgmma_m64n64k16_bf16_ss(acc_2[0], A_tile + 6, B_tile + 6, 1);
        tw_wgmma_commit();
        tw_wgmma_wait<1>();
        if (block > 0) {
          if (lane < 2) tw_barrier_arrive_at(smem + 90136 + 8 * (outer_slot == 0 ? 2 : outer_slot - 1), lane);
        }
        if (++outer_slot == 3) {
          outer_slot = 0; outer_phase ^= 1;
        }
      }
      tw_wgmma_wait<0>();
      if (blocks > 0) {
        if (lane < 2) tw_barrier_arrive_at(smem + 90136 + 8 * ((outer_slot + 2) % 3), lane);
      }
      tw_hold(acc_2[0]);
      const u32 buffer = smem + 73728 + member * 8192;
      if (lane == 0) tw_store_wait_read<0>();
      tw_group_sync(5 + member, 128);
      #pragma unroll
      for (i32 c = 0; c < 4; c++) {
        const u32 word = tw_pack_bf16(acc_2[(((0 + c * 2)) * 4) / 32][(((0 + c * 2)) * 4) % 32], acc_2[(1 + ((0 + c * 2)) * 4) / 32][(1 + ((0 + c * 2)) * 4) % 32]);
        const u32 word_2 = tw_pack_bf16(acc_2[(1 * 2 + ((0 + c * 2)) * 4) / 32][(1 * 2 + ((0 + c * 2)) * 4) % 32], acc_2[(1 + 1 * 2 + ((0 + c * 2)) * 4) / 32][(1 + 1 * 2 + ((0 + c * 2)) * 4) % 32]);
        const u32 word_3 = tw_pack_bf16(acc_2[(((1 + c * 2)) * 4) / 32][(((1 + c * 2)) * 4) % 32], acc_2[(1 + ((1 + c * 2)) * 4) / 32][(1 + ((1 + c * 2)) * 4) % 32]);
        const u32 word_4 = tw_pack_bf16(acc_2[(1 * 2 + ((1 + c * 2)) * 4) / 32][(1 * 2 + ((1 + c * 2)) * 4) % 32], acc_2[(1 + 1 * 2 + ((1 + c * 2)) * 4) / 32][(1 + 1 * 2 + ((1 + c * 2)) * 4) % 32]);
        tw_stmatrix_x4(buffer + (((lane << 6) & 6144) + ((lane << 7) & 1920) + ((lane & 7) ^ (c * 2 + ((lane >> 4) & 1))) * 16), word, word_2, word_3, word_4);
      }
      tw_fence_async();
      tw_group_sync(5 + member, 128);
      if (lane == 0) {
        tw_tma_store_2d(&C_map, buffer, n_first + 0, m_first + (member * 64 + 0));
        tw_store_commit();
      }
    }
    if (lane == 0) {
      tw_store_wait<0>();
    }
  }
  tw_cluster_sync();
}
