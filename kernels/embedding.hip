// Rows gathered from a table; see toolkit/ops/embedding.py. Block (i, t) copies tile t of the row that ids[i] names.
#include "tiles.h"

// Rows are copied as bits, so an entry serves every type of its size.
#define GATHER_ROWS(T)                                                                                                 \
    ENTRY(gather_rows_##T, TILE_THREADS, const T* table, const int* ids, T* out, int columns) {                        \
        const T* from = table + (i64)ids[BLOCK_X] * columns;                                                           \
        T* to = out + (i64)BLOCK_X * columns;                                                                          \
        for_each_in_tile(BLOCK_Y, columns, [=](i64 i) { to[i] = from[i]; });                                           \
    }
GATHER_ROWS(u16)
GATHER_ROWS(u32)

#define SCALED_EMBEDDING(T)                                                                                            \
    ENTRY(scaled_embedding_##T, TILE_THREADS, const T* table, const int* ids, T* out, int columns, float scale) {      \
        const T* from = table + (i64)ids[BLOCK_X] * columns;                                                           \
        T* to = out + (i64)BLOCK_X * columns;                                                                          \
        for_each_in_tile(BLOCK_Y, columns, [=](i64 i) { to[i] = narrow<T>(widen(from[i]) * scale); });                 \
    }
FOR_EACH_STORAGE(SCALED_EMBEDDING)
