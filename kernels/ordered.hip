// float32 sums of rounded products in a stated order; see ordered_product in toolkit/devices/arithmetic.py, which
// defines every bit of them. Each output's terms are added by one thread alone.
#include "portable.h"
#include "matrix.h"

// What lies outside a matrix is padded so that its products are -0, the one number that changes no sum.
DEVICE float8 nothing() { return splat(-0.0f); }

// A block's part of x [rows, depth] times weight [columns, depth] transposed: ROWS x 64 outputs. Several products are
// stacked in z.
template <class T, int ROWS> struct Operands {
    const float* x;
    const T* weight;
    int rows, columns, depth, first_row, first_column;
    bool whole;

    MEMBER Operands(const float* x, const T* weight, int rows, int columns, int depth)
        : x(x + (i64)BLOCK_Z * rows * depth), weight(weight + (i64)BLOCK_Z * columns * depth), rows(rows),
          columns(columns), depth(depth), first_row(BLOCK_X * ROWS), first_column(BLOCK_Y * MATRIX_TILE),
          whole(loads_by_eight(x, depth) && loads_by_eight(weight, depth)) {}

    // Thread's share, of 64 threads, of the tiles from term `start` on.
    MEMBER void load(int start, float* a, float* b, int thread) const {
        if (thread < ROWS / 2) load_share(x, first_row, rows, start, depth, whole, -0.0f, a, thread);
        const int share = thread - MATRIX_THREADS / 2;
        if (share >= 0) load_share(weight, first_column, columns, start, depth, whole, 0.0f, b, share);
    }

    MEMBER void store(float8 sums, int row, int column, float* out) const {
        out += (i64)BLOCK_Z * rows * columns;
        row += first_row;
        column += first_column;
        UNROLL for (int j = 0; j < 8; ++j) {
            if (row < rows && column + j < columns) out[(i64)row * columns + column + j] = sums.values[j];
        }
    }
};

// Terms one after the other in runs of `run` (a multiple of the tiles' depth), then the runs' sums one after the
// other. `backward` goes from the last term to the first.
template <class T>
DEVICE void product_in_runs(const float* x, const T* weight, float* out, int rows, int columns, int depth, int run,
                            int backward) {
    constexpr int N = MATRIX_THREADS;
    SHARED(float, a, MATRIX_TILE_SIZE);
    SHARED(float, b, MATRIX_TILE_SIZE);
    const Operands<T, MATRIX_TILE> of(x, weight, rows, columns, depth);
    const int end = (depth + MATRIX_DEPTH - 1) / MATRIX_DEPTH * MATRIX_DEPTH;
    const int step = backward ? -MATRIX_TILE : MATRIX_TILE, from = backward ? MATRIX_TILE_SIZE - MATRIX_TILE : 0;
    PerThread<float8, N> total[8], sums[8];
    THREADS(N) {
        UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = nothing(); }
    }
    for (int first = 0; first < end; first += run) {
        THREADS(N) {
            UNROLL for (int i = 0; i < 8; ++i) { sums[i][thread] = nothing(); }
        }
        for (int start = first; start < first + run && start < end; start += MATRIX_DEPTH) {
            BARRIER();
            THREADS(N) { of.load(backward ? end - MATRIX_DEPTH - start : start, a, b, thread); }
            BARRIER();
            THREADS(N) {
                const int row = row_of(thread), column = column_of(thread);
                if (of.first_row + row < rows) {
                    float8 sum[8];
                    UNROLL for (int i = 0; i < 8; ++i) { sum[i] = sums[i][thread]; }
                    const float *x_term = a + from + row, *weight_term = b + from + column;
                    UNROLL_BY(2) for (int term = 0; term < MATRIX_DEPTH; ++term) {
                        const float8 left = load8(weight_term), right = load8(weight_term + 8);
                        UNROLL for (int i = 0; i < 4; ++i) {
                            sum[2 * i] = sum[2 * i] + splat(x_term[i]) * left;
                            sum[2 * i + 1] = sum[2 * i + 1] + splat(x_term[i]) * right;
                        }
                        x_term += step;
                        weight_term += step;
                    }
                    UNROLL for (int i = 0; i < 8; ++i) { sums[i][thread] = sum[i]; }
                }
            }
        }
        THREADS(N) {
            UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = total[i][thread] + sums[i][thread]; }
        }
    }
    THREADS(N) {
        UNROLL for (int i = 0; i < 8; ++i) {
            of.store(total[i][thread], row_of(thread) + i / 2, column_of(thread) + i % 2 * 8, out);
        }
    }
}

constexpr int PAIRWISE_ROWS = 32; // of a block; a thread has eight columns of one row
constexpr int PAIRWISE_THREADS = PAIRWISE_ROWS * MATRIX_TILE / 8;
constexpr int PAIRWISE_LEVELS = 12; // of tiles: more than 100,000 terms

// The sum of COUNT products by pairs, then pairs of pairs, ... COUNT is a power of two.
template <int COUNT> struct Pairwise {
    static MEMBER float8 sum(const float* a, const float* b) {
        constexpr int HALF = COUNT / 2;
        const float8 first = Pairwise<HALF>::sum(a, b);
        return first + Pairwise<HALF>::sum(a + HALF * MATRIX_TILE, b + HALF * MATRIX_TILE);
    }
};
template <> struct Pairwise<1> {
    static MEMBER float8 sum(const float* a, const float* b) { return splat(*a) * load8(b); }
};

// Neighbouring terms, then neighbouring sums, until one is left; an odd one out is carried up unchanged. The sums of
// the tiles wait, one per level of the tree, until their neighbour is there: a binary counter.
template <class T>
DEVICE void product_by_pairs(const float* x, const T* weight, float* out, int rows, int columns, int depth) {
    constexpr int N = PAIRWISE_THREADS;
    SHARED(float, a, MATRIX_TILE_SIZE);
    SHARED(float, b, MATRIX_TILE_SIZE);
    const Operands<T, PAIRWISE_ROWS> of(x, weight, rows, columns, depth);
    PerThread<float8, N> waiting[PAIRWISE_LEVELS];
    const u32 tiles = (u32)(depth + MATRIX_DEPTH - 1) / MATRIX_DEPTH;
    for (u32 tile = 0; tile < tiles; ++tile) {
        BARRIER();
        THREADS_BELOW(N, MATRIX_THREADS) { of.load((int)tile * MATRIX_DEPTH, a, b, thread); }
        BARRIER();
        const u32 waits_at = ~tile & (tile + 1); // where a counter at `tile` carries to
        THREADS(N) {
            const int row = thread / 8, column = thread % 8 * 8;
            if (of.first_row + row < rows) {
                float8 sum = Pairwise<MATRIX_DEPTH>::sum(a + row, b + column);
                UNROLL for (int level = 0; level < PAIRWISE_LEVELS; ++level) {
                    if (waits_at > 1u << level) sum = waiting[level][thread] + sum;
                    if (waits_at == 1u << level) waiting[level][thread] = sum;
                }
            }
        }
    }
    THREADS(N) {
        float8 sum = nothing();
        UNROLL for (int level = 0; level < PAIRWISE_LEVELS; ++level) {
            if (tiles >> level & 1) sum = waiting[level][thread] + sum;
        }
        of.store(sum, thread / 8, thread % 8 * 8, out);
    }
}

#define ORDERED(T)                                                                                                     \
    ENTRY(product_in_runs_##T, MATRIX_THREADS, const float* x, const T* weight, float* out, int rows, int columns,     \
          int depth, int run, int backward) {                                                                          \
        product_in_runs<T>(x, weight, out, rows, columns, depth, run, backward);                                       \
    }                                                                                                                  \
    ENTRY(product_by_pairs_##T, PAIRWISE_THREADS, const float* x, const T* weight, float* out, int rows, int columns,  \
          int depth) {                                                                                                 \
        product_by_pairs<T>(x, weight, out, rows, columns, depth);                                                     \
    }
FOR_EACH_STORAGE(ORDERED)
