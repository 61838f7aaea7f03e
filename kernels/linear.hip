// y = x W^T with float32 accumulation, rounded once; see toolkit/ops/linear.py. Blocks that share columns of the weight
// follow each other (rows are the grid's first axis), so that it comes from memory once.
#include "portable.h"
#include "matrix.h"

// The one rounding of a result: to T, or to float32 where the op says so (out32).
template <class T> DEVICE void store(float value, T* out, float* out32, i64 at) {
    if (out32)
        out32[at] = value;
    else
        out[at] = narrow<T>(value);
}

// Eight terms of each row's sum, from term k on.
template <int ROWS, class T>
DEVICE void multiply_add(const T* const* a, const T* w, int k, PerLane<float8>* partial, int lane) {
    const float8 b = load8(w + k);
    UNROLL for (int row = 0; row < ROWS; ++row) { partial[row][lane] = fma_(load8(a[row] + k), b, partial[row][lane]); }
}

// Few rows: one wave per output column. A lane takes 16 bytes of the weight at a time and keeps eight partial sums per
// row, so that the weight is read once, in order, with every load in flight.
constexpr int VECTOR_COLUMNS = 8; // of a block
constexpr int VECTOR_THREADS = VECTOR_COLUMNS * WAVE;

template <class T, int ROWS>
DEVICE void matrix_vector(const T* x, const T* weight, T* out, float* out32, int rows, int columns, int depth) {
    constexpr int STEP = WAVE * 8;
    const int first = BLOCK_X * ROWS;
    WAVES(VECTOR_THREADS) {
        const int column = BLOCK_Y * VECTOR_COLUMNS + wave;
        if (column < columns) {
            const T* w = weight + (i64)column * depth;
            const T* a[ROWS]; // rows past the last repeat it; they are not stored
            UNROLL for (int row = 0; row < ROWS; ++row) {
                a[row] = x + (i64)(first + row < rows ? first + row : rows - 1) * depth;
            }
            PerLane<float8> partial[ROWS];
            UNROLL for (int row = 0; row < ROWS; ++row) {
                LANES { partial[row][lane] = splat(0.0f); }
            }
            int start = 0;
            for (; start + STEP <= depth; start += STEP) {
                LANES { multiply_add<ROWS>(a, w, start + lane * 8, partial, lane); }
            }
            LANES {
                if (start + lane * 8 < depth) multiply_add<ROWS>(a, w, start + lane * 8, partial, lane);
            }
            UNROLL for (int row = 0; row < ROWS; ++row) {
                PerLane<float> sums;
                sum_each(partial[row], sums);
                wave_reduce(sums, Add());
                ONE_LANE {
                    if (first + row < rows) store(sums[0], out, out32, (i64)(first + row) * columns + column);
                }
            }
        }
    }
}

#define MATRIX_VECTOR(T, ROWS)                                                                                         \
    ENTRY(matrix_vector_##ROWS##_##T, VECTOR_THREADS, const T* x, const T* weight, T* out, float* out32, int rows,     \
          int columns, int depth) {                                                                                    \
        matrix_vector<T, ROWS>(x, weight, out, out32, rows, columns, depth);                                           \
    }
#define MATRIX_VECTORS(T) MATRIX_VECTOR(T, 1) MATRIX_VECTOR(T, 4)
FOR_EACH_STORAGE(MATRIX_VECTORS)

// Many rows: tiles in shared memory. The sum runs along each tile's 32 products first, then from tile to tile.
template <class T>
DEVICE void matrix_matrix(const T* x, const T* weight, T* out, float* out32, int rows, int columns, int depth) {
    SHARED(float, a, MATRIX_TILE_SIZE);
    SHARED(float, b, MATRIX_TILE_SIZE);
    const int first_row = BLOCK_X * MATRIX_TILE, first_column = BLOCK_Y * MATRIX_TILE;
    const bool whole = loads_by_eight(x, depth) && loads_by_eight(weight, depth);
    PerThread<float8, MATRIX_THREADS> total[8];
    THREADS(MATRIX_THREADS) {
        UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = splat(0.0f); }
    }
    for (int start = 0; start < depth; start += MATRIX_DEPTH) {
        BARRIER();
        THREADS(MATRIX_THREADS) {
            if (thread < MATRIX_THREADS / 2)
                load_share(x, first_row, rows, start, depth, whole, 0.0f, a, thread);
            else
                load_share(weight, first_column, columns, start, depth, whole, 0.0f, b, thread - MATRIX_THREADS / 2);
        }
        BARRIER();
        THREADS(MATRIX_THREADS) {
            const int row = row_of(thread), column = column_of(thread);
            if (first_row + row < rows) {
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
            const int row = first_row + row_of(thread) + i / 2;
            const int column = first_column + column_of(thread) + i % 2 * 8;
            UNROLL for (int j = 0; j < 8; ++j) {
                if (row < rows && column + j < columns)
                    store(total[i][thread].values[j], out, out32, (i64)row * columns + column + j);
            }
        }
    }
}

#define MATRIX_MATRIX(T)                                                                                               \
    ENTRY(matrix_matrix_##T, MATRIX_THREADS, const T* x, const T* weight, T* out, float* out32, int rows, int columns, \
          int depth) {                                                                                                 \
        matrix_matrix<T>(x, weight, out, out32, rows, columns, depth);                                                 \
    }
FOR_EACH_STORAGE(MATRIX_MATRIX)

// Many rows of bfloat16 on a matrix unit: 64 x 64 outputs per block of four waves, 32 x 32 each. As above, the sum runs
// along 32 products first, then from tile to tile; the order and the rounding inside of 16 are the unit's.
constexpr int UNIT_BLOCK = 64;              // rows, and columns, of a block's outputs
constexpr int UNIT_DEPTH = 32;              // terms of the sums that are in shared memory at a time
constexpr int UNIT_STRIDE = UNIT_DEPTH + 8; // between rows, which then begin in different banks
constexpr int UNIT_THREADS = 4 * WAVE;

// One thread's share of bringing 64 rows x 32 columns of `matrix`, whose rows may be loaded by eight, into `tile`.
DEVICE void load_unit_share(const bf16* matrix, int first, int rows, int start, int depth, bf16* tile, int thread) {
    for (int part = thread; part < UNIT_BLOCK * UNIT_DEPTH / 8; part += UNIT_THREADS) {
        const int row = part / (UNIT_DEPTH / 8), k = part % (UNIT_DEPTH / 8) * 8;
        bf16* to = tile + row * UNIT_STRIDE + k;
        if (first + row < rows && start + k < depth) {
            copy8(matrix + (i64)(first + row) * depth + start + k, to);
        } else {
            UNROLL for (int i = 0; i < 8; ++i) { to[i].bits = 0; }
        }
    }
}

ENTRY(matrix_unit_bf16, UNIT_THREADS, const bf16* x, const bf16* weight, bf16* out, float* out32, int rows, int columns,
      int depth) {
    SHARED(bf16, a, UNIT_BLOCK * UNIT_STRIDE);
    SHARED(bf16, b, UNIT_BLOCK * UNIT_STRIDE);
    const int first_row = BLOCK_X * UNIT_BLOCK, first_column = BLOCK_Y * UNIT_BLOCK;
    PerThread<UnitSums, UNIT_THREADS> total[2][2];
    THREADS(UNIT_THREADS) {
        UNROLL for (int tile = 0; tile < 4; ++tile) {
            UNROLL for (int i = 0; i < UNIT_SUMS; ++i) { total[tile / 2][tile % 2][thread].values[i] = 0.0f; }
        }
    }
    for (int start = 0; start < depth; start += UNIT_DEPTH) {
        BARRIER();
        THREADS(UNIT_THREADS) {
            load_unit_share(x, first_row, rows, start, depth, a, thread);
            load_unit_share(weight, first_column, columns, start, depth, b, thread);
        }
        BARRIER();
        WAVES(UNIT_THREADS) {
            const bf16* left = a + wave / 2 * 2 * UNIT_TILE * UNIT_STRIDE;
            const bf16* right = b + wave % 2 * 2 * UNIT_TILE * UNIT_STRIDE;
            LANES {
                UnitSums sums[2][2] = {};
                UNROLL for (int k = 0; k < UNIT_DEPTH; k += UNIT_TILE) {
                    UnitRows rows_of_a[2], rows_of_b[2];
                    UNROLL for (int i = 0; i < 2; ++i) {
                        rows_of_a[i] = load_rows(left + i * UNIT_TILE * UNIT_STRIDE + k, UNIT_STRIDE, lane);
                        rows_of_b[i] = load_rows(right + i * UNIT_TILE * UNIT_STRIDE + k, UNIT_STRIDE, lane);
                    }
                    UNROLL for (int i = 0; i < 2; ++i) {
                        UNROLL for (int j = 0; j < 2; ++j) {
                            multiply_rows(rows_of_a[i], rows_of_b[j], sums[i][j], lane);
                        }
                    }
                }
                UNROLL for (int tile = 0; tile < 4; ++tile) {
                    UnitSums& to = total[tile / 2][tile % 2][wave * WAVE + lane];
                    UNROLL for (int i = 0; i < UNIT_SUMS; ++i) { to.values[i] += sums[tile / 2][tile % 2].values[i]; }
                }
            }
        }
    }
    WAVES(UNIT_THREADS) {
        LANES {
            UNROLL for (int tile = 0; tile < 4; ++tile) {
                UNROLL for (int i = 0; i < UNIT_SUMS; ++i) {
                    const int row = first_row + (wave / 2 * 2 + tile / 2) * UNIT_TILE + unit_row(i, lane);
                    const int column = first_column + (wave % 2 * 2 + tile % 2) * UNIT_TILE + unit_column(i, lane);
                    const float value = total[tile / 2][tile % 2][wave * WAVE + lane].values[i];
                    if (row < rows && column < columns) store(value, out, out32, (i64)row * columns + column);
                }
            }
        }
    }
}

// x y with y [depth, columns]: a thread has one column of PRODUCT_ROWS rows, so that neighbours read neighbours of y.
constexpr int PRODUCT_THREADS = 256;
constexpr int PRODUCT_ROWS = 4;

#define MATRIX_PRODUCT(T)                                                                                              \
    ENTRY(matrix_product_##T, PRODUCT_THREADS, const T* x, const T* y, T* out, int rows, int columns, int depth) {     \
        const int first_column = BLOCK_X * PRODUCT_THREADS, first_row = BLOCK_Y * PRODUCT_ROWS;                        \
        const int here = rows - first_row < PRODUCT_ROWS ? rows - first_row : PRODUCT_ROWS;                            \
        THREADS_BELOW(PRODUCT_THREADS, columns - first_column) {                                                       \
            const int column = first_column + thread;                                                                  \
            for (int row = first_row; row < first_row + here; ++row) {                                                 \
                float sum = 0.0f;                                                                                      \
                for (int k = 0; k < depth; ++k)                                                                        \
                    sum = fma_(widen(x[(i64)row * depth + k]), widen(y[(i64)k * columns + column]), sum);              \
                out[(i64)row * columns + column] = narrow<T>(sum);                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
FOR_EACH_STORAGE(MATRIX_PRODUCT)
