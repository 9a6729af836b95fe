#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float v4f32 __attribute__((vector_size(16)));
typedef float v4f32_at __attribute__((vector_size(16), aligned(1), may_alias));
typedef int32_t v4i32 __attribute__((vector_size(16)));
typedef float f32_at __attribute__((aligned(1), may_alias));

static inline __attribute__((always_inline, unused)) v4f32 load_v4f32(const char *p) {
  return *(const v4f32_at *)p;
}

static inline __attribute__((always_inline, unused)) v4f32 load_first_v4f32(const char *p, int n) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
  return (v4f32)_mm_maskz_loadu_epi32((__mmask8)((1u << n) - 1), p);
#else
  v4f32 x = {0};
  memcpy(&x, p, (size_t)n * 4);
  return x;
#endif
}

static inline __attribute__((always_inline, unused)) v4f32 splat_v4f32(float x) {
  return (v4f32){x, x, x, x};
}

#if defined(__clang__) || __GNUC__ >= 12
#define TURNED(x, indices, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define TURNED(x, indices, ...) __builtin_shuffle(x, (indices){__VA_ARGS__})
#endif

static inline __attribute__((always_inline, unused)) float sum_of_v4f32(v4f32 x) {
  x += TURNED(x, v4i32, 2, 3, 0, 1);
  x += TURNED(x, v4i32, 1, 2, 3, 0);
  return x[0];
}

static inline __attribute__((always_inline, unused)) void store_f32(char *p, float x) {
  *(f32_at *)p = x;
}

void tilewright_barrier(void *team);

static inline __attribute__((always_inline, unused)) int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* tiny: every thread of the team runs it. Pointers count bytes; vNtype is N lanes. */
static void tiny(int64_t thread, int64_t threads, void **args, void *team) {
  (void)threads;
  char *A = args[0];
  char *C = args[1];
  for (int64_t m = thread; m < 3; m += 2) {
    /* squares of one row */
    char *p = A + m * 44;
    v4f32 acc = {0};
    for (int64_t n = 0; n < 8; n += 4) {
      v4f32 x = load_v4f32(p + n * 4);
      acc = x * x + acc;
    }
    v4f32 x = load_first_v4f32(p + 32, 3);
    v4f32 t = x * (x * 0.5f) + acc;
    v4f32 acc_1;
    if (m == 2) {
      acc_1 = -t;
    } else {
      acc_1 = t;
    }
    store_f32(C + m * 4, sum_of_v4f32(acc_1));
  }
  tilewright_barrier(team);
  int64_t sum = 1, sum_1 = 0;
  int64_t m = thread;
  do {
    int64_t next = sum_1;
    int64_t next_1 = sum;
    sum = next;
    sum_1 = next_1;
    m++;
  } while (m < min_i64(thread + 5, 3));
  store_f32(C + sum * 8 + 12, (float)(sum_1 + sum));
}
