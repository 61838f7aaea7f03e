// y = x W^T with float32 accumulation, rounded once; see toolkit/ops/linear.py.
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
    const int first = BLOCK_Y * ROWS;
    WAVES(VECTOR_THREADS) {
        const int column = BLOCK_X * VECTOR_COLUMNS + wave;
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
    const int first_row = BLOCK_Y * MATRIX_TILE, first_column = BLOCK_X * MATRIX_TILE;
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
            const int row = thread / 8 * 8, column = thread % 8 * 8;
            if (first_row + row < rows) {
                float8 partial[8];
                UNROLL for (int i = 0; i < 8; ++i) { partial[i] = splat(0.0f); }
                UNROLL_BY(2) for (int k = 0; k < MATRIX_DEPTH; ++k) {
                    const float8 weights = load8(b + k * MATRIX_TILE + column);
                    UNROLL for (int i = 0; i < 8; ++i) {
                        partial[i] = fma_(splat(a[k * MATRIX_TILE + row + i]), weights, partial[i]);
                    }
                }
                UNROLL for (int i = 0; i < 8; ++i) { total[i][thread] = total[i][thread] + partial[i]; }
            }
        }
    }
    THREADS(MATRIX_THREADS) {
        const int row = first_row + thread / 8 * 8, column = first_column + thread % 8 * 8;
        UNROLL for (int i = 0; i < 8; ++i) {
            UNROLL for (int j = 0; j < 8; ++j) {
                if (row + i < rows && column + j < columns)
                    store(total[i][thread].values[j], out, out32, (i64)(row + i) * columns + column + j);
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
