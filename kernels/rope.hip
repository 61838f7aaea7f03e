// Rotary position embedding (Su et al., 2021); see toolkit/ops/rope.py.
#include "portable.h"
#include "functions.h"
#include "rotation.h"

constexpr int ROPE_THREADS = 64;

// cos and sin [tokens, pairs] of position * inverse_frequency. One token per block.
template <class T>
DEVICE void rope_table(const int* positions, const double* inverse_frequencies, T* cosines, T* sines, int pairs,
                       double factor) {
    const double position = (double)positions[BLOCK_X];
    const i64 row = (i64)BLOCK_X * pairs;
    for (int first = 0; first < pairs; first += ROPE_THREADS) {
        THREADS_BELOW(ROPE_THREADS, pairs - first) {
            const double angle = position * inverse_frequencies[first + thread];
            cosines[row + first + thread] = narrow<T>((float)(cos_(angle) * factor));
            sines[row + first + thread] = narrow<T>((float)(sin_(angle) * factor));
        }
    }
}

// The same with positions [axes, tokens], of which pair i takes that of axis[i]; NaN where that is no axis.
template <class T>
DEVICE void mrope_table(const int* positions, const double* inverse_frequencies, const int* axis, T* cosines, T* sines,
                        int axes, int tokens, int pairs, double factor) {
    const i64 row = (i64)BLOCK_X * pairs;
    for (int first = 0; first < pairs; first += ROPE_THREADS) {
        THREADS_BELOW(ROPE_THREADS, pairs - first) {
            const int pair = first + thread, of = axis[pair];
            const bool known = of >= 0 && of < axes;
            const double position = (double)positions[(known ? of : 0) * (i64)tokens + BLOCK_X];
            const double angle = position * inverse_frequencies[pair];
            cosines[row + pair] = narrow<T>(known ? (float)(cos_(angle) * factor) : not_a_number());
            sines[row + pair] = narrow<T>(known ? (float)(sin_(angle) * factor) : not_a_number());
        }
    }
}

// x [tokens, heads, head_dim]: the first 2 pairs elements of a head are rotated by the angles of its token, the others
// copied. The coordinates of a pair are neighbours where `interleaved`, else in the two halves of what is rotated. One
// head of one token per block.
template <class T, class Angle>
DEVICE void rope(const T* x, const Angle* cosines, const Angle* sines, T* out, int head_dim, int pairs, int interleaved,
                 int narrow_products) {
    const i64 head = ((i64)BLOCK_X * BLOCKS_Y + BLOCK_Y) * head_dim;
    const i64 row = (i64)BLOCK_X * pairs;
    for (int start = 0; start < pairs; start += ROPE_THREADS) {
        THREADS_BELOW(ROPE_THREADS, pairs - start) {
            const int pair = start + thread;
            const i64 first = head + (interleaved ? 2 * pair : pair);
            const i64 second = interleaved ? first + 1 : first + pairs;
            const Pair turned = rotate<T>({widen(x[first]), widen(x[second])}, widen(cosines[row + pair]),
                                          widen(sines[row + pair]), narrow_products);
            out[first] = narrow<T>(turned.first);
            out[second] = narrow<T>(turned.second);
        }
    }
    for (int start = 2 * pairs; start < head_dim; start += ROPE_THREADS) {
        THREADS_BELOW(ROPE_THREADS, head_dim - start) { out[head + start + thread] = x[head + start + thread]; }
    }
}

#define ROPE_TABLE(T)                                                                                                  \
    ENTRY(rope_table_##T, ROPE_THREADS, const int* positions, const double* inverse_frequencies, T* cosines, T* sines, \
          int pairs, double factor) {                                                                                  \
        rope_table<T>(positions, inverse_frequencies, cosines, sines, pairs, factor);                                  \
    }                                                                                                                  \
    ENTRY(mrope_table_##T, ROPE_THREADS, const int* positions, const double* inverse_frequencies, const int* axis,     \
          T* cosines, T* sines, int axes, int tokens, int pairs, double factor) {                                      \
        mrope_table<T>(positions, inverse_frequencies, axis, cosines, sines, axes, tokens, pairs, factor);             \
    }
FOR_EACH_STORAGE(ROPE_TABLE)

#define ROPE(T, ANGLE)                                                                                                 \
    ENTRY(rope_##T##_##ANGLE, ROPE_THREADS, const T* x, const ANGLE* cosines, const ANGLE* sines, T* out,              \
          int head_dim, int pairs, int interleaved, int narrow_products) {                                             \
        rope<T, ANGLE>(x, cosines, sines, out, head_dim, pairs, interleaved, narrow_products);                         \
    }
ROPE(bf16, bf16)
ROPE(bf16, f32)
ROPE(f16, f16)
ROPE(f16, f32)
ROPE(f32, f32)
