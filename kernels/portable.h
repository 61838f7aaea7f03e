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
#include <xmmintrin.h>
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
#define THREADS(n) _Pragma("clang loop vectorize(assume_safety)") for (int thread = 0; thread < (n); ++thread)
#else
#define THREADS(n) _Pragma("GCC ivdep") for (int thread = 0; thread < (n); ++thread)
#endif
#define SHARED(T, name, n) host::Shared<T, (n)> name
#define BARRIER() ((void)0)

template <class T, int N> struct PerThread {
    T values[N];
    MEMBER T& operator[](int thread) { return values[thread]; }
    MEMBER const T& operator[](int thread) const { return values[thread]; }
};

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
#define SHARED(T, name, n) __shared__ T name[n]
#define BARRIER() __syncthreads()

template <class T, int N> struct PerThread {
    T value;
    MEMBER T& operator[](int) { return value; }
    MEMBER const T& operator[](int) const { return value; }
};

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

// A value and where it was found; of equal values the lowest index wins, whatever the order of comparison.
struct Best {
    float value;
    int index;
};

#if !defined(ON_HOST)
DEVICE Best shuffle_xor(Best best, int mask) { return {shuffle_xor(best.value, mask), shuffle_xor(best.index, mask)}; }
#endif

struct Add {
    MEMBER float operator()(float a, float b) const { return a + b; }
    MEMBER int operator()(int a, int b) const { return a + b; }
};

struct Larger {
    MEMBER float operator()(float a, float b) const { return a > b ? a : b; }
    MEMBER Best operator()(Best a, Best b) const {
        return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
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
        for (int half = WAVE / 2; half; half /= 2)
            for (int lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
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
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + (112u << 23)));
    // A denormal is its 10 bits times 2^-24, exactly.
    const float value = (float)(int)magnitude * 0x1p-24f;
    return float_of(sign | bits_of(value));
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
    const u32 sign = bits >> 16 & 0x8000u;
    const u32 magnitude = bits & 0x7fffffffu;
    u32 result;
    if (magnitude > 0x7f800000u)
        result = 0x7e00u;
    else if (magnitude >= 0x477ff000u) // 65520 and above round to infinity
        result = 0x7c00u;
    else if (magnitude >= 0x38800000u) { // a normal float16
        const u32 shifted = magnitude - (112u << 23);
        result = (shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13;
    } else if (magnitude >= 0x33000000u) { // a float16 denormal: shift the significand into place
        const u32 shift = 126u - (magnitude >> 23);
        const u32 significand = (magnitude & 0x7fffffu) | 0x800000u;
        const u32 kept = significand >> shift;
        const u32 lost = significand & ((1u << shift) - 1u);
        const u32 half = 1u << (shift - 1u);
        result = kept + (lost > half || (lost == half && (kept & 1u)));
    } else
        result = 0u;
    out.bits = (u16)(sign | result);
}

template <class T> DEVICE T narrow(float x) {
    T out;
    narrow(x, out);
    return out;
}

// x as the storage type T would hold it: a rounding point inside a kernel.
template <class T> DEVICE float rounded_to(float x) { return widen(narrow<T>(x)); }

// FOR_EACH_STORAGE(MACRO) expands MACRO(T) once per storage type of activations.
#define FOR_EACH_STORAGE(MACRO)                                                                                        \
    MACRO(bf16)                                                                                                        \
    MACRO(f16)                                                                                                         \
    MACRO(f32)
