// What the instruction tables are written in: functions of one lane's values, after AMD's ISA documents.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "program.h"

static inline u32 bits(f32 x) { u32 u; memcpy(&u, &x, 4); return u; }
static inline u64 bits(f64 x) { u64 u; memcpy(&u, &x, 8); return u; }
static inline f32 as_f32(u32 u) { f32 x; memcpy(&x, &u, 4); return x; }
static inline f64 as_f64(u64 u) { f64 x; memcpy(&x, &u, 8); return x; }

static inline f32 from_f16(u32 h) { _Float16 x; u16 b = (u16)h; memcpy(&x, &b, 2); return (f32)x; }
static inline u32 to_f16(f32 f) { _Float16 x = (_Float16)f; u16 b; memcpy(&b, &x, 2); return b; }
static inline u32 to_f16(f64 f) { _Float16 x = (_Float16)f; u16 b; memcpy(&b, &x, 2); return b; }
static inline f32 from_bf16(u32 h) { return as_f32(h << 16); }
static inline u32 to_bf16(f32 f) {
  u32 u = bits(f);
  return f != f ? (u >> 16) | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// ---- conversions: NaN becomes 0, values outside the range saturate ---------------------------------------------------
static inline u32 cvt_u32(f32 f) { return !(f > 0) ? 0 : f >= 4294967296.f ? ~0u : (u32)f; }
static inline i32 cvt_i32(f32 f) {
  return f != f ? 0 : f >= 2147483648.f ? 0x7fffffff : f < -2147483648.f ? (i32)0x80000000 : (i32)f;
}
static inline u32 cvt_u32(f64 f) { return !(f > 0) ? 0 : f >= 4294967295. ? ~0u : (u32)f; }
static inline i32 cvt_i32(f64 f) {
  return f != f ? 0 : f >= 2147483647. ? 0x7fffffff : f <= -2147483648. ? (i32)0x80000000 : (i32)f;
}
static inline u32 cvt_u16(f32 f) { return !(f > 0) ? 0 : f >= 65535 ? 65535 : (u32)f; }
static inline u32 cvt_i16(f32 f) { return (u16)(f != f ? 0 : f >= 32767 ? 32767 : f <= -32768 ? -32768 : (i32)f); }
// Toward zero, as cvt_pk_rtz needs: step back where rounding to nearest went away from zero.
static inline u32 to_f16_rtz(f32 f) {
  u32 h = to_f16(f);
  if (f == f && std::fabs(from_f16(h)) > std::fabs(f)) --h;
  return h;
}

// ---- minimum and maximum ---------------------------------------------------------------------------------------------
// min/max and *_num: a NaN loses against a number; -0 is less than +0.
static inline f32 max_num(f32 a, f32 b) {
  return a != a ? b : b != b ? a : a > b ? a : b > a ? b : as_f32(bits(a) & bits(b));
}
static inline f32 min_num(f32 a, f32 b) {
  return a != a ? b : b != b ? a : a < b ? a : b < a ? b : as_f32(bits(a) | bits(b));
}
static inline f64 max_num(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a > b ? a : b > a ? b : as_f64(bits(a) & bits(b));
}
static inline f64 min_num(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a < b ? a : b < a ? b : as_f64(bits(a) | bits(b));
}
// minimum/maximum of IEEE 754-2019: a NaN wins.
template <class F>
static inline F maximum(F a, F b) { return a != a ? a : b != b ? b : max_num(a, b); }
template <class F>
static inline F minimum(F a, F b) { return a != a ? a : b != b ? b : min_num(a, b); }
template <class T>
static inline T lesser(T a, T b) { return a < b ? a : b; }
template <class T>
static inline T greater(T a, T b) { return a > b ? a : b; }
template <class T>
static inline T median(T a, T b, T c) { return greater(lesser(a, b), lesser(greater(a, b), c)); }
static inline f32 median_num(f32 a, f32 b, f32 c) {
  if (a != a || b != b || c != c) return min_num(min_num(a, b), c);
  return max_num(min_num(a, b), min_num(max_num(a, b), c));
}
// Denormals as the wave's mode says, quiet NaNs: what min, max and their kin do to the value they select.
// (A multiplication that the compiler cannot see through.)
extern f32 one_f32;
extern f64 one_f64;
static inline f32 canonical(f32 x) { return x * one_f32; }
static inline f64 canonical(f64 x) { return x * one_f64; }

// ---- bits --------------------------------------------------------------------------------------------------------------
static inline u32 reverse(u32 x) {
  x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
  x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
  x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
  return __builtin_bswap32(x);
}
static inline u64 reverse64(u64 x) { return (u64)reverse((u32)x) << 32 | reverse(x >> 32); }
static inline u32 count_leading_zeros(u32 x) { return x ? __builtin_clz(x) : ~0u; }
static inline u32 count_trailing_zeros(u32 x) { return x ? __builtin_ctz(x) : ~0u; }
static inline u32 count_leading_zeros64(u64 x) { return x ? __builtin_clzll(x) : ~0u; }
static inline u32 count_trailing_zeros64(u64 x) { return x ? __builtin_ctzll(x) : ~0u; }
// Leading bits equal to the sign bit, -1 when all are.
static inline u32 count_leading_signs(i32 x) { return x == 0 || x == -1 ? ~0u : (u32)__builtin_clrsb(x) + 1; }
static inline u32 extract_u32(u32 x, u32 at, u32 width) { return width ? x >> at & (u32)((1ull << width) - 1) : 0; }
static inline i32 extract_i32(i32 x, u32 at, u32 width) {
  if (!width) return 0;
  return at + width < 32 ? (i32)((u32)x << (32 - at - width)) >> (32 - width) : x >> at;
}
static inline u64 extract_u64(u64 x, u32 at, u32 width) {
  return width == 0 ? 0 : width >= 64 ? x >> at : x >> at & ((1ull << width) - 1);
}
static inline i64 extract_i64(i64 x, u32 at, u32 width) {
  if (!width) return 0;
  return at + width < 64 ? (i64)((u64)x << (64 - at - width)) >> (64 - width) : x >> at;
}
static inline u32 permute(u32 high, u32 low, u32 select) {
  u64 x = (u64)high << 32 | low;
  u32 result = 0;
  for (int k = 0; k < 4; ++k) {
    u32 s = select >> 8 * k & 255, byte;
    if (s < 8) byte = x >> 8 * s & 255;
    else if (s < 12) byte = (x >> (16 * (s - 8) + 15) & 1) * 255;
    else byte = s == 12 ? 0 : 255;
    result |= byte << 8 * k;
  }
  return result;
}
static inline u32 sad_u8(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 8) c += (u32)std::abs((i32)(a >> k & 255) - (i32)(b >> k & 255));
  return c;
}
static inline u32 sad_u16(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 16) c += (u32)std::abs((i32)(a >> k & 65535) - (i32)(b >> k & 65535));
  return c;
}
static inline u32 lerp_u8(u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (int k = 0; k < 32; k += 8) result |= (((a >> k & 255) + (b >> k & 255) + (c >> k & 1)) >> 1) << k;
  return result;
}
static inline i32 dot4_i8(u32 a, u32 b, i32 sum) {
  for (int k = 0; k < 32; k += 8) sum = (i32)((u32)sum + (u32)((i8)(a >> k) * (i8)(b >> k)));
  return sum;
}
static inline u32 insert_byte(u32 x, u32 at, u32 byte) { return (x & ~(255u << 8 * at)) | byte << 8 * at; }
static inline f32 dot2_f16(u32 a, u32 b, f32 c) {
  return std::fma(from_f16(a >> 16), from_f16(b >> 16), std::fma(from_f16(a), from_f16(b), c));
}
static inline f32 dot2_bf16(u32 a, u32 b, f32 c) {
  return std::fma(from_bf16(a >> 16), from_bf16(b >> 16), std::fma(from_bf16(a & 0xffff), from_bf16(b & 0xffff), c));
}
static inline u32 saturate_u8(i32 x) { return x < 0 ? 0 : x > 255 ? 255 : (u32)x; }
static inline u32 add_sat_u32(u32 a, u32 b) { return a + b < a ? ~0u : a + b; }
static inline u32 sub_sat_u32(u32 a, u32 b) { return a < b ? 0 : a - b; }
static inline i32 clamp_i32(i64 x) { return x > 0x7fffffff ? 0x7fffffff : x < -0x80000000ll ? (i32)0x80000000 : (i32)x; }
static inline u32 clamp_u16(i32 x) { return x < 0 ? 0 : x > 65535 ? 65535 : (u32)x; }
static inline u32 clamp_i16(i32 x) { return (u16)(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }

// ---- parts of floating-point numbers --------------------------------------------------------------------------------
static inline f32 mantissa(f32 x) { int e; return std::isfinite(x) ? std::frexp(x, &e) : x; }
static inline f64 mantissa(f64 x) { int e; return std::isfinite(x) ? std::frexp(x, &e) : x; }
static inline i32 exponent(f32 x) { int e = 0; if (std::isfinite(x)) std::frexp(x, &e); return e; }
static inline i32 exponent(f64 x) { int e = 0; if (std::isfinite(x)) std::frexp(x, &e); return e; }
static inline f32 scale(f32 x, i32 n) {  // exact in f64 for every n that matters, then rounded once
  n = n < -400 ? -400 : n > 400 ? 400 : n;
  return (f32)((f64)x * as_f64((u64)(1023 + n) << 52));
}
static inline f64 scale(f64 x, i32 n) { return std::ldexp(x, n < -4200 ? -4200 : n > 4200 ? 4200 : n); }
static inline f32 fraction(f32 x) { f32 r = x - std::floor(x); return r >= 1 ? as_f32(0x3f7fffff) : r; }
static inline f64 fraction(f64 x) { f64 r = x - std::floor(x); return r >= 1 ? as_f64(0x3fefffffffffffffull) : r; }

template <class F>
static inline bool is_class(F x, u32 mask) {
  constexpr bool wide = sizeof(F) == 8;
  u64 u = (u64)bits(x), fraction_bits = wide ? 52 : 23, fraction = u & ((1ull << fraction_bits) - 1);
  u32 e = u >> fraction_bits & (wide ? 2047 : 255), top = wide ? 2047 : 255;
  bool negative = u >> (wide ? 63 : 31);
  int kind = e == top ? (fraction ? (fraction >> (fraction_bits - 1) ? 1 : 0) : negative ? 2 : 9)
             : e      ? (negative ? 3 : 8)
             : fraction ? (negative ? 4 : 7)
                        : (negative ? 5 : 6);
  return mask >> kind & 1;
}
static inline bool is_class_f16(u32 u, u32 mask) {
  u32 e = u >> 10 & 31, fraction = u & 1023;
  bool negative = u >> 15 & 1;
  int kind = e == 31 ? (fraction ? (fraction >> 9 ? 1 : 0) : negative ? 2 : 9)
             : e     ? (negative ? 3 : 8)
             : fraction ? (negative ? 4 : 7)
                        : (negative ? 5 : 6);
  return mask >> kind & 1;
}

// ---- division ----------------------------------------------------------------------------------------------------------
// quotient = fixup(fmas(refinement of scale(denominator), scale(numerator))): scaling keeps the refinement clear of
// overflow and denormals, fmas takes it back, fixup handles what is not a number in range.
struct F32 { using T = f32; using U = u32; static constexpr int fraction = 23, top = 255, shift = 64, near = 96, tiny = 23; };
struct F64 { using T = f64; using U = u64; static constexpr int fraction = 52, top = 2047, shift = 128, near = 768, tiny = 53; };
template <class F>
static inline int raw_exponent(typename F::T x) { return (int)(bits(x) >> F::fraction & F::top); }
template <class F>
static inline bool is_denormal(typename F::T x) { return x != 0 && raw_exponent<F>(x) == 0; }

template <class F, class T = typename F::T>
static inline T div_scale(T value, T denominator, T numerator, bool& scaled) {
  scaled = false;
  if (denominator == 0 || numerator == 0) return std::numeric_limits<T>::quiet_NaN();
  int n = raw_exponent<F>(numerator), d = raw_exponent<F>(denominator);
  bool is_denominator = bits(value) == bits(denominator), is_numerator = bits(value) == bits(numerator);
  // Whether 1/d or n/d would be denormal follows from the exponents: 1/d < 2^(2 - bias) and n/d < 2^(1 - bias).
  constexpr int bias = F::top / 2;
  bool tiny_reciprocal = d >= 2 * bias - 1 && std::isfinite(denominator) && T(1) / denominator < std::numeric_limits<T>::min() &&
                         T(1) / denominator > -std::numeric_limits<T>::min();
  bool tiny_quotient = n - d <= 2 - bias;
  if (n - d >= F::near) {
    scaled = true;
    return is_denominator ? scale(value, F::shift) : value;
  }
  if (is_denormal<F>(denominator)) return scale(value, F::shift);
  if (tiny_reciprocal && tiny_quotient) {
    scaled = true;
    return is_denominator ? scale(value, -F::shift) : value;
  }
  if (tiny_reciprocal) return scale(value, -F::shift);
  if (tiny_quotient) {
    scaled = true;
    return is_numerator ? scale(value, F::shift) : value;
  }
  if (n <= F::tiny) return scale(value, F::shift);
  return value;
}

// Rounds fma(a, b, c) · 2^n once: the sum is kept to odd before it is scaled.
static inline f32 fma_scaled(f32 a, f32 b, f32 c, i32 n) {
  f64 p = (f64)a * b, s = p + c;
  f64 t = s - p, error = (p - (s - t)) + (c - t);
  if (error != 0 && std::isfinite(s) && !(bits(s) & 1)) s = as_f64(bits(s) + ((error > 0) == (s > 0) ? 1 : -1));
  return (f32)(s * as_f64((u64)(1023 + n) << 52));
}
static inline f64 fma_scaled(f64 a, f64 b, f64 c, i32 n) {
  f64 s = std::fma(a, b, c);
  if (n > 0 || std::fabs(s) * as_f64((u64)(1023 + n) << 52) >= std::numeric_limits<f64>::min()) return std::ldexp(s, n);
  long double exact = (long double)a * b + c;  // 64 bits: enough beside a result of at most 52
  return (f64)std::ldexp(exact, n);
}
template <class F, class T = typename F::T>
static inline T div_fmas(T a, T b, T c, bool scaled) {
  if (!scaled) return std::fma(a, b, c);
  return fma_scaled(a, b, c, raw_exponent<F>(c) > F::top / 2 ? F::shift : -F::shift);
}
template <class F, class T = typename F::T>
static inline T div_fixup(T quotient, T denominator, T numerator) {
  using U = typename F::U;
  constexpr U sign = U(1) << (8 * sizeof(T) - 1);
  U negative = (bits(denominator) ^ bits(numerator)) & sign;
  auto with_sign = [&](T x) {
    U u = (bits(x) & ~sign) | negative;
    memcpy(&x, &u, sizeof x);
    return x;
  };
  constexpr T infinity = std::numeric_limits<T>::infinity();
  if (numerator != numerator) return numerator + numerator;
  if (denominator != denominator) return denominator + denominator;
  if (denominator == 0 && numerator == 0) return -std::numeric_limits<T>::quiet_NaN();
  if (std::isinf(denominator) && std::isinf(numerator)) return -std::numeric_limits<T>::quiet_NaN();
  if (denominator == 0 || std::isinf(numerator)) return with_sign(infinity);
  if (std::isinf(denominator) || numerator == 0) return with_sign(0);
  if (raw_exponent<F>(numerator) - raw_exponent<F>(denominator) < -(F::top / 2 + F::fraction)) return with_sign(0);
  return with_sign(quotient == quotient ? quotient : infinity);  // finite operands: the refinement overflowed
}

// ---- transcendental units: the correctly rounded value, where hardware is within 1 ulp ------------------------------
static inline f32 sine_of_turns(f32 x) { return (f32)std::sin(6.283185307179586476925 * (f64)(x - std::trunc(x))); }
static inline f32 cosine_of_turns(f32 x) { return (f32)std::cos(6.283185307179586476925 * (f64)(x - std::trunc(x))); }
static inline f32 reciprocal_root(f32 x) { return (f32)(1 / std::sqrt((f64)x)); }
extern const u64 two_over_pi[20];  // binary digits of 2/pi, most significant first
static inline f64 trig_preop(f64 x, u32 segment) {
  int e = raw_exponent<F64>(x), shift = (int)(segment & 31) * 53 + (e > 1077 ? e - 1077 : 0);
  u64 digits = 0;
  for (int k = 0; k < 53; ++k) {
    int at = shift + k;
    digits = digits << 1 | (at < 1201 ? two_over_pi[at / 64] >> (63 - at % 64) & 1 : 0);
  }
  return std::ldexp((f64)digits, -53 - shift + (e >= 1968 ? 128 : 0));
}
