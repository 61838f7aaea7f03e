// The one place where compilers and machines differ: hipRTC for AMD, NVRTC for NVIDIA, a C++ compiler for the host.
//
// Kernels are written in regions. Code outside THREADS is the same for every thread of a block (block-uniform); code
// inside THREADS(n) is what each thread does. On a GPU every thread runs both. On the host a region is a loop over the
// block's threads that the compiler turns into vector instructions, so a barrier has nothing to wait for there, and a
// value that a thread keeps from one region to the next lives in a PerThread. The order of every floating-point
// operation is the same on all of them: given the same WAVE, results are equal to the last bit.
//
// Rules that make that hold: contraction of a*b+c is off (fused multiply-adds are written fma_), float32 denormals are
// flushed, sums across threads go through wave_reduce and block_reduce, and transcendental functions come from
// functions.h.
#pragma once

#if defined(__HIPCC_RTC__) || defined(__HIP__)
#define ON_HIP 1
#elif defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define ON_CUDA 1
#else
#define ON_HOST 1
#endif

#ifndef WAVE
#error "WAVE, the number of threads of a wave (32 or 64), is given by whoever compiles the kernels"
#endif

#define PRAGMA(text) _Pragma(#text)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if defined(ON_HOST)

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------------- the host

namespace host {

struct Position {
    unsigned x, y, z;
};
inline thread_local Position block, grid;

// CuPy compiles for GPUs with float32 denormals flushed to zero; the host does the same while a kernel runs.
class FlushDenormals {
  public:
#if defined(__x86_64__)
    FlushDenormals() : saved(_mm_getcsr()) { _mm_setcsr(saved | 0x8040u); }
    ~FlushDenormals() { _mm_setcsr(saved); }

  private:
    unsigned saved;
#elif defined(__aarch64__)
    FlushDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(saved));
        asm volatile("msr fpcr, %0" ::"r"(saved | (u64(1) << 24)));
    }
    ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(saved)); }

  private:
    u64 saved;
#else
#error "how this processor flushes denormals is not known"
#endif
};

// The blocks of one launch, handed out one run at a time to whichever thread is free.
struct Work {
    void (*run)(const void* context);
    const void* context;
    Position grid;
    u64 blocks;
    std::atomic<u64> next{0};

    void take(u64 most) {
        FlushDenormals scope;
        host::grid = grid;
        for (u64 first; (first = next.fetch_add(most)) < blocks;)
            for (u64 i = first; i < blocks && i < first + most; ++i) {
                block = {unsigned(i % grid.x), unsigned(i / grid.x % grid.y), unsigned(i / grid.x / grid.y)};
                run(context);
            }
    }
};

// Helper threads that sleep until a launch is worth sharing. The launching thread works too and never depends on a
// helper having started, so a child process that inherited none of them still finishes its launches.
class Helpers {
  public:
    static Helpers& get() {
        static Helpers* helpers = new Helpers; // never destroyed: threads may still sleep in it at exit
        return *helpers;
    }

    void share(Work& work) {
        if (threads.empty()) return work.take(1);
        {
            std::lock_guard<std::mutex> lock(mutex);
            current = &work;
        }
        wake.notify_all();
        work.take(1);
        std::unique_lock<std::mutex> lock(mutex);
        current = nullptr;
        idle.wait(lock, [this] { return busy == 0; });
    }

  private:
    Helpers() {
        const char* asked = std::getenv("TOOLKIT_CPU_THREADS");
        unsigned count = asked ? unsigned(std::atoi(asked)) : std::thread::hardware_concurrency();
        for (unsigned i = 1; i < count; ++i) threads.emplace_back([this] { serve(); }).detach();
    }

    void serve() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            wake.wait(lock, [this] { return current; });
            Work* work = current;
            ++busy;
            lock.unlock();
            work->take(1);
            lock.lock();
            if (current == work) current = nullptr; // every block has been handed out: nobody else need come
            if (--busy == 0) idle.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable wake, idle;
    std::vector<std::thread> threads;
    Work* current = nullptr;
    int busy = 0;
};

template <class... Parameters, std::size_t... Index>
void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Index...>) {
    kernel(*static_cast<Parameters*>(arguments[Index])...);
}

// Run every block of the grid. The first block is timed: only a launch that will take longer than waking a helper is
// shared.
template <class... Parameters> void launch(void (*kernel)(Parameters...), const unsigned* size, void** arguments) {
    struct Context {
        void (*kernel)(Parameters...);
        void** arguments;
    } context{kernel, arguments};
    Work work{[](const void* c) {
                  const Context& it = *static_cast<const Context*>(c);
                  call(it.kernel, it.arguments, std::index_sequence_for<Parameters...>());
              },
              &context,
              {size[0], size[1], size[2]},
              u64(size[0]) * size[1] * size[2]};
    if (work.blocks == 0) return;
    const auto start = std::chrono::steady_clock::now();
    u64 all = work.blocks;
    work.blocks = 1;
    work.take(1);
    work.blocks = all;
    work.next = 1;
    const std::chrono::duration<double, std::micro> one = std::chrono::steady_clock::now() - start;
    if (one.count() * double(all - 1) < 40.0)
        work.take(all);
    else
        Helpers::get().share(work);
}

// Shared memory of a block. HOST_POISON fills it with NaN patterns, so that a read before the first write shows.
template <class T, int N> struct Shared {
    T values[N];
#if defined(HOST_POISON)
    Shared() { std::memset(static_cast<void*>(values), 0xff, sizeof values); }
#else
    Shared() {}
#endif
    operator T*() { return values; }
};

} // namespace host

#define DEVICE static inline __attribute__((always_inline))
#define MEMBER inline __attribute__((always_inline))

// ENTRY(name, threads, parameters...) { body }: a kernel that is launched with blocks of `threads` threads.
#define ENTRY(name, threads, ...)                                                                                      \
    static void name##_block(__VA_ARGS__);                                                                             \
    extern "C" void name(const unsigned* grid, void** arguments) { host::launch(name##_block, grid, arguments); }      \
    extern "C" int name##_threads() { return threads; }                                                                \
    static void name##_block(__VA_ARGS__)

#define BLOCK_X ((int)host::block.x)
#define BLOCK_Y ((int)host::block.y)
#define BLOCK_Z ((int)host::block.z)
#define BLOCKS_X ((int)host::grid.x)
#define BLOCKS_Y ((int)host::grid.y)

// Threads of one region do not depend on each other, so the loop over them may be vectorised.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" // where a thread works on a float8, its loop is no candidate
#define THREADS(n) _Pragma("clang loop vectorize(assume_safety)") for (int thread = 0; thread < (n); ++thread)
#else
#define THREADS(n) _Pragma("GCC ivdep") for (int thread = 0; thread < (n); ++thread)
#endif
// The threads of a block of n whose number is below count: a condition that costs the loop nothing.
#define THREADS_BELOW(n, count) THREADS((count) < (n) ? (count) : (n))
// The same, one level down: code inside WAVES(n) but outside LANES and ONE_LANE is the same for every lane of a wave.
#define WAVES(n) for (int wave = 0; wave < (n) / WAVE; ++wave)
#if defined(__clang__)
#define LANES _Pragma("clang loop vectorize(assume_safety)") for (int lane = 0; lane < WAVE; ++lane)
#else
#define LANES _Pragma("GCC ivdep") _Pragma("GCC unroll 8") for (int lane = 0; lane < WAVE; ++lane)
#endif
#define ONE_LANE
#if defined(__clang__)
#define UNROLL_BY(n) PRAGMA(unroll n)
#else
#define UNROLL_BY(n) PRAGMA(GCC unroll n)
#endif
#define UNROLL UNROLL_BY(16)
#define SHARED(T, name, n) host::Shared<T, (n)> name
#define BARRIER() ((void)0)

template <class T, int N> struct PerThread {
    T values[N];
    MEMBER T& operator[](int thread) { return values[thread]; }
    MEMBER const T& operator[](int thread) const { return values[thread]; }
};

template <class T> using PerLane = PerThread<T, WAVE>;

DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float float_of(u32 x) { return __builtin_bit_cast(float, x); }
DEVICE u64 bits_of(double x) { return __builtin_bit_cast(u64, x); }
DEVICE double double_of(u64 x) { return __builtin_bit_cast(double, x); }
DEVICE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma_(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float sqrt_(float x) { return __builtin_sqrtf(x); }
DEVICE float divide(float a, float b) { return a / b; }

#else

// --------------------------------------------------------------------------------------------------------------- GPUs

#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__

// Only the first argument of __launch_bounds__ means the same to both vendors, so only it is given.
#define ENTRY(name, threads, ...) extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)

#define BLOCK_X ((int)blockIdx.x)
#define BLOCK_Y ((int)blockIdx.y)
#define BLOCK_Z ((int)blockIdx.z)
#define BLOCKS_X ((int)gridDim.x)
#define BLOCKS_Y ((int)gridDim.y)

#define THREADS(n) for (int thread = (int)threadIdx.x, once = 1; once; once = 0)
#define THREADS_BELOW(n, count) for (int thread = (int)threadIdx.x, once = thread < (count); once; once = 0)
#define WAVES(n) for (int wave = (int)threadIdx.x / WAVE, once = 1; once; once = 0)
#define LANES for (int lane = (int)threadIdx.x % WAVE, once = 1; once; once = 0)
#define ONE_LANE if (threadIdx.x % WAVE == 0)
#define UNROLL_BY(n) PRAGMA(unroll n)
#define UNROLL _Pragma("unroll")
#define SHARED(T, name, n) __shared__ alignas(16) T name[n]
#define BARRIER() __syncthreads()

template <class T, int N> struct PerThread {
    T value;
    MEMBER T& operator[](int) { return value; }
    MEMBER const T& operator[](int) const { return value; }
};

template <class T> using PerLane = PerThread<T, WAVE>;

DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of(u32 x) { return __uint_as_float(x); }
DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
DEVICE double double_of(u64 x) { return __longlong_as_double((i64)x); }

#if defined(ON_CUDA)
// Exactly rounded whatever the compiler's options are.
DEVICE float fma_(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE double fma_(double a, double b, double c) { return __fma_rn(a, b, c); }
DEVICE float sqrt_(float x) { return __fsqrt_rn(x); }
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
#define SHUFFLE_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask, WAVE)
#else
// clang rounds float32 division and square root exactly for HIP unless told otherwise.
DEVICE float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma_(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float sqrt_(float x) { return __builtin_sqrtf(x); }
DEVICE float divide(float a, float b) { return a / b; }
#define SHUFFLE_XOR(value, mask) __shfl_xor(value, mask, WAVE)
#endif

DEVICE float shuffle_xor(float value, int mask) { return SHUFFLE_XOR(value, mask); }
DEVICE int shuffle_xor(int value, int mask) { return SHUFFLE_XOR(value, mask); }

#endif

// --------------------------------------------------------------------------------------------------------- reductions

// What was found by a search, and where; of equal keys the lowest index wins, whatever the order of comparison.
struct Best {
    int key;
    int index;
};

#if !defined(ON_HOST)
DEVICE Best shuffle_xor(Best best, int mask) { return {shuffle_xor(best.key, mask), shuffle_xor(best.index, mask)}; }
#endif

struct Add {
    MEMBER float operator()(float a, float b) const { return a + b; }
    MEMBER int operator()(int a, int b) const { return a + b; }
};

struct Larger {
    MEMBER float operator()(float a, float b) const { return a > b ? a : b; }
    MEMBER Best operator()(Best a, Best b) const {
        return b.key > a.key || (b.key == a.key && b.index < a.index) ? b : a;
    }
};

// Every thread's value becomes its wave's combined value: lanes 16 (32) apart first, then 8, 4, 2, 1. `combine` must be
// commutative to the last bit, then all lanes hold the same.
template <int N, class T, class Combine> DEVICE void wave_reduce(PerThread<T, N>& values, Combine combine) {
    static_assert(N % WAVE == 0, "a block is a whole number of waves");
#if defined(ON_HOST)
    for (int first = 0; first < N; first += WAVE) {
        T lanes[WAVE];
        for (int lane = 0; lane < WAVE; ++lane) lanes[lane] = values[first + lane];
        UNROLL for (int half = WAVE / 2; half; half /= 2) {
            for (int lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        for (int lane = 0; lane < WAVE; ++lane) values[first + lane] = lanes[0];
    }
#else
    for (int mask = WAVE / 2; mask; mask /= 2) values[0] = combine(values[0], shuffle_xor(values[0], mask));
#endif
}

// The block's combined value: waves as above, then their values from the first to the last. Block-uniform.
template <int N, class T, class Combine> DEVICE T block_reduce(PerThread<T, N>& values, Combine combine) {
    wave_reduce(values, combine);
    SHARED(T, waves, N / WAVE);
    BARRIER(); // an earlier call may still be reading
    THREADS(N) {
        if (thread % WAVE == 0) waves[thread / WAVE] = values[thread];
    }
    BARRIER();
    T result = waves[0];
    for (int wave = 1; wave < N / WAVE; ++wave) result = combine(result, waves[wave]);
    return result;
}

// ------------------------------------------------------------------------------------------------------ storage types

// bfloat16 and float16 are 16 bits of storage with conversions of our own, all integer arithmetic: no vendor type, no
// rounding mode, no flushing can change them.
struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};
typedef float f32;

DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return float_of((u32)x.bits << 16); }

DEVICE float widen(f16 x) {
    const u32 sign = (u32)(x.bits & 0x8000u) << 16;
    const u32 magnitude = x.bits & 0x7fffu;
    const u32 normal = (magnitude << 13) + (112u << 23);
    const u32 special = (magnitude << 13) | 0x7f800000u;
    const u32 denormal = bits_of((float)(int)magnitude * 0x1p-24f); // exactly
    const u32 finite = magnitude < 0x400u ? denormal : normal;
    return float_of(sign | (magnitude < 0x7c00u ? finite : special));
}

// Round to nearest, ties to even; a NaN stays a quiet NaN of the same sign.
DEVICE void narrow(float x, float& out) { out = x; }
DEVICE void narrow(float x, bf16& out) {
    const u32 bits = bits_of(x);
    const u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const u32 quiet = (bits >> 16 & 0x8000u) | 0x7fc0u;
    out.bits = (u16)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
DEVICE void narrow(float x, f16& out) {
    const u32 bits = bits_of(x);
    const u32 magnitude = bits & 0x7fffffffu;
    const u32 shifted = magnitude - (112u << 23);
    const u32 normal = (shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13;
    // A float16 denormal: the significand is shifted into place. From 25 places on nothing of it is left.
    const u32 places = 126u - (magnitude >> 23);
    const u32 shift = places < 25u ? places : 25u;
    const u32 significand = (magnitude & 0x7fffffu) | 0x800000u;
    const u32 kept = significand >> shift;
    const u32 lost = significand - (kept << shift);
    const u32 denormal = kept + ((lost + (kept & 1u)) * 2u > 1u << shift);
    const u32 finite = magnitude < 0x38800000u ? denormal : normal;
    const u32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    // 65520 and above round to infinity.
    out.bits = (u16)((bits >> 16 & 0x8000u) | (magnitude < 0x477ff000u ? finite : special));
}

template <class T> DEVICE T narrow(float x) {
    T out;
    narrow(x, out);
    return out;
}

// x as the storage type T would hold it: a rounding point inside a kernel.
template <class T> DEVICE float rounded_to(float x) { return widen(narrow<T>(x)); }

// ------------------------------------------------------------------------------------------------------- eight at once

// Eight floats that a thread works on together: what a 16-byte load of a 16-bit type brings. On the host they are one
// vector, so that work inside a thread is as wide as the machine too.
#if defined(ON_HOST)

namespace host {
typedef float Floats __attribute__((vector_size(32)));

template <class V, class T> MEMBER V load(const T* p) {
    V result;
    std::memcpy(&result, p, sizeof result);
    return result;
}
} // namespace host

constexpr bool ANY_ALIGNMENT = true;

struct float8 {
    host::Floats values;
};

DEVICE float8 load8(const f32* p) { return {host::load<host::Floats>(p)}; }
DEVICE float8 load8(const bf16* p) {
#if defined(__AVX2__)
    // One byte shuffle puts each 16 bits into the upper half of its 32; widening and then shifting would take two.
    const __m256i twice = _mm256_broadcastsi128_si256(host::load<__m128i>(p));
    const __m256i upper = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, //
                                           -1, -1, 8, 9, -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    return {(host::Floats)_mm256_shuffle_epi8(twice, upper)};
#else
    float8 result;
    for (int i = 0; i < 8; ++i) result.values[i] = widen(p[i]);
    return result;
#endif
}
DEVICE float8 load8(const f16* p) {
#if defined(__F16C__)
    return {(host::Floats)_mm256_cvtph_ps(host::load<__m128i>(p))};
#else
    float8 result;
    for (int i = 0; i < 8; ++i) result.values[i] = widen(p[i]);
    return result;
#endif
}

DEVICE float8 fma_(float8 a, float8 b, float8 c) {
#if defined(__FMA__)
    return {(host::Floats)_mm256_fmadd_ps((__m256)a.values, (__m256)b.values, (__m256)c.values)};
#else
    float8 result;
    for (int i = 0; i < 8; ++i) result.values[i] = fma_(a.values[i], b.values[i], c.values[i]);
    return result;
#endif
}

DEVICE float8 splat(float x) {
    const host::Floats values = {x, x, x, x, x, x, x, x};
    return {values};
}

DEVICE float8 operator+(float8 a, float8 b) { return {a.values + b.values}; }
DEVICE float8 operator*(float8 a, float8 b) { return {a.values * b.values}; }

DEVICE void store8(float* p, float8 x) { std::memcpy(p, &x.values, sizeof x.values); }

// rows[i][j] becomes rows[j][i].
DEVICE void transpose(float8* rows) {
#if defined(__AVX__)
    __m256 pair[8], quad[8];
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps((__m256)rows[i].values, (__m256)rows[i + 1].values);
        pair[i + 1] = _mm256_unpackhi_ps((__m256)rows[i].values, (__m256)rows[i + 1].values);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            quad[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0x44);
            quad[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; ++i) {
        rows[i] = {(host::Floats)_mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20)};
        rows[i + 4] = {(host::Floats)_mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31)};
    }
#else
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < i; ++j) {
            const float swapped = rows[i].values[j];
            rows[i].values[j] = rows[j].values[i];
            rows[j].values[i] = swapped;
        }
#endif
}

#else

constexpr bool ANY_ALIGNMENT = false;

struct float8 {
    float values[8];
};

// `p` is a multiple of 16 bytes.
template <class T> DEVICE float8 load8(const T* p) {
    struct alignas(16) Packed {
        T values[8];
    };
    const Packed packed = *reinterpret_cast<const Packed*>(p);
    float8 result;
    UNROLL for (int i = 0; i < 8; ++i) result.values[i] = widen(packed.values[i]);
    return result;
}

DEVICE float8 fma_(float8 a, float8 b, float8 c) {
    float8 result;
    UNROLL for (int i = 0; i < 8; ++i) result.values[i] = fma_(a.values[i], b.values[i], c.values[i]);
    return result;
}

DEVICE float8 splat(float x) { return {{x, x, x, x, x, x, x, x}}; }

DEVICE float8 operator+(float8 a, float8 b) {
    float8 result;
    UNROLL for (int i = 0; i < 8; ++i) { result.values[i] = a.values[i] + b.values[i]; }
    return result;
}

DEVICE float8 operator*(float8 a, float8 b) {
    float8 result;
    UNROLL for (int i = 0; i < 8; ++i) { result.values[i] = a.values[i] * b.values[i]; }
    return result;
}

DEVICE void store8(float* p, float8 x) {
    struct alignas(16) Packed {
        float values[8];
    };
    Packed packed;
    UNROLL for (int i = 0; i < 8; ++i) packed.values[i] = x.values[i];
    *reinterpret_cast<Packed*>(p) = packed;
}

DEVICE void transpose(float8* rows) {
    UNROLL for (int i = 0; i < 8; ++i) UNROLL for (int j = 0; j < i; ++j) {
        const float swapped = rows[i].values[j];
        rows[i].values[j] = rows[j].values[i];
        rows[j].values[i] = swapped;
    }
}

#endif

// Copy eight neighbours as they are; both ends may be loaded by eight.
template <class T> DEVICE void copy8(const T* from, T* to) {
#if defined(ON_HOST)
    std::memcpy(to, from, 8 * sizeof(T));
#else
    struct alignas(16) Packed {
        T values[8];
    };
    *reinterpret_cast<Packed*>(to) = *reinterpret_cast<const Packed*>(from);
#endif
}

// Whether load8 may be used on every eighth element of rows of `columns` that follow each other from `p`.
template <class T> DEVICE bool loads_by_eight(const T* p, int columns) {
    return columns % 8 == 0 && (ANY_ALIGNMENT || reinterpret_cast<u64>(p) % 16 == 0);
}

// Neighbours 4 apart first, then 2, then 1: as wave_reduce adds lanes.
DEVICE float sum(float8 x) {
    float four[4];
    UNROLL for (int i = 0; i < 4; ++i) four[i] = x.values[i] + x.values[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// sum() of every lane's eight.
DEVICE void sum_each(const PerLane<float8>& eights, PerLane<float>& sums) {
#if defined(ON_HOST) && defined(__AVX__)
    // Eight lanes at a time, so that the additions stay eight wide.
    for (int lane = 0; lane < WAVE; lane += 8) {
        __m256 half[4], quarter[2];
        for (int i = 0; i < 4; ++i) {
            const __m256 a = (__m256)eights[lane + i].values, b = (__m256)eights[lane + i + 4].values;
            half[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
        }
        for (int i = 0; i < 2; ++i)
            quarter[i] = _mm256_add_ps(_mm256_shuffle_ps(half[2 * i], half[2 * i + 1], 0x44),
                                       _mm256_shuffle_ps(half[2 * i], half[2 * i + 1], 0xee));
        _mm256_storeu_ps(&sums[lane], _mm256_hadd_ps(quarter[0], quarter[1]));
    }
#else
    LANES { sums[lane] = sum(eights[lane]); }
#endif
}

// ------------------------------------------------------------------------------------------------------- matrix units

// A wave multiplies tiles of 16 x 16: sums += a b^T, bfloat16 in, float32 sums. Each lane holds a share of every tile,
// in an order of the unit's own; the functions below are called by all lanes together. The order in which a unit adds
// 16 products and how it rounds them are its own too, so that results need not be equal to the last bit. Where there is
// no unit each lane computes its sums by itself, which is how the host tests the rest of a kernel.
constexpr int UNIT_TILE = 16;
constexpr int UNIT_SUMS = UNIT_TILE * UNIT_TILE / WAVE; // of a lane

struct UnitSums {
    float values[UNIT_SUMS];
};

#if defined(ON_CUDA)

// mma.sync.m16n8k16: registers of two elements each. Rows 0-7 and 8-15, terms 0-7 and 8-15; see the PTX manual.
struct UnitRows {
    u32 pairs[2][2]; // [half of the rows][half of the terms]
};

// This lane's share of 16 rows of 16 terms that begin at `tile`, `stride` apart, in shared memory.
DEVICE UnitRows load_rows(const bf16* tile, int stride, int lane) {
    UnitRows rows;
    UNROLL for (int half = 0; half < 2; ++half) {
        const bf16* row = tile + (half * 8 + lane / 4) * stride + lane % 4 * 2;
        rows.pairs[half][0] = *reinterpret_cast<const u32*>(row);
        rows.pairs[half][1] = *reinterpret_cast<const u32*>(row + 8);
    }
    return rows;
}

DEVICE void multiply_rows(const UnitRows& a, const UnitRows& b, UnitSums& sums, int) {
    UNROLL for (int half = 0; half < 2; ++half) {
        float* c = sums.values + half * 4;
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a.pairs[0][0]), "r"(a.pairs[1][0]), "r"(a.pairs[0][1]), "r"(a.pairs[1][1]), "r"(b.pairs[half][0]),
              "r"(b.pairs[half][1]));
    }
}

// Where sum i of a lane belongs: the row of a, and the row of b, that it is the product of.
DEVICE int unit_row(int i, int lane) { return i % 4 / 2 * 8 + lane / 4; }
DEVICE int unit_column(int i, int lane) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

#elif defined(__GFX11__) || defined(__GFX12__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)

#if defined(__GFX11__)
constexpr int UNIT_TERMS = 16; // of a row that a lane holds: all, in both halves of the wave
#else
constexpr int UNIT_TERMS = UNIT_TILE * UNIT_TILE / WAVE;
#endif
typedef short UnitRows __attribute__((ext_vector_type(UNIT_TERMS)));
typedef float UnitVector __attribute__((ext_vector_type(UNIT_SUMS)));

DEVICE UnitRows load_rows(const bf16* tile, int stride, int lane) {
    const int share = UNIT_TERMS == UNIT_TILE ? 0 : lane / UNIT_TILE;
    return *reinterpret_cast<const UnitRows*>(tile + lane % UNIT_TILE * stride + share * UNIT_TERMS);
}

DEVICE void multiply_rows(const UnitRows& a, const UnitRows& b, UnitSums& sums, int) {
    UnitVector c;
    UNROLL for (int i = 0; i < UNIT_SUMS; ++i) c[i] = sums.values[i];
#if defined(__GFX11__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
#elif defined(__GFX12__)
    c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
#else
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#endif
    UNROLL for (int i = 0; i < UNIT_SUMS; ++i) sums.values[i] = c[i];
}

#if defined(__GFX11__)
DEVICE int unit_row(int i, int lane) { return i * 2 + lane / UNIT_TILE; }
#else
DEVICE int unit_row(int i, int lane) { return lane / UNIT_TILE * UNIT_SUMS + i; }
#endif
DEVICE int unit_column(int, int lane) { return lane % UNIT_TILE; }

#else

struct UnitRows {
    const bf16* tile;
    int stride;
};

DEVICE UnitRows load_rows(const bf16* tile, int stride, int) { return {tile, stride}; }

DEVICE int unit_row(int i, int lane) { return (i * WAVE + lane) / UNIT_TILE; }
DEVICE int unit_column(int i, int lane) { return (i * WAVE + lane) % UNIT_TILE; }

DEVICE void multiply_rows(const UnitRows& a, const UnitRows& b, UnitSums& sums, int lane) {
    for (int i = 0; i < UNIT_SUMS; ++i) {
        const bf16* left = a.tile + unit_row(i, lane) * a.stride;
        const bf16* right = b.tile + unit_column(i, lane) * b.stride;
        for (int k = 0; k < UNIT_TILE; ++k) sums.values[i] = fma_(widen(left[k]), widen(right[k]), sums.values[i]);
    }
}

#endif

// FOR_EACH_STORAGE(MACRO) expands MACRO(T) once per storage type of activations.
#define FOR_EACH_STORAGE(MACRO)                                                                                        \
    MACRO(bf16)                                                                                                        \
    MACRO(f16)                                                                                                         \
    MACRO(f32)
