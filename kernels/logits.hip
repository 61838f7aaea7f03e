// What is read off a row of logits, one row per block; see toolkit/ops/logits.py.
#include "functions.h"
#include "selection.h"

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

template <class T> DEVICE void argmax_row(const T* x, int* out, int columns) {
    const Best best = best_after<LOGITS_THREADS>(x, columns, {NAN_KEY, -1});
    THREADS_BELOW(LOGITS_THREADS, 1) { *out = best.key == NAN_KEY ? -1 : best.index; }
}

template <class T> DEVICE void top_k_row(const T* x, T* values, int* indices, int columns, int k) {
    Best best = {NAN_KEY, -1};
    bool has_nan = false;
    for (int rank = 0; rank < k; ++rank) {
        if (!has_nan) best = best_after<LOGITS_THREADS>(x, columns, best);
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
