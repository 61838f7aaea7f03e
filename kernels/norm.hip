// Normalisation, one row per block; see toolkit/ops/norm.py.
#include "functions.h"

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

// Of one row: the block's sum of f(column).
template <class F> DEVICE float row_sum(int columns, F f) {
    PerThread<float, NORM_THREADS> sums;
    THREADS(NORM_THREADS) { sums[thread] = 0.0f; }
    for (int first = 0; first < columns; first += NORM_THREADS) {
        THREADS_BELOW(NORM_THREADS, columns - first) { sums[thread] = f(first + thread, sums[thread]); }
    }
    return block_reduce(sums, Add());
}

template <class F> DEVICE void for_each_column(int columns, F f) {
    for (int first = 0; first < columns; first += NORM_THREADS) {
        THREADS_BELOW(NORM_THREADS, columns - first) { f(first + thread); }
    }
}

// The norm comes before the gate. With `narrow_between` the normed row and its product with the weight are rounded to
// T.
template <class T, class Gate>
DEVICE void rms_norm_gated_row(const T* x, const Gate* gate, const T* weight, T* out, int columns, float eps,
                               int narrow_between) {
    const float squares = row_sum(columns, [=](int i, float sum) { return fma_(widen(x[i]), widen(x[i]), sum); });
    const float scale = divide(1.0f, sqrt_(divide(squares, (float)columns) + eps));
    for_each_column(columns, [=](int i) {
        float normed = widen(x[i]) * scale;
        if (narrow_between) normed = rounded_to<T>(normed);
        float weighted = normed * widen(weight[i]);
        if (narrow_between) weighted = rounded_to<T>(weighted);
        out[i] = narrow<T>(weighted * silu(widen(gate[i])));
    });
}

// The variance is that of the differences from the mean, which does not cancel.
template <class T>
DEVICE void layer_norm_row(const T* x, const T* weight, const T* bias, T* out, int columns, float eps) {
    const float mean = divide(row_sum(columns, [=](int i, float sum) { return sum + widen(x[i]); }), (float)columns);
    const float squares = row_sum(columns, [=](int i, float sum) {
        const float difference = widen(x[i]) - mean;
        return fma_(difference, difference, sum);
    });
    const float scale = divide(1.0f, sqrt_(divide(squares, (float)columns) + eps));
    for_each_column(columns, [=](int i) {
        out[i] = narrow<T>(fma_((widen(x[i]) - mean) * scale, widen(weight[i]), widen(bias[i])));
    });
}

#define LAYER_NORM(T)                                                                                                  \
    ENTRY(layer_norm_##T, NORM_THREADS, const T* x, const T* weight, const T* bias, T* out, int columns, float eps) {  \
        const i64 row = (i64)BLOCK_X * columns;                                                                        \
        layer_norm_row<T>(x + row, weight, bias, out + row, columns, eps);                                             \
    }
FOR_EACH_STORAGE(LAYER_NORM)

#define RMS_NORM_GATED(T, Gate)                                                                                        \
    ENTRY(rms_norm_gated_##T##_##Gate, NORM_THREADS, const T* x, const Gate* gate, const T* weight, T* out,            \
          int columns, float eps, int narrow_between) {                                                                \
        const i64 row = (i64)BLOCK_X * columns;                                                                        \
        rms_norm_gated_row<T, Gate>(x + row, gate + row, weight, out + row, columns, eps, narrow_between);             \
    }
RMS_NORM_GATED(bf16, bf16)
RMS_NORM_GATED(bf16, f32)
RMS_NORM_GATED(f16, f16)
RMS_NORM_GATED(f16, f32)
RMS_NORM_GATED(f32, f32)
