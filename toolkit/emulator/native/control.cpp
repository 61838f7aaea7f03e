// Program flow, the scalar memory unit, and the wave's own state.
#include <time.h>

#include "block.h"
#include "lane.h"

HANDLER(unknown) { return w->fail(i, "the emulator does not know this instruction"); }
HANDLER(not_code) { return w->fail(i, "execution ran into bytes that are not an instruction"); }
HANDLER(s_trap) { return w->fail(i, "the kernel stopped itself (trap %lld: an assertion or __builtin_trap)", (long long)i->offset); }

HANDLER(s_endpgm) {
  w->status = Status::DONE;
  return nullptr;
}
HANDLER(s_barrier) {
  w->pc = i + 1;
  w->status = Status::BARRIER;
  return nullptr;
}

// ---- branches ---------------------------------------------------------------------------------------------------------
static inline const Inst* branch(const Inst* i, bool taken) { return taken ? i + i->target : i + 1; }
HANDLER(s_branch) { return branch(i, true); }
HANDLER(s_cbranch_scc0) { return branch(i, !w->s[SCC]); }
HANDLER(s_cbranch_scc1) { return branch(i, w->s[SCC]); }
HANDLER(s_cbranch_vccz) { return branch(i, !w->mask(VCC)); }
HANDLER(s_cbranch_vccnz) { return branch(i, w->mask(VCC)); }
HANDLER(s_cbranch_execz) { return branch(i, !w->exec()); }
HANDLER(s_cbranch_execnz) { return branch(i, w->exec()); }

static const Inst* jump(const Inst* i, Wave* w, u64 address) {
  const Inst* to = w->program->find(address - (u64)w->program->memory);
  return to ? to : w->fail(i, "jumps to %#llx, which is no instruction of this module", (unsigned long long)address);
}
// offset holds the address of the next instruction in the code object.
HANDLER(s_getpc_b64) {
  w->set_s64(i->dst, (u64)w->program->memory + (u64)i->offset);
  return i + 1;
}
HANDLER(s_setpc_b64) { return jump(i, w, scalar64(i->src[0], w)); }
HANDLER(s_swappc_b64) {
  u64 to = scalar64(i->src[0], w);
  w->set_s64(i->dst, (u64)w->program->memory + (u64)i->offset);
  return jump(i, w, to);
}
HANDLER(s_call_b64) {
  w->set_s64(i->dst, (u64)w->program->memory + (u64)i->offset);
  return i + i->target;
}

// ---- execution mask -----------------------------------------------------------------------------------------------------
#define SAVE_EXEC(name, expression, result)          \
  HANDLER(name) {                                    \
    u64 s = scalar_mask(i->src[0], w), x = w->exec(); \
    u64 e = (expression) & ALL_LANES;                \
    w->set_mask(i->dst, result);                     \
    w->set_mask(EXEC, e);                            \
    w->s[SCC] = e != 0;                              \
    return i + 1;                                    \
  }
SAVE_EXEC(s_and_saveexec, s & x, x)
SAVE_EXEC(s_or_saveexec, s | x, x)
SAVE_EXEC(s_xor_saveexec, s ^ x, x)
SAVE_EXEC(s_nand_saveexec, ~(s & x), x)
SAVE_EXEC(s_nor_saveexec, ~(s | x), x)
SAVE_EXEC(s_xnor_saveexec, ~(s ^ x), x)
SAVE_EXEC(s_and_not0_saveexec, ~s & x, x)
SAVE_EXEC(s_and_not1_saveexec, s & ~x, x)
SAVE_EXEC(s_or_not0_saveexec, ~s | x, x)
SAVE_EXEC(s_or_not1_saveexec, s | ~x, x)
SAVE_EXEC(s_and_not0_wrexec, ~s & x, e)
SAVE_EXEC(s_and_not1_wrexec, s & ~x, e)

// The translator wraps an instruction with DPP in these: lanes without a source are switched off for it.
HANDLER(restore_exec) {
  w->set_mask(EXEC, w->saved_exec);
  return i + 1;
}

HANDLER(s_bitcmp0_b32) {
  w->s[SCC] = !(scalar32(i->src[0], w) >> (scalar32(i->src[1], w) & 31) & 1);
  return i + 1;
}
HANDLER(s_bitcmp1_b32) {
  w->s[SCC] = scalar32(i->src[0], w) >> (scalar32(i->src[1], w) & 31) & 1;
  return i + 1;
}
HANDLER(s_bitcmp0_b64) {
  w->s[SCC] = !(scalar64(i->src[0], w) >> (scalar32(i->src[1], w) & 63) & 1);
  return i + 1;
}
HANDLER(s_bitcmp1_b64) {
  w->s[SCC] = scalar64(i->src[0], w) >> (scalar32(i->src[1], w) & 63) & 1;
  return i + 1;
}
HANDLER(s_movrels_b32) {
  w->s[i->dst] = w->s[i->src[0].index + w->s[M0]];
  return i + 1;
}
HANDLER(s_movreld_b32) {
  w->s[i->dst + w->s[M0]] = scalar32(i->src[0], w);
  return i + 1;
}

// ---- MODE and clocks -------------------------------------------------------------------------------------------------
static void set_mode(Wave* w, u32 mode) {
  w->mode = mode;
  set_host_flags(host_flags_f32(mode));
}
HANDLER(s_denorm_mode) {
  set_mode(w, (w->mode & 0x0f) | (u32)(i->offset & 15) << 4);
  return i + 1;
}
HANDLER(s_round_mode) {
  set_mode(w, (w->mode & 0xf0) | (u32)(i->offset & 15));
  return i + 1;
}
// offset = first bit | width << 8 of the MODE register, the only one that the translator lets through.
static u32 mode_field(const Inst* i) { return (u32)((1ull << (i->offset >> 8)) - 1) << (i->offset & 255); }
HANDLER(s_setreg_mode) {
  u32 field = mode_field(i);
  set_mode(w, (w->mode & ~field) | (scalar32(i->src[0], w) << (i->offset & 255) & field));
  return i + 1;
}
HANDLER(s_getreg_mode) {
  w->s[i->dst] = (w->mode & mode_field(i)) >> (i->offset & 255);
  return i + 1;
}
static u64 clock_ticks() {  // of 10 ns, the period of the GPU's constant clock
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (u64)now.tv_sec * 100000000 + (u64)now.tv_nsec / 10;
}
HANDLER(s_clock_u64) {
  w->set_s64(i->dst, clock_ticks());
  return i + 1;
}
HANDLER(s_clock_u32) {
  w->s[i->dst] = (u32)clock_ticks() & 0xfffff;
  return i + 1;
}

// ---- scalar loads ------------------------------------------------------------------------------------------------------
template <class T, int WORDS>
static const Inst* scalar_load(const Inst* i, Wave* w) {
  u64 address = scalar64(i->src[0], w) + (u64)i->offset;
  if (i->src[1].kind != NONE) address += scalar32(i->src[1], w);
  address &= ~(u64)(sizeof(T) < 4 ? sizeof(T) - 1 : 3);
  if constexpr (sizeof(T) < 4) {
    w->s[i->dst] = (u32)(i32) * (const T*)address;
  } else {
    u32 words[WORDS];
    memcpy(words, (const void*)address, sizeof words);
    memcpy(w->s + i->dst, words, sizeof words);
  }
  return i + 1;
}
static Registration scalar_loads[] = {
    {"s_load_b32", scalar_load<u32, 1>},   {"s_load_b64", scalar_load<u32, 2>},   {"s_load_b96", scalar_load<u32, 3>},
    {"s_load_b128", scalar_load<u32, 4>},  {"s_load_b256", scalar_load<u32, 8>},  {"s_load_b512", scalar_load<u32, 16>},
    {"s_load_u8", scalar_load<u8, 1>},     {"s_load_i8", scalar_load<i8, 1>},     {"s_load_u16", scalar_load<u16, 1>},
    {"s_load_i16", scalar_load<i16, 1>},
};
