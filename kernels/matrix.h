// Matrix products by tiles in shared memory: 64 threads, each with 4 x 16 outputs of a 64 x 64 tile.
#pragma once
#include "portable.h"

constexpr int MATRIX_TILE = 64;  // rows, and columns, of a block's outputs
constexpr int MATRIX_DEPTH = 32; // terms of the sums that are in shared memory at a time
constexpr int MATRIX_TILE_SIZE = MATRIX_DEPTH * MATRIX_TILE;
constexpr int MATRIX_THREADS = 64;

// Where a thread's outputs begin in the tile.
DEVICE int row_of(int thread) { return thread / 4 * 4; }
DEVICE int column_of(int thread) { return thread % 4 * 16; }

// One thread's share of bringing 64 rows x 32 columns of `matrix` [rows, depth], from row `first` and column `start`,
// into `tile` [32][64]: an 8 x 8 block, transposed. `share` is 0 to 31. `outside` where the matrix has no element.
template <class T>
DEVICE void load_share(const T* matrix, int first, int rows, int start, int depth, bool whole, float outside,
                       float* tile, int share) {
    const int row = share / (MATRIX_DEPTH / 8) * 8;
    const int k = share % (MATRIX_DEPTH / 8) * 8;
    tile += k * MATRIX_TILE + row;
    if (whole) {
        const T* from = matrix + (i64)(first + row) * depth + start + k;
        const int inside = start + k < depth ? rows - first - row : 0;
        float8 block[8];
        UNROLL for (int i = 0; i < 8; ++i) { block[i] = i < inside ? load8(from + (i64)i * depth) : splat(outside); }
        transpose(block);
        UNROLL for (int i = 0; i < 8; ++i) { store8(tile + i * MATRIX_TILE, block[i]); }
    } else {
        UNROLL_BY(1) for (int i = 0; i < 8; ++i) {
            UNROLL_BY(1) for (int j = 0; j < 8; ++j) {
                const bool inside = first + row + i < rows && start + k + j < depth;
                const i64 at = (i64)(first + row + i) * depth + start + k + j;
                tile[j * MATRIX_TILE + i] = inside ? widen(matrix[at]) : outside;
            }
        }
    }
}
