// Instructions that move values between lanes.
#include "block.h"
#include "lane.h"

HANDLER(v_readfirstlane_b32) {
  u64 exec = w->exec();
  int lane = exec ? __builtin_ctzll(exec) : 0;
  w->s[i->dst] = i->src[0].kind == VGPR ? w->v[i->src[0].index][lane] : scalar32(i->src[0], w);
  return i + 1;
}
HANDLER(v_readlane_b32) {
  w->s[i->dst] = w->v[i->src[0].index][scalar32(i->src[1], w) % LANES];
  return i + 1;
}
HANDLER(v_writelane_b32) {
  w->v[i->dst][scalar32(i->src[1], w) % LANES] = scalar32(i->src[0], w);
  return i + 1;
}

HANDLER(v_mbcnt_lo_u32_b32) {
  Row32 row_a, row_b;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b);
  alignas(64) u32 result[LANES];
  for (int l = 0; l < LANES; ++l)
    result[l] = (u32)__builtin_popcount(a[l] & (l < 32 ? (1u << l) - 1 : ~0u)) + b[l];
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
HANDLER(v_mbcnt_hi_u32_b32) {
  Row32 row_a, row_b;
  const u32 *a = fetch32(i->src[0], w, row_a), *b = fetch32(i->src[1], w, row_b);
  alignas(64) u32 result[LANES];
  for (int l = 0; l < LANES; ++l)
    result[l] = (l < 32 ? 0u : (u32)__builtin_popcount(a[l] & ((1u << (l - 32)) - 1))) + b[l];
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}

// ---- DPP -----------------------------------------------------------------------------------------------------------------
// Which lane a DPP control reads for lane l, or -1. Rows are 16 lanes.
static int dpp_source(int control, int l) {
  int row = l & ~15, at = l & 15, n = control & 15;
  if (control < 0x100) return (l & ~3) | (control >> 2 * (l & 3) & 3);  // quad_perm
  switch (control & 0x1f0) {
    case 0x100: return at + n < 16 ? row | (at + n) : -1;  // row_shl
    case 0x110: return at >= n ? row | (at - n) : -1;      // row_shr
    case 0x120: return row | ((at - n) & 15);              // row_ror
    case 0x150: return row | n;                            // row_share, row_newbcast
    case 0x160: return row | (at ^ n);                     // row_xmask
  }
  switch (control) {
    case 0x130: return l + 1 < LANES ? l + 1 : -1;              // wave_shl:1
    case 0x134: return (l + 1) % LANES;                         // wave_rol:1
    case 0x138: return l - 1;                                   // wave_shr:1
    case 0x13c: return (l + LANES - 1) % LANES;                 // wave_ror:1
    case 0x140: return row | (15 - at);                         // row_mirror
    case 0x141: return (l & ~7) | (7 - (l & 7));                // row_half_mirror
    case 0x142: return l >= 16 ? (row - 1) : -1;                // row_bcast:15
    case 0x143: return l >= 32 ? 31 : -1;                       // row_bcast:31
  }
  return -1;
}

// dst = a spare register; target = control; op_sel = row mask | bank mask << 4; sdst = 1: missing sources read as 0,
// 2: switched-off lanes may be read.
HANDLER(dpp) {
  alignas(64) u32 result[LANES];
  const u32* from = w->v[i->src[0].index];
  u64 exec = w->exec(), enabled = 0;
  for (int l = 0; l < LANES; ++l) {
    int source = dpp_source(i->target, l);
    bool valid = source >= 0 && (exec >> source & 1 || i->sdst & 2);
    result[l] = valid ? from[source] : 0;
    bool row = i->op_sel >> (l >> 4 & 3) & 1, bank = i->op_sel >> 4 >> ((l & 15) >> 2) & 1;
    if (row && bank && (valid || i->sdst & 1)) enabled |= 1ull << l;
  }
  memcpy(w->v[i->dst], result, sizeof result);
  w->saved_exec = exec;
  w->set_mask(EXEC, exec & enabled);
  return i + 1;
}
// offset = eight lane numbers of three bits each.
HANDLER(dpp8) {
  alignas(64) u32 result[LANES];
  const u32* from = w->v[i->src[0].index];
  for (int l = 0; l < LANES; ++l) {
    int source = (l & ~7) | (int)(i->offset >> 3 * (l & 7) & 7);
    result[l] = w->exec() >> source & 1 || i->sdst & 2 ? from[source] : 0;
  }
  memcpy(w->v[i->dst], result, sizeof result);
  w->saved_exec = w->exec();
  return i + 1;
}

// ---- SDWA ----------------------------------------------------------------------------------------------------------------
// target = first bit | width << 8 | sign << 16 of the part that is taken; float modifiers apply to the part.
HANDLER(sdwa_select) {
  Row32 row;
  Operand plain = i->src[0];
  u8 modifiers = plain.modifiers;
  plain.modifiers = 0;
  const u32* from = fetch32(plain, w, row);
  int at = i->target & 255, width = i->target >> 8 & 255;
  bool is_signed = i->target >> 16 & 1;
  alignas(64) u32 result[LANES];
  for (int l = 0; l < LANES; ++l) {
    u32 x = is_signed ? (u32)extract_i32((i32)from[l], (u32)at, (u32)width) : extract_u32(from[l], (u32)at, (u32)width);
    u32 sign = width == 16 ? 0x8000 : 0x80000000;
    if (modifiers & ABSOLUTE) x &= ~sign;
    if (modifiers & NEGATE) x ^= sign;
    result[l] = x;
  }
  memcpy(w->v[i->dst], result, sizeof result);
  return i + 1;
}
// Puts src[0] into the part of dst; sdst: 0 = zeros elsewhere, 1 = sign, 2 = the old value.
HANDLER(sdwa_merge) {
  const u32* from = w->v[i->src[0].index];
  int at = i->target & 255, width = i->target >> 8 & 255;
  u32 field = width == 32 ? ~0u : ((1u << width) - 1) << at;
  FOR_ACTIVE(l) {
    u32 part = from[l] << at & field;
    u32 outside = i->sdst == 2   ? w->v[i->dst][l] & ~field
                  : i->sdst == 1 ? (u32)((i32)(from[l] << (32 - width)) >> (32 - width)) << at & ~field
                                 : 0;
    w->v[i->dst][l] = part | outside;
  }
  return i + 1;
}

// ---- permutations --------------------------------------------------------------------------------------------------------
// op_sel bit 0: switched-off lanes may be read; bit 1: instead, they read as 0 (otherwise the lane keeps its value).
template <class F>
static const Inst* permute_rows(const Inst* i, Wave* w, F source) {
  alignas(64) u32 result[LANES];
  const u32* from = w->v[i->src[0].index];
  u64 exec = w->exec(), enabled = exec;
  for (int l = 0; l < LANES; ++l) {
    int k = source(l);
    bool valid = exec >> k & 1 || i->op_sel & 1;
    result[l] = valid ? from[k] : 0;
    if (!valid && !(i->op_sel & 2)) enabled &= ~(1ull << l);
  }
  store32(w->v[i->dst], result, enabled);
  return i + 1;
}
static u64 selectors(const Inst* i, const Wave* w) {
  return scalar32(i->src[1], w) | (u64)scalar32(i->src[2], w) << 32;
}
HANDLER(v_permlane16_b32) {
  u64 select = selectors(i, w);
  return permute_rows(i, w, [=](int l) { return (l & ~15) | (int)(select >> 4 * (l & 15) & 15); });
}
HANDLER(v_permlanex16_b32) {
  u64 select = selectors(i, w);
  return permute_rows(i, w, [=](int l) { return ((l & ~15) ^ 16) | (int)(select >> 4 * (l & 15) & 15); });
}
HANDLER(v_permlane16_var_b32) {
  const u32* select = w->v[i->src[1].index];
  return permute_rows(i, w, [=](int l) { return (l & ~15) | (int)(select[l] & 15); });
}
HANDLER(v_permlanex16_var_b32) {
  const u32* select = w->v[i->src[1].index];
  return permute_rows(i, w, [=](int l) { return ((l & ~15) ^ 16) | (int)(select[l] & 15); });
}
HANDLER(v_permlane64_b32) {
  alignas(64) u32 result[LANES];
  for (int l = 0; l < LANES; ++l) result[l] = w->v[i->src[0].index][LANES == 64 ? l ^ 32 : l];
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
// Exchange between the two registers (gfx950).
template <int HALF>
static const Inst* swap_halves(const Inst* i, Wave* w) {
  u32 *a = w->v[i->dst], *b = w->v[i->src[0].index];
  for (int l = 0; l < LANES; ++l)
    if (l & HALF) std::swap(a[l], b[l ^ HALF]);
  return i + 1;
}
HANDLER(v_permlane16_swap_b32) { return swap_halves<16>(i, w); }
HANDLER(v_permlane32_swap_b32) { return swap_halves<32>(i, w); }

HANDLER(ds_bpermute_b32) {
  alignas(64) u32 result[LANES];
  const u32 *at = w->v[i->src[0].index], *data = w->v[i->src[2].index];
  u64 exec = w->exec();
  for (int l = 0; l < LANES; ++l) {
    int k = (int)((at[l] + (u32)i->offset) / 4 % LANES);
    result[l] = exec >> k & 1 ? data[k] : 0;
  }
  store32(w->v[i->dst], result, exec);
  return i + 1;
}
HANDLER(ds_permute_b32) {
  alignas(64) u32 result[LANES] = {};
  const u32 *at = w->v[i->src[0].index], *data = w->v[i->src[2].index];
  FOR_ACTIVE(l) result[(at[l] + (u32)i->offset) / 4 % LANES] = data[l];
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}
// offset as encoded: bit 15 = quad permutation, else and | or << 5 | xor << 10 within 32 lanes; 0xc000 and up rotates.
HANDLER(ds_swizzle_b32) {
  alignas(64) u32 result[LANES];
  const u32* data = w->v[i->src[0].index];
  u32 o = (u32)i->offset;
  for (int l = 0; l < LANES; ++l) {
    int base = l & 32, at = l & 31, k;
    if (o >= 0xe000) return w->fail(i, "the FFT swizzle is not emulated");
    if (o >= 0xc000) {  // rotate, within the lanes that the mask leaves
      int mask = o & 31, by = o >> 5 & 31;
      k = (at & mask) | ((at + (o >> 10 & 1 ? -by : by)) & ~mask & 31);
    } else if (o & 0x8000) {
      k = (at & ~3) | (o >> 2 * (at & 3) & 3);
    } else {
      k = (((at & (int)(o & 31)) | (int)(o >> 5 & 31)) ^ (int)(o >> 10 & 31)) & 31;
    }
    result[l] = w->exec() >> (base | k) & 1 ? data[base | k] : 0;
  }
  store32(w->v[i->dst], result, w->exec());
  return i + 1;
}

// ---- registers by index -----------------------------------------------------------------------------------------------
HANDLER(v_movrels_b32) {
  u32 index = i->src[0].index + w->s[M0];
  if (index >= 512) return w->fail(i, "register v%u of an indexed move does not exist", index);
  store32(w->v[i->dst], w->v[index], w->exec());
  return i + 1;
}
HANDLER(v_movreld_b32) {
  Row32 row;
  u32 index = i->dst + w->s[M0];
  if (index >= 512) return w->fail(i, "register v%u of an indexed move does not exist", index);
  store32(w->v[index], fetch32(i->src[0], w, row), w->exec());
  return i + 1;
}
