// Recurrent states in slots; see toolkit/ops/state.py. Block (r, t) takes tile t of row r.
#include "tiles.h"

#define STATE(From, To)                                                                                                \
    ENTRY(state_gather_##From##_##To, TILE_THREADS, const From* cache, const int* slots, const int* kept, To* out,     \
          int slot_count, i64 size) {                                                                                  \
        const int slot = slots[BLOCK_X];                                                                               \
        const bool held = slot >= 0 && slot < slot_count && kept[BLOCK_X];                                             \
        const From* from = cache + (held ? slot : 0) * size;                                                           \
        To* to = out + BLOCK_X * size;                                                                                 \
        if (held)                                                                                                      \
            for_each_in_tile(BLOCK_Y, size, [=](i64 i) { to[i] = narrow<To>(widen(from[i])); });                       \
        else                                                                                                           \
            for_each_in_tile(BLOCK_Y, size, [=](i64 i) { to[i] = narrow<To>(0.0f); });                                 \
    }                                                                                                                  \
    ENTRY(state_scatter_##From##_##To, TILE_THREADS, const From* states, To* cache, const int* slots, int slot_count,  \
          i64 size) {                                                                                                  \
        const int slot = slots[BLOCK_X];                                                                               \
        if (slot < 0 || slot >= slot_count) return;                                                                    \
        const From* from = states + BLOCK_X * size;                                                                    \
        To* to = cache + slot * size;                                                                                  \
        for_each_in_tile(BLOCK_Y, size, [=](i64 i) { to[i] = narrow<To>(widen(from[i])); });                           \
    }
#define STATES_FROM(From) STATE(From, bf16) STATE(From, f16) STATE(From, f32)
FOR_EACH_STORAGE(STATES_FROM)
