#include "wave.h"

#include <cstdarg>
#include <cstdio>
#include <map>

#include "lane.h"

f32 one_f32 = 1;
f64 one_f64 = 1;

const Inst* Wave::fail(const Inst* i, const char* format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  pc = i;
  status = Status::FAILED;
  return nullptr;
}

static void fill(u32* row, u32 value) {
  for (int l = 0; l < LANES; ++l) row[l] = value;
}

const u32* fetch32_slow(const Operand& o, const Wave* w, u32* row) {
  if (o.kind == VGPR)
    memcpy(row, w->v[o.index], 4 * LANES);
  else
    fill(row, scalar32(o, w));
  if (o.modifiers & HIGH_HALF)
    for (int l = 0; l < LANES; ++l) row[l] >>= 16;
  if (o.modifiers & ABSOLUTE)
    for (int l = 0; l < LANES; ++l) row[l] &= 0x7fffffff;
  if (o.modifiers & NEGATE)
    for (int l = 0; l < LANES; ++l) row[l] ^= 0x80000000;
  return row;
}

const u32* fetch16_slow(const Operand& o, const Wave* w, u32* row) {
  int shift = o.modifiers & HIGH_HALF ? 16 : 0;
  u32 keep = o.modifiers & ABSOLUTE ? 0x7fff : 0xffff, flip = o.modifiers & NEGATE ? 0x8000 : 0;
  if (o.kind == VGPR) {
    const u32* from = w->v[o.index];
    for (int l = 0; l < LANES; ++l) row[l] = (from[l] >> shift & keep) ^ flip;
  } else {
    fill(row, (scalar32(o, w) >> shift & keep) ^ flip);
  }
  return row;
}

const u64* fetch64_any(const Operand& o, const Wave* w, u64* row) {
  if (o.kind == VGPR) {
    const u32 *low = w->v[o.index], *high = w->v[o.index + 1];
    for (int l = 0; l < LANES; ++l) row[l] = low[l] | (u64)high[l] << 32;
  } else {
    u64 value = scalar64(o, w);
    for (int l = 0; l < LANES; ++l) row[l] = value;
  }
  if (o.modifiers & ABSOLUTE)
    for (int l = 0; l < LANES; ++l) row[l] &= ~(1ull << 63);
  if (o.modifiers & NEGATE)
    for (int l = 0; l < LANES; ++l) row[l] ^= 1ull << 63;
  return row;
}

void store16(const Inst* i, Wave* w, const u32* value) {
  u32* dst = w->v[i->dst];
  alignas(64) u32 merged[LANES];
  if (i->flags & HIGH_DESTINATION)
    for (int l = 0; l < LANES; ++l) merged[l] = (dst[l] & 0xffff) | value[l] << 16;
  else if (i->flags & ZERO_HIGH)
    for (int l = 0; l < LANES; ++l) merged[l] = value[l] & 0xffff;
  else
    for (int l = 0; l < LANES; ++l) merged[l] = (dst[l] & 0xffff0000) | (value[l] & 0xffff);
  store32(dst, merged, w->exec());
}

void store64(const Inst* i, Wave* w, const u64* value) {
  alignas(64) u32 low[LANES], high[LANES];
  for (int l = 0; l < LANES; ++l) low[l] = (u32)value[l], high[l] = value[l] >> 32;
  store32(w->v[i->dst], low, w->exec());
  store32(w->v[i->dst + 1], high, w->exec());
}

// Output modifiers: multiply by 2, 4 or 1/2, then clamp to [0, 1] (NaN becomes 0, as DX10_CLAMP is set for compute).
template <class T>
static void output_modifiers(const Inst* i, T* value) {
  T factor = i->flags & TIMES_2 ? 2 : i->flags & TIMES_4 ? 4 : i->flags & HALVE ? T(0.5) : 1;
  for (int l = 0; l < LANES; ++l) value[l] *= factor;
  if (i->flags & CLAMP)
    for (int l = 0; l < LANES; ++l) value[l] = value[l] > 0 ? (value[l] < 1 ? value[l] : T(1)) : T(0);
}
void clamp_f32(const Inst* i, f32* value) { output_modifiers(i, value); }
void clamp_f16(const Inst* i, f32* value) { output_modifiers(i, value); }
void clamp_f64(const Inst* i, f64* value) { output_modifiers(i, value); }

// MODE: [1:0] rounding of f32, [3:2] of f64 and f16, [5:4] denormals of f32, [7:6] of f64 and f16 (1 = keep inputs,
// 2 = keep results). MXCSR: 6 = denormal inputs are zero, 13-14 = rounding, 15 = flush results; 7-12 mask exceptions.
static u32 host_flags(u32 rounding, u32 denormals) {
  static const u32 round[] = {0, 2, 1, 3};  // nearest, up, down, zero
  return 0x1f80 | round[rounding & 3] << 13 | (denormals & 1 ? 0 : 1u << 6) | (denormals & 2 ? 0 : 1u << 15);
}
u32 host_flags_f32(u32 mode) { return host_flags(mode, mode >> 4); }
u32 host_flags_f64(u32 mode) { return host_flags(mode >> 2, mode >> 6); }

static std::map<std::string, Handler>& handlers() {
  static std::map<std::string, Handler> table;
  return table;
}
Registration::Registration(const char* name, Handler handler) { handlers()[name] = handler; }

Handler find_handler(const std::string& name) {
  auto found = handlers().find(name);
  return found == handlers().end() ? nullptr : found->second;
}
