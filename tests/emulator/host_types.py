"""Host text that comes with every kernel: types, CUDA's words, the machine's functions."""

TEXT = r"""
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};
struct alignas(64) tw_tensor_map {
  u64 words[16];
};
struct alignas(16) tw_vec16 {
  u32 w[4];
};
struct alignas(8) tw_vec8 {
  u32 w[2];
};
#define TW_INLINE static inline
#define TW_KERNEL extern "C" void
#define TW_INF __builtin_inff()
#define TW_INF64 __builtin_inf()
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) alignas(n)
struct rt_dim {
  u32 x, y, z;
};
struct rt_thread {
  rt_dim thread, block, grid, size;
};
extern "C" {
extern rt_thread* rt_now;
void rt_complain(const char*);
u8* rt_shared_base();
u32 rt_shared_address(const void*);
void rt_shuffle(const char*, void*, u32, i32);
u32 rt_lane();
void rt_sync_warp(const char*);
void rt_sync();
void rt_group(const char*, u32, u32, int);
void rt_barrier_init(u32, u32);
void rt_fence_barrier_init();
void rt_barrier_expect(u32, u32);
void rt_barrier_arrive(u32);
void rt_barrier_arrive_at(const char*, u32, u32);
void rt_barrier_wait(const char*, u32, u32);
int rt_barrier_try(const char*, u32, u32);
void rt_fence_async();
u32 rt_cluster_rank();
void rt_cluster_arrive();
void rt_cluster_wait();
void rt_registers(const char*, u32, int);
void rt_grid_launch();
void rt_grid_wait();
void rt_prefetch_map(const void*);
void rt_tma_load(const char*, u32, const void*, u32, u32, u32, const i32*);
void rt_tma_store(const char*, const void*, u32, u32, const i32*, int);
void rt_store_commit();
void rt_store_wait(u32, int);
void rt_wgmma(const char*, int, u32, void*, u64, const u32*, u64, u32, i32);
void rt_wgmma_fence();
void rt_wgmma_commit();
void rt_wgmma_wait(u32);
void rt_mma(const char*, int, void*, const u32*, const u32*);
void rt_tiles(const char*, int, int, u32, u32, u32*, u32*, u32*, u32*);
void rt_copy_async(const char*, u32, const void*, u32, u32);
void rt_copy_async_commit();
void rt_copy_async_wait(u32);
void rt_copy_async_arrive(u32);
void rt_load_shared(const char*, u32, void*, u32);
void rt_load_cluster(const char*, u32, u32, void*, u32);
void rt_store_shared(const char*, u32, const void*, u32);
void rt_load(const char*, const void*, void*, u32);
void rt_store(const char*, void*, const void*, u32);
void rt_add_f32(void*, f32);
void rt_await(const u32*, u32);
u32 rt_count(u32*);
void rt_publish(u32*, u32);
u32 rt_pack(f32, f32, int);
u32 rt_pair(u32, u32, int, int);
f32 rt_from_f16(u32);
f32 rt_from_e4m3(u32);
u32 rt_to_e4m3(f32);
float expf(float);
double exp(double);
float logf(float);
double log(double);
float exp2f(float);
double exp2(double);
float log2f(float);
double log2(double);
float log10f(float);
double log10(double);
float expm1f(float);
double expm1(double);
float log1pf(float);
double log1p(double);
float erff(float);
double erf(double);
float erfcf(float);
double erfc(double);
float tanhf(float);
double tanh(double);
float sinhf(float);
double sinh(double);
float coshf(float);
double cosh(double);
float sinf(float);
double sin(double);
float cosf(float);
double cos(double);
float tanf(float);
double tan(double);
float sqrtf(float);
double sqrt(double);
float cbrtf(float);
double cbrt(double);
float floorf(float);
double floor(double);
float ceilf(float);
double ceil(double);
float truncf(float);
double trunc(double);
float roundf(float);
double round(double);
float rintf(float);
double rint(double);
float fabsf(float);
double fabs(double);
float fmaxf(float, float);
double fmax(double, double);
float fminf(float, float);
double fmin(double, double);
float fmodf(float, float);
double fmod(double, double);
float powf(float, float);
double pow(double, double);
float copysignf(float, float);
double copysign(double, double);
float atan2f(float, float);
double atan2(double, double);
float hypotf(float, float);
double hypot(double, double);
float fmaf(float, float, float);
double fma(double, double, double);
}
#define threadIdx (rt_now->thread)
#define blockIdx (rt_now->block)
#define gridDim (rt_now->grid)
#define blockDim (rt_now->size)
template <class A, class B>
static inline auto min(A a, B b) -> decltype(a + b) {
  return b < a ? b : a;
}
template <class A, class B>
static inline auto max(A a, B b) -> decltype(a + b) {
  return a < b ? b : a;
}
static inline int abs(int x) { return __builtin_abs(x); }
static inline long long abs(long long x) { return __builtin_llabs(x); }
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
template <class To, class From>
static inline To rt_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __int_as_float(int x) { return rt_as<float>(x); }
static inline int __float_as_int(float x) { return rt_as<int>(x); }
static inline float __uint_as_float(u32 x) { return rt_as<float>(x); }
static inline u32 __float_as_uint(float x) { return rt_as<u32>(x); }
static inline double __longlong_as_double(long long x) { return rt_as<double>(x); }
static inline long long __double_as_longlong(double x) { return rt_as<long long>(x); }
template <class T>
struct rt_plain {
  typedef T type;
};
template <class T>
struct rt_plain<const T> {
  typedef T type;
};
template <int... I>
struct rt_places {};
template <int N, int... I>
struct rt_upto : rt_upto<N - 1, N - 1, I...> {};
template <int... I>
struct rt_upto<0, I...> {
  typedef rt_places<I...> type;
};
template <class... P, int... I>
static inline void rt_apply(void (*kernel)(P...), void** p, rt_places<I...>) {
  kernel(*(typename rt_plain<P>::type*)p[I]...);
}
template <class... P>
static inline void rt_apply(void (*kernel)(P...), void** p) {
  rt_apply(kernel, p, typename rt_upto<sizeof...(P)>::type());
}
template <class... P>
static inline int rt_count(void (*)(P...)) {
  return sizeof...(P);
}
#define RT_ENTRY(name)                                                               \
  extern "C" __attribute__((visibility("default"))) void rt_entry_##name(void** p) { \
    rt_apply(&name, p);                                                              \
  }                                                                                  \
  extern "C" __attribute__((visibility("default"))) int rt_count_##name() {          \
    return rt_count(&name);                                                          \
  }
"""
