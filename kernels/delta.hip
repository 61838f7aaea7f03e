// The gated delta rule (Yang, Kautz & Hatamizadeh, 2025) and what precedes it; see toolkit/ops/delta.py.
//
// Of a head's state [key_dim, value_dim], float32, a block keeps 32 columns, which do not depend on the others: the
// rule acts on each value by itself. It is read and written once per call.
#include "functions.h"
#include "portable.h"

// ------------------------------------------------------------------------------------------------------------- inputs

constexpr int UNIT_THREADS = 128;

// q and k of one head of one token, each divided by its length. Block (token, query or key head).
template <class T>
DEVICE void delta_unit(const T* qkv, float* queries, float* keys, int key_heads, int key_dim, i64 columns, float eps,
                       int narrow_unit) {
    const int head = BLOCK_Y % key_heads;
    const T* x = qkv + BLOCK_X * columns + (i64)BLOCK_Y * key_dim;
    float* to = (BLOCK_Y < key_heads ? queries : keys) + ((i64)BLOCK_X * key_heads + head) * key_dim;
    PerThread<float, UNIT_THREADS> squares;
    THREADS(UNIT_THREADS) { squares[thread] = 0.0f; }
    for (int first = 0; first < key_dim; first += UNIT_THREADS) {
        THREADS_BELOW(UNIT_THREADS, key_dim - first) {
            const float value = widen(x[first + thread]);
            squares[thread] = fma_(value, value, squares[thread]);
        }
    }
    const float scale = divide(1.0f, sqrt_(block_reduce(squares, Add()) + eps));
    for (int first = 0; first < key_dim; first += UNIT_THREADS) {
        THREADS_BELOW(UNIT_THREADS, key_dim - first) {
            const float unit = widen(x[first + thread]) * scale;
            to[first + thread] = narrow_unit ? rounded_to<T>(unit) : unit;
        }
    }
}

// ln(1 + e^x), x itself above 20. 1 + e^x is rounded to u; ln u e^x / (u - 1) makes up for it (Kahan).
DEVICE float softplus(float x) {
    const float power = exp_(x);
    const float u = 1.0f + power, part = u - 1.0f;
    const float small = part == 0.0f ? power : log_(u) * divide(power, part == 0.0f ? 1.0f : part);
    return x > 20.0f ? x : small;
}

// Values copied, gates computed. One token per block.
template <class T>
DEVICE void delta_gates(const T* qkv, const T* ba, const T* log_rates, const T* bias, T* values, float* decays,
                        float* betas, i64 columns, int value_columns, int value_heads, int narrow_beta) {
    const T* from = qkv + BLOCK_X * columns + columns - value_columns;
    T* to = values + (i64)BLOCK_X * value_columns;
    for (int first = 0; first < value_columns; first += UNIT_THREADS) {
        THREADS_BELOW(UNIT_THREADS, value_columns - first) { to[first + thread] = from[first + thread]; }
    }
    const T* b = ba + (i64)BLOCK_X * 2 * value_heads;
    const i64 row = (i64)BLOCK_X * value_heads;
    for (int first = 0; first < value_heads; first += UNIT_THREADS) {
        THREADS_BELOW(UNIT_THREADS, value_heads - first) {
            const int head = first + thread;
            const float beta = sigmoid(widen(b[head]));
            betas[row + head] = narrow_beta ? rounded_to<T>(beta) : beta;
            const float step = softplus(widen(b[value_heads + head]) + widen(bias[head]));
            decays[row + head] = -exp_(widen(log_rates[head])) * step;
        }
    }
}

// --------------------------------------------------------------------------------------------------------------- rule

constexpr int DELTA_THREADS = 128;
constexpr int DELTA_COLUMNS = 32;                          // of a block
constexpr int DELTA_EIGHTS = DELTA_COLUMNS / 8;            // of a row
constexpr int DELTA_GROUPS = DELTA_THREADS / DELTA_EIGHTS; // rows that a block loads at once
constexpr int LARGEST_KEY = 256;

template <class T> struct Delta {
    const float *queries, *keys; // [tokens, key_heads, key_dim]
    const T* values;             // [tokens, value_heads, value_dim]
    const float *decays, *betas; // [tokens, value_heads]; a decay is the logarithm of what remains
    float* state;                // [slots, value_heads, key_dim, value_dim]
    const int *slots, *kept;     // of each sequence
    T* out;                      // [tokens, value_heads, value_dim]
    int slot_count, key_heads, value_heads, key_dim, value_dim;
    float scale;
};

// Where a block works.
struct Place {
    int sequence, head, key_head, column, columns;
    bool known, kept, whole;
    i64 state;
};

template <class T> DEVICE Place place_of(const Delta<T>& of, int whole) {
    const int sequence = BLOCK_X, head = BLOCK_Y, column = BLOCK_Z * DELTA_COLUMNS, slot = of.slots[sequence];
    const bool known = slot >= 0 && slot < of.slot_count;
    const int left = of.value_dim - column;
    return {sequence,
            head,
            head / (of.value_heads / of.key_heads),
            column,
            left < DELTA_COLUMNS ? left : DELTA_COLUMNS,
            known,
            known && of.kept[sequence] != 0,
            whole != 0,
            ((i64)(known ? slot : 0) * of.value_heads + head) * of.key_dim * of.value_dim + column};
}

// Eight columns of a row of which `left` are there; the others are zero.
template <class T> DEVICE float8 columns_of(const T* row, int left, bool whole) {
    float8 result = splat(0.0f);
    if (whole) {
        if (left > 0) result = load8(row);
    } else {
        UNROLL for (int i = 0; i < 8; ++i) {
            if (i < left) result.values[i] = widen(row[i]);
        }
    }
    return result;
}
DEVICE void put_columns(float* row, float8 x, int left, bool whole) {
    if (whole) {
        if (left > 0) store8(row, x);
    } else {
        UNROLL for (int i = 0; i < 8; ++i) {
            if (i < left) row[i] = x.values[i];
        }
    }
}

template <class T> DEVICE void clear_rows(const Delta<T>& of, const Place& at, i64 first, int count) {
    for (int t = 0; t < count; ++t) {
        THREADS_BELOW(DELTA_COLUMNS, at.columns) {
            of.out[((first + t) * of.value_heads + at.head) * of.value_dim + at.column + thread] = narrow<T>(0.0f);
        }
    }
}

// Token by token: the rows of the block's columns stay in registers, ROWS times eight numbers a thread.
template <class T, int ROWS> DEVICE void delta_sequential(const Delta<T>& of, const Place& at, i64 first, int count) {
    struct Rows {
        float8 row[ROWS];
    };
    if (!at.known) return clear_rows(of, at, first, count);
    SHARED(float, key, LARGEST_KEY);
    SHARED(float, query, LARGEST_KEY);
    SHARED(float, predicted, DELTA_GROUPS* DELTA_COLUMNS); // what the old state says of k, a row for each group
    SHARED(float, read, DELTA_GROUPS* DELTA_COLUMNS);      // and of q
    SHARED(float, sums, 2 * DELTA_COLUMNS);
    PerThread<Rows, DELTA_THREADS> state;
    THREADS(DELTA_THREADS) {
        const int column = thread % DELTA_EIGHTS * 8;
        UNROLL for (int i = 0; i < ROWS; ++i) {
            const int row = thread / DELTA_EIGHTS + i * DELTA_GROUPS;
            const float* from = of.state + at.state + (i64)row * of.value_dim + column;
            const bool held = at.kept && row < of.key_dim;
            state[thread].row[i] = held ? columns_of(from, at.columns - column, at.whole) : splat(0.0f);
        }
    }
    for (int t = 0; t < count; ++t) {
        const i64 token = first + t, gate = token * of.value_heads + at.head;
        const i64 vector = (token * of.key_heads + at.key_head) * of.key_dim;
        const float remains = exp_(of.decays[gate]), beta = of.betas[gate];
        BARRIER(); // the token before may still be reading
        PerThread<float, DELTA_THREADS> products;
        THREADS(DELTA_THREADS) { products[thread] = 0.0f; }
        for (int start = 0; start < DELTA_GROUPS * ROWS; start += DELTA_THREADS) {
            THREADS(DELTA_THREADS) {
                const int d = start + thread;
                const float k = d < of.key_dim ? of.keys[vector + d] : 0.0f;
                const float q = d < of.key_dim ? of.queries[vector + d] * of.scale : 0.0f;
                key[d] = k;
                query[d] = q;
                products[thread] = fma_(k, q, products[thread]);
            }
        }
        const float alike = block_reduce(products, Add());
        THREADS(DELTA_THREADS) {
            const int group = thread / DELTA_EIGHTS;
            float8 of_key = splat(0.0f), of_query = splat(0.0f);
            UNROLL for (int i = 0; i < ROWS; ++i) {
                const int row = group + i * DELTA_GROUPS;
                const float8 decayed = state[thread].row[i] * splat(remains);
                state[thread].row[i] = decayed;
                of_key = fma_(splat(key[row]), decayed, of_key);
                of_query = fma_(splat(query[row]), decayed, of_query);
            }
            store8(predicted + thread * 8, of_key);
            store8(read + thread * 8, of_query);
        }
        BARRIER();
        THREADS_BELOW(DELTA_THREADS, 2 * DELTA_COLUMNS) {
            const float* parts = (thread < DELTA_COLUMNS ? predicted : read) + thread % DELTA_COLUMNS;
            float sum = parts[0];
            for (int group = 1; group < DELTA_GROUPS; ++group) sum += parts[group * DELTA_COLUMNS];
            sums[thread] = sum;
        }
        BARRIER();
        const i64 values = gate * of.value_dim + at.column;
        THREADS(DELTA_THREADS) {
            const int group = thread / DELTA_EIGHTS, column = thread % DELTA_EIGHTS * 8, left = at.columns - column;
            const float8 value = columns_of(of.values + values + column, left, at.whole);
            const float8 delta = (value + load8(sums + column) * splat(-1.0f)) * splat(beta);
            UNROLL for (int i = 0; i < ROWS; ++i) {
                state[thread].row[i] = fma_(splat(key[group + i * DELTA_GROUPS]), delta, state[thread].row[i]);
            }
            if (group == 0) {
                const float8 result = fma_(splat(alike), delta, load8(sums + DELTA_COLUMNS + column));
                UNROLL for (int i = 0; i < 8; ++i) {
                    if (i < left) of.out[values + column + i] = narrow<T>(result.values[i]);
                }
            }
        }
    }
    if (count == 0) return;
    THREADS(DELTA_THREADS) {
        const int column = thread % DELTA_EIGHTS * 8;
        UNROLL for (int i = 0; i < ROWS; ++i) {
            const int row = thread / DELTA_EIGHTS + i * DELTA_GROUPS;
            float* to = of.state + at.state + (i64)row * of.value_dim + column;
            if (row < of.key_dim) put_columns(to, state[thread].row[i], at.columns - column, at.whole);
        }
    }
}

// Sixteen tokens at a time. With P(t) the product of what remains from the chunk's first token to t, and F(t, s) that
// after s to t, the rule's updates d are, in order of t,
//     d(t) = beta(t) (v(t) - P(t) S k(t) - sum over s < t of F(t, s) (k(t) k(s)) d(s)),
// the outputs P(t) S q(t) + sum over s <= t of F(t, s) (q(t) k(s)) d(s), and the state becomes
// P(last) S + sum over s of F(last, s) k(s) d(s): matrix products, but for the sums of d.
constexpr int CHUNK = 16;
constexpr int CHUNK_KEY = 128;              // the largest key_dim
constexpr int CHUNK_STRIDE = CHUNK_KEY + 4; // rows that follow each other lie in different banks

template <class T> DEVICE void delta_chunked(const Delta<T>& of, const Place& at, i64 first, int count) {
    constexpr int N = DELTA_THREADS;
    if (!at.known) return clear_rows(of, at, first, count);
    SHARED(float, state, CHUNK_KEY* DELTA_COLUMNS);
    SHARED(float, vectors, 2 * CHUNK * CHUNK_STRIDE); // keys, then queries
    SHARED(float, alike, 2 * CHUNK * CHUNK);          // F(t, s) times k(t) k(s), then times q(t) k(s)
    SHARED(float, old, 2 * CHUNK * DELTA_COLUMNS);    // S k(t), then S q(t)
    SHARED(float, deltas, CHUNK* DELTA_COLUMNS);
    SHARED(float, remains, CHUNK);
    SHARED(float, betas, CHUNK);
    SHARED(float, from_first, CHUNK); // P(t)
    SHARED(float, to_last, CHUNK);    // F(last, s)
    for (int start = 0; start < CHUNK_KEY; start += DELTA_GROUPS) {
        THREADS(N) {
            const int row = start + thread / DELTA_EIGHTS, column = thread % DELTA_EIGHTS * 8;
            const float* from = of.state + at.state + (i64)row * of.value_dim + column;
            const bool held = at.kept && row < of.key_dim;
            store8(state + row * DELTA_COLUMNS + column,
                   held ? columns_of(from, at.columns - column, at.whole) : splat(0.0f));
        }
    }
    for (int done = 0; done < count; done += CHUNK) {
        const int tokens = count - done < CHUNK ? count - done : CHUNK;
        BARRIER(); // the chunk before may still be reading
        for (int t = 0; t < CHUNK; ++t) {
            const i64 vector = ((first + done + t) * of.key_heads + at.key_head) * of.key_dim;
            THREADS(N) {
                const bool inside = t < tokens && thread < of.key_dim;
                vectors[t * CHUNK_STRIDE + thread] = inside ? of.keys[vector + thread] : 0.0f;
                vectors[(CHUNK + t) * CHUNK_STRIDE + thread] = inside ? of.queries[vector + thread] * of.scale : 0.0f;
            }
        }
        THREADS_BELOW(N, CHUNK) {
            const i64 gate = (first + done + thread) * of.value_heads + at.head;
            remains[thread] = thread < tokens ? exp_(of.decays[gate]) : 1.0f;
            betas[thread] = thread < tokens ? of.betas[gate] : 0.0f;
        }
        BARRIER();
        for (int start = 0; start < 2 * CHUNK * CHUNK; start += N) {
            THREADS(N) {
                const int pair = start + thread; // of rows of `vectors`, the second a key
                const float* left = vectors + pair / CHUNK * CHUNK_STRIDE;
                const float* right = vectors + pair % CHUNK * CHUNK_STRIDE;
                float8 sums = splat(0.0f);
                for (int d = 0; d < CHUNK_KEY; d += 8) sums = fma_(load8(left + d), load8(right + d), sums);
                alike[pair] = sum(sums);
            }
        }
        THREADS(N) {
            const int column = thread % DELTA_EIGHTS * 8, vector = thread / DELTA_EIGHTS;
            float8 sums = splat(0.0f);
            for (int d = 0; d < of.key_dim; ++d)
                sums = fma_(splat(vectors[vector * CHUNK_STRIDE + d]), load8(state + d * DELTA_COLUMNS + column), sums);
            store8(old + vector * DELTA_COLUMNS + column, sums);
        }
        BARRIER();
        THREADS_BELOW(N, CHUNK) {
            float product = 1.0f;
            for (int t = thread + 1; t < CHUNK; ++t) {
                product *= remains[t];
                alike[t * CHUNK + thread] *= product;
                alike[(CHUNK + t) * CHUNK + thread] *= product;
            }
            to_last[thread] = product;
            product = remains[0];
            for (int t = 1; t <= thread; ++t) product *= remains[t];
            from_first[thread] = product;
        }
        BARRIER();
        THREADS_BELOW(N, DELTA_COLUMNS) {
            for (int t = 0; t < CHUNK; ++t) {
                const i64 value = ((first + done + t) * of.value_heads + at.head) * of.value_dim + at.column + thread;
                float rest = t < tokens && thread < at.columns ? widen(of.values[value]) : 0.0f;
                rest = fma_(-from_first[t], old[t * DELTA_COLUMNS + thread], rest);
                for (int s = 0; s < t; ++s)
                    rest = fma_(-alike[t * CHUNK + s], deltas[s * DELTA_COLUMNS + thread], rest);
                deltas[t * DELTA_COLUMNS + thread] = betas[t] * rest;
            }
        }
        BARRIER();
        THREADS_BELOW(N, tokens * DELTA_EIGHTS) {
            const int t = thread / DELTA_EIGHTS, column = thread % DELTA_EIGHTS * 8;
            float8 result = load8(old + (CHUNK + t) * DELTA_COLUMNS + column) * splat(from_first[t]);
            for (int s = 0; s <= t; ++s)
                result =
                    fma_(splat(alike[(CHUNK + t) * CHUNK + s]), load8(deltas + s * DELTA_COLUMNS + column), result);
            T* to = of.out + ((first + done + t) * of.value_heads + at.head) * of.value_dim + at.column + column;
            UNROLL for (int i = 0; i < 8; ++i) {
                if (column + i < at.columns) to[i] = narrow<T>(result.values[i]);
            }
        }
        THREADS(N) { // a row of the state each
            float weights[CHUNK];
            UNROLL for (int s = 0; s < CHUNK; ++s) weights[s] = vectors[s * CHUNK_STRIDE + thread] * to_last[s];
            for (int column = 0; column < DELTA_COLUMNS; column += 8) {
                float* row = state + thread * DELTA_COLUMNS + column;
                float8 sums = load8(row) * splat(from_first[CHUNK - 1]);
                UNROLL for (int s = 0; s < CHUNK; ++s) {
                    sums = fma_(splat(weights[s]), load8(deltas + s * DELTA_COLUMNS + column), sums);
                }
                store8(row, sums);
            }
        }
    }
    if (count == 0) return;
    BARRIER();
    for (int start = 0; start < of.key_dim; start += DELTA_GROUPS) {
        THREADS(N) {
            const int row = start + thread / DELTA_EIGHTS, column = thread % DELTA_EIGHTS * 8;
            float* to = of.state + at.state + (i64)row * of.value_dim + column;
            if (row < of.key_dim)
                put_columns(to, load8(state + row * DELTA_COLUMNS + column), at.columns - column, at.whole);
        }
    }
}

// What belongs to no sequence is zero. One token per block.
template <class T> DEVICE void clear_padding(const int* sequences, T* out, int columns) {
    if (sequences[BLOCK_X] >= 0) return;
    for (int first = 0; first < columns; first += DELTA_THREADS) {
        THREADS_BELOW(DELTA_THREADS, columns - first) {
            out[(i64)BLOCK_X * columns + first + thread] = narrow<T>(0.0f);
        }
    }
}

#define DELTA_INPUTS(T)                                                                                                \
    ENTRY(delta_unit_##T, UNIT_THREADS, const T* qkv, float* queries, float* keys, int key_heads, int key_dim,         \
          i64 columns, float eps, int narrow_unit) {                                                                   \
        delta_unit<T>(qkv, queries, keys, key_heads, key_dim, columns, eps, narrow_unit);                              \
    }                                                                                                                  \
    ENTRY(delta_gates_##T, UNIT_THREADS, const T* qkv, const T* ba, const T* log_rates, const T* bias, T* values,      \
          float* decays, float* betas, i64 columns, int value_columns, int value_heads, int narrow_beta) {             \
        delta_gates<T>(qkv, ba, log_rates, bias, values, decays, betas, columns, value_columns, value_heads,           \
                       narrow_beta);                                                                                   \
    }                                                                                                                  \
    ENTRY(delta_padding_##T, DELTA_THREADS, const int* sequences, T* out, int columns) {                               \
        clear_padding<T>(sequences, out, columns);                                                                     \
    }
FOR_EACH_STORAGE(DELTA_INPUTS)

#define DELTA(name, T, body)                                                                                           \
    ENTRY(name##_##T, DELTA_THREADS, const float* queries, const float* keys, const T* values, const float* decays,    \
          const float* betas, float* state, const int* runs, const int* slots, const int* kept, T* out,                \
          int slot_count, int key_heads, int value_heads, int key_dim, int value_dim, float scale, int whole) {        \
        const Delta<T> of = {queries, keys,       values,    decays,      betas,   state,     slots, kept,             \
                             out,     slot_count, key_heads, value_heads, key_dim, value_dim, scale};                  \
        const Place at = place_of(of, whole);                                                                          \
        const i64 first = runs ? runs[2 * at.sequence] : at.sequence;                                                  \
        body(of, at, first, runs ? runs[2 * at.sequence + 1] : 1);                                                     \
    }
#define DELTAS(T)                                                                                                      \
    DELTA(delta_rule_128, T, (delta_sequential<T, 4>))                                                                 \
    DELTA(delta_rule_256, T, (delta_sequential<T, 8>))                                                                 \
    DELTA(delta_chunked, T, delta_chunked<T>)
FOR_EACH_STORAGE(DELTAS)
