// Causal depthwise convolution over runs of tokens, and its state; see toolkit/ops/conv.py. Threads share the channels.
#include "tiles.h"
#include "functions.h"

// One channel of one token. `left(i)` is the i-th input of the window's width - 1 before `x`, the oldest first.
template <class T, class Left>
DEVICE T conv_channel(const T* weight, const T* bias, i64 channel, int width, float x, int narrow_sum, Left left) {
    const T* row = weight + channel * width;
    float sum = bias ? widen(bias[channel]) : 0.0f;
    for (int i = 0; i < width - 1; ++i) sum = fma_(widen(row[i]), left(i), sum);
    sum = fma_(widen(row[width - 1]), x, sum);
    if (narrow_sum) sum = rounded_to<T>(sum);
    return narrow<T>(silu(sum));
}

struct Runs {
    const int* runs;  // [sequences, 2]: first token, number of tokens
    const int* slots; // of each sequence; outside of the cache is none
    const int* kept;  // whether the slot holds something of the sequence yet
    int slot_count;

    MEMBER bool has_slot(int sequence) const { return slots[sequence] >= 0 && slots[sequence] < slot_count; }
};

// Block (token, tile). state [slots, width - 1, channels].
template <class T>
DEVICE void causal_conv(const T* x, const T* weight, const T* bias, const T* state, const int* sequences, T* out,
                        const Runs& of, int channels, int width, int narrow_sum) {
    const int sequence = sequences[BLOCK_X];
    const i64 row = (i64)BLOCK_X * channels;
    if (sequence < 0 || !of.has_slot(sequence)) {
        for_each_in_tile(BLOCK_Y, channels, [=](i64 c) { out[row + c] = narrow<T>(0.0f); });
        return;
    }
    const int before = BLOCK_X - of.runs[2 * sequence]; // tokens of this run to the left
    const bool kept = of.kept[sequence];
    const T* held = state + (i64)of.slots[sequence] * (width - 1) * channels;
    for_each_in_tile(BLOCK_Y, channels, [=](i64 c) {
        out[row + c] = conv_channel(weight, bias, c, width, widen(x[row + c]), narrow_sum, [=](int i) {
            const int back = width - 1 - i;
            if (back <= before) return widen(x[row - (i64)back * channels + c]);
            return kept ? widen(held[(i64)(i + before) * channels + c]) : 0.0f;
        });
    });
}

// Block (sequence, tile): the last width - 1 inputs of a run become its state. Each element is written after every one
// that reads it: what is read lies behind.
template <class T> DEVICE void conv_state(const T* x, T* state, const Runs& of, int channels, int width) {
    const int sequence = BLOCK_X;
    const i64 first = of.runs[2 * sequence];
    const int count = of.runs[2 * sequence + 1];
    if (!of.has_slot(sequence) || count == 0) return;
    const bool kept = of.kept[sequence];
    T* held = state + (i64)of.slots[sequence] * (width - 1) * channels;
    for_each_in_tile(BLOCK_Y, channels, [=](i64 c) {
        for (int i = 0; i < width - 1; ++i) {
            const int from = count - (width - 1) + i;
            T value = narrow<T>(0.0f);
            if (from >= 0)
                value = x[(first + from) * channels + c];
            else if (kept)
                value = held[(i64)(i + count) * channels + c];
            held[(i64)i * channels + c] = value;
        }
    });
}

// Block (row, tile): one token of each sequence.
template <class T>
DEVICE void conv_update(const T* x, const T* weight, const T* bias, T* state, T* out, const Runs& of, int channels,
                        int width, int narrow_sum) {
    const i64 row = (i64)BLOCK_X * channels;
    if (!of.has_slot(BLOCK_X)) {
        for_each_in_tile(BLOCK_Y, channels, [=](i64 c) { out[row + c] = narrow<T>(0.0f); });
        return;
    }
    const bool kept = of.kept[BLOCK_X];
    T* held = state + (i64)of.slots[BLOCK_X] * (width - 1) * channels;
    for_each_in_tile(BLOCK_Y, channels, [=](i64 c) {
        out[row + c] = conv_channel(weight, bias, c, width, widen(x[row + c]), narrow_sum,
                                    [=](int i) { return kept ? widen(held[(i64)i * channels + c]) : 0.0f; });
        for (int i = 0; i < width - 2; ++i)
            held[(i64)i * channels + c] = kept ? held[(i64)(i + 1) * channels + c] : narrow<T>(0.0f);
        if (width > 1) held[(i64)(width - 2) * channels + c] = x[row + c];
    });
}

#define CONV(T)                                                                                                        \
    ENTRY(causal_conv_##T, TILE_THREADS, const T* x, const T* weight, const T* bias, const T* state,                   \
          const int* sequences, const int* runs, const int* slots, const int* kept, T* out, int slot_count,            \
          int channels, int width, int narrow_sum) {                                                                   \
        const Runs of = {runs, slots, kept, slot_count};                                                               \
        causal_conv<T>(x, weight, bias, state, sequences, out, of, channels, width, narrow_sum);                       \
    }                                                                                                                  \
    ENTRY(conv_state_##T, TILE_THREADS, const T* x, T* state, const int* runs, const int* slots, const int* kept,      \
          int slot_count, int channels, int width) {                                                                   \
        const Runs of = {runs, slots, kept, slot_count};                                                               \
        conv_state<T>(x, state, of, channels, width);                                                                  \
    }                                                                                                                  \
    ENTRY(conv_update_##T, TILE_THREADS, const T* x, const T* weight, const T* bias, T* state, const int* slots,       \
          const int* kept, T* out, int slot_count, int channels, int width, int narrow_sum) {                          \
        const Runs of = {nullptr, slots, kept, slot_count};                                                            \
        conv_update<T>(x, weight, bias, state, out, of, channels, width, narrow_sum);                                  \
    }
FOR_EACH_STORAGE(CONV)
