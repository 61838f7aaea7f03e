// Selections from a row: the largest elements, ties decided by the index. Integers are compared, so that every machine
// selects the same, denormals included.
#pragma once
#include "portable.h"

// An integer that orders as the number does: both zeros are 0, denormals stay apart, NaN is above everything.
constexpr int NAN_KEY = 0x7fffffff;
constexpr int NO_KEY = (int)0x80000000u; // below every key

DEVICE int order_key(float x) {
    const int bits = (int)bits_of(x);
    const int ordered = bits < 0 ? (int)(0x80000000u - (u32)bits) : bits;
    return (bits & 0x7fffffff) > 0x7f800000 ? NAN_KEY : ordered;
}

// The best of the row that comes after `last` in the order: value descending, then index ascending. Block-uniform.
template <int N, class T> DEVICE Best best_after(const T* x, int columns, Best last) {
    PerThread<int, N> keys, indices;
    THREADS(N) {
        keys[thread] = NO_KEY;
        indices[thread] = columns;
    }
    for (int first = 0; first < columns; first += N) {
        THREADS_BELOW(N, columns - first) {
            const int index = first + thread;
            const int key = order_key(widen(x[index]));
            const bool after = key < last.key || (key == last.key && index > last.index);
            const bool better = after && key > keys[thread];
            keys[thread] = better ? key : keys[thread];
            indices[thread] = better ? index : indices[thread];
        }
    }
    PerThread<Best, N> best;
    THREADS(N) { best[thread] = {keys[thread], indices[thread]}; }
    return block_reduce(best, Larger());
}
