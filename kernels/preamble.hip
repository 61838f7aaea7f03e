// What comes before the attention of Qwen3-Next and Qwen3.5, in one launch: heads of q and k are normed and rotated,
// the gates that lie between the heads of q are taken out. See toolkit/ops/preamble.py. One head of one token per
// block.
#include "rotation.h"

constexpr int PREAMBLE_THREADS = 128;
constexpr int LARGEST_HEAD = 512; // LARGEST_HEAD of toolkit/ops/preamble.py

struct HeadNorm {
    float eps;
    int unit_offset, narrow_before_weight, narrow_between;
};

template <class T, class Angle, class Out>
DEVICE void norm_and_rotate(const T* x, const T* weight, const Angle* cosines, const Angle* sines, Out* out,
                            int head_dim, int pairs, HeadNorm norm, int narrow_products) {
    SHARED(float, normed, LARGEST_HEAD);
    PerThread<float, PREAMBLE_THREADS> squares;
    THREADS(PREAMBLE_THREADS) { squares[thread] = 0.0f; }
    for (int first = 0; first < head_dim; first += PREAMBLE_THREADS) {
        THREADS_BELOW(PREAMBLE_THREADS, head_dim - first) {
            const float value = widen(x[first + thread]);
            squares[thread] = fma_(value, value, squares[thread]);
        }
    }
    const float mean = divide(block_reduce(squares, Add()), (float)head_dim);
    const float scale = divide(1.0f, sqrt_(mean + norm.eps));
    for (int first = 0; first < head_dim; first += PREAMBLE_THREADS) {
        THREADS_BELOW(PREAMBLE_THREADS, head_dim - first) {
            const int i = first + thread;
            float value = widen(x[i]) * scale;
            if (norm.narrow_before_weight) value = rounded_to<T>(value);
            value = value * (norm.unit_offset ? widen(weight[i]) + 1.0f : widen(weight[i]));
            normed[i] = norm.narrow_between ? rounded_to<T>(value) : value;
        }
    }
    BARRIER();
    for (int first = 0; first < pairs; first += PREAMBLE_THREADS) {
        THREADS_BELOW(PREAMBLE_THREADS, pairs - first) {
            const int pair = first + thread;
            const Pair turned = rotate<T>({normed[pair], normed[pairs + pair]}, widen(cosines[pair]),
                                          widen(sines[pair]), narrow_products);
            out[pair] = narrow<Out>(turned.first);
            out[pairs + pair] = narrow<Out>(turned.second);
        }
    }
    for (int first = 2 * pairs; first < head_dim; first += PREAMBLE_THREADS) {
        THREADS_BELOW(PREAMBLE_THREADS, head_dim - first) { out[first + thread] = narrow<Out>(normed[first + thread]); }
    }
}

// Sources, angles and results have types of their own: keyed on one of them alone, bits of one type are written through
// pointers of another.
#define PREAMBLE(T, ANGLE, OUT)                                                                                        \
    ENTRY(qk_norm_rope_gate_##T##_##ANGLE##_##OUT, PREAMBLE_THREADS, const T* q_gate, const T* k, const T* q_weight,   \
          const T* k_weight, const ANGLE* cosines, const ANGLE* sines, OUT* q_out, OUT* k_out, T* gate, int q_heads,   \
          int k_heads, int head_dim, int pairs, float eps, int unit_offset, int narrow_before_weight,                  \
          int narrow_between, int narrow_products) {                                                                   \
        const int token = BLOCK_X, of_k = BLOCK_Y >= q_heads;                                                          \
        const i64 q_head = (i64)token * q_heads + BLOCK_Y, k_head = (i64)token * k_heads + (BLOCK_Y - q_heads);        \
        const T* x = of_k ? k + k_head * head_dim : q_gate + q_head * 2 * head_dim;                                    \
        norm_and_rotate<T, ANGLE, OUT>(                                                                                \
            x, of_k ? k_weight : q_weight, cosines + (i64)token * pairs, sines + (i64)token * pairs,                   \
            (of_k ? k_out + k_head * head_dim : q_out + q_head * head_dim), head_dim, pairs,                           \
            {eps, unit_offset, narrow_before_weight, narrow_between}, narrow_products);                                \
        if (!of_k) {                                                                                                   \
            for (int first = 0; first < head_dim; first += PREAMBLE_THREADS) {                                         \
                THREADS_BELOW(PREAMBLE_THREADS, head_dim - first) {                                                    \
                    gate[q_head * head_dim + first + thread] = x[head_dim + first + thread];                           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define PREAMBLES(T) PREAMBLE(T, T, T) PREAMBLE(T, T, f32) PREAMBLE(T, f32, T) PREAMBLE(T, f32, f32)
PREAMBLES(bf16)
PREAMBLES(f16)
PREAMBLE(f32, f32, f32)
