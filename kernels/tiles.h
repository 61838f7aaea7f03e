// Work on elements that do not depend on each other: a block takes a tile of them.
#pragma once
#include "portable.h"

constexpr int TILE_THREADS = 256;
constexpr int TILE = 4 * TILE_THREADS; // TILE of toolkit/ops/tiles.py

// body(i) for each i of tile number `tile` of `size` elements.
template <class Body> DEVICE void for_each_in_tile(int tile, i64 size, Body body) {
    const i64 first = (i64)tile * TILE;
    const int count = (int)(size - first < TILE ? size - first : TILE);
    for (int start = 0; start < TILE; start += TILE_THREADS) {
        THREADS_BELOW(TILE_THREADS, count - start) { body(first + start + thread); }
    }
}
