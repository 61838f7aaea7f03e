"""What each instruction computes, as tables: name, type of the result, types of the sources, expression of one lane.

``a``, ``b``, ``c`` are the sources, ``d`` is the old value of the destination, ``l`` the lane. Types: u32 i32 f32 u64 i64
f64 of one or two registers, u16 i16 f16 of half a register (f16 arrives as f32, exactly, and is rounded on the way out).
The functions used are in native/lane.h. Several names before the first gap are the same instruction in different
generations. Everything that is not a function of one lane (memory, exchange between lanes, control, matrices) is written
by hand in native/.
"""

from __future__ import annotations

from dataclasses import dataclass

VECTOR = """
mov_b32                       u32  u32           a
mov_b64                       u64  u64           a
not_b32                       u32  u32           ~a
and_b32                       u32  u32 u32       a & b
or_b32                        u32  u32 u32       a | b
xor_b32                       u32  u32 u32       a ^ b
xnor_b32                      u32  u32 u32       ~(a ^ b)
and_or_b32                    u32  u32 u32 u32   (a & b) | c
or3_b32                       u32  u32 u32 u32   a | b | c
xor3_b32                      u32  u32 u32 u32   a ^ b ^ c
bfi_b32                       u32  u32 u32 u32   (a & b) | (~a & c)
bfe_u32                       u32  u32 u32 u32   extract_u32(a, b & 31, c & 31)
bfe_i32                       i32  i32 u32 u32   extract_i32(a, b & 31, c & 31)
bfm_b32                       u32  u32 u32       ((1u << (a & 31)) - 1) << (b & 31)
bfrev_b32                     u32  u32           reverse(a)
bcnt_u32_b32                  u32  u32 u32       (u32)__builtin_popcount(a) + b
clz_i32_u32 ffbh_u32          u32  u32           count_leading_zeros(a)
ctz_i32_b32 ffbl_b32          u32  u32           count_trailing_zeros(a)
cls_i32 ffbh_i32              u32  i32           count_leading_signs(a)
alignbit_b32                  u32  u32 u32 u32   (u32)(((u64)a << 32 | b) >> (c & 31))
alignbyte_b32                 u32  u32 u32 u32   (u32)(((u64)a << 32 | b) >> 8 * (c & 3))
perm_b32                      u32  u32 u32 u32   permute(a, b, c)
lshlrev_b32                   u32  u32 u32       b << (a & 31)
lshrrev_b32                   u32  u32 u32       b >> (a & 31)
ashrrev_i32                   i32  u32 i32       b >> (a & 31)
lshlrev_b64                   u64  u32 u64       b << (a & 63)
lshrrev_b64                   u64  u32 u64       b >> (a & 63)
ashrrev_i64                   i64  u32 i64       b >> (a & 63)
lshl_or_b32                   u32  u32 u32 u32   a << (b & 31) | c
lshl_add_u32                  u32  u32 u32 u32   (a << (b & 31)) + c
lshl_add_u64                  u64  u64 u32 u64   (a << (b & 7)) + c
add_lshl_u32                  u32  u32 u32 u32   (a + b) << (c & 31)
xad_u32                       u32  u32 u32 u32   (a ^ b) + c

add_nc_u32                    u32  u32 u32       a + b
sub_nc_u32                    u32  u32 u32       a - b
subrev_nc_u32                 u32  u32 u32       b - a
add_nc_u32_clamp              u32  u32 u32       add_sat_u32(a, b)
sub_nc_u32_clamp              u32  u32 u32       sub_sat_u32(a, b)
subrev_nc_u32_clamp           u32  u32 u32       sub_sat_u32(b, a)
add_nc_i32 add_i32            u32  u32 u32       a + b
sub_nc_i32 sub_i32            u32  u32 u32       a - b
add_nc_i32_clamp              i32  i32 i32       clamp_i32((i64)a + b)
sub_nc_i32_clamp              i32  i32 i32       clamp_i32((i64)a - b)
add_nc_u64                    u64  u64 u64       a + b
sub_nc_u64                    u64  u64 u64       a - b
add3_u32                      u32  u32 u32 u32   a + b + c
mul_lo_u32                    u32  u32 u32       a * b
mul_hi_u32                    u32  u32 u32       (u32)((u64)a * b >> 32)
mul_hi_i32                    u32  i32 i32       (u32)((i64)a * b >> 32)
mul_u64                       u64  u64 u64       a * b
mul_u32_u24                   u32  u32 u32       (a & 0xffffff) * (b & 0xffffff)
mul_hi_u32_u24                u32  u32 u32       (u32)((u64)(a & 0xffffff) * (b & 0xffffff) >> 32)
mul_i32_i24                   u32  u32 u32       (u32)(((i32)(a << 8) >> 8) * (i64)((i32)(b << 8) >> 8))
mul_hi_i32_i24                u32  u32 u32       (u32)(((i32)(a << 8) >> 8) * (i64)((i32)(b << 8) >> 8) >> 32)
mad_u32_u24                   u32  u32 u32 u32   (a & 0xffffff) * (b & 0xffffff) + c
mad_i32_i24                   u32  u32 u32 u32   (u32)(((i32)(a << 8) >> 8) * (i64)((i32)(b << 8) >> 8)) + c
mad_u32_u16                   u32  u16 u16 u32   (u32)a * b + c
mad_i32_i16                   i32  i16 i16 i32   (i32)((u32)((i32)a * b) + (u32)c)
min_u32                       u32  u32 u32       lesser(a, b)
max_u32                       u32  u32 u32       greater(a, b)
min_i32                       i32  i32 i32       lesser(a, b)
max_i32                       i32  i32 i32       greater(a, b)
min3_u32                      u32  u32 u32 u32   lesser(lesser(a, b), c)
max3_u32                      u32  u32 u32 u32   greater(greater(a, b), c)
med3_u32                      u32  u32 u32 u32   median(a, b, c)
min3_i32                      i32  i32 i32 i32   lesser(lesser(a, b), c)
max3_i32                      i32  i32 i32 i32   greater(greater(a, b), c)
med3_i32                      i32  i32 i32 i32   median(a, b, c)
maxmin_u32                    u32  u32 u32 u32   lesser(greater(a, b), c)
minmax_u32                    u32  u32 u32 u32   greater(lesser(a, b), c)
maxmin_i32                    i32  i32 i32 i32   lesser(greater(a, b), c)
minmax_i32                    i32  i32 i32 i32   greater(lesser(a, b), c)
sad_u8                        u32  u32 u32 u32   sad_u8(a, b, c)
sad_hi_u8                     u32  u32 u32 u32   (sad_u8(a, b, 0) << 16) + c
sad_u16                       u32  u32 u32 u32   sad_u16(a, b, c)
sad_u32                       u32  u32 u32 u32   (a > b ? a - b : b - a) + c
lerp_u8                       u32  u32 u32 u32   lerp_u8(a, b, c)

add_f32                       f32  f32 f32       a + b
sub_f32                       f32  f32 f32       a - b
subrev_f32                    f32  f32 f32       b - a
mul_f32                       f32  f32 f32       a * b
mul_dx9_zero_f32 mul_legacy_f32  f32  f32 f32    a == 0 || b == 0 ? 0 : a * b
fma_f32 fmamk_f32 fmaak_f32   f32  f32 f32 f32   std::fma(a, b, c)
fmac_f32                      f32  f32 f32       std::fma(a, b, d)
mad_f32 madmk_f32 madak_f32   f32  f32 f32 f32   a * b + c
mac_f32                       f32  f32 f32       a * b + d
fma_dx9_zero_f32              f32  f32 f32 f32   a == 0 || b == 0 ? c : std::fma(a, b, c)
max_f32 max_num_f32           f32  f32 f32       canonical(max_num(a, b))
min_f32 min_num_f32           f32  f32 f32       canonical(min_num(a, b))
max3_f32 max3_num_f32         f32  f32 f32 f32   canonical(max_num(max_num(a, b), c))
min3_f32 min3_num_f32         f32  f32 f32 f32   canonical(min_num(min_num(a, b), c))
med3_f32 med3_num_f32         f32  f32 f32 f32   canonical(median_num(a, b, c))
maxmin_f32 maxmin_num_f32     f32  f32 f32 f32   canonical(min_num(max_num(a, b), c))
minmax_f32 minmax_num_f32     f32  f32 f32 f32   canonical(max_num(min_num(a, b), c))
maximum_f32                   f32  f32 f32       canonical(maximum(a, b))
minimum_f32                   f32  f32 f32       canonical(minimum(a, b))
maximum3_f32                  f32  f32 f32 f32   canonical(maximum(maximum(a, b), c))
minimum3_f32                  f32  f32 f32 f32   canonical(minimum(minimum(a, b), c))
maximumminimum_f32            f32  f32 f32 f32   canonical(minimum(maximum(a, b), c))
minimummaximum_f32            f32  f32 f32 f32   canonical(maximum(minimum(a, b), c))
rndne_f32                     f32  f32           std::nearbyint(a)
trunc_f32                     f32  f32           std::trunc(a)
ceil_f32                      f32  f32           std::ceil(a)
floor_f32                     f32  f32           std::floor(a)
fract_f32                     f32  f32           fraction(a)
sqrt_f32                      f32  f32           std::sqrt(a)
rcp_f32 rcp_iflag_f32         f32  f32           1 / a
rsq_f32                       f32  f32           reciprocal_root(a)
exp_f32                       f32  f32           std::exp2(a)
log_f32                       f32  f32           std::log2(a)
sin_f32                       f32  f32           sine_of_turns(a)
cos_f32                       f32  f32           cosine_of_turns(a)
ldexp_f32                     f32  f32 i32       scale(a, b)
frexp_exp_i32_f32             i32  f32           exponent(a)
frexp_mant_f32                f32  f32           mantissa(a)
div_fixup_f32                 f32  f32 f32 f32   div_fixup<F32>(a, b, c)
cvt_f32_i32                   f32  i32           (f32)a
cvt_f32_u32                   f32  u32           (f32)a
cvt_f32_ubyte0                f32  u32           (f32)(i32)(a & 255)
cvt_f32_ubyte1                f32  u32           (f32)(i32)(a >> 8 & 255)
cvt_f32_ubyte2                f32  u32           (f32)(i32)(a >> 16 & 255)
cvt_f32_ubyte3                f32  u32           (f32)(i32)(a >> 24)
cvt_off_f32_i4                f32  u32           (f32)((i32)(a << 28) >> 28) / 16
cvt_i32_f32                   i32  f32           cvt_i32(a)
cvt_u32_f32                   u32  f32           cvt_u32(a)
cvt_nearest_i32_f32 cvt_rpi_i32_f32  i32  f32    cvt_i32(std::floor(a + 0.5f))
cvt_floor_i32_f32 cvt_flr_i32_f32  i32  f32      cvt_i32(std::floor(a))
cvt_f32_f64                   f32  f64           (f32)a
cvt_f64_f32                   f64  f32           (f64)a
cvt_f32_f16                   f32  f16           a
cvt_f16_f32                   f16  f32           a
cvt_f32_bf16                  f32  u16           from_bf16(a)
cvt_pk_rtz_f16_f32 cvt_pkrtz_f16_f32  u32  f32 f32  to_f16_rtz(a) | to_f16_rtz(b) << 16
cvt_pk_u8_f32                 u32  f32 u32 u32   insert_byte(c, b & 3, saturate_u8(cvt_i32(std::nearbyint(a))))
cvt_pk_i16_f32                u32  f32 f32       cvt_i16(a) | cvt_i16(b) << 16
cvt_pk_u16_f32                u32  f32 f32       cvt_u16(a) | cvt_u16(b) << 16
cvt_pk_i16_i32                u32  i32 i32       clamp_i16(a) | clamp_i16(b) << 16
cvt_pk_u16_u32                u32  u32 u32       lesser(a, 65535u) | lesser(b, 65535u) << 16
cvt_pk_bf16_f32               u32  f32 f32       to_bf16(a) | to_bf16(b) << 16
cvt_i32_i16                   i32  i16           a
cvt_u32_u16                   u32  u16           a

add_f64 add_num_f64           f64  f64 f64       a + b
mul_f64                       f64  f64 f64       a * b
fma_f64                       f64  f64 f64 f64   std::fma(a, b, c)
fmac_f64                      f64  f64 f64       std::fma(a, b, d)
max_f64 max_num_f64           f64  f64 f64       canonical(max_num(a, b))
min_f64 min_num_f64           f64  f64 f64       canonical(min_num(a, b))
maximum_f64                   f64  f64 f64       canonical(maximum(a, b))
minimum_f64                   f64  f64 f64       canonical(minimum(a, b))
rndne_f64                     f64  f64           std::nearbyint(a)
trunc_f64                     f64  f64           std::trunc(a)
ceil_f64                      f64  f64           std::ceil(a)
floor_f64                     f64  f64           std::floor(a)
fract_f64                     f64  f64           fraction(a)
sqrt_f64                      f64  f64           std::sqrt(a)
rcp_f64                       f64  f64           1 / a
rsq_f64                       f64  f64           1 / std::sqrt(a)
ldexp_f64                     f64  f64 i32       scale(a, b)
frexp_exp_i32_f64             i32  f64           exponent(a)
frexp_mant_f64                f64  f64           mantissa(a)
div_fixup_f64                 f64  f64 f64 f64   div_fixup<F64>(a, b, c)
trig_preop_f64                f64  f64 u32       trig_preop(a, b)
cvt_f64_i32                   f64  i32           (f64)a
cvt_f64_u32                   f64  u32           (f64)a
cvt_i32_f64                   i32  f64           cvt_i32(a)
cvt_u32_f64                   u32  f64           cvt_u32(a)

mov_b16                       u16  u16           a
not_b16                       u16  u16           (u16)~a
and_b16                       u16  u16 u16       a & b
or_b16                        u16  u16 u16       a | b
xor_b16                       u16  u16 u16       a ^ b
lshlrev_b16                   u16  u16 u16       b << (a & 15)
lshrrev_b16                   u16  u16 u16       b >> (a & 15)
ashrrev_i16                   i16  u16 i16       b >> (a & 15)
add_nc_u16 add_u16 add_nc_i16 add_i16  u16  u16 u16  a + b
sub_nc_u16 sub_u16 sub_nc_i16 sub_i16  u16  u16 u16  a - b
subrev_u16                    u16  u16 u16       b - a
add_nc_u16_clamp              u16  u16 u16       clamp_u16(a + b)
sub_nc_u16_clamp              u16  u16 u16       clamp_u16(a - b)
add_nc_i16_clamp              u16  i16 i16       clamp_i16(a + b)
sub_nc_i16_clamp              u16  i16 i16       clamp_i16(a - b)
mul_lo_u16                    u16  u16 u16       (u32)a * b
mad_u16 mad_legacy_u16        u16  u16 u16 u16   (u32)a * b + c
mad_i16                       u16  i16 i16 i16   (u32)((i32)a * b + c)
min_u16                       u16  u16 u16       lesser(a, b)
max_u16                       u16  u16 u16       greater(a, b)
min_i16                       i16  i16 i16       lesser(a, b)
max_i16                       i16  i16 i16       greater(a, b)
min3_u16                      u16  u16 u16 u16   lesser(lesser(a, b), c)
max3_u16                      u16  u16 u16 u16   greater(greater(a, b), c)
med3_u16                      u16  u16 u16 u16   median(a, b, c)
min3_i16                      i16  i16 i16 i16   lesser(lesser(a, b), c)
max3_i16                      i16  i16 i16 i16   greater(greater(a, b), c)
med3_i16                      i16  i16 i16 i16   median(a, b, c)
sat_pk_u8_i16                 u16  u32           saturate_u8((i16)a) | saturate_u8((i16)(a >> 16)) << 8

add_f16                       f16  f16 f16       a + b
sub_f16                       f16  f16 f16       a - b
subrev_f16                    f16  f16 f16       b - a
mul_f16                       f16  f16 f16       a * b
fma_f16 fmamk_f16 fmaak_f16   f16  f16 f16 f16   (f64)a * b + c
fmac_f16                      f16  f16 f16       (f64)a * b + d
mad_f16                       f16  f16 f16 f16   from_f16(to_f16(a * b)) + c
max_f16 max_num_f16           f16  f16 f16       max_num(a, b)
min_f16 min_num_f16           f16  f16 f16       min_num(a, b)
max3_f16 max3_num_f16         f16  f16 f16 f16   max_num(max_num(a, b), c)
min3_f16 min3_num_f16         f16  f16 f16 f16   min_num(min_num(a, b), c)
med3_f16 med3_num_f16         f16  f16 f16 f16   median_num(a, b, c)
maxmin_f16 maxmin_num_f16     f16  f16 f16 f16   min_num(max_num(a, b), c)
minmax_f16 minmax_num_f16     f16  f16 f16 f16   max_num(min_num(a, b), c)
maximum_f16                   f16  f16 f16       maximum(a, b)
minimum_f16                   f16  f16 f16       minimum(a, b)
maximum3_f16                  f16  f16 f16 f16   maximum(maximum(a, b), c)
minimum3_f16                  f16  f16 f16 f16   minimum(minimum(a, b), c)
rndne_f16                     f16  f16           std::nearbyint(a)
trunc_f16                     f16  f16           std::trunc(a)
ceil_f16                      f16  f16           std::ceil(a)
floor_f16                     f16  f16           std::floor(a)
fract_f16                     f16  f16           to_f16(a - std::floor(a)) == 0x3c00 ? from_f16(0x3bff) : a - std::floor(a)
sqrt_f16                      f16  f16           std::sqrt(a)
rcp_f16                       f16  f16           1 / a
rsq_f16                       f16  f16           1 / std::sqrt((f64)a)
exp_f16                       f16  f16           std::exp2((f64)a)
log_f16                       f16  f16           std::log2((f64)a)
sin_f16                       f16  f16           sine_of_turns(a)
cos_f16                       f16  f16           cosine_of_turns(a)
ldexp_f16                     f16  f16 i16       scale(a, b)
frexp_exp_i16_f16             i16  f16           exponent(a)
frexp_mant_f16                f16  f16           mantissa(a)
div_fixup_f16                 f16  f16 f16 f16   div_fixup<F32>(a, b, c)
cvt_f16_u16                   f16  u16           (f32)a
cvt_f16_i16                   f16  i16           (f32)a
cvt_u16_f16                   u16  f16           cvt_u16(a)
cvt_i16_f16                   u16  f16           cvt_i16(a)
pack_b32_f16                  u32  u16 u16       a | (u32)b << 16
cvt_norm_i16_f16              i16  f16           a != a ? 0 : (i16)std::nearbyint(32767 * lesser(greater(a, -1.f), 1.f))
cvt_norm_u16_f16              u16  f16           (u16)std::nearbyint(65535 * lesser(greater(a, 0.f), 1.f))

dot2_f32_bf16                 f32  u32 u32 f32   dot2_bf16(a, b, c)
dot2_f32_f16                  f32  u32 u32 f32   dot2_f16(a, b, c)
dot2acc_f32_f16 dot2c_f32_f16  f32  u32 u32      dot2_f16(a, b, d)
dot4c_i32_i8                  i32  u32 u32       dot4_i8(a, b, d)
dot2_f16_f16                  f16  u32 u32 f16   dot2_f16(a, b, c)
dot2_bf16_bf16                u16  u32 u32 u16   to_bf16(dot2_bf16(a, b, from_bf16(c)))
"""

# Two halves in one register, each computed by the expression; op_sel chooses the halves.
PACKED = """
pk_add_f16                    f16  f16 f16       a + b
pk_mul_f16                    f16  f16 f16       a * b
pk_fma_f16                    f16  f16 f16 f16   (f64)a * b + c
pk_fmac_f16                   f16  f16 f16       (f64)a * b + d
pk_min_f16 pk_min_num_f16     f16  f16 f16       min_num(a, b)
pk_max_f16 pk_max_num_f16     f16  f16 f16       max_num(a, b)
pk_minimum_f16                f16  f16 f16       minimum(a, b)
pk_maximum_f16                f16  f16 f16       maximum(a, b)
pk_add_u16 pk_add_i16         u16  u16 u16       a + b
pk_sub_u16 pk_sub_i16         u16  u16 u16       a - b
pk_mul_lo_u16                 u16  u16 u16       (u32)a * b
pk_mad_u16                    u16  u16 u16 u16   (u32)a * b + c
pk_mad_i16                    u16  i16 i16 i16   (u32)((i32)a * b + c)
pk_min_u16                    u16  u16 u16       lesser(a, b)
pk_max_u16                    u16  u16 u16       greater(a, b)
pk_min_i16                    i16  i16 i16       lesser(a, b)
pk_max_i16                    i16  i16 i16       greater(a, b)
pk_lshlrev_b16                u16  u16 u16       b << (a & 15)
pk_lshrrev_b16                u16  u16 u16       b >> (a & 15)
pk_ashrrev_i16                i16  u16 i16       b >> (a & 15)
"""

# Scalar unit: as above, then what SCC becomes ("-": unchanged). D is the result.
SCALAR = """
mov_b32                       u32  u32           a                              -
mov_b64                       u64  u64           a                              -
cmov_b32                      u32  u32           scc ? a : d                    -
cmov_b64                      u64  u64           scc ? a : d                    -
not_b32                       u32  u32           ~a                             D != 0
not_b64                       u64  u64           ~a                             D != 0
brev_b32                      u32  u32           reverse(a)                     -
brev_b64                      u64  u64           reverse64(a)                   -
and_b32                       u32  u32 u32       a & b                          D != 0
and_b64                       u64  u64 u64       a & b                          D != 0
or_b32                        u32  u32 u32       a | b                          D != 0
or_b64                        u64  u64 u64       a | b                          D != 0
xor_b32                       u32  u32 u32       a ^ b                          D != 0
xor_b64                       u64  u64 u64       a ^ b                          D != 0
nand_b32                      u32  u32 u32       ~(a & b)                       D != 0
nand_b64                      u64  u64 u64       ~(a & b)                       D != 0
nor_b32                       u32  u32 u32       ~(a | b)                       D != 0
nor_b64                       u64  u64 u64       ~(a | b)                       D != 0
xnor_b32                      u32  u32 u32       ~(a ^ b)                       D != 0
xnor_b64                      u64  u64 u64       ~(a ^ b)                       D != 0
and_not1_b32 andn2_b32        u32  u32 u32       a & ~b                         D != 0
and_not1_b64 andn2_b64        u64  u64 u64       a & ~b                         D != 0
or_not1_b32 orn2_b32          u32  u32 u32       a | ~b                         D != 0
or_not1_b64 orn2_b64          u64  u64 u64       a | ~b                         D != 0
lshl_b32                      u32  u32 u32       a << (b & 31)                  D != 0
lshl_b64                      u64  u64 u32       a << (b & 63)                  D != 0
lshr_b32                      u32  u32 u32       a >> (b & 31)                  D != 0
lshr_b64                      u64  u64 u32       a >> (b & 63)                  D != 0
ashr_i32                      i32  i32 u32       a >> (b & 31)                  D != 0
ashr_i64                      i64  i64 u32       a >> (b & 63)                  D != 0
bfe_u32                       u32  u32 u32       extract_u32(a, b & 31, lesser(b >> 16 & 127, 32u))  D != 0
bfe_i32                       i32  i32 u32       extract_i32(a, b & 31, lesser(b >> 16 & 127, 32u))  D != 0
bfe_u64                       u64  u64 u32       extract_u64(a, b & 63, b >> 16 & 127)  D != 0
bfe_i64                       i64  i64 u32       extract_i64(a, b & 63, lesser(b >> 16 & 127, 64u))  D != 0
bfm_b32                       u32  u32 u32       ((1u << (a & 31)) - 1) << (b & 31)  -
bfm_b64                       u64  u32 u32       ((1ull << (a & 63)) - 1) << (b & 63)  -
bitset0_b32                   u32  u32           d & ~(1u << (a & 31))          -
bitset1_b32                   u32  u32           d | 1u << (a & 31)             -
bitset0_b64                   u64  u32           d & ~(1ull << (a & 63))        -
bitset1_b64                   u64  u32           d | 1ull << (a & 63)           -
bcnt0_i32_b32                 u32  u32           32u - (u32)__builtin_popcount(a)  D != 0
bcnt1_i32_b32                 u32  u32           (u32)__builtin_popcount(a)     D != 0
bcnt0_i32_b64                 u32  u64           64u - (u32)__builtin_popcountll(a)  D != 0
bcnt1_i32_b64                 u32  u64           (u32)__builtin_popcountll(a)   D != 0
ctz_i32_b32 ff1_i32_b32       u32  u32           count_trailing_zeros(a)        -
ctz_i32_b64 ff1_i32_b64       u32  u64           count_trailing_zeros64(a)      -
clz_i32_u32 flbit_i32_b32     u32  u32           count_leading_zeros(a)         -
clz_i32_u64 flbit_i32_b64     u32  u64           count_leading_zeros64(a)       -
cls_i32 flbit_i32             u32  i32           count_leading_signs(a)         -
sext_i32_i8                   i32  u32           (i8)a                          -
sext_i32_i16                  i32  u32           (i16)a                         -
abs_i32                       u32  i32           a < 0 ? 0u - (u32)a : (u32)a   D != 0
absdiff_i32                   u32  i32 i32       a > b ? (u32)a - (u32)b : (u32)b - (u32)a  D != 0
cselect_b32                   u32  u32 u32       scc ? a : b                    -
cselect_b64                   u64  u64 u64       scc ? a : b                    -
add_u32 add_co_u32            u32  u32 u32       a + b                          D < a
sub_u32 sub_co_u32            u32  u32 u32       a - b                          b > a
add_i32 add_co_i32            u32  u32 u32       a + b                          (~(a ^ b) & (a ^ D)) >> 31
sub_i32 sub_co_i32            u32  u32 u32       a - b                          ((a ^ b) & (a ^ D)) >> 31
addc_u32 add_co_ci_u32        u32  u32 u32       a + b + scc                    ((u64)a + b + scc) >> 32
subb_u32 sub_co_ci_u32        u32  u32 u32       a - b - scc                    (u64)b + scc > a
addk_i32 addk_co_i32          u32  u32           d + a                          (~(d ^ a) & (d ^ D)) >> 31
add_nc_u64 add_u64            u64  u64 u64       a + b                          -
sub_nc_u64 sub_u64            u64  u64 u64       a - b                          -
mul_u64                       u64  u64 u64       a * b                          -
mul_i32                       u32  u32 u32       a * b                          -
mulk_i32                      u32  u32           d * a                          -
mul_hi_u32                    u32  u32 u32       (u32)((u64)a * b >> 32)        -
mul_hi_i32                    u32  i32 i32       (u32)((i64)a * b >> 32)        -
min_i32                       i32  i32 i32       lesser(a, b)                   a < b
max_i32                       i32  i32 i32       greater(a, b)                  a > b
min_u32                       u32  u32 u32       lesser(a, b)                   a < b
max_u32                       u32  u32 u32       greater(a, b)                  a > b
lshl1_add_u32                 u32  u32 u32       (a << 1) + b                   ((u64)a * 2 + b) >> 32 != 0
lshl2_add_u32                 u32  u32 u32       (a << 2) + b                   ((u64)a * 4 + b) >> 32 != 0
lshl3_add_u32                 u32  u32 u32       (a << 3) + b                   ((u64)a * 8 + b) >> 32 != 0
lshl4_add_u32                 u32  u32 u32       (a << 4) + b                   ((u64)a * 16 + b) >> 32 != 0
pack_ll_b32_b16               u32  u32 u32       (a & 0xffff) | b << 16         -
pack_lh_b32_b16               u32  u32 u32       (a & 0xffff) | (b & 0xffff0000)  -
pack_hh_b32_b16               u32  u32 u32       a >> 16 | (b & 0xffff0000)     -
pack_hl_b32_b16               u32  u32 u32       a >> 16 | b << 16              -
movk_i32                      u32  u32           a                              -
cmovk_i32                     u32  u32           scc ? a : d                    -
add_f32                       f32  f32 f32       a + b                          -
sub_f32                       f32  f32 f32       a - b                          -
mul_f32                       f32  f32 f32       a * b                          -
fmac_f32                      f32  f32 f32       std::fma(a, b, d)              -
fmaak_f32 fmamk_f32           f32  f32 f32 f32   std::fma(a, b, c)              -
min_f32 min_num_f32           f32  f32 f32       canonical(min_num(a, b))       -
max_f32 max_num_f32           f32  f32 f32       canonical(max_num(a, b))       -
minimum_f32                   f32  f32 f32       canonical(minimum(a, b))       -
maximum_f32                   f32  f32 f32       canonical(maximum(a, b))       -
ceil_f32                      f32  f32           std::ceil(a)                   -
floor_f32                     f32  f32           std::floor(a)                  -
trunc_f32                     f32  f32           std::trunc(a)                  -
rndne_f32                     f32  f32           std::nearbyint(a)              -
cvt_f32_i32                   f32  i32           (f32)a                         -
cvt_f32_u32                   f32  u32           (f32)a                         -
cvt_i32_f32                   i32  f32           cvt_i32(a)                     -
cvt_u32_f32                   u32  f32           cvt_u32(a)                     -
cvt_f16_f32                   u32  f32           to_f16(a)                      -
cvt_f32_f16                   f32  u32           from_f16(a)                    -
cvt_hi_f32_f16                f32  u32           from_f16(a >> 16)              -
cvt_pk_rtz_f16_f32            u32  f32 f32       to_f16_rtz(a) | to_f16_rtz(b) << 16  -
"""

# Transcendental functions of a scalar (v_s_*): result in a scalar register.
SCALAR_TRANSCENDENTAL = """
exp_f32                       f32  f32           std::exp2(a)
log_f32                       f32  f32           std::log2(a)
rcp_f32                       f32  f32           1 / a
rsq_f32                       f32  f32           reciprocal_root(a)
sqrt_f32                      f32  f32           std::sqrt(a)
"""

# Comparisons of vector and scalar unit: suffix → expression; "x" types in COMPARE_TYPES.
INTEGER_COMPARISONS = {"lt": "a < b", "eq": "a == b", "le": "a <= b", "gt": "a > b", "ne": "a != b", "ge": "a >= b"}
FLOAT_COMPARISONS = {
    "lt": "a < b",
    "eq": "a == b",
    "le": "a <= b",
    "gt": "a > b",
    "lg": "a < b || a > b",
    "ge": "a >= b",
    "o": "a == a && b == b",
    "u": "a != a || b != b",
    "nge": "!(a >= b)",
    "nlg": "!(a < b || a > b)",
    "ngt": "!(a > b)",
    "nle": "!(a <= b)",
    "neq": "!(a == b)",
    "nlt": "!(a < b)",
}


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    names: tuple[str, ...]
    result: str
    sources: tuple[str, ...]
    expression: str
    scc: str = "-"

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.names[0]


TYPES = {"u32", "i32", "f32", "u64", "i64", "f64", "u16", "i16", "f16"}


def rows(table: str, scc: bool = False) -> list[Row]:
    """The lines of a table."""
    found = []
    for line in filter(None, (line.strip() for line in table.splitlines())):
        words = line.split()
        first = next(k for k, word in enumerate(words) if word in TYPES)
        last = first + 1
        while words[last] in TYPES:
            last += 1
        expression = " ".join(words[last:])
        flag = "-"
        if scc:
            expression, flag = (
                part.strip() for part in line[line.index(words[last], _after(line, words, last)) :].rsplit("  ", 1)
            )
        found.append(Row(tuple(words[:first]), words[first], tuple(words[first + 1 : last]), expression, flag))
    return found


def _after(line: str, words: list[str], count: int) -> int:
    """Where the first ``count`` words of ``line`` end."""
    position = 0
    for word in words[:count]:
        position = line.index(word, position) + len(word)
    return position
