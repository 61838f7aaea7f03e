// What is read off a row of logits, one row per block; see toolkit/ops/logits.py.
#include "functions.h"

constexpr int LOGITS_THREADS = 1024;

// ------------------------------------------------------------------------------------------------------- log-softmax

template <class T> DEVICE void log_softmax_row(const T* x, float* out, int columns) {
    PerThread<float, LOGITS_THREADS> largest;
    THREADS(LOGITS_THREADS) { largest[thread] = -infinity(); }
    for (int first = 0; first < columns; first += LOGITS_THREADS) {
        THREADS_BELOW(LOGITS_THREADS, columns - first) {
            largest[thread] = Larger()(largest[thread], widen(x[first + thread]));
        }
    }
    const float most = block_reduce(largest, Larger());
    PerThread<float, LOGITS_THREADS> sums;
    THREADS(LOGITS_THREADS) { sums[thread] = 0.0f; }
    for (int first = 0; first < columns; first += LOGITS_THREADS) {
        THREADS_BELOW(LOGITS_THREADS, columns - first) { sums[thread] += exp_(widen(x[first + thread]) - most); }
    }
    const float log_sum = log_(block_reduce(sums, Add()));
    for (int first = 0; first < columns; first += LOGITS_THREADS) {
        THREADS_BELOW(LOGITS_THREADS, columns - first) {
            out[first + thread] = (widen(x[first + thread]) - most) - log_sum;
        }
    }
}

// --------------------------------------------------------------------------------------------------------- selections

// An integer that orders as the number does: both zeros are 0, denormals stay apart, NaN is above everything.
constexpr int NAN_KEY = 0x7fffffff;
constexpr int NO_KEY = (int)0x80000000u; // below every key

DEVICE int order_key(float x) {
    const int bits = (int)bits_of(x);
    const int ordered = bits < 0 ? (int)(0x80000000u - (u32)bits) : bits;
    return (bits & 0x7fffffff) > 0x7f800000 ? NAN_KEY : ordered;
}

// The best of the row that comes after `last` in the order: value descending, then index ascending.
template <class T> DEVICE Best best_after(const T* x, int columns, Best last) {
    PerThread<int, LOGITS_THREADS> keys, indices;
    THREADS(LOGITS_THREADS) {
        keys[thread] = NO_KEY;
        indices[thread] = columns;
    }
    for (int first = 0; first < columns; first += LOGITS_THREADS) {
        THREADS_BELOW(LOGITS_THREADS, columns - first) {
            const int index = first + thread;
            const int key = order_key(widen(x[index]));
            const bool after = key < last.key || (key == last.key && index > last.index);
            const bool better = after && key > keys[thread];
            keys[thread] = better ? key : keys[thread];
            indices[thread] = better ? index : indices[thread];
        }
    }
    PerThread<Best, LOGITS_THREADS> best;
    THREADS(LOGITS_THREADS) { best[thread] = {keys[thread], indices[thread]}; }
    return block_reduce(best, Larger());
}

template <class T> DEVICE void argmax_row(const T* x, int* out, int columns) {
    const Best best = best_after(x, columns, {NAN_KEY, -1});
    THREADS_BELOW(LOGITS_THREADS, 1) { *out = best.key == NAN_KEY ? -1 : best.index; }
}

template <class T> DEVICE void top_k_row(const T* x, T* values, int* indices, int columns, int k) {
    Best best = {NAN_KEY, -1};
    bool has_nan = false;
    for (int rank = 0; rank < k; ++rank) {
        if (!has_nan) best = best_after(x, columns, best);
        has_nan = best.key == NAN_KEY;
        THREADS_BELOW(LOGITS_THREADS, 1) {
            values[rank] = has_nan ? narrow<T>(not_a_number()) : x[best.index];
            indices[rank] = has_nan ? -1 : best.index;
        }
    }
}

#define LOGITS(T)                                                                                                      \
    ENTRY(log_softmax_##T, LOGITS_THREADS, const T* x, float* out, int columns) {                                      \
        log_softmax_row(x + (i64)BLOCK_X * columns, out + (i64)BLOCK_X * columns, columns);                            \
    }                                                                                                                  \
    ENTRY(argmax_##T, LOGITS_THREADS, const T* x, int* out, int columns) {                                             \
        argmax_row(x + (i64)BLOCK_X * columns, out + BLOCK_X, columns);                                                \
    }                                                                                                                  \
    ENTRY(top_k_##T, LOGITS_THREADS, const T* x, T* values, int* indices, int columns, int k) {                        \
        top_k_row(x + (i64)BLOCK_X * columns, values + (i64)BLOCK_X * k, indices + (i64)BLOCK_X * k, columns, k);      \
    }
FOR_EACH_STORAGE(LOGITS)
