// exp, log, tanh, sigmoid, the normal distribution's tail (float32), sin and cos (float64), made only of exactly
// rounded operations in a fixed order: the same bits on every machine. Library functions differ from vendor to vendor
// and from version to version.
//
// Each is an argument reduction and a power series, short enough for Taylor's own coefficients (the tail's polynomial
// is a fit). There is no branch: special values are selected at the end, so that a host loop over threads becomes
// vector instructions. Largest errors are measured by tests/ops/test_functions.py.
#pragma once
#include "portable.h"

// ln 2 in two parts: the nearest float32, and the nearest float32 to what is left.
constexpr float LN2_HIGH = 0x1.62e430p-1f;
constexpr float LN2_LOW = -0x1.05c610p-29f;
constexpr float LOG2_E = 0x1.715476p0f;
// Added to a number below 2^22 it leaves the nearest integer in the low bits: rounding by exactly rounded additions.
constexpr float TO_INTEGER = 0x1.8p23f;

DEVICE float infinity() { return float_of(0x7f800000u); }
DEVICE float not_a_number() { return float_of(0x7fc00000u); }

// x = turns * ln 2 + rest with |rest| <= ln(2) / 2. `turns` is in the low bits, two's complement.
struct PowerOfTwo {
    u32 turns;
    float rest;
};
DEVICE PowerOfTwo in_powers_of_two(float x) {
    const float shifted = fma_(x, LOG2_E, TO_INTEGER);
    const float turns = shifted - TO_INTEGER;
    const float rest = fma_(turns, -LN2_HIGH, x); // exact: it cancels
    return {bits_of(shifted), fma_(turns, -LN2_LOW, rest)};
}

// e^r - 1 for |r| <= ln(2) / 2: the sum of r^k / k! up to k = 7 leaves out less than 2^-27 of it.
DEVICE float exp_minus_one_series(float r) {
    float sum = 1.0f / 5040;
    sum = fma_(sum, r, 1.0f / 720);
    sum = fma_(sum, r, 1.0f / 120);
    sum = fma_(sum, r, 1.0f / 24);
    sum = fma_(sum, r, 1.0f / 6);
    sum = fma_(sum, r, 1.0f / 2);
    return fma_(sum, r * r, r);
}

// e^x; zero where that is below the smallest normal float32.
DEVICE float exp_(float x) {
    const PowerOfTwo split = in_powers_of_two(x);
    const float power = 1.0f + exp_minus_one_series(split.rest);
    float result = float_of(bits_of(power) + (split.turns << 23));
    result = x < -0x1.5d589ep+6f ? 0.0f : result;      // ln 2^-126
    result = x > 0x1.62e42ep+6f ? infinity() : result; // ln 2^128
    return x != x ? not_a_number() : result;
}

// 1 / (1 + e^-x); zero where e^-x overflows, below -88.7.
DEVICE float sigmoid(float x) { return divide(1.0f, 1.0f + exp_(-x)); }

// x / (1 + e^-x).
DEVICE float silu(float x) { return divide(x, 1.0f + exp_(-x)); }

// tanh x. For small |x| by Lambert's continued fraction x/(1 + x^2/(3 + x^2/(5 + x^2/(7 + x^2/9)))), written as x minus
// a small quotient, else as 1 - 2 E / (1 + E) with E = e^(-2|x|): in both only the last subtraction rounds at the
// magnitude of the result. One division serves the two.
DEVICE float tanh_(float x) {
    const u32 sign = bits_of(x) & 0x80000000u;
    const float positive = float_of(bits_of(x) ^ sign);
    const float y = positive < 16.0f ? positive : 16.0f; // beyond 16 the result is 1 to the last bit
    const float z = y * y;
    const PowerOfTwo split = in_powers_of_two(-2.0f * y);
    const float scale = float_of(0x3f800000u + (split.turns << 23));
    const float power = fma_(scale, exp_minus_one_series(split.rest), scale);
    const bool small = y < 0.55f;
    const float dividend = small ? y * z * fma_(2.0f / 135, z, 1.0f / 3) : 2.0f * power;
    const float divisor = small ? fma_(fma_(1.0f / 63, z, 4.0f / 9), z, 1.0f) : 1.0f + power;
    const float result = (small ? y : 1.0f) - divide(dividend, divisor);
    return x != x ? not_a_number() : float_of(bits_of(result) | sign);
}

// The probability that a standard normal variable is above a >= 0: e^(-a^2/2) times a function of t = 1 / (1 + a/4)
// that is smooth and without a zero up to a = 13.5, beyond which the result is below every normal float32. Its
// polynomial is the least-squares fit of degree 9 (weighted by 1 / value) at 200 Chebyshev nodes of that interval,
// around t = 5/8. The square is carried in two numbers: e^-x magnifies the error of x by x.
DEVICE float normal_tail(float a) {
    const float y = a < 13.5f ? a : 13.5f;
    const float t = divide(1.0f, fma_(0.25f, y, 1.0f));
    const float s = t - 0.625f;
    float sum = 0x1.0e7090p-6f;
    sum = fma_(sum, s, 0x1.f3d084p-6f);
    sum = fma_(sum, s, -0x1.dd5bc2p-6f);
    sum = fma_(sum, s, -0x1.7a5bbep-4f);
    sum = fma_(sum, s, 0x1.b476bep-9f);
    sum = fma_(sum, s, 0x1.0d34ecp-2f);
    sum = fma_(sum, s, 0x1.0056c6p-1f);
    sum = fma_(sum, s, 0x1.19eae6p-1f);
    sum = fma_(sum, s, 0x1.ae40aep-2f);
    sum = fma_(sum, s, 0x1.de857ap-3f);
    sum = sum * t;
    const float square = y * y;
    const float lost = fma_(y, y, -square);
    const float result = exp_(-0.5f * square) * fma_(-0.5f * lost, sum, sum);
    return a != a ? not_a_number() : result;
}

// ln x. x = 2^e m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh s with s = f / (2 + f), f = m - 1. Of the series
// 2 artanh s = s (2 + 2 s^2/3 + 2 s^4/5 + ...) the terms up to s^8 are taken, and 2 s is written as f - s f: f is
// exact.
DEVICE float log_(float x) {
    const u32 above = bits_of(x) - 0x3f3504f3u; // sqrt(1/2)
    const float e = (float)((int)above >> 23);
    const float f = float_of((above & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    const float s = divide(f, 2.0f + f);
    const float z = s * s;
    float sum = 2.0f / 9;
    sum = fma_(sum, z, 2.0f / 7);
    sum = fma_(sum, z, 2.0f / 5);
    sum = fma_(sum, z, 2.0f / 3);
    const float correction = s * fma_(-sum, z, f); // f - ln m
    // ln 2 in two parts, of which the first has so few bits that its product with e is exact.
    constexpr float high = 0x1.62e8p-1f, low = -0x1.e8082ep-16f;
    float result = fma_(e, high, f - fma_(-e, low, correction));
    result = x < 0x1p-126f ? -infinity() : result; // zero, and denormals read as zero
    result = x < 0.0f ? not_a_number() : result;
    result = x > 0x1.fffffep+127f ? x : result;
    return x != x ? not_a_number() : result;
}

// x = quadrant * pi/2 + high + low with |high| <= pi/4, for |x| <= 2^30. pi/2 is subtracted in three parts; as the
// first difference is exact and the rest is carried in two numbers, nothing is lost where x is close to a multiple of
// pi/2.
struct Angle {
    u32 quadrant;
    double high, low;
};
DEVICE Angle in_quadrants(double x) {
    constexpr double TO_INTEGER = 0x1.8p52;
    const double shifted = fma_(x, 0x1.45f306dc9c883p-1, TO_INTEGER);
    const double n = shifted - TO_INTEGER;
    const double rest = fma_(n, -0x1.921fb54442d18p0, x);
    const double part = n * 0x1.1a62633145c07p-54;
    const double part_error = fma_(n, 0x1.1a62633145c07p-54, -part);
    const double high = rest - part;
    const double back = high - rest;
    const double high_error = (rest - (high - back)) - (part + back); // Knuth's two-sum
    return {(u32)bits_of(shifted), high, fma_(n, 0x1.f1976b7ed8fbcp-110, high_error - part_error)};
}

// sin and cos of high + low, |high| <= pi/4: Taylor's series without the terms below 2^-58, to which the first
// derivative times `low` is added.
DEVICE double sin_series(double high, double low) {
    const double z = high * high;
    double sum = 1.0 / 355687428096000;
    sum = fma_(sum, z, -1.0 / 1307674368000);
    sum = fma_(sum, z, 1.0 / 6227020800);
    sum = fma_(sum, z, -1.0 / 39916800);
    sum = fma_(sum, z, 1.0 / 362880);
    sum = fma_(sum, z, -1.0 / 5040);
    sum = fma_(sum, z, 1.0 / 120);
    sum = fma_(sum, z, -1.0 / 6);
    return high + fma_(sum, z * high, fma_(-0.5 * z, low, low));
}
DEVICE double cos_series(double high, double low) {
    const double z = high * high;
    double sum = 1.0 / 20922789888000;
    sum = fma_(sum, z, -1.0 / 87178291200);
    sum = fma_(sum, z, 1.0 / 479001600);
    sum = fma_(sum, z, -1.0 / 3628800);
    sum = fma_(sum, z, 1.0 / 40320);
    sum = fma_(sum, z, -1.0 / 720);
    sum = fma_(sum, z, 1.0 / 24);
    const double most = fma_(-0.5, z, 1.0);
    const double most_error = fma_(-0.5, z, 1.0 - most);
    return most + fma_(sum, z * z, fma_(-high, low, most_error));
}

// sin x and cos x for |x| <= 2^30; NaN for infinities and NaN.
DEVICE double sin_(double x) {
    const Angle angle = in_quadrants(x);
    const double sine = sin_series(angle.high, angle.low), cosine = cos_series(angle.high, angle.low);
    const double result = angle.quadrant & 1u ? cosine : sine;
    return angle.quadrant & 2u ? -result : result;
}
DEVICE double cos_(double x) {
    const Angle angle = in_quadrants(x);
    const double sine = sin_series(angle.high, angle.low), cosine = cos_series(angle.high, angle.low);
    const double result = angle.quadrant & 1u ? sine : cosine;
    return (angle.quadrant + 1u) & 2u ? -result : result;
}
