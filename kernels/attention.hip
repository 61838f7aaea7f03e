// Attention over a paged cache of keys and values; see toolkit/ops/attention.py and toolkit/ops/cache.py.
#include "portable.h"
#include "functions.h"

constexpr int COPY_THREADS = 128;

template <class T> DEVICE void copy_row(const T* from, T* to, int columns) {
    for (int first = 0; first < columns; first += COPY_THREADS) {
        THREADS_BELOW(COPY_THREADS, columns - first) { to[first + thread] = from[first + thread]; }
    }
}

// One token per block.
template <class T>
DEVICE void qkv_split(const T* qkv, T* queries, T* keys, T* values, int query_columns, int key_columns) {
    const i64 token = BLOCK_X;
    const T* row = qkv + token * (query_columns + 2 * key_columns);
    copy_row(row, queries + token * query_columns, query_columns);
    copy_row(row + query_columns, keys + token * key_columns, key_columns);
    copy_row(row + query_columns + key_columns, values + token * key_columns, key_columns);
}

// One token per block; a slot below zero is padding.
template <class T>
DEVICE void write_cache(const T* keys, const T* values, T* key_cache, T* value_cache, const int* slots, int columns) {
    const i64 slot = slots[BLOCK_X];
    if (slot < 0) return;
    copy_row(keys + (i64)BLOCK_X * columns, key_cache + slot * columns, columns);
    copy_row(values + (i64)BLOCK_X * columns, value_cache + slot * columns, columns);
}

#define CACHE(T)                                                                                                       \
    ENTRY(qkv_split_##T, COPY_THREADS, const T* qkv, T* queries, T* keys, T* values, int query_columns,                \
          int key_columns) {                                                                                           \
        qkv_split<T>(qkv, queries, keys, values, query_columns, key_columns);                                          \
    }                                                                                                                  \
    ENTRY(write_cache_##T, COPY_THREADS, const T* keys, const T* values, T* key_cache, T* value_cache,                 \
          const int* slots, int columns) {                                                                             \
        write_cache<T>(keys, values, key_cache, value_cache, slots, columns);                                          \
    }
FOR_EACH_STORAGE(CACHE)

constexpr int ATTENTION_THREADS = 128; // keys that a block looks at together
constexpr int LARGEST_HEAD = 256;

struct Attention {
    const int* block_table; // [sequences, max_blocks]
    const int* sequences;   // of each token; below zero is padding
    const int* positions;
    int max_blocks, block_size, heads, kv_heads, head_dim, window;
    float scale, softcap;
};

// Eight neighbours of a row of which `left` are left.
template <bool WHOLE, class T> DEVICE float8 load8_of(const T* row, int left) {
    if (WHOLE) return load8(row);
    float8 result = splat(0.0f);
    UNROLL for (int i = 0; i < 8; ++i) {
        if (i < left) result.values[i] = widen(row[i]);
    }
    return result;
}

// One head of one token per block. Keys are taken 128 at a time: first a thread scores one key, then the threads share
// the values out, eight columns of every so-many-th key each. The softmax is online: what was summed so far shrinks
// when a larger score appears. WHOLE: head_dim is a multiple of 8 and rows may be loaded by eight.
template <class T, bool WHOLE>
DEVICE void paged_attention(const T* queries, const T* key_cache, const T* value_cache, T* out, const Attention& of) {
    constexpr int N = ATTENTION_THREADS;
    const int token = BLOCK_X, head = BLOCK_Y;
    const int sequence = of.sequences[token];
    const int last = sequence < 0 ? -1 : of.positions[token];
    const int first = of.window && last >= of.window ? last - of.window + 1 : 0;
    const i64 row = ((i64)token * of.heads + head) * of.head_dim;

    SHARED(float, query, LARGEST_HEAD);
    SHARED(i64, rows, N);      // where the keys' rows begin in the caches
    SHARED(float, weights, N); // exp(score - largest score so far)
    SHARED(float, parts, N * 8);
    for (int start = 0; start < LARGEST_HEAD; start += N) {
        THREADS(N) {
            const int column = start + thread;
            query[column] = column < of.head_dim ? widen(queries[row + column]) : 0.0f;
        }
    }
    BARRIER();

    const int eights = (of.head_dim + 7) / 8, shares = N / eights;
    PerThread<float8, N> sums;
    THREADS(N) { sums[thread] = splat(0.0f); }
    float largest = -infinity(), total = 0.0f;
    for (int start = first; start <= last; start += N) {
        const int count = last - start + 1 < N ? last - start + 1 : N;
        PerThread<float, N> scores, values;
        THREADS(N) { values[thread] = -infinity(); }
        THREADS_BELOW(N, count) {
            const int position = start + thread;
            const i64 block = of.block_table[(i64)sequence * of.max_blocks + position / of.block_size];
            const i64 slot = block * of.block_size + position % of.block_size;
            rows[thread] = (slot * of.kv_heads + head / (of.heads / of.kv_heads)) * of.head_dim;
            const T* key = key_cache + rows[thread];
            float8 dot = splat(0.0f);
            for (int d = 0; d < of.head_dim; d += 8)
                dot = fma_(load8(query + d), load8_of<WHOLE>(key + d, of.head_dim - d), dot);
            const float score = sum(dot) * of.scale;
            values[thread] = of.softcap != 0.0f ? of.softcap * tanh_(divide(score, of.softcap)) : score;
        }
        THREADS(N) { scores[thread] = values[thread]; }
        const float larger = Larger()(largest, block_reduce(values, Larger()));
        const float shrink = exp_(largest - larger);
        THREADS(N) { weights[thread] = values[thread] = thread < count ? exp_(scores[thread] - larger) : 0.0f; }
        total = fma_(total, shrink, block_reduce(values, Add()));
        largest = larger;
        THREADS_BELOW(N, shares * eights) {
            const int d = thread % eights * 8;
            float8 sum = sums[thread] * splat(shrink);
            for (int i = thread / eights; i < count; i += shares)
                sum = fma_(splat(weights[i]), load8_of<WHOLE>(value_cache + rows[i] + d, of.head_dim - d), sum);
            sums[thread] = sum;
        }
        BARRIER();
    }
    THREADS(N) { store8(parts + thread * 8, sums[thread]); }
    BARRIER();
    for (int start = 0; start < of.head_dim; start += N) {
        THREADS_BELOW(N, of.head_dim - start) {
            const int column = start + thread;
            float sum = parts[column];
            for (int share = 1; share < shares; ++share) sum += parts[share * eights * 8 + column];
            out[row + column] = narrow<T>(last < first ? 0.0f : divide(sum, total));
        }
    }
}

#define PAGED_ATTENTION(name, T, WHOLE)                                                                                \
    ENTRY(name##_##T, ATTENTION_THREADS, const T* queries, const T* key_cache, const T* value_cache,                   \
          const int* block_table, const int* sequences, const int* positions, T* out, int max_blocks, int block_size,  \
          int heads, int kv_heads, int head_dim, int window, float scale, float softcap) {                             \
        const Attention of = {block_table, sequences, positions, max_blocks, block_size, heads,                        \
                              kv_heads,    head_dim,  window,    scale,      softcap};                                 \
        paged_attention<T, WHOLE>(queries, key_cache, value_cache, out, of);                                           \
    }
#define PAGED_ATTENTIONS(T)                                                                                            \
    PAGED_ATTENTION(paged_attention, T, true)                                                                          \
    PAGED_ATTENTION(ragged_attention, T, false)
FOR_EACH_STORAGE(PAGED_ATTENTIONS)
