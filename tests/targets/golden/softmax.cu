// launch: {"arch":"sm_90a","options":[],"workspace_bytes":0,"clean":[],"kernels":[{"name":"softmax","grid":[32,1,1],"block":128,"cluster":[1,1,1],"shared":2048,"parameters":[{"kind":"pointer","argument":"X","offset":0},{"kind":"pointer","argument":"Y","offset":0}],"zero":[],"early":true}]}
TW_KERNEL __launch_bounds__(128) softmax(const u16* __restrict__ X, u16* __restrict__ Y) {
  const i32 thread = tw_thread();
  const i32 m_thread = thread >> 6;
  const i32 n_thread = (thread << 3) & 504;
  const i32 m_tile = (tw_block_x()) % 32;
  const i32 m_first = m_tile * 2;
  tw_grid_wait();
  tw_grid_launch();
  f32 X_2[8];
  {
    const u16* X_at = X + ((i64)(m_first + m_thread) * 512 + (i64)n_thread * 1);
    {
      {
        const tw_vec16 w = tw_load_16_stream(X_at + (0));
        X_2[0] = tw_float(w.w[0] << 16);
        X_2[1] = tw_float(w.w[0] & 0xffff0000u);
        X_2[2] = tw_float(w.w[1] << 16);
        X_2[3] = tw_float(w.w[1] & 0xffff0000u);
        X_2[4] = tw_float(w.w[2] << 16);
        X_2[5] = tw_float(w.w[2] & 0xffff0000u);
        X_2[6] = tw_float(w.w[3] << 16);
        X_2[7] = tw_float(w.w[3] & 0xffff0000u);
      }
    }
  }
  f32 max_1[1];
  {
    max_1[0] = -TW_INF;
  }
  #pragma unroll
  for (i32 i = 0; i < 8; i++) {
    max_1[0] = tw_most(max_1[0], X_2[i]);
  }
  {
    const f32 other = tw_shuffle_f32(max_1[0], 1);
    max_1[0] = tw_most(max_1[0], other);
    const f32 other_2 = tw_shuffle_f32(max_1[0], 2);
    max_1[0] = tw_most(max_1[0], other_2);
    const f32 other_3 = tw_shuffle_f32(max_1[0], 4);
    max_1[0] = tw_most(max_1[0], other_3);
    const f32 other_4 = tw_shuffle_f32(max_1[0], 8);
    max_1[0] = tw_most(max_1[0], other_4);
    const f32 other_5 = tw_shuffle_f32(max_1[0], 16);
    max_1[0] = tw_most(max_1[0], other_5);
  }
  {
    f32* scratch = (f32*)(tw_shared_base());
    {
      scratch[(0) * 128 + thread] = max_1[0];
    }
    tw_sync();
    const i32 own = (thread >> 5) & 1;
    const i32 first = thread - own * 32;
    {
      max_1[0] = tw_most(scratch[(0) * 128 + first + 0], scratch[(0) * 128 + first + 32]);
    }
  }
  f32 sum_4[1];
  {
    sum_4[0] = 0.0f;
  }
  #pragma unroll
  for (i32 i_2 = 0; i_2 < 8; i_2++) {
    const f32 v = (X_2[i_2] - max_1[0]);
    const f32 v_2 = tw_exp2(v * 1.4426950408889634f);
    sum_4[0] = (sum_4[0] + v_2);
  }
  {
    const f32 other_6 = tw_shuffle_f32(sum_4[0], 1);
    sum_4[0] = (sum_4[0] + other_6);
    const f32 other_7 = tw_shuffle_f32(sum_4[0], 2);
    sum_4[0] = (sum_4[0] + other_7);
    const f32 other_8 = tw_shuffle_f32(sum_4[0], 4);
    sum_4[0] = (sum_4[0] + other_8);
    const f32 other_9 = tw_shuffle_f32(sum_4[0], 8);
    sum_4[0] = (sum_4[0] + other_9);
    const f32 other_10 = tw_shuffle_f32(sum_4[0], 16);
    sum_4[0] = (sum_4[0] + other_10);
  }
  {
    f32* scratch_2 = (f32*)(tw_shared_base() + 1024);
    {
      scratch_2[(0) * 128 + thread] = sum_4[0];
    }
    tw_sync();
    const i32 own_2 = (thread >> 5) & 1;
    const i32 first_2 = thread - own_2 * 32;
    {
      sum_4[0] = (scratch_2[(0) * 128 + first_2 + 0] + scratch_2[(0) * 128 + first_2 + 32]);
    }
  }
  f32 inverse[1];
  {
    inverse[0] = 1.0f / sum_4[0];
  }
  {
    u16* Y_at = Y + ((i64)(m_first + m_thread) * 512 + (i64)n_thread * 1);
    {
      const f32 v_3 = (X_2[0] - max_1[0]);
      const f32 v_4 = tw_exp2(v_3 * 1.4426950408889634f);
      const f32 v_5 = (v_4 * inverse[0]);
      const f32 v_6 = (X_2[1] - max_1[0]);
      const f32 v_7 = tw_exp2(v_6 * 1.4426950408889634f);
      const f32 v_8 = (v_7 * inverse[0]);
      const f32 v_9 = (X_2[2] - max_1[0]);
      const f32 v_10 = tw_exp2(v_9 * 1.4426950408889634f);
      const f32 v_11 = (v_10 * inverse[0]);
      const f32 v_12 = (X_2[3] - max_1[0]);
      const f32 v_13 = tw_exp2(v_12 * 1.4426950408889634f);
      const f32 v_14 = (v_13 * inverse[0]);
      const f32 v_15 = (X_2[4] - max_1[0]);
      const f32 v_16 = tw_exp2(v_15 * 1.4426950408889634f);
      const f32 v_17 = (v_16 * inverse[0]);
      const f32 v_18 = (X_2[5] - max_1[0]);
      const f32 v_19 = tw_exp2(v_18 * 1.4426950408889634f);
      const f32 v_20 = (v_19 * inverse[0]);
      const f32 v_21 = (X_2[6] - max_1[0]);
      const f32 v_22 = tw_exp2(v_21 * 1.4426950408889634f);
      const f32 v_23 = (v_22 * inverse[0]);
      const f32 v_24 = (X_2[7] - max_1[0]);
      const f32 v_25 = tw_exp2(v_24 * 1.4426950408889634f);
      const f32 v_26 = (v_25 * inverse[0]);
      {
        tw_store_16(Y_at + (0), tw_vec16{{tw_pack_bf16(v_5, v_8), tw_pack_bf16(v_11, v_14), tw_pack_bf16(v_17, v_20), tw_pack_bf16(v_23, v_26)}});
      }
    }
  }
}
