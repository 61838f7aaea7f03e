// The rotation of one pair of coordinates, as rope and the fused preamble of an attention do it.
#pragma once
#include "portable.h"

struct Pair {
    float first, second;
};

// (a, b) turned by an angle; with `narrow_products` each product is rounded to T before they are added.
template <class T> DEVICE Pair rotate(Pair x, float cosine, float sine, int narrow_products) {
    float ac = x.first * cosine, bs = x.second * sine, bc = x.second * cosine, as = x.first * sine;
    if (narrow_products) {
        ac = rounded_to<T>(ac);
        bs = rounded_to<T>(bs);
        bc = rounded_to<T>(bc);
        as = rounded_to<T>(as);
    }
    return {ac - bs, bc + as};
}
