// The state of one wave, and how instructions read and write registers. One build for each wave size (LANES).
#pragma once
#include <cstring>

#include "program.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifndef LANES
#define LANES 32
#endif

// Scalar registers by our own numbers; those of the hardware differ between generations.
enum Scalar : u16 { VCC = 106, TTMP = 108, M0 = 125, EXEC = 126, SCC = 253, DISCARD = 254 };

// 512 = vector and accumulation registers; the rest hold what the translator splits off (DPP, dual issue, SDWA).
constexpr int REGISTERS = 520;

enum class Status { RUNNING, BARRIER, DONE, FAILED };

struct Lds;
struct Block;

struct Wave {
  u32 s[256 + 16];
  alignas(64) u32 v[REGISTERS][LANES];
  const Inst* pc;
  Status status;
  u32 mode;  // rounding and denormals, as in the MODE register
  u32 number;
  int lane;  // of the memory access under way
  u64 saved_exec;
  const Program* program;
  Block* block;
  Lds* lds;
  u8* scratch;  // one stretch of scratch_size bytes for each lane
  u64 scratch_size;
  char message[512];

  u64 mask(int index) const {
#if LANES == 64
    return s[index] | (u64)s[index + 1] << 32;
#else
    return s[index];
#endif
  }
  void set_mask(int index, u64 value) {
    s[index] = (u32)value;
#if LANES == 64
    s[index + 1] = value >> 32;
#endif
  }
  u64 exec() const { return mask(EXEC); }
  u64 s64(int index) const { return s[index] | (u64)s[index + 1] << 32; }
  void set_s64(int index, u64 value) { s[index] = (u32)value, s[index + 1] = value >> 32; }
  const Inst* fail(const Inst* i, const char* format, ...) __attribute__((format(printf, 3, 4)));
};

constexpr u64 ALL_LANES = LANES == 64 ? ~0ull : 0xffffffffull;

// ---- reading operands ---------------------------------------------------------------------------------------------
// A source is a row of LANES values: the register itself, or a copy with the operand's modifiers applied.

struct Row32 { alignas(64) u32 x[LANES]; };
struct Row64 { alignas(64) u64 x[LANES]; };

const u32* fetch32_slow(const Operand& o, const Wave* w, u32* row);
const u32* fetch16_slow(const Operand& o, const Wave* w, u32* row);
const u64* fetch64_any(const Operand& o, const Wave* w, u64* row);

static inline const u32* fetch32(const Operand& o, const Wave* w, Row32& row) {
  return o.kind == VGPR && !o.modifiers ? w->v[o.index] : fetch32_slow(o, w, row.x);
}
// Values of 16 bits, zero-extended.
static inline const u32* fetch16(const Operand& o, const Wave* w, Row32& row) { return fetch16_slow(o, w, row.x); }
static inline const u64* fetch64(const Operand& o, const Wave* w, Row64& row) { return fetch64_any(o, w, row.x); }

static inline u32 scalar32(const Operand& o, const Wave* w) { return o.kind == SGPR ? w->s[o.index] : (u32)o.value; }
static inline u64 scalar64(const Operand& o, const Wave* w) { return o.kind == SGPR ? w->s64(o.index) : o.value; }
static inline u64 scalar_mask(const Operand& o, const Wave* w) { return o.kind == SGPR ? w->mask(o.index) : o.value; }

// ---- writing results ----------------------------------------------------------------------------------------------

static inline void store32(u32* dst, const u32* value, u64 exec) {
  if (exec == ALL_LANES) {
    memcpy(dst, value, 4 * LANES);
    return;
  }
  for (int part = 0; part < LANES; part += 32) {
    u32 bits = (u32)(exec >> part);
    for (int l = 0; l < 32; ++l) dst[part + l] = bits >> l & 1 ? value[part + l] : dst[part + l];
  }
}
void store16(const Inst* i, Wave* w, const u32* value);
void store64(const Inst* i, Wave* w, const u64* value);
void clamp_f32(const Inst* i, f32* value);
void clamp_f64(const Inst* i, f64* value);
void clamp_f16(const Inst* i, f32* value);

// One bit for each lane whose word is not zero (all ones).
static inline u64 pack(const u32* row) {
  u64 mask = 0;
#ifdef __AVX2__
  for (int l = 0; l < LANES; l += 8)
    mask |= (u64)(u32)_mm256_movemask_ps(_mm256_loadu_ps((const float*)(row + l))) << l;
#else
  for (int l = 0; l < LANES; ++l) mask |= (u64)(row[l] >> 31) << l;
#endif
  return mask;
}
static inline void unpack(u64 mask, u32* row) {
  for (int part = 0; part < LANES; part += 32) {
    u32 bits = (u32)(mask >> part);
    for (int l = 0; l < 32; ++l) row[part + l] = 0u - (bits >> l & 1);
  }
}

#define FOR_ACTIVE(l)                                                  \
  for (u64 rest_ = w->exec(); rest_; rest_ &= rest_ - 1)               \
    if (int l = __builtin_ctzll(rest_); true)

// ---- rounding and denormals -----------------------------------------------------------------------------------------
// The host's own flags do the work: MXCSR holds what MODE says for single precision, and is exchanged around
// instructions of double precision, for which MODE has separate bits.

u32 host_flags_f32(u32 mode);
u32 host_flags_f64(u32 mode);
#ifdef __SSE2__
static inline void set_host_flags(u32 flags) { __builtin_ia32_ldmxcsr(flags); }
#else
static inline void set_host_flags(u32) {}
#endif

struct DoublePrecision {
  u32 single, twice;
  explicit DoublePrecision(const Wave* w) : single(host_flags_f32(w->mode)), twice(host_flags_f64(w->mode)) {
    if (single != twice) set_host_flags(twice);
  }
  ~DoublePrecision() {
    if (single != twice) set_host_flags(single);
  }
};

// ---- handlers by name -----------------------------------------------------------------------------------------------

struct Registration {
  Registration(const char* name, Handler handler);
};
#define HANDLER(name)                                             \
  static const Inst* name([[maybe_unused]] const Inst* i, [[maybe_unused]] Wave* w); \
  static Registration register_##name(#name, name);               \
  static const Inst* name([[maybe_unused]] const Inst* i, [[maybe_unused]] Wave* w)

static inline f32 scalar_f32(const Operand& o, const Wave* w) {
  u32 value = scalar32(o, w);
  if (o.modifiers & ABSOLUTE) value &= 0x7fffffff;
  if (o.modifiers & NEGATE) value ^= 0x80000000;
  f32 result;
  memcpy(&result, &value, 4);
  return result;
}
