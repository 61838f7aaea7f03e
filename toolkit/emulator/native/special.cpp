// Vector instructions that read or write a lane mask or a second result, or whose sources follow rules of their own.
#include "lane.h"
#include "wave.h"

HANDLER(v_nop) { return i + 1; }

// ---- selection ------------------------------------------------------------------------------------------------------
HANDLER(v_cndmask_b32) {
  Row32 row_a, row_b;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b);
  alignas(64) u32 chosen[LANES], result[LANES];
  unpack(scalar_mask(i->src[2], w), chosen);
  for (int l = 0; l < LANES; ++l) result[l] = (a[l] & ~chosen[l]) | (b[l] & chosen[l]);
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
HANDLER(v_cndmask_b16) {
  Row32 row_a, row_b;
  const u32 *a = fetch16(i->src[0], w, row_a), *b = fetch16(i->src[1], w, row_b);
  alignas(64) u32 chosen[LANES], result[LANES];
  unpack(scalar_mask(i->src[2], w), chosen);
  for (int l = 0; l < LANES; ++l) result[l] = (a[l] & ~chosen[l]) | (b[l] & chosen[l]);
  store16(i, w, result);
  return i + 1;
}
HANDLER(v_swap_b32) {
  FOR_ACTIVE(l) std::swap(w->v[i->dst][l], w->v[i->src[0].index][l]);
  return i + 1;
}
HANDLER(v_swap_b16) {
  Row32 row;
  alignas(64) u32 old[LANES];
  memcpy(old, fetch16(i->src[0], w, row), sizeof old);
  int shift = i->flags & HIGH_DESTINATION ? 16 : 0, other = i->src[0].modifiers & HIGH_HALF ? 16 : 0;
  FOR_ACTIVE(l) {
    u32 mine = w->v[i->dst][l] >> shift & 0xffff;
    u32& there = w->v[i->src[0].index][l];
    there = (there & ~(0xffffu << other)) | mine << other;
    u32& here = w->v[i->dst][l];
    here = (here & ~(0xffffu << shift)) | old[l] << shift;
  }
  return i + 1;
}

// ---- carries ----------------------------------------------------------------------------------------------------------
// sdst receives the carry of each lane; src[2] is the carry that comes in.
enum class Carry { ADD, SUBTRACT, SUBTRACT_REVERSED };
template <Carry C>
static const Inst* with_carry(const Inst* i, Wave* w) {
  Row32 row_a, row_b;
  const u32 *a = fetch32(i->src[C == Carry::SUBTRACT_REVERSED], w, row_a), *b = fetch32(i->src[C != Carry::SUBTRACT_REVERSED], w, row_b);
  alignas(64) u32 in[LANES] = {}, result[LANES], out[LANES];
  if (i->src[2].kind != NONE) unpack(scalar_mask(i->src[2], w), in);
  for (int l = 0; l < LANES; ++l) {
    u32 carry = in[l] & 1;
    if (C == Carry::ADD) {
      u32 sum = a[l] + b[l];
      result[l] = sum + carry;
      out[l] = sum < a[l] || result[l] < sum ? ~0u : 0;
    } else {
      u32 difference = a[l] - b[l];
      result[l] = difference - carry;
      out[l] = a[l] < b[l] || difference < carry ? ~0u : 0;
    }
  }
  if (i->flags & CLAMP)
    for (int l = 0; l < LANES; ++l) result[l] = out[l] ? (C == Carry::ADD ? ~0u : 0) : result[l];
  store32(w->v[i->dst], result, w->exec());
  w->set_mask(i->sdst, pack(out) & w->exec());
  return i + 1;
}
HANDLER(v_add_co_u32) { return with_carry<Carry::ADD>(i, w); }
HANDLER(v_sub_co_u32) { return with_carry<Carry::SUBTRACT>(i, w); }
HANDLER(v_subrev_co_u32) { return with_carry<Carry::SUBTRACT_REVERSED>(i, w); }

HANDLER(v_mad_u64_u32) {
  Row32 row_a, row_b;
  Row64 row_c;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b);
  const u64* c = fetch64(i->src[2], w, row_c);
  u64 result[LANES];
  alignas(64) u32 out[LANES];
  for (int l = 0; l < LANES; ++l) {
    u64 product = (u64)a[l] * b[l];
    result[l] = product + c[l];
    out[l] = result[l] < product ? ~0u : 0;
  }
  store64(i, w, result);
  w->set_mask(i->sdst, pack(out) & w->exec());
  return i + 1;
}
HANDLER(v_mad_i64_i32) {
  Row32 row_a, row_b;
  Row64 row_c;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b);
  const u64* c = fetch64(i->src[2], w, row_c);
  u64 result[LANES];
  alignas(64) u32 out[LANES];
  for (int l = 0; l < LANES; ++l) {
    i64 product = (i64)(i32)a[l] * (i32)b[l], sum;
    out[l] = __builtin_add_overflow(product, (i64)c[l], &sum) ? ~0u : 0;
    result[l] = (u64)sum;
  }
  store64(i, w, result);
  w->set_mask(i->sdst, pack(out) & w->exec());
  return i + 1;
}

// ---- division -----------------------------------------------------------------------------------------------------------
HANDLER(v_div_scale_f32) {
  Row32 row_a, row_b, row_c;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b), *c = fetch32(i->src[2], w, row_c);
  alignas(64) u32 result[LANES];
  u64 scaled_lanes = 0;
  for (int l = 0; l < LANES; ++l) {
    bool scaled;
    result[l] = bits(div_scale<F32>(as_f32(a[l]), as_f32(b[l]), as_f32(c[l]), scaled));
    scaled_lanes |= (u64)scaled << l;
  }
  store32(w->v[i->dst], result, w->exec());
  w->set_mask(i->sdst, scaled_lanes & w->exec());
  return i + 1;
}
HANDLER(v_div_scale_f64) {
  DoublePrecision precision(w);
  Row64 row_a, row_b, row_c;
  const u64 *a = fetch64(i->src[0], w, row_a), *b = fetch64(i->src[1], w, row_b), *c = fetch64(i->src[2], w, row_c);
  u64 result[LANES], scaled_lanes = 0;
  for (int l = 0; l < LANES; ++l) {
    bool scaled;
    result[l] = bits(div_scale<F64>(as_f64(a[l]), as_f64(b[l]), as_f64(c[l]), scaled));
    scaled_lanes |= (u64)scaled << l;
  }
  store64(i, w, result);
  w->set_mask(i->sdst, scaled_lanes & w->exec());
  return i + 1;
}
HANDLER(v_div_fmas_f32) {
  Row32 row_a, row_b, row_c;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b), *c = fetch32(i->src[2], w, row_c);
  alignas(64) u32 result[LANES];
  u64 scaled = w->mask(VCC);
  for (int l = 0; l < LANES; ++l)
    result[l] = bits(div_fmas<F32>(as_f32(a[l]), as_f32(b[l]), as_f32(c[l]), scaled >> l & 1));
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
HANDLER(v_div_fmas_f64) {
  DoublePrecision precision(w);
  Row64 row_a, row_b, row_c;
  const u64 *a = fetch64(i->src[0], w, row_a), *b = fetch64(i->src[1], w, row_b), *c = fetch64(i->src[2], w, row_c);
  u64 result[LANES], scaled = w->mask(VCC);
  for (int l = 0; l < LANES; ++l)
    result[l] = bits(div_fmas<F64>(as_f64(a[l]), as_f64(b[l]), as_f64(c[l]), scaled >> l & 1));
  store64(i, w, result);
  return i + 1;
}

// ---- products of parts of registers --------------------------------------------------------------------------------------
// Sum of products of the 32 / BITS parts; neg_lo says which sources are signed.
template <int BITS>
static const Inst* dot(const Inst* i, Wave* w, bool signed_result) {
  Row32 row_a, row_b, row_c;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b), *c = fetch32(i->src[2], w, row_c);
  alignas(64) u32 result[LANES];
  auto part = [](u32 x, int at, bool is_signed) {
    return is_signed ? (i64)((i32)(x << (32 - BITS - at)) >> (32 - BITS)) : (i64)(x >> at & ((1u << BITS) - 1));
  };
  for (int l = 0; l < LANES; ++l) {
    i64 sum = signed_result ? (i64)(i32)c[l] : (i64)c[l];
    for (int at = 0; at < 32; at += BITS) sum += part(a[l], at, i->neg_lo & 1) * part(b[l], at, i->neg_lo & 2);
    if (i->flags & CLAMP) sum = signed_result ? clamp_i32(sum) : sum < 0 ? 0 : sum > 0xffffffffll ? 0xffffffffll : sum;
    result[l] = (u32)sum;
  }
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
HANDLER(v_dot4_i32_iu8) { return dot<8>(i, w, true); }
HANDLER(v_dot4_u32_u8) { return dot<8>(i, w, false); }
HANDLER(v_dot8_i32_iu4) { return dot<4>(i, w, true); }
HANDLER(v_dot8_u32_u4) { return dot<4>(i, w, false); }

// Sources are f32, or f16 where op_sel_hi says so (then op_sel chooses the half). neg_lo negates, neg_hi is |x|.
static void mixed(const Inst* i, const Wave* w, f32* result) {
  f32 value[3][LANES];
  for (int k = 0; k < 3; ++k) {
    Row32 row;
    const u32* from = fetch32(i->src[k], w, row);
    bool half = i->op_sel_hi >> k & 1;
    int shift = i->op_sel >> k & 1 ? 16 : 0;
    for (int l = 0; l < LANES; ++l) {
      f32 x = half ? from_f16(from[l] >> shift) : as_f32(from[l]);
      if (i->neg_hi >> k & 1) x = std::fabs(x);
      value[k][l] = i->neg_lo >> k & 1 ? -x : x;
    }
  }
  for (int l = 0; l < LANES; ++l) result[l] = std::fma(value[0][l], value[1][l], value[2][l]);
  if (i->flags & CLAMP) clamp_f32(i, result);
}
HANDLER(v_fma_mix_f32) {
  alignas(64) f32 result[LANES];
  mixed(i, w, result);
  store32(w->v[i->dst], (const u32*)result, w->exec());
  return i + 1;
}
static const Inst* mixed_half(const Inst* i, Wave* w, int shift) {
  f32 value[LANES];
  mixed(i, w, value);
  FOR_ACTIVE(l) w->v[i->dst][l] = (w->v[i->dst][l] & ~(0xffffu << shift)) | to_f16(value[l]) << shift;
  return i + 1;
}
HANDLER(v_fma_mixlo_f16) { return mixed_half(i, w, 0); }
HANDLER(v_fma_mixhi_f16) { return mixed_half(i, w, 16); }

// Two f32 in two registers each (gfx90a and later of its line); op_sel chooses which of a source's two is used.
template <class F>
static const Inst* packed_f32(const Inst* i, Wave* w, int sources, F compute) {
  alignas(64) f32 result[2][LANES];
  for (int part = 0; part < 2; ++part) {
    f32 value[3][LANES] = {};
    for (int k = 0; k < sources; ++k) {
      bool second = (part ? i->op_sel_hi : i->op_sel) >> k & 1, negative = (part ? i->neg_hi : i->neg_lo) >> k & 1;
      Operand o = i->src[k];
      o.index += second && o.kind != CONSTANT;
      if (o.kind == CONSTANT && second) o.value >>= 32;
      Row32 row;
      const u32* from = fetch32(o, w, row);
      for (int l = 0; l < LANES; ++l) value[k][l] = negative ? -as_f32(from[l]) : as_f32(from[l]);
    }
    for (int l = 0; l < LANES; ++l) result[part][l] = compute(value[0][l], value[1][l], value[2][l]);
  }
  for (int part = 0; part < 2; ++part) store32(w->v[i->dst + part], (const u32*)result[part], w->exec());
  return i + 1;
}
HANDLER(v_pk_add_f32) {
  return packed_f32(i, w, 2, [](f32 a, f32 b, f32) { return a + b; });
}
HANDLER(v_pk_mul_f32) {
  return packed_f32(i, w, 2, [](f32 a, f32 b, f32) { return a * b; });
}
HANDLER(v_pk_fma_f32) {
  return packed_f32(i, w, 3, [](f32 a, f32 b, f32 c) { return std::fma(a, b, c); });
}
HANDLER(v_pk_mov_b32) {
  alignas(64) u32 result[2][LANES];
  for (int part = 0; part < 2; ++part) {
    Operand o = i->src[part];
    bool second = i->op_sel >> part & 1;
    o.index += second && o.kind != CONSTANT;
    if (o.kind == CONSTANT && second) o.value >>= 32;
    Row32 row;
    memcpy(result[part], fetch32(o, w, row), sizeof result[part]);
  }
  for (int part = 0; part < 2; ++part) store32(w->v[i->dst + part], result[part], w->exec());
  return i + 1;
}
