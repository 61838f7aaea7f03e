// Activations; see toolkit/ops/activation.py and gating.py.
#include "tiles.h"
#include "functions.h"

// x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3) is x / (1 + e^(-2 u)), which does not cancel for negative x.
DEVICE float gelu_tanh(float x) {
    const float u = 0x1.988454p-1f * fma_(0.044715f * (x * x), x, x);
    return divide(x, 1.0f + exp_(-2.0f * u));
}

// x times the probability that a standard normal variable is below x.
DEVICE float gelu_erf(float x) {
    const bool negative = x < 0.0f;
    const float tail = normal_tail(negative ? -x : x);
    return x * (negative ? tail : 1.0f - tail);
}

// By the sign bit: denormals keep their bits on every machine, and so does NaN.
DEVICE float relu(float x) { return bits_of(x) - 0x80000000u <= 0x7f800000u ? 0.0f : x; }

#define PLAIN(activation, T)                                                                                           \
    ENTRY(activation##_##T, TILE_THREADS, const T* x, T* out, i64 size) {                                              \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) { out[i] = narrow<T>(activation(widen(x[i]))); });                  \
    }
#define PLAIN_ACTIVATIONS(T) PLAIN(relu, T) PLAIN(gelu_tanh, T) PLAIN(gelu_erf, T)
FOR_EACH_STORAGE(PLAIN_ACTIVATIONS)

// Block (r, t) takes tile t of row r, whose first `columns` elements are the gate and whose second `columns` are what
// it gates.
#define GATED(activation, T)                                                                                           \
    ENTRY(activation##_mul_##T, TILE_THREADS, const T* gate_up, T* out, int columns) {                                 \
        const T* gate = gate_up + 2 * (i64)BLOCK_X * columns;                                                          \
        const T* up = gate + columns;                                                                                  \
        T* to = out + (i64)BLOCK_X * columns;                                                                          \
        for_each_in_tile(BLOCK_Y, columns,                                                                             \
                         [=](i64 i) { to[i] = narrow<T>(rounded_to<T>(activation(widen(gate[i]))) * widen(up[i])); }); \
    }
#define GATED_ACTIVATIONS(T) GATED(silu, T) GATED(gelu_tanh, T)
FOR_EACH_STORAGE(GATED_ACTIVATIONS)

#define SIGMOID_GATE(T, Gate)                                                                                          \
    ENTRY(sigmoid_gate_##T##_##Gate, TILE_THREADS, const T* x, const Gate* gate, T* out, i64 size) {                   \
        for_each_in_tile(BLOCK_X, size,                                                                                \
                         [=](i64 i) { out[i] = narrow<T>(widen(x[i]) * rounded_to<Gate>(sigmoid(widen(gate[i])))); }); \
    }
SIGMOID_GATE(bf16, bf16)
SIGMOID_GATE(bf16, f32)
SIGMOID_GATE(f16, f16)
SIGMOID_GATE(f16, f32)
SIGMOID_GATE(f32, bf16)
SIGMOID_GATE(f32, f16)
SIGMOID_GATE(f32, f32)
