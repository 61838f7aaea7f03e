// Gated activations; see toolkit/ops/activation.py. Block (r, t) takes tile t of row r, whose first `columns` elements
// are the gate and whose second `columns` are what it gates.
#include "tiles.h"
#include "functions.h"

// x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3) is x / (1 + e^(-2 u)), which does not cancel for negative x.
DEVICE float gelu_tanh(float x) {
    const float u = 0x1.988454p-1f * fma_(0.044715f * (x * x), x, x);
    return divide(x, 1.0f + exp_(-2.0f * u));
}

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
