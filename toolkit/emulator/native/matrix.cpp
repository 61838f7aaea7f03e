// Matrix instructions: D = A · B + C over a whole wave. Products are exact, sums are f32 (or i32) in order of k; how the
// hardware rounds inside is not public.
#include "lane.h"
#include "wave.h"

#if LANES == 32

static f32 accumulator(const Inst* i, const Wave* w, int r, int l) {
  const Operand& c = i->src[2];
  f32 value = as_f32(c.kind == VGPR ? w->v[c.index + r][l] : scalar32(c, w));
  if (i->neg_hi & 4) value = std::fabs(value);
  return i->neg_lo & 4 ? -value : value;
}

// ---- WMMA 16×16×16 ---------------------------------------------------------------------------------------------------
// gfx11: lane m (and again lane m + 16) holds row m of A, all k in 16 halves; C: register r of lane l is row 2r + l/16.
// gfx12: lane m + 16h holds k = 8h … 8h + 7 of row m; C: register r of lane l is row r + 8(l/16).
// B is as A with columns for rows; the column of C is l mod 16.

enum Generation { GFX11, GFX12 };

template <Generation G>
static int c_row(int r, int l) { return G == GFX11 ? 2 * r + (l >> 4) : r + 8 * (l >> 4); }

// Element k of row (column) m, with BITS bits.
template <Generation G, int BITS>
static u32 element(const Wave* w, int reg, int m, int k) {
  constexpr int per_lane = G == GFX11 ? 16 : 8, per_register = 32 / BITS;
  int lane = m + 16 * (k / per_lane), at = k % per_lane;
  return w->v[reg + at / per_register][lane] >> at % per_register * BITS & ((1u << BITS) - 1);
}

template <Generation G, int BITS>
static bool operands_in_order(const Inst* i, Wave* w) {
  if (w->exec() != ALL_LANES) {
    w->fail(i, "a matrix instruction with lanes switched off (EXEC %#llx)", (unsigned long long)w->exec());
    return false;
  }
  if (G == GFX12) return true;
  for (int source = 0; source < 2; ++source)
    for (int r = 0; r < 16 * BITS / 32; ++r)
      for (int l = 0; l < 16; ++l)
        if (w->v[i->src[source].index + r][l] != w->v[i->src[source].index + r][l + 16]) {
          w->fail(i, "gfx11 wants the 16 lanes of operand %c twice, but lanes %d and %d differ", "AB"[source], l, l + 16);
          return false;
        }
  return true;
}

// a[k][m] and b[k][n], so that the loops below run over consecutive columns.
template <Generation G, f32 (*WIDEN)(u32)>
static void operands(const Inst* i, const Wave* w, f32 a[16][16], f32 b[16][16]) {
  for (int k = 0; k < 16; ++k) {
    u8 negative = k & 1 ? i->neg_hi : i->neg_lo;  // the even elements, and the odd ones
    f32 sign_a = negative & 1 ? -1.f : 1.f, sign_b = negative & 2 ? -1.f : 1.f;
    for (int m = 0; m < 16; ++m) {
      a[k][m] = sign_a * WIDEN(element<G, 16>(w, i->src[0].index, m, k));
      b[k][m] = sign_b * WIDEN(element<G, 16>(w, i->src[1].index, m, k));
    }
  }
}
// Row ``row`` of A · B, added to sum[16] in order of k.
static void add_row(const f32 a[16][16], const f32 b[16][16], int row, f32* sum) {
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 16; ++n) sum[n] = std::fma(a[k][row], b[k][n], sum[n]);
}

template <Generation G, f32 (*WIDEN)(u32)>
static const Inst* wmma_f32(const Inst* i, Wave* w) {
  if (!operands_in_order<G, 16>(i, w)) return nullptr;
  f32 a[16][16], b[16][16], d[8][LANES];
  operands<G, WIDEN>(i, w, a, b);
  for (int r = 0; r < 8; ++r) {
    for (int l = 0; l < LANES; ++l) d[r][l] = accumulator(i, w, r, l);
    for (int half = 0; half < LANES; half += 16) add_row(a, b, c_row<G>(r, half), d[r] + half);
  }
  memcpy(w->v[i->dst], d, sizeof d);
  return i + 1;
}

// Results of 16 bits. gfx11: one in each register, in the half that op_sel says; gfx12: rows 2r and 2r + 1 in register r.
template <Generation G, f32 (*WIDEN)(u32), u32 (*NARROW)(f32)>
static const Inst* wmma_half(const Inst* i, Wave* w) {
  if (!operands_in_order<G, 16>(i, w)) return nullptr;
  f32 a[16][16], b[16][16];
  constexpr int registers = G == GFX11 ? 8 : 4, each = 8 / registers;
  u32 d[registers][LANES];
  operands<G, WIDEN>(i, w, a, b);
  const Operand& c = i->src[2];
  int shift = G == GFX11 && i->op_sel & 4 ? 16 : 0;
  for (int r = 0; r < registers; ++r) {
    for (int l = 0; l < LANES; ++l) d[r][l] = G == GFX11 ? w->v[i->dst + r][l] & ~(0xffffu << shift) : 0;
    for (int part = 0; part < each; ++part)
      for (int half = 0; half < LANES; half += 16) {
        f32 sum[16];
        for (int n = 0; n < 16; ++n) {
          u32 from = c.kind == VGPR ? w->v[c.index + r][half + n] >> shift >> 16 * part : scalar32(c, w);
          sum[n] = WIDEN(from & 0xffff);
        }
        add_row(a, b, G == GFX11 ? c_row<G>(r, half) : 2 * r + part + half / 2, sum);
        for (int n = 0; n < 16; ++n) d[r][half + n] |= NARROW(sum[n]) << (shift + 16 * part);
      }
  }
  memcpy(w->v[i->dst], d, sizeof d);
  return i + 1;
}

template <Generation G, int BITS>
static const Inst* wmma_int(const Inst* i, Wave* w) {
  if (!operands_in_order<G, BITS>(i, w)) return nullptr;
  u32 d[8][LANES];
  auto value = [&](int source, int m, int k) {
    u32 x = element<G, BITS>(w, i->src[source].index, m, k);
    return i->neg_lo >> source & 1 ? (i32)(x << (32 - BITS)) >> (32 - BITS) : (i32)x;
  };
  for (int r = 0; r < 8; ++r)
    for (int l = 0; l < LANES; ++l) {
      const Operand& c = i->src[2];
      i64 sum = (i32)(c.kind == VGPR ? w->v[c.index + r][l] : scalar32(c, w));
      for (int k = 0; k < 16; ++k) sum += (i64)value(0, c_row<G>(r, l), k) * value(1, l & 15, k);
      d[r][l] = i->flags & CLAMP ? (u32)clamp_i32(sum) : (u32)sum;
    }
  memcpy(w->v[i->dst], d, sizeof d);
  return i + 1;
}

static u32 narrow_f16(f32 x) { return to_f16(x); }
static Registration wmma[] = {
    {"v_wmma_f32_16x16x16_bf16_gfx11", wmma_f32<GFX11, from_bf16>},
    {"v_wmma_f32_16x16x16_f16_gfx11", wmma_f32<GFX11, from_f16>},
    {"v_wmma_bf16_16x16x16_bf16_gfx11", wmma_half<GFX11, from_bf16, to_bf16>},
    {"v_wmma_f16_16x16x16_f16_gfx11", wmma_half<GFX11, from_f16, narrow_f16>},
    {"v_wmma_i32_16x16x16_iu8_gfx11", wmma_int<GFX11, 8>},
    {"v_wmma_i32_16x16x16_iu4_gfx11", wmma_int<GFX11, 4>},
    {"v_wmma_f32_16x16x16_bf16_gfx12", wmma_f32<GFX12, from_bf16>},
    {"v_wmma_f32_16x16x16_f16_gfx12", wmma_f32<GFX12, from_f16>},
    {"v_wmma_bf16_16x16x16_bf16_gfx12", wmma_half<GFX12, from_bf16, to_bf16>},
    {"v_wmma_f16_16x16x16_f16_gfx12", wmma_half<GFX12, from_f16, narrow_f16>},
    {"v_wmma_i32_16x16x16_iu8_gfx12", wmma_int<GFX12, 8>},
    {"v_wmma_i32_16x16x16_iu4_gfx12", wmma_int<GFX12, 4>},
};

#else

// ---- MFMA, one block -----------------------------------------------------------------------------------------------------
// M×M, K elements of A in each of 64 / M groups of lanes: lane l holds row l mod M, k = PER_LANE (l / M) + 0 … PER_LANE - 1.
// B likewise with columns. C: register r of lane l is row 4 (l / M) + r mod 4 + (256 / M) (r / 4), column l mod M.

template <int M>
static int c_row(int r, int l) { return 4 * (l / M) + r % 4 + 256 / M * (r / 4); }

struct Bf16 { using Sum = f32; static constexpr int bits = 16; static f32 value(u32 x) { return from_bf16(x); } };
struct F16 { using Sum = f32; static constexpr int bits = 16; static f32 value(u32 x) { return from_f16(x); } };
struct Single { using Sum = f32; static constexpr int bits = 32; static f32 value(u32 x) { return as_f32(x); } };
struct Int8 { using Sum = i32; static constexpr int bits = 8; static i32 value(u32 x) { return (i8)x; } };

static f32 multiply_add(f32 a, f32 b, f32 c) { return std::fma(a, b, c); }
static i32 multiply_add(i32 a, i32 b, i32 c) { return (i32)((u32)c + (u32)(a * b)); }

template <class T, int M, int PER_LANE>
static const Inst* mfma(const Inst* i, Wave* w) {
  if (w->exec() != ALL_LANES) return w->fail(i, "a matrix instruction with lanes switched off (EXEC %#llx)", (unsigned long long)w->exec());
  constexpr int K = PER_LANE * 64 / M, registers = M * M / 64, per_register = 32 / T::bits;
  using Sum = typename T::Sum;
  auto element = [&](int source, int row, int k) {
    u32 word = w->v[i->src[source].index + k % PER_LANE / per_register][row + M * (k / PER_LANE)];
    int shift = k % PER_LANE % per_register * T::bits;
    return T::value(T::bits == 32 ? word : word >> shift & ((1ull << T::bits) - 1));
  };
  static thread_local Sum a[M][K], b[M][K];
  static thread_local u32 d[registers][LANES];
  for (int m = 0; m < M; ++m)
    for (int k = 0; k < K; ++k) a[m][k] = element(0, m, k), b[m][k] = element(1, m, k);
  for (int r = 0; r < registers; ++r)
    for (int l = 0; l < LANES; ++l) {
      const Operand& c = i->src[2];
      u32 word = c.kind == VGPR ? w->v[c.index + r][l] : scalar32(c, w);
      Sum sum;
      memcpy(&sum, &word, 4);
      for (int k = 0; k < K; ++k) sum = multiply_add(a[c_row<M>(r, l)][k], b[l % M][k], sum);
      memcpy(&d[r][l], &sum, 4);
    }
  memcpy(w->v[i->dst], d, sizeof d);
  return i + 1;
}

static const Inst* mfma_f64(const Inst* i, Wave* w) {  // 16×16×4; C: registers 2r, 2r + 1 of lane l are row 4r + l / 16
  DoublePrecision precision(w);
  if (w->exec() != ALL_LANES) return w->fail(i, "a matrix instruction with lanes switched off (EXEC %#llx)", (unsigned long long)w->exec());
  auto pair = [&](int index, int lane) { return as_f64(w->v[index][lane] | (u64)w->v[index + 1][lane] << 32); };
  u32 d[8][LANES];
  for (int r = 0; r < 4; ++r)
    for (int l = 0; l < LANES; ++l) {
      const Operand& c = i->src[2];
      f64 sum = c.kind == VGPR ? pair(c.index + 2 * r, l) : as_f64(scalar64(c, w));
      for (int k = 0; k < 4; ++k) sum = std::fma(pair(i->src[0].index, 4 * r + l / 16 + 16 * k), pair(i->src[1].index, l % 16 + 16 * k), sum);
      u64 word = bits(sum);
      d[2 * r][l] = (u32)word, d[2 * r + 1][l] = word >> 32;
    }
  memcpy(w->v[i->dst], d, sizeof d);
  return i + 1;
}

static Registration matrix_fused[] = {
    {"v_mfma_f32_16x16x16_bf16", mfma<Bf16, 16, 4>}, {"v_mfma_f32_32x32x8_bf16", mfma<Bf16, 32, 4>},
    {"v_mfma_f32_16x16x16_f16", mfma<F16, 16, 4>},   {"v_mfma_f32_32x32x8_f16", mfma<F16, 32, 4>},
    {"v_mfma_f32_16x16x32_bf16", mfma<Bf16, 16, 8>}, {"v_mfma_f32_32x32x16_bf16", mfma<Bf16, 32, 8>},
    {"v_mfma_f32_16x16x32_f16", mfma<F16, 16, 8>},   {"v_mfma_f32_32x32x16_f16", mfma<F16, 32, 8>},
    {"v_mfma_f32_16x16x4_f32", mfma<Single, 16, 1>}, {"v_mfma_f32_32x32x2_f32", mfma<Single, 32, 1>},
    {"v_mfma_i32_16x16x16_i8", mfma<Int8, 16, 4>},   {"v_mfma_i32_32x32x8_i8", mfma<Int8, 32, 4>},
    {"v_mfma_i32_16x16x32_i8", mfma<Int8, 16, 8>},   {"v_mfma_i32_32x32x16_i8", mfma<Int8, 32, 8>},
    {"v_mfma_f64_16x16x4_f64", mfma_f64},
};

#endif
