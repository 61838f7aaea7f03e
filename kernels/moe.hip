// Mixture of experts: the router, tokens sorted by expert, products with the experts' weights, and the way back; see
// toolkit/ops/moe.py. A pair is one token at one of its experts; pair p is rank p % k of token p / k.
#include "tiles.h"
#include "functions.h"
#include "matrix.h"
#include "selection.h"

// ------------------------------------------------------------------------------------------------------------- router

constexpr int ROUTER_THREADS = 256;

// The k most probable of `count` experts of a token, by logit, which is the order of the exact probabilities.
template <class T>
DEVICE void route(const T* logits, float* weights, int* experts, int count, int k, int renormalise, float factor,
                  int narrow_weights) {
    const Best top = best_after<ROUTER_THREADS>(logits, count, {NAN_KEY, -1});
    if (top.key == NAN_KEY) {
        for (int first = 0; first < k; first += ROUTER_THREADS) {
            THREADS_BELOW(ROUTER_THREADS, k - first) {
                weights[first + thread] = not_a_number();
                experts[first + thread] = -1;
            }
        }
        return;
    }
    const float most = widen(logits[top.index]);
    PerThread<float, ROUTER_THREADS> sums;
    THREADS(ROUTER_THREADS) { sums[thread] = 0.0f; }
    for (int first = 0; first < count; first += ROUTER_THREADS) {
        THREADS_BELOW(ROUTER_THREADS, count - first) { sums[thread] += exp_(widen(logits[first + thread]) - most); }
    }
    const float all = block_reduce(sums, Add());
    Best best = top;
    float chosen = 0.0f;
    for (int rank = 0; rank < k; ++rank) {
        if (rank) best = best_after<ROUTER_THREADS>(logits, count, best);
        const float probability = divide(exp_(widen(logits[best.index]) - most), all);
        chosen += probability;
        THREADS_BELOW(ROUTER_THREADS, 1) {
            weights[rank] = probability;
            experts[rank] = best.index;
        }
    }
    BARRIER();
    for (int first = 0; first < k; first += ROUTER_THREADS) {
        THREADS_BELOW(ROUTER_THREADS, k - first) {
            float weight = weights[first + thread];
            if (renormalise) weight = divide(weight, chosen);
            weight = weight * factor;
            weights[first + thread] = narrow_weights ? rounded_to<T>(weight) : weight;
        }
    }
}

#define ROUTER(T)                                                                                                      \
    ENTRY(moe_router_##T, ROUTER_THREADS, const T* logits, float* weights, int* experts, int count, int k,             \
          int renormalise, float factor, int narrow_weights) {                                                         \
        route(logits + (i64)BLOCK_X * count, weights + (i64)BLOCK_X * k, experts + (i64)BLOCK_X * k, count, k,         \
              renormalise, factor, narrow_weights);                                                                    \
    }
FOR_EACH_STORAGE(ROUTER)

// --------------------------------------------------------------------------------------------------------------- sort

constexpr int SORT_THREADS = 1024; // and the largest number of experts

// A counting sort by one block, without atomics: thread e counts the pairs of expert e and then puts them in their
// places, in ascending order. What belongs to no expert follows at the end, where one more thread takes care of it.
ENTRY(moe_sort, SORT_THREADS, const int* experts, int* order, int* offsets, int* active, int pairs, int count) {
    SHARED(int, tile, SORT_THREADS);
    SHARED(int, counts, SORT_THREADS);
    PerThread<int, SORT_THREADS> mine;
    THREADS(SORT_THREADS) { mine[thread] = 0; }
    for (int first = 0; first < pairs; first += SORT_THREADS) {
        const int here = pairs - first < SORT_THREADS ? pairs - first : SORT_THREADS;
        BARRIER();
        THREADS_BELOW(SORT_THREADS, here) { tile[thread] = experts[first + thread]; }
        BARRIER();
        THREADS_BELOW(SORT_THREADS, count) {
            int found = 0;
            for (int i = 0; i < here; ++i) found += tile[i] == thread;
            mine[thread] += found;
        }
    }
    THREADS(SORT_THREADS) { counts[thread] = mine[thread]; }
    BARRIER();
    PerThread<int, SORT_THREADS> place;
    THREADS_BELOW(SORT_THREADS, count) {
        int before = 0, used = 0;
        for (int expert = 0; expert < thread; ++expert) {
            before += counts[expert];
            used += counts[expert] > 0;
        }
        place[thread] = before;
        offsets[thread] = before;
        if (thread == count - 1) offsets[count] = before + mine[thread];
        if (mine[thread]) active[used] = thread;
        if (thread == count - 1) {
            for (int slot = used + (mine[thread] > 0); slot < count; ++slot) active[slot] = -1;
        }
    }
    for (int first = 0; first < pairs; first += SORT_THREADS) {
        const int here = pairs - first < SORT_THREADS ? pairs - first : SORT_THREADS;
        BARRIER();
        THREADS_BELOW(SORT_THREADS, here) { tile[thread] = experts[first + thread]; }
        BARRIER();
        THREADS_BELOW(SORT_THREADS, count) {
            int to = place[thread];
            for (int i = 0; i < here; ++i) {
                if (tile[i] == thread) order[to++] = first + i;
            }
            place[thread] = to;
        }
    }
    THREADS_BELOW(SORT_THREADS, 1) {
        int to = 0;
        for (int expert = 0; expert < count; ++expert) to += counts[expert];
        for (int pair = 0; to < pairs; ++pair) {
            if (experts[pair] < 0 || experts[pair] >= count) order[to++] = pair;
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- products

// What one slot of the grid works on: the pairs order[begin] to order[end - 1], all of one active expert. The slot
// after the last holds the pairs of no expert, whose rows become NaN.
struct Group {
    int expert, begin, end;
};
DEVICE Group group_of(int slot, int slots, const int* offsets, const int* active, int experts, int pairs) {
    if (slot == slots) return {-1, offsets[experts], pairs};
    const int expert = active[slot];
    if (expert < 0) return {-1, 0, 0};
    return {expert, offsets[expert], offsets[expert + 1]};
}

// Few pairs of an expert: one wave per output column. A lane takes 16 bytes of the weight at a time; an expert's
// further rows find them in the cache, so that each weight of an active expert comes from memory once.
constexpr int EXPERT_COLUMNS = 8; // of a block
constexpr int EXPERT_THREADS = EXPERT_COLUMNS * WAVE;

template <int ROWS, class T>
DEVICE void expert_rows(const T* x, const T* w, const int* order, int rows, int share, T* out, int column, int columns,
                        int depth) {
    constexpr int STEP = WAVE * 8;
    const T* a[ROWS]; // rows past the last repeat it; they are not stored
    int pair[ROWS];
    UNROLL for (int row = 0; row < ROWS; ++row) {
        pair[row] = order[row < rows ? row : rows - 1];
        a[row] = x + (i64)(pair[row] / share) * depth;
    }
    PerLane<float8> partial[ROWS];
    UNROLL for (int row = 0; row < ROWS; ++row) {
        LANES { partial[row][lane] = splat(0.0f); }
    }
    int start = 0;
    for (; start + STEP <= depth; start += STEP) {
        LANES {
            const float8 b = load8(w + start + lane * 8);
            UNROLL for (int row = 0; row < ROWS; ++row) {
                partial[row][lane] = fma_(load8(a[row] + start + lane * 8), b, partial[row][lane]);
            }
        }
    }
    LANES {
        if (start + lane * 8 < depth) {
            const float8 b = load8(w + start + lane * 8);
            UNROLL for (int row = 0; row < ROWS; ++row) {
                partial[row][lane] = fma_(load8(a[row] + start + lane * 8), b, partial[row][lane]);
            }
        }
    }
    UNROLL for (int row = 0; row < ROWS; ++row) {
        PerLane<float> sums;
        sum_each(partial[row], sums);
        wave_reduce(sums, Add());
        ONE_LANE {
            if (row < rows) out[(i64)pair[row] * columns + column] = narrow<T>(sums[0]);
        }
    }
}

template <class T>
DEVICE void expert_vectors(const T* x, const T* weight, const int* order, const int* offsets, const int* active, T* out,
                           int pairs, int share, int experts, int slots, int columns, int depth) {
    const Group group = group_of(BLOCK_Y, slots, offsets, active, experts, pairs);
    WAVES(EXPERT_THREADS) {
        const int column = BLOCK_X * EXPERT_COLUMNS + wave;
        if (column < columns && group.expert >= 0) {
            const T* w = weight + ((i64)group.expert * columns + column) * depth;
            int first = group.begin;
            for (; first + 1 < group.end; first += 4) {
                expert_rows<4>(x, w, order + first, group.end - first, share, out, column, columns, depth);
            }
            if (first < group.end) expert_rows<1>(x, w, order + first, 1, share, out, column, columns, depth);
        } else if (column < columns) {
            ONE_LANE {
                for (int i = group.begin; i < group.end; ++i) {
                    out[(i64)order[i] * columns + column] = narrow<T>(not_a_number());
                }
            }
        }
    }
}

// Many pairs: tiles in shared memory, as matrix_matrix in linear.hip, with the rows of x gathered.
template <class T>
DEVICE void load_gathered(const T* x, const int* order, int rows, int share, int start, int depth, bool whole,
                          float* tile, int part) {
    const int row = part / (MATRIX_DEPTH / 8) * 8;
    const int k = part % (MATRIX_DEPTH / 8) * 8;
    tile += k * MATRIX_TILE + row;
    if (whole) {
        float8 block[8];
        UNROLL for (int i = 0; i < 8; ++i) {
            const bool inside = row + i < rows && start + k < depth;
            block[i] = inside ? load8(x + (i64)(order[row + i] / share) * depth + start + k) : splat(0.0f);
        }
        transpose(block);
        UNROLL for (int i = 0; i < 8; ++i) { store8(tile + i * MATRIX_TILE, block[i]); }
    } else {
        UNROLL_BY(1) for (int i = 0; i < 8; ++i) {
            UNROLL_BY(1) for (int j = 0; j < 8; ++j) {
                const bool inside = row + i < rows && start + k + j < depth;
                tile[j * MATRIX_TILE + i] =
                    inside ? widen(x[(i64)(order[row + i] / share) * depth + start + k + j]) : 0.0f;
            }
        }
    }
}

template <class T>
DEVICE void expert_tiles(const T* x, const T* weight, const int* order, const int* offsets, const int* active, T* out,
                         int pairs, int share, int experts, int slots, int columns, int depth) {
    SHARED(float, a, MATRIX_TILE_SIZE);
    SHARED(float, b, MATRIX_TILE_SIZE);
    const Group group = group_of(BLOCK_Z, slots, offsets, active, experts, pairs);
    const int first_column = BLOCK_Y * MATRIX_TILE;
    const T* w = weight + (i64)(group.expert < 0 ? 0 : group.expert) * columns * depth;
    const bool whole = loads_by_eight(x, depth) && loads_by_eight(w, depth);
    for (int first = group.begin + BLOCK_X * MATRIX_TILE; first < group.end; first += BLOCKS_X * MATRIX_TILE) {
        const int rows = group.end - first;
        const int* pairs_here = order + first;
        PerThread<float8, MATRIX_THREADS> total[8];
        THREADS(MATRIX_THREADS) {
            UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = splat(group.expert < 0 ? not_a_number() : 0.0f); }
        }
        for (int start = 0; start < depth && group.expert >= 0; start += MATRIX_DEPTH) {
            BARRIER();
            THREADS(MATRIX_THREADS) {
                if (thread < MATRIX_THREADS / 2)
                    load_gathered(x, pairs_here, rows, share, start, depth, whole, a, thread);
                else
                    load_share(w, first_column, columns, start, depth, whole, 0.0f, b, thread - MATRIX_THREADS / 2);
            }
            BARRIER();
            THREADS(MATRIX_THREADS) {
                const int row = row_of(thread), column = column_of(thread);
                if (row < rows) {
                    float8 partial[8];
                    UNROLL for (int i = 0; i < 8; ++i) { partial[i] = splat(0.0f); }
                    UNROLL_BY(2) for (int k = 0; k < MATRIX_TILE_SIZE; k += MATRIX_TILE) {
                        const float8 left = load8(b + k + column), right = load8(b + k + column + 8);
                        UNROLL for (int i = 0; i < 4; ++i) {
                            partial[2 * i] = fma_(splat(a[k + row + i]), left, partial[2 * i]);
                            partial[2 * i + 1] = fma_(splat(a[k + row + i]), right, partial[2 * i + 1]);
                        }
                    }
                    UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = total[i][thread] + partial[i]; }
                }
            }
        }
        THREADS(MATRIX_THREADS) {
            UNROLL for (int i = 0; i < 8; ++i) {
                const int row = row_of(thread) + i / 2;
                const int column = first_column + column_of(thread) + i % 2 * 8;
                if (row < rows) {
                    T* to = out + (i64)pairs_here[row] * columns;
                    UNROLL for (int j = 0; j < 8; ++j) {
                        if (column + j < columns) to[column + j] = narrow<T>(total[i][thread].values[j]);
                    }
                }
            }
        }
    }
}

#define EXPERTS(T)                                                                                                     \
    ENTRY(expert_vectors_##T, EXPERT_THREADS, const T* x, const T* weight, const int* order, const int* offsets,       \
          const int* active, T* out, int pairs, int share, int experts, int slots, int columns, int depth) {           \
        expert_vectors(x, weight, order, offsets, active, out, pairs, share, experts, slots, columns, depth);          \
    }                                                                                                                  \
    ENTRY(expert_tiles_##T, MATRIX_THREADS, const T* x, const T* weight, const int* order, const int* offsets,         \
          const int* active, T* out, int pairs, int share, int experts, int slots, int columns, int depth) {           \
        expert_tiles(x, weight, order, offsets, active, out, pairs, share, experts, slots, columns, depth);            \
    }
FOR_EACH_STORAGE(EXPERTS)

// ------------------------------------------------------------------------------------------------------------ the rest

// Block (t, i) takes tile i of token t. The sum runs over the ranks in their order, each product and each sum rounded.
#define COMBINE(T)                                                                                                     \
    ENTRY(moe_combine_##T, TILE_THREADS, const T* x, const float* weights, T* out, int k, int columns,                 \
          int narrow_sums) {                                                                                           \
        const T* rows = x + (i64)BLOCK_X * k * columns;                                                                \
        const float* of = weights + (i64)BLOCK_X * k;                                                                  \
        T* to = out + (i64)BLOCK_X * columns;                                                                          \
        for_each_in_tile(BLOCK_Y, columns, [=](i64 i) {                                                                \
            float sum = 0.0f;                                                                                          \
            for (int rank = 0; rank < k; ++rank) {                                                                     \
                float term = of[rank] * widen(rows[(i64)rank * columns + i]);                                          \
                if (narrow_sums) term = rounded_to<T>(term);                                                           \
                sum = sum + term;                                                                                      \
                if (narrow_sums) sum = rounded_to<T>(sum);                                                             \
            }                                                                                                          \
            to[i] = narrow<T>(sum);                                                                                    \
        });                                                                                                            \
    }                                                                                                                  \
    ENTRY(shared_expert_gate_##T, TILE_THREADS, const T* x, const T* gate, T* out, int columns) {                      \
        const T* row = x + (i64)BLOCK_X * columns;                                                                     \
        T* to = out + (i64)BLOCK_X * columns;                                                                          \
        const float open = rounded_to<T>(sigmoid(widen(gate[BLOCK_X])));                                               \
        for_each_in_tile(BLOCK_Y, columns, [=](i64 i) { to[i] = narrow<T>(open * widen(row[i])); });                   \
    }
FOR_EACH_STORAGE(COMBINE)

// silu(gate), rounded to the gate's dtype whatever the others are, times up.
#define SILU_MUL(Gate, Up, Out)                                                                                        \
    ENTRY(moe_silu_mul_##Gate##_##Up##_##Out, TILE_THREADS, const Gate* gate, const Up* up, Out* out, i64 size) {      \
        for_each_in_tile(BLOCK_X, size, [=](i64 i) {                                                                   \
            const float active = rounded_to<Gate>(silu(widen(gate[i])));                                               \
            out[i] = narrow<Out>(active * widen(up[i]));                                                               \
        });                                                                                                            \
    }
#define SILU_MULS_TO(Out)                                                                                              \
    SILU_MUL(bf16, bf16, Out) SILU_MUL(bf16, f32, Out) SILU_MUL(f32, bf16, Out) SILU_MUL(f32, f32, Out)
SILU_MULS_TO(bf16)
SILU_MULS_TO(f32)
SILU_MUL(f16, f16, f16)
