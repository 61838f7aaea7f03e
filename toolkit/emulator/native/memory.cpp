// Vector memory: global, flat, scratch and LDS; loads, stores and atomics.
#include <cstdio>

#include "block.h"
#include "lane.h"

// SWIZZLED: scratch through a buffer resource, whose scalar offset counts the bytes of all lanes together.
enum Space { GLOBAL, FLAT, SCRATCH, SWIZZLED, LDS };

// ---- where a lane's access goes --------------------------------------------------------------------------------------

template <Space S>
static inline void addresses(const Inst* i, const Wave* w, u64* address) {
  const Operand &vector = i->src[0], &scalar = i->src[1];
  u64 base = (u64)i->offset;
  if (S == GLOBAL || S == FLAT) {
    if (scalar.kind == NONE) {
      const u32 *low = w->v[vector.index], *high = w->v[vector.index + 1];
      for (int l = 0; l < LANES; ++l) address[l] = base + (low[l] | (u64)high[l] << 32);
      return;
    }
    base += w->s64(scalar.index);
  } else if (scalar.kind != NONE) {
    base += scalar32(scalar, w) / (S == SWIZZLED ? LANES : 1);
  }
  if (vector.kind == NONE) {
    for (int l = 0; l < LANES; ++l) address[l] = base;
  } else {
    const u32* low = w->v[vector.index];
    for (int l = 0; l < LANES; ++l) address[l] = base + low[l];
  }
}

static u8* in_lds(const Inst* i, Wave* w, u64 address, u32 size, Access access, const void* value) {
  if (address + size > w->lds->size) {
    w->fail(i, "lane %d: %u bytes at %#llx of LDS, which holds %u bytes in this launch", w->lane, size,
            (unsigned long long)address, w->lds->size);
    return nullptr;
  }
  if (w->lds->checks != LdsChecks::OFF && !lds_access(i, w, (u32)address, size, access, value)) return nullptr;
  return w->lds->memory + address;
}
static u8* in_scratch(const Inst* i, Wave* w, int lane, u64 address, u32 size) {
  if (address + size > w->scratch_size) {
    w->fail(i, "lane %d: %u bytes at %#llx of scratch memory, which holds %llu bytes for each lane", w->lane, size,
            (unsigned long long)address, (unsigned long long)w->scratch_size);
    return nullptr;
  }
  return w->scratch + (u64)lane * w->scratch_size + address;
}

template <Space S>
static inline u8* reach(const Inst* i, Wave* w, int lane, u64 address, u32 size, Access access, const void* value) {
  w->lane = lane;
  if (S == GLOBAL) return (u8*)address;
  if (S == LDS) return in_lds(i, w, (u32)address, size, access, value);
  if (S == SCRATCH || S == SWIZZLED) return in_scratch(i, w, lane, (u32)address, size);
  if (w->lds->contains(address)) return in_lds(i, w, (u32)address, size, access, value);
  if (address >> 32 == private_aperture() >> 32) return in_scratch(i, w, lane, (u32)address, size);
  return (u8*)address;
}

// ---- loads and stores ---------------------------------------------------------------------------------------------------

template <Space S, int WORDS>
static const Inst* load_words(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  u32(*dst)[LANES] = &w->v[i->dst];
  FOR_ACTIVE(l) {
    const u8* from = reach<S>(i, w, l, address[l], 4 * WORDS, Access::READ, nullptr);
    if (S != GLOBAL && !from) return nullptr;
    u32 word[WORDS];
    memcpy(word, from, sizeof word);
    for (int k = 0; k < WORDS; ++k) dst[k][l] = word[k];
  }
  return i + 1;
}

template <Space S, int WORDS>
static const Inst* store_words(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  const u32(*data)[LANES] = &w->v[i->src[2].index];
  FOR_ACTIVE(l) {
    u32 word[WORDS];
    for (int k = 0; k < WORDS; ++k) word[k] = data[k][l];
    u8* to = reach<S>(i, w, l, address[l], 4 * WORDS, Access::WRITE, word);
    if (S != GLOBAL && !to) return nullptr;
    memcpy(to, word, sizeof word);
  }
  return i + 1;
}

enum Half { WHOLE, LOW, HIGH };

// T is extended to 32 bits, or (for a half) fills 16 bits and keeps the others.
template <Space S, class T, Half H>
static const Inst* load_part(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  u32* dst = w->v[i->dst];
  FOR_ACTIVE(l) {
    const u8* from = reach<S>(i, w, l, address[l], sizeof(T), Access::READ, nullptr);
    if (S != GLOBAL && !from) return nullptr;
    T part;
    memcpy(&part, from, sizeof part);
    u32 value = (u32)(i32)part;
    bool high = H == HIGH || (H == LOW && i->flags & HIGH_DESTINATION);
    dst[l] = H == WHOLE ? value : high ? (dst[l] & 0xffff) | value << 16 : (dst[l] & 0xffff0000) | (value & 0xffff);
  }
  return i + 1;
}

template <Space S, class T, Half H>
static const Inst* store_part(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  const u32* data = w->v[i->src[2].index];
  int shift = H == HIGH || i->src[2].modifiers & HIGH_HALF ? 16 : 0;
  FOR_ACTIVE(l) {
    T part = (T)(data[l] >> shift);
    u8* to = reach<S>(i, w, l, address[l], sizeof(T), Access::WRITE, &part);
    if (S != GLOBAL && !to) return nullptr;
    memcpy(to, &part, sizeof part);
  }
  return i + 1;
}

// Two accesses to LDS at once: op_sel and op_sel_hi hold the offsets, offset their unit in bytes.
template <int WORDS>
static const Inst* load_two(const Inst* i, Wave* w) {
  alignas(64) u32 word[2][WORDS][LANES];
  const u32* base = w->v[i->src[0].index];
  FOR_ACTIVE(l) {
    for (int part = 0; part < 2; ++part) {
      u32 address = base[l] + (part ? i->op_sel_hi : i->op_sel) * (u32)i->offset;
      const u8* from = reach<LDS>(i, w, l, address, 4 * WORDS, Access::READ, nullptr);
      if (!from) return nullptr;
      for (int k = 0; k < WORDS; ++k) memcpy(&word[part][k][l], from + 4 * k, 4);
    }
  }
  for (int part = 0; part < 2; ++part)
    for (int k = 0; k < WORDS; ++k) store32(w->v[i->dst + part * WORDS + k], word[part][k], w->exec());
  return i + 1;
}
template <int WORDS>
static const Inst* store_two(const Inst* i, Wave* w) {
  const u32* base = w->v[i->src[0].index];
  FOR_ACTIVE(l) {
    for (int part = 0; part < 2; ++part) {
      u32 word[WORDS];
      for (int k = 0; k < WORDS; ++k) word[k] = w->v[i->src[2 + part].index + k][l];
      u32 address = base[l] + (part ? i->op_sel_hi : i->op_sel) * (u32)i->offset;
      u8* to = reach<LDS>(i, w, l, address, 4 * WORDS, Access::WRITE, word);
      if (!to) return nullptr;
      memcpy(to, word, sizeof word);
    }
  }
  return i + 1;
}
static const Inst* exchange_two(const Inst* i, Wave* w) {
  const u32* base = w->v[i->src[0].index];
  alignas(64) u32 old[2][LANES];
  FOR_ACTIVE(l) {
    for (int part = 0; part < 2; ++part) {
      u32 word = w->v[i->src[2 + part].index][l];
      u32 address = base[l] + (part ? i->op_sel_hi : i->op_sel) * (u32)i->offset;
      u8* at = reach<LDS>(i, w, l, address, 4, Access::ATOMIC, &word);
      if (!at) return nullptr;
      memcpy(&old[part][l], at, 4);
      memcpy(at, &word, 4);
    }
  }
  for (int part = 0; part < 2; ++part) store32(w->v[i->dst + part], old[part], w->exec());
  return i + 1;
}

// ---- atomics --------------------------------------------------------------------------------------------------------------

template <class T> static T op_add(T x, T y) { return x + y; }
template <class T> static T op_sub(T x, T y) { return x - y; }
template <class T> static T op_rsub(T x, T y) { return y - x; }
template <class T> static T op_min(T x, T y) { return x < y ? x : y; }
template <class T> static T op_max(T x, T y) { return x > y ? x : y; }
template <class T> static T op_and(T x, T y) { return x & y; }
template <class T> static T op_or(T x, T y) { return x | y; }
template <class T> static T op_xor(T x, T y) { return x ^ y; }
template <class T> static T op_swap(T, T y) { return y; }
template <class T> static T op_inc(T x, T y) { return x >= y ? 0 : x + 1; }
template <class T> static T op_dec(T x, T y) { return x == 0 || x > y ? y : x - 1; }
template <class T> static T op_sub_clamp(T x, T y) { return x < y ? 0 : x - y; }
template <class T> static T op_min_num(T x, T y) { return min_num(x, y); }
template <class T> static T op_max_num(T x, T y) { return max_num(x, y); }
static u32 op_pk_add_f16(u32 x, u32 y) {
  return to_f16(from_f16(x) + from_f16(y)) | to_f16(from_f16(x >> 16) + from_f16(y >> 16)) << 16;
}
static u32 op_pk_add_bf16(u32 x, u32 y) {
  return to_bf16(from_bf16(x & 0xffff) + from_bf16(y & 0xffff)) | to_bf16(from_bf16(x >> 16) + from_bf16(y >> 16)) << 16;
}

template <class T>
static T operand(const Wave* w, int index, int lane) {
  u32 word[sizeof(T) / 4];
  for (unsigned k = 0; k < sizeof(T) / 4; ++k) word[k] = w->v[index + k][lane];
  T value;
  memcpy(&value, word, sizeof value);
  return value;
}
template <class T>
static void set_result(const Inst* i, Wave* w, int lane, T old) {
  if (!(i->flags & RETURN_OLD)) return;
  u32 word[sizeof(T) / 4];
  memcpy(word, &old, sizeof old);
  for (unsigned k = 0; k < sizeof(T) / 4; ++k) w->v[i->dst + k][lane] = word[k];
}

template <int BYTES> struct Word;
template <> struct Word<4> { using T = u32; };
template <> struct Word<8> { using T = u64; };

// Blocks run on several threads, so device memory is updated by compare-and-swap; LDS belongs to one thread.
template <class T, class F>
static T update(u8* at, bool alone, F change) {
  using U = typename Word<sizeof(T)>::T;
  T old;
  if (alone) {
    memcpy(&old, at, sizeof old);
    T next = change(old);
    memcpy(at, &next, sizeof next);
    return old;
  }
  U seen = __atomic_load_n((U*)at, __ATOMIC_SEQ_CST), next;
  do {
    memcpy(&old, &seen, sizeof old);
    T value = change(old);
    memcpy(&next, &value, sizeof next);
  } while (!__atomic_compare_exchange_n((U*)at, &seen, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}

template <Space S>
static bool is_alone(const Wave* w, u64 address) {
  return S == LDS || (S == FLAT && (w->lds->contains(address) || address >> 32 == private_aperture() >> 32));
}

template <class T>
static bool aligned(const Inst* i, Wave* w, const u8* at) {
  if ((u64)at % sizeof(T) == 0) return true;
  w->fail(i, "lane %d: atomic access to %p, which is not a multiple of %u", w->lane, (const void*)at, (u32)sizeof(T));
  return false;
}

template <Space S, class T, T (*OP)(T, T)>
static const Inst* atomic(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  FOR_ACTIVE(l) {
    T value = operand<T>(w, i->src[2].index, l);
    u8* at = reach<S>(i, w, l, address[l], sizeof(T), Access::ATOMIC, nullptr);
    if (!at || !aligned<T>(i, w, at)) return nullptr;
    set_result(i, w, l, update<T>(at, is_alone<S>(w, address[l]), [=](T old) { return OP(old, value); }));
  }
  return i + 1;
}

// Device memory: new value, then the expected one, in consecutive registers; LDS: src[2] = new value, src[3] = expected.
template <Space S, class T>
static const Inst* compare_and_swap(const Inst* i, Wave* w) {
  u64 address[LANES];
  addresses<S>(i, w, address);
  int expected = S == LDS ? i->src[3].index : i->src[2].index + (int)sizeof(T) / 4;
  FOR_ACTIVE(l) {
    T value = operand<T>(w, i->src[2].index, l), compare = operand<T>(w, expected, l);
    u8* at = reach<S>(i, w, l, address[l], sizeof(T), Access::ATOMIC, nullptr);
    if (!at || !aligned<T>(i, w, at)) return nullptr;
    set_result(i, w, l, update<T>(at, is_alone<S>(w, address[l]), [=](T old) { return old == compare ? value : old; }));
  }
  return i + 1;
}

// ---- names ------------------------------------------------------------------------------------------------------------------

template <Space S>
static void register_space(const std::string& space) {
  auto add = [&](const char* name, Handler handler) { Registration((space + name).c_str(), handler); };
  add("load_b32", load_words<S, 1>);
  add("load_b64", load_words<S, 2>);
  add("load_b96", load_words<S, 3>);
  add("load_b128", load_words<S, 4>);
  add("store_b32", store_words<S, 1>);
  add("store_b64", store_words<S, 2>);
  add("store_b96", store_words<S, 3>);
  add("store_b128", store_words<S, 4>);
  add("load_u8", load_part<S, u8, WHOLE>);
  add("load_i8", load_part<S, i8, WHOLE>);
  add("load_u16", load_part<S, u16, WHOLE>);
  add("load_i16", load_part<S, i16, WHOLE>);
  add("load_d16_u8", load_part<S, u8, LOW>);
  add("load_d16_i8", load_part<S, i8, LOW>);
  add("load_d16_b16", load_part<S, u16, LOW>);
  add("load_d16_hi_u8", load_part<S, u8, HIGH>);
  add("load_d16_hi_i8", load_part<S, i8, HIGH>);
  add("load_d16_hi_b16", load_part<S, u16, HIGH>);
  add("store_b8", store_part<S, u8, WHOLE>);
  add("store_b16", store_part<S, u16, WHOLE>);
  add("store_d16_hi_b8", store_part<S, u8, HIGH>);
  add("store_d16_hi_b16", store_part<S, u16, HIGH>);
}

template <Space S>
static void register_atomics(const std::string& space) {
  auto add = [&](const char* name, Handler handler) { Registration((space + name).c_str(), handler); };
#define INTEGER(U, I, B, TU, TI)                          \
  add("add_" U, atomic<S, TU, op_add<TU>>);               \
  add("sub_" U, atomic<S, TU, op_sub<TU>>);               \
  add("rsub_" U, atomic<S, TU, op_rsub<TU>>);             \
  add("min_" U, atomic<S, TU, op_min<TU>>);               \
  add("max_" U, atomic<S, TU, op_max<TU>>);               \
  add("min_" I, atomic<S, TI, op_min<TI>>);               \
  add("max_" I, atomic<S, TI, op_max<TI>>);               \
  add("and_" B, atomic<S, TU, op_and<TU>>);               \
  add("or_" B, atomic<S, TU, op_or<TU>>);                 \
  add("xor_" B, atomic<S, TU, op_xor<TU>>);               \
  add("swap_" B, atomic<S, TU, op_swap<TU>>);             \
  add("inc_" U, atomic<S, TU, op_inc<TU>>);               \
  add("dec_" U, atomic<S, TU, op_dec<TU>>);               \
  add("sub_clamp_" U, atomic<S, TU, op_sub_clamp<TU>>);   \
  add("cmpswap_" B, compare_and_swap<S, TU>);
  INTEGER("u32", "i32", "b32", u32, i32)
  INTEGER("u64", "i64", "b64", u64, i64)
#undef INTEGER
  add("add_f32", atomic<S, f32, op_add<f32>>);
  add("min_f32", atomic<S, f32, op_min_num<f32>>);
  add("max_f32", atomic<S, f32, op_max_num<f32>>);
  add("add_f64", atomic<S, f64, op_add<f64>>);
  add("min_f64", atomic<S, f64, op_min_num<f64>>);
  add("max_f64", atomic<S, f64, op_max_num<f64>>);
  add("pk_add_f16", atomic<S, u32, op_pk_add_f16>);
  add("pk_add_bf16", atomic<S, u32, op_pk_add_bf16>);
}

static bool registered = [] {
  register_space<GLOBAL>("global_");
  register_space<FLAT>("flat_");
  register_space<SCRATCH>("scratch_");
  register_space<SWIZZLED>("swizzled_");
  register_space<LDS>("ds_");
  register_atomics<GLOBAL>("global_atomic_");
  register_atomics<FLAT>("flat_atomic_");
  register_atomics<LDS>("ds_atomic_");
  Registration("ds_load_2addr_b32", load_two<1>);
  Registration("ds_load_2addr_b64", load_two<2>);
  Registration("ds_store_2addr_b32", store_two<1>);
  Registration("ds_store_2addr_b64", store_two<2>);
  Registration("ds_storexchg_2addr_rtn_b32", exchange_two);
  return true;
}();
