// Rotary position embedding (Su et al., 2021); see toolkit/ops/rope.py.
#include "portable.h"
#include "functions.h"

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

// x [tokens, heads, 2 pairs] rotated by the angles of its token: the two halves of a head are the coordinates. One head
// of one token per block. With `narrow_products` each product is rounded to T before they are added.
template <class T, class Angle>
DEVICE void rope(const T* x, const Angle* cosines, const Angle* sines, T* out, int pairs, int narrow_products) {
    const i64 head = ((i64)BLOCK_X * BLOCKS_Y + BLOCK_Y) * 2 * pairs;
    const i64 row = (i64)BLOCK_X * pairs;
    for (int first = 0; first < pairs; first += ROPE_THREADS) {
        THREADS_BELOW(ROPE_THREADS, pairs - first) {
            const int pair = first + thread;
            const float a = widen(x[head + pair]), b = widen(x[head + pairs + pair]);
            const float cosine = widen(cosines[row + pair]), sine = widen(sines[row + pair]);
            float ac = a * cosine, bs = b * sine, bc = b * cosine, as = a * sine;
            if (narrow_products) {
                ac = rounded_to<T>(ac);
                bs = rounded_to<T>(bs);
                bc = rounded_to<T>(bc);
                as = rounded_to<T>(as);
            }
            out[head + pair] = narrow<T>(ac - bs);
            out[head + pairs + pair] = narrow<T>(bc + as);
        }
    }
}

#define ROPE_TABLE(T)                                                                                                  \
    ENTRY(rope_table_##T, ROPE_THREADS, const int* positions, const double* inverse_frequencies, T* cosines, T* sines, \
          int pairs, double factor) {                                                                                  \
        rope_table<T>(positions, inverse_frequencies, cosines, sines, pairs, factor);                                  \
    }
FOR_EACH_STORAGE(ROPE_TABLE)

#define ROPE(T, ANGLE)                                                                                                 \
    ENTRY(rope_##T##_##ANGLE, ROPE_THREADS, const T* x, const ANGLE* cosines, const ANGLE* sines, T* out, int pairs,   \
          int narrow_products) {                                                                                       \
        rope<T, ANGLE>(x, cosines, sines, out, pairs, narrow_products);                                                \
    }
ROPE(bf16, bf16)
ROPE(bf16, f32)
ROPE(f16, f16)
ROPE(f16, f32)
ROPE(f32, f32)
