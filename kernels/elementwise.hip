// One element in, one element out; see toolkit/ops/elementwise.py.
#include "tiles.h"
#include "functions.h"

#define ELEMENTWISE(T)                                                                                                 \
    ENTRY(add_##T, TILE_THREADS, const T* x, const T* y, T* out, i64 size) {                                           \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) { out[i] = narrow<T>(widen(x[i]) + widen(y[i])); });                \
    }                                                                                                                  \
    ENTRY(add_bias_##T, TILE_THREADS, const T* x, const T* bias, T* out, int columns) {                                \
        const i64 row = (i64)BLOCK_X * columns;                                                                        \
        for_each_in_tile(BLOCK_Y, columns,                                                                             \
                         [=](i64 i) { out[row + i] = narrow<T>(widen(x[row + i]) + widen(bias[i])); });                \
    }                                                                                                                  \
    ENTRY(scale_##T, TILE_THREADS, const T* x, T* out, i64 size, float factor) {                                       \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) { out[i] = narrow<T>(widen(x[i]) * factor); });                     \
    }                                                                                                                  \
    ENTRY(softcap_##T, TILE_THREADS, const T* x, T* out, i64 size, float cap) {                                        \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) { out[i] = narrow<T>(cap * tanh_(divide(widen(x[i]), cap))); });    \
    }
FOR_EACH_STORAGE(ELEMENTWISE)

#define CAST(From, To)                                                                                                 \
    ENTRY(cast_##From##_##To, TILE_THREADS, const From* x, To* out, i64 size) {                                        \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) { out[i] = narrow<To>(widen(x[i])); });                             \
    }
#define CASTS_FROM(From) CAST(From, bf16) CAST(From, f16) CAST(From, f32)
FOR_EACH_STORAGE(CASTS_FROM)
