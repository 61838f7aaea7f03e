// RMS normalisation, one row per block.
#include "portable.h"

constexpr int NORM_THREADS = 256;

// y = x / sqrt(mean(x^2) + eps), times the weight (plus one); see toolkit/ops/norm.py. `stream` (add_rms_norm) receives
// x + residual, rounded to T, and that is what is normalised.
template <class T>
DEVICE void rms_norm_row(const T* x, const T* residual, const T* weight, T* stream, T* out, int columns, float eps,
                         int unit_offset, int narrow_before_weight) {
    const i64 row = (i64)BLOCK_X * columns;
    PerThread<float, NORM_THREADS> squares;
    THREADS(NORM_THREADS) { squares[thread] = 0.0f; }
    for (int first = 0; first < columns; first += NORM_THREADS) {
        THREADS_BELOW(NORM_THREADS, columns - first) {
            const int column = first + thread;
            float value = widen(x[row + column]);
            if (residual) {
                const T sum = narrow<T>(value + widen(residual[row + column]));
                stream[row + column] = sum;
                value = widen(sum);
            }
            squares[thread] = fma_(value, value, squares[thread]);
        }
    }
    const float mean = divide(block_reduce(squares, Add()), (float)columns);
    const float scale = divide(1.0f, sqrt_(mean + eps));
    const T* source = residual ? stream : x;
    for (int first = 0; first < columns; first += NORM_THREADS) {
        THREADS_BELOW(NORM_THREADS, columns - first) {
            const int column = first + thread;
            float normed = widen(source[row + column]) * scale;
            if (narrow_before_weight) normed = rounded_to<T>(normed);
            const float factor = unit_offset ? widen(weight[column]) + 1.0f : widen(weight[column]);
            out[row + column] = narrow<T>(normed * factor);
        }
    }
}

#define RMS_NORM(T)                                                                                                    \
    ENTRY(rms_norm_##T, NORM_THREADS, const T* x, const T* weight, T* out, int columns, float eps, int unit_offset,    \
          int narrow_before_weight) {                                                                                  \
        rms_norm_row<T>(x, nullptr, weight, nullptr, out, columns, eps, unit_offset, narrow_before_weight);            \
    }                                                                                                                  \
    ENTRY(add_rms_norm_##T, NORM_THREADS, const T* x, const T* residual, const T* weight, T* stream, T* out,           \
          int columns, float eps, int unit_offset, int narrow_before_weight) {                                         \
        rms_norm_row<T>(x, residual, weight, stream, out, columns, eps, unit_offset, narrow_before_weight);            \
    }
FOR_EACH_STORAGE(RMS_NORM)
