// launch: {"arch":"sm_90a","options":[],"workspace_bytes":0,"clean":[],"kernels":[{"name":"column_sum","grid":[1,1,1],"block":256,"cluster":[1,1,1],"shared":8192,"parameters":[{"kind":"pointer","argument":"X","offset":0},{"kind":"pointer","argument":"Y","offset":0}],"zero":[],"early":false}]}
TW_KERNEL __launch_bounds__(256) column_sum(const f32* __restrict__ X, f32* __restrict__ Y) {
  const i32 thread = tw_thread();
  const i32 m_thread = thread >> 4;
  const i32 n_thread = (thread << 2) & 60;
  f32 sum_1[4];
  #pragma unroll
  for (i32 i = 0; i < 4; i++) {
    sum_1[i] = 0.0f;
  }
  for (i32 m_at = 0; m_at < 1000; m_at += 32) {
    if (m_at <= 968) {
      f32 X_2[8];
      {
        const f32* X_at = X + ((i64)(m_at + m_thread) * 60 + (i64)n_thread * 1);
        #pragma unroll
        for (i32 i_2 = 0; i_2 < 2; i_2++) {
          if (n_thread < 60) {
            const tw_vec16 w = tw_load_16_stream(X_at + ((i_2 * 16) * 60 + ((i_2 % 1) * 4 + 0)));
            X_2[((i_2 % 1) * 4 + 0) + i_2 * 4] = tw_float(w.w[0]);
            X_2[((i_2 % 1) * 4 + 1) + i_2 * 4] = tw_float(w.w[1]);
            X_2[((i_2 % 1) * 4 + 2) + i_2 * 4] = tw_float(w.w[2]);
            X_2[((i_2 % 1) * 4 + 3) + i_2 * 4] = tw_float(w.w[3]);
          }
          else {
            X_2[((i_2 % 1) * 4 + 0) + i_2 * 4] = 0.0f;
            X_2[((i_2 % 1) * 4 + 1) + i_2 * 4] = 0.0f;
            X_2[((i_2 % 1) * 4 + 2) + i_2 * 4] = 0.0f;
            X_2[((i_2 % 1) * 4 + 3) + i_2 * 4] = 0.0f;
          }
        }
      }
      #pragma unroll
      for (i32 i_3 = 0; i_3 < 8; i_3++) {
        sum_1[(i_3 % 4)] = (sum_1[(i_3 % 4)] + X_2[(i_3 % 4) + ((i_3 / 4)) * 4]);
      }
    }
    else {
      f32 X_3[8];
      {
        const f32* X_at_2 = X + ((i64)(m_at + m_thread) * 60 + (i64)n_thread * 1);
        #pragma unroll
        for (i32 i_4 = 0; i_4 < 2; i_4++) {
          if (((m_at + m_thread) + i_4 * 16) < 1000 && n_thread < 60) {
            const tw_vec16 w_2 = tw_load_16_stream(X_at_2 + ((i_4 * 16) * 60 + ((i_4 % 1) * 4 + 0)));
            X_3[((i_4 % 1) * 4 + 0) + i_4 * 4] = tw_float(w_2.w[0]);
            X_3[((i_4 % 1) * 4 + 1) + i_4 * 4] = tw_float(w_2.w[1]);
            X_3[((i_4 % 1) * 4 + 2) + i_4 * 4] = tw_float(w_2.w[2]);
            X_3[((i_4 % 1) * 4 + 3) + i_4 * 4] = tw_float(w_2.w[3]);
          }
          else {
            X_3[((i_4 % 1) * 4 + 0) + i_4 * 4] = 0.0f;
            X_3[((i_4 % 1) * 4 + 1) + i_4 * 4] = 0.0f;
            X_3[((i_4 % 1) * 4 + 2) + i_4 * 4] = 0.0f;
            X_3[((i_4 % 1) * 4 + 3) + i_4 * 4] = 0.0f;
          }
        }
      }
      #pragma unroll
      for (i32 i_5 = 0; i_5 < 8; i_5++) {
        sum_1[(i_5 % 4)] = (sum_1[(i_5 % 4)] + (((m_at + m_thread) + ((i_5 / 4)) * 16) < 1000 ? X_3[(i_5 % 4) + ((i_5 / 4)) * 4] : 0.0f));
      }
    }
  }
  #pragma unroll
  for (i32 i_6 = 0; i_6 < 4; i_6++) {
    const f32 other = tw_shuffle_f32(sum_1[i_6], 16);
    sum_1[i_6] = (sum_1[i_6] + other);
  }
  {
    f32* scratch = (f32*)(tw_shared_base());
    #pragma unroll
    for (i32 i_7 = 0; i_7 < 4; i_7++) {
      scratch[(i_7) * 256 + thread] = sum_1[i_7];
    }
    tw_sync();
    const i32 own = thread >> 5;
    const i32 first = thread - own * 32;
    for (i32 row = own; row < 4; row += 8) {
      f32 sum = scratch[row * 256 + first];
      #pragma unroll
      for (i32 step = 0; step < 7; step++) {
        sum = (sum + scratch[row * 256 + first + (step + 1) * 32]);
      }
      scratch[row * 256 + first] = sum;
    }
    tw_sync();
    if (own == 0) {
      #pragma unroll
      for (i32 i_8 = 0; i_8 < 4; i_8++) {
        sum_1[i_8] = scratch[(i_8) * 256 + first + 0];
      }
    }
  }
  if ((thread & 240) == 0) {
    f32* Y_at = Y + ((i64)n_thread * 1);
    {
      if (n_thread < 60) {
        tw_store_16(Y_at + (0), tw_vec16{{tw_bits(sum_1[0]), tw_bits(sum_1[1]), tw_bits(sum_1[2]), tw_bits(sum_1[3])}});
      }
    }
  }
}
