"""Every instruction of the tables against a formula of its own, at edge values: denormals, NaN, carries, shifts by 32.

The instructions are assembled by hipRTC (inline assembly) and executed by the emulator. The formulas below are written from
AMD's ISA documents in NumPy or plain Python integers and share nothing with the C++ of the tables.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from toolkit.emulator import semantics
from toolkit.emulator.device import Device
from toolkit.emulator.errors import CompileError
from toolkit.emulator.hiprtc import HipRTC
from toolkit.emulator.semantics import Row

pytestmark = pytest.mark.rocm

TARGETS = ("gfx1100", "gfx1200", "gfx90a", "gfx942")
NUMPY = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64, "f64": np.float64,
    "u16": np.uint16, "i16": np.int16, "f16": np.float16,
}  # fmt: skip
BITS = {name: np.dtype(kind).itemsize * 8 for name, kind in NUMPY.items()}

f32, f64, f16 = np.float32, np.float64, np.float16


# ---- integer formulas: Python integers, one element at a time ---------------------------------------------------------


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def leading_zeros(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else -1


def trailing_zeros(x: int) -> int:
    return (x & -x).bit_length() - 1


def leading_signs(x: int) -> int:
    x &= 0xFFFFFFFF
    return -1 if x in (0, 0xFFFFFFFF) else leading_zeros(x if not x >> 31 else ~x & 0xFFFFFFFF, 32)


def reversed_bits(x: int, bits: int) -> int:
    return int(f"{x:0{bits}b}"[::-1], 2)


def field(x: int, at: int, width: int) -> int:
    return x >> at & ((1 << width) - 1)


def signed_field(x: int, at: int, width: int) -> int:
    return signed(field(x, at, width), width) if width else 0


def permuted(a: int, b: int, select: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    out = []
    for s in select.to_bytes(4, "little"):
        if s < 8:
            out.append(data[s])
        elif s < 12:
            out.append(255 if data[2 * (s - 8) + 1] >> 7 else 0)
        else:
            out.append(0 if s == 12 else 255)
    return int.from_bytes(bytes(out), "little")


def parts(x: int, bits: int) -> list[int]:
    return [x >> k & ((1 << bits) - 1) for k in range(0, 32, bits)]


def absolute_differences(a: int, b: int, bits: int) -> int:
    return sum(abs(x - y) for x, y in zip(parts(a, bits), parts(b, bits), strict=True))


def middle(*values: int) -> int:
    return sorted(values)[1]


M32, M64 = 0xFFFFFFFF, (1 << 64) - 1
INTEGER: dict[str, Callable[..., int]] = {
    "mov_b32": lambda a: a,
    "mov_b64": lambda a: a,
    "not_b32": lambda a: ~a,
    "and_b32": lambda a, b: a & b,
    "or_b32": lambda a, b: a | b,
    "xor_b32": lambda a, b: a ^ b,
    "xnor_b32": lambda a, b: ~(a ^ b),
    "and_or_b32": lambda a, b, c: a & b | c,
    "or3_b32": lambda a, b, c: a | b | c,
    "xor3_b32": lambda a, b, c: a ^ b ^ c,
    "bfi_b32": lambda a, b, c: sum(((b if a >> k & 1 else c) >> k & 1) << k for k in range(32)),
    "bfe_u32": lambda a, b, c: field(a, b % 32, c % 32),
    "bfe_i32": lambda a, b, c: signed_field(a & M32 if b % 32 + c % 32 <= 32 else a, b % 32, c % 32),
    "bfm_b32": lambda a, b: (2 ** (a % 32) - 1) << (b % 32),
    "bfrev_b32": lambda a: reversed_bits(a, 32),
    "bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "clz_i32_u32": lambda a: leading_zeros(a, 32),
    "ctz_i32_b32": lambda a: trailing_zeros(a),
    "cls_i32": lambda a: leading_signs(a),
    "alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c % 32),
    "alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c % 4),
    "perm_b32": permuted,
    "lshlrev_b32": lambda a, b: b << (a % 32),
    "lshrrev_b32": lambda a, b: b >> (a % 32),
    "ashrrev_i32": lambda a, b: b >> (a % 32),
    "lshlrev_b64": lambda a, b: b << (a % 64),
    "lshrrev_b64": lambda a, b: b >> (a % 64),
    "ashrrev_i64": lambda a, b: b >> (a % 64),
    "lshl_or_b32": lambda a, b, c: a << (b % 32) | c,
    "lshl_add_u32": lambda a, b, c: (a << (b % 32)) + c,
    "lshl_add_u64": lambda a, b, c: (a << (b % 8)) + c,
    "add_lshl_u32": lambda a, b, c: (a + b) << (c % 32),
    "xad_u32": lambda a, b, c: (a ^ b) + c,
    "add_nc_u32": lambda a, b: a + b,
    "sub_nc_u32": lambda a, b: a - b,
    "subrev_nc_u32": lambda a, b: b - a,
    "add_nc_u32_clamp": lambda a, b: min(a + b, M32),
    "sub_nc_u32_clamp": lambda a, b: max(a - b, 0),
    "subrev_nc_u32_clamp": lambda a, b: max(b - a, 0),
    "add_nc_i32": lambda a, b: a + b,
    "sub_nc_i32": lambda a, b: a - b,
    "add_nc_i32_clamp": lambda a, b: clamp(a + b, -(2**31), 2**31 - 1),
    "sub_nc_i32_clamp": lambda a, b: clamp(a - b, -(2**31), 2**31 - 1),
    "add3_u32": lambda a, b, c: a + b + c,
    "mul_lo_u32": lambda a, b: a * b,
    "mul_hi_u32": lambda a, b: a * b >> 32,
    "mul_hi_i32": lambda a, b: a * b >> 32,
    "mul_u32_u24": lambda a, b: (a % 2**24) * (b % 2**24),
    "mul_hi_u32_u24": lambda a, b: (a % 2**24) * (b % 2**24) >> 32,
    "mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "mad_u32_u24": lambda a, b, c: (a % 2**24) * (b % 2**24) + c,
    "mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "mad_u32_u16": lambda a, b, c: a * b + c,
    "mad_i32_i16": lambda a, b, c: a * b + c,
    "min_u32": min, "max_u32": max, "min_i32": min, "max_i32": max,
    "min3_u32": min, "max3_u32": max, "med3_u32": middle, "min3_i32": min, "max3_i32": max, "med3_i32": middle,
    "maxmin_u32": lambda a, b, c: min(max(a, b), c),
    "minmax_u32": lambda a, b, c: max(min(a, b), c),
    "maxmin_i32": lambda a, b, c: min(max(a, b), c),
    "minmax_i32": lambda a, b, c: max(min(a, b), c),
    "sad_u8": lambda a, b, c: absolute_differences(a, b, 8) + c,
    "sad_hi_u8": lambda a, b, c: (absolute_differences(a, b, 8) << 16) + c,
    "sad_u16": lambda a, b, c: absolute_differences(a, b, 16) + c,
    "sad_u32": lambda a, b, c: abs(a - b) + c,
    "lerp_u8": lambda a, b, c: sum(
        (x + y + (z & 1)) // 2 << 8 * k
        for k, (x, y, z) in enumerate(zip(parts(a, 8), parts(b, 8), parts(c, 8), strict=True))
    ),
    "dot4c_i32_i8": lambda a, b, d: d + sum(
        signed(x, 8) * signed(y, 8) for x, y in zip(parts(a, 8), parts(b, 8), strict=True)
    ),
    "cvt_i32_i16": lambda a: a,
    "cvt_u32_u16": lambda a: a,
    "cvt_pk_i16_i32": lambda a, b: (clamp(a, -32768, 32767) & 0xFFFF) | (clamp(b, -32768, 32767) & 0xFFFF) << 16,
    "cvt_pk_u16_u32": lambda a, b: min(a, 65535) | min(b, 65535) << 16,
    "mov_b16": lambda a: a,
    "not_b16": lambda a: ~a,
    "and_b16": lambda a, b: a & b,
    "or_b16": lambda a, b: a | b,
    "xor_b16": lambda a, b: a ^ b,
    "lshlrev_b16": lambda a, b: b << (a % 16),
    "lshrrev_b16": lambda a, b: b >> (a % 16),
    "ashrrev_i16": lambda a, b: b >> (a % 16),
    "add_nc_u16": lambda a, b: a + b,
    "sub_nc_u16": lambda a, b: a - b,
    "subrev_u16": lambda a, b: b - a,
    "add_nc_u16_clamp": lambda a, b: min(a + b, 65535),
    "sub_nc_u16_clamp": lambda a, b: max(a - b, 0),
    "add_nc_i16_clamp": lambda a, b: clamp(a + b, -32768, 32767),
    "sub_nc_i16_clamp": lambda a, b: clamp(a - b, -32768, 32767),
    "mul_lo_u16": lambda a, b: a * b,
    "mad_u16": lambda a, b, c: a * b + c,
    "mad_i16": lambda a, b, c: a * b + c,
    "min_u16": min, "max_u16": max, "min_i16": min, "max_i16": max,
    "min3_u16": min, "max3_u16": max, "med3_u16": middle, "min3_i16": min, "max3_i16": max, "med3_i16": middle,
    "sat_pk_u8_i16": lambda a: clamp(signed(a, 16), 0, 255) | clamp(signed(a >> 16, 16), 0, 255) << 8,
    "pack_b32_f16": lambda a, b: a | b << 16,
}  # fmt: skip

# ---- floating-point formulas: NumPy arrays -----------------------------------------------------------------------------

Array = np.ndarray[Any, Any]


@functools.cache
def libm(name: str, kind: Any) -> Any:
    function = getattr(ctypes.CDLL("libm.so.6"), name)
    function.restype = kind
    function.argtypes = [kind] * 3
    return function


def fused(a: Array, b: Array, c: Array) -> Array:
    if (
        a.dtype == np.float16
    ):  # exact in float64 but for the sum, whose rounding leaves 42 bits beside the 11 of the result
        return (a.astype(f64) * b.astype(f64) + c.astype(f64)).astype(f16)
    name, kind = ("fmaf", ctypes.c_float) if a.dtype == np.float32 else ("fma", ctypes.c_double)
    function = libm(name, kind)
    return np.array([function(*map(float, t)) for t in zip(a, b, c, strict=True)], a.dtype)


def larger(*arrays: Array) -> Array:
    """maxNum, with -0 < +0."""
    result = arrays[0]
    for other in arrays[1:]:
        picked = np.where(result > other, result, other)
        both_zero = (result == 0) & (other == 0)
        picked = np.where(
            both_zero, np.where(np.signbit(result) & np.signbit(other), result, result.dtype.type(0)), picked
        )
        result = np.where(np.isnan(result), other, np.where(np.isnan(other), result, picked))
    return result


def smaller(*arrays: Array) -> Array:
    return -larger(*(-array for array in arrays))


def largest_or_nan(*arrays: Array) -> Array:
    nan = np.any([np.isnan(array) for array in arrays], axis=0)
    return np.where(nan, np.nan, larger(*arrays)).astype(arrays[0].dtype)


def smallest_or_nan(*arrays: Array) -> Array:
    return -largest_or_nan(*(-array for array in arrays))


def median(a: Array, b: Array, c: Array) -> Array:
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    with_zeros = larger(smaller(a, b), smaller(larger(a, b), c))
    return np.where(nan, smaller(a, b, c), with_zeros)


def to_integer(x: Array, low: int, high: int) -> list[int]:
    return [0 if math.isnan(v) else low if v <= low else high if v >= high else int(v) for v in map(float, x)]


def toward_zero_f16(x: Array) -> Array:
    rounded = x.astype(f16)
    away = np.abs(rounded.astype(f64)) > np.abs(x.astype(f64))
    bits = np.where(away, rounded.view(np.uint16) - 1, rounded.view(np.uint16))
    return np.where(np.isnan(x), bits | 0x200, bits).astype(np.uint32)  # a signalling NaN becomes quiet


def bf16_values(x: Array) -> Array:
    return (x.astype(np.uint32) << np.uint32(16)).view(f32)


def bf16_bits(x: Array) -> Array:
    import ml_dtypes

    return x.astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)


def fraction(x: Array) -> Array:
    below_one = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.minimum(x - np.floor(x), below_one)


def mantissa(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[0], x)


def exponent(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0)


def scaled(x: Array, n: Array) -> Array:
    wide = x.astype(np.longdouble)
    return np.ldexp(wide, np.clip(n.astype(np.int64), -9000, 9000).astype(np.int32)).astype(x.dtype)


def halves(x: Array) -> tuple[Array, Array]:
    return (x & 0xFFFF).astype(np.uint16), (x >> np.uint32(16)).astype(np.uint16)


def dot_f16(a: Array, b: Array, c: Array) -> Array:
    (a0, a1), (b0, b1) = halves(a), halves(b)
    wide = [h.view(f16).astype(f32) for h in (a0, a1, b0, b1)]
    return fused(wide[1], wide[3], fused(wide[0], wide[2], c))


def dot_bf16(a: Array, b: Array, c: Array) -> Array:
    (a0, a1), (b0, b1) = halves(a), halves(b)
    wide = [bf16_values(h) for h in (a0, a1, b0, b1)]
    return fused(wide[1], wide[3], fused(wide[0], wide[2], c))


def packed_bytes(a: Array, b: Array, c: Array) -> list[int]:
    bytes_ = to_integer(np.rint(a), 0, 255)
    return [int(z) & ~(255 << 8 * (int(y) & 3)) | x << 8 * (int(y) & 3) for x, y, z in zip(bytes_, b, c, strict=True)]


def any_of(a: Array, b: Array, result: Array, otherwise: Array) -> Array:
    return np.where((a == 0) | (b == 0), otherwise, result)


FLOAT: dict[str, Callable[..., Any]] = {
    "add_f32": lambda a, b: a + b,
    "sub_f32": lambda a, b: a - b,
    "subrev_f32": lambda a, b: b - a,
    "mul_f32": lambda a, b: a * b,
    "mul_dx9_zero_f32": lambda a, b: any_of(a, b, a * b, f32(0)),
    "fma_f32": fused,
    "fmac_f32": fused,
    "mad_f32": lambda a, b, c: a * b + c,
    "mac_f32": lambda a, b, d: a * b + d,
    "fma_dx9_zero_f32": lambda a, b, c: any_of(a, b, fused(a, b, c), c),
    "max_f32": larger, "min_f32": smaller, "max3_f32": larger, "min3_f32": smaller, "med3_f32": median,
    "maxmin_f32": lambda a, b, c: smaller(larger(a, b), c),
    "minmax_f32": lambda a, b, c: larger(smaller(a, b), c),
    "maximum_f32": largest_or_nan, "minimum_f32": smallest_or_nan,
    "maximum3_f32": largest_or_nan, "minimum3_f32": smallest_or_nan,
    "maximumminimum_f32": lambda a, b, c: smallest_or_nan(largest_or_nan(a, b), c),
    "minimummaximum_f32": lambda a, b, c: largest_or_nan(smallest_or_nan(a, b), c),
    "rndne_f32": np.rint, "trunc_f32": np.trunc, "ceil_f32": np.ceil, "floor_f32": np.floor, "fract_f32": fraction,
    "sqrt_f32": np.sqrt,
    "rcp_f32": lambda a: f32(1) / a,
    "ldexp_f32": scaled,
    "frexp_exp_i32_f32": exponent,
    "frexp_mant_f32": mantissa,
    "cvt_f32_i32": lambda a: a.astype(f32),
    "cvt_f32_u32": lambda a: a.astype(f32),
    "cvt_f32_ubyte0": lambda a: (a & 255).astype(f32),
    "cvt_f32_ubyte1": lambda a: (a >> 8 & 255).astype(f32),
    "cvt_f32_ubyte2": lambda a: (a >> 16 & 255).astype(f32),
    "cvt_f32_ubyte3": lambda a: (a >> 24).astype(f32),
    "cvt_off_f32_i4": lambda a: ((a & 15).astype(np.int32) - 16 * (a >> 3 & 1).astype(np.int32)).astype(f32) / f32(16),
    "cvt_i32_f32": lambda a: to_integer(a, -(2**31), 2**31 - 1),
    "cvt_u32_f32": lambda a: to_integer(a, 0, M32),
    "cvt_nearest_i32_f32": lambda a: to_integer(np.floor(a + f32(0.5)), -(2**31), 2**31 - 1),
    "cvt_floor_i32_f32": lambda a: to_integer(np.floor(a), -(2**31), 2**31 - 1),
    "cvt_f32_f64": lambda a: a.astype(f32),
    "cvt_f64_f32": lambda a: a.astype(f64),
    "cvt_f32_f16": lambda a: a.astype(f32),
    "cvt_f16_f32": lambda a: a.astype(f16),
    "cvt_pk_rtz_f16_f32": lambda a, b: toward_zero_f16(a) | toward_zero_f16(b) << np.uint32(16),
    "cvt_pk_u8_f32": packed_bytes,
    "cvt_pk_i16_f32": lambda a, b: [
        (x & 0xFFFF) | (y & 0xFFFF) << 16
        for x, y in zip(to_integer(a, -32768, 32767), to_integer(b, -32768, 32767), strict=True)
    ],
    "cvt_pk_u16_f32": lambda a, b: [
        x | y << 16 for x, y in zip(to_integer(a, 0, 65535), to_integer(b, 0, 65535), strict=True)
    ],
    "add_f64": lambda a, b: a + b,
    "mul_f64": lambda a, b: a * b,
    "fma_f64": fused,
    "fmac_f64": fused,
    "max_f64": larger, "min_f64": smaller, "maximum_f64": largest_or_nan, "minimum_f64": smallest_or_nan,
    "rndne_f64": np.rint, "trunc_f64": np.trunc, "ceil_f64": np.ceil, "floor_f64": np.floor, "fract_f64": fraction,
    "sqrt_f64": np.sqrt,
    "rcp_f64": lambda a: 1 / a,
    "rsq_f64": lambda a: 1 / np.sqrt(a),
    "ldexp_f64": scaled,
    "frexp_exp_i32_f64": exponent,
    "frexp_mant_f64": mantissa,
    "cvt_f64_i32": lambda a: a.astype(f64),
    "cvt_f64_u32": lambda a: a.astype(f64),
    "cvt_i32_f64": lambda a: to_integer(a, -(2**31), 2**31 - 1),
    "cvt_u32_f64": lambda a: to_integer(a, 0, M32),
    "add_f16": lambda a, b: a + b,
    "sub_f16": lambda a, b: a - b,
    "subrev_f16": lambda a, b: b - a,
    "mul_f16": lambda a, b: a * b,
    "fma_f16": fused,
    "fmac_f16": fused,
    "max_f16": larger, "min_f16": smaller, "max3_f16": larger, "min3_f16": smaller, "med3_f16": median,
    "maxmin_f16": lambda a, b, c: smaller(larger(a, b), c),
    "minmax_f16": lambda a, b, c: larger(smaller(a, b), c),
    "maximum_f16": largest_or_nan, "minimum_f16": smallest_or_nan,
    "maximum3_f16": largest_or_nan, "minimum3_f16": smallest_or_nan,
    "rndne_f16": np.rint, "trunc_f16": np.trunc, "ceil_f16": np.ceil, "floor_f16": np.floor, "fract_f16": fraction,
    "sqrt_f16": lambda a: np.sqrt(a.astype(f32)).astype(f16),
    "rcp_f16": lambda a: (1 / a.astype(f64)).astype(f16),
    "rsq_f16": lambda a: (1 / np.sqrt(a.astype(f64))).astype(f16),
    "ldexp_f16": scaled,
    "frexp_exp_i16_f16": exponent,
    "frexp_mant_f16": mantissa,
    "cvt_f16_u16": lambda a: a.astype(f16),
    "cvt_f16_i16": lambda a: a.astype(f16),
    "cvt_u16_f16": lambda a: to_integer(a, 0, 65535),
    "cvt_i16_f16": lambda a: to_integer(a, -32768, 32767),
    "cvt_norm_i16_f16": lambda a: np.rint(32767 * np.clip(np.nan_to_num(a.astype(f32)), -1, 1)).astype(np.int16),
    "cvt_norm_u16_f16": lambda a: np.rint(65535 * np.clip(np.nan_to_num(a.astype(f32)), 0, 1)).astype(np.uint16),
    "dot2_f32_f16": dot_f16,
    "dot2acc_f32_f16": dot_f16,
    "dot2_f32_bf16": dot_bf16,
}  # fmt: skip

# Transcendental units: within 1 ulp of the true value, as the ISA documents promise.
WITHIN_ONE_ULP: dict[str, Callable[[Array], Array]] = {
    "exp_f32": np.exp2,
    "log_f32": lambda a: np.log2(a),
    "rsq_f32": lambda a: 1 / np.sqrt(a),
    "sin_f32": lambda a: np.sin(2 * np.pi * np.mod(a, 1)),
    "cos_f32": lambda a: np.cos(2 * np.pi * np.mod(a, 1)),
    "exp_f16": np.exp2,
    "log_f16": lambda a: np.log2(a),
    "sin_f16": lambda a: np.sin(2 * np.pi * np.mod(a, 1)),
    "cos_f16": lambda a: np.cos(2 * np.pi * np.mod(a, 1)),
}

# Only meaningful together (division, large arguments of sin): tested through what is compiled to them, below.
TESTED_AS_A_WHOLE = {"div_fixup_f32", "div_fixup_f64", "div_fixup_f16", "trig_preop_f64"}
# In the tables for targets that are not executed in these tests (gfx950, gfx1250, GFX8's half-precision multiply-add).
ELSEWHERE = {
    "cvt_f32_bf16", "cvt_pk_bf16_f32", "mad_f16", "add_nc_u64", "sub_nc_u64", "mul_u64", "dot2_f16_f16", "dot2_bf16_bf16",
}  # fmt: skip


# ---- values ------------------------------------------------------------------------------------------------------------

INTEGER_EDGES = {
    16: [0, 1, 2, 15, 16, 17, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF],
    32: [0, 1, 2, 5, 23, 31, 32, 33, 63, 64, 0xFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000,
         0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFF8000, 0xFFFFFFFE, 0xFFFFFFFF, 0x0C0D0801],
    64: [0, 1, 2, 31, 32, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
}  # fmt: skip


def float_edges(kind: Any) -> Array:
    info = np.finfo(kind)
    one = kind(1)
    positive = [
        kind(0), info.smallest_subnormal, info.smallest_subnormal * kind(3), info.tiny - info.smallest_subnormal, info.tiny,
        info.eps, kind(0.25), kind(0.5), np.nextafter(kind(0.5), kind(0)), one - info.eps / 2, one,
        one + info.eps, kind(1.5),
        kind(2.5), kind(3.75), kind(255), kind(256), kind(1000), info.max / kind(2), info.max, kind(np.inf),
    ]  # fmt: skip
    if kind != f16:
        positive += [kind(65504), kind(65520), kind(2**31), kind(2**32), kind(2**31 - 128)]
    edges = np.array(positive, kind)
    return np.concatenate([edges, -edges, np.array([np.nan], kind)])


def values(kinds: tuple[str, ...], seed: int) -> list[Array]:
    """Arrays of the given types: all pairs of edges for the first two, then random bits, then ordinary numbers."""
    rng = np.random.default_rng(seed)
    sets = []
    for kind in kinds:
        if kind[0] == "f":
            sets.append(float_edges(NUMPY[kind]).view(f"u{BITS[kind] // 8}"))
        else:
            sets.append(np.array(INTEGER_EDGES[BITS[kind]], f"u{BITS[kind] // 8}"))
    first = sets[0]
    second = sets[1] if len(sets) > 1 else first[:1]
    pairs = np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2) if len(sets) > 1 else None
    out = []
    for k, (kind, edges) in enumerate(zip(kinds, sets, strict=True)):
        if pairs is None:
            column = edges
        elif k < 2:
            column = (np.repeat(first, len(second)), np.tile(second, len(first)))[k]
        else:
            column = rng.choice(edges, len(first) * len(second))
        column = column.astype(edges.dtype)
        bits = np.frombuffer(rng.bytes(300 * BITS[kind] // 8), edges.dtype)
        plain = rng.integers(0, 60, 200).astype(edges.dtype)
        if kind[0] == "f":
            plain = (rng.standard_normal(200) * 4).astype(NUMPY[kind]).view(edges.dtype)
        out.append(np.concatenate([column, bits, plain]))
    return out


# ---- running -------------------------------------------------------------------------------------------------------------


def c_type(kind: str) -> str:
    return "unsigned long long" if BITS[kind] == 64 else "unsigned"


def vector_kernel(row: Row, name: str, target: str) -> str:
    half = ".l" if target.startswith(("gfx11", "gfx12")) else ""
    clamp_ = " clamp" if name.endswith("_clamp") else ""
    mnemonic = name.removesuffix("_clamp")
    operands = [f"%{k}" + (half if BITS[kind] == 16 else "") for k, kind in enumerate((row.result, *row.sources))]
    arguments = "".join(f"const {c_type(kind)}* {'abc'[k]}, " for k, kind in enumerate(row.sources))
    inputs = ", ".join(f'"v"({"abc"[k]}[i])' for k in range(len(row.sources)))
    return (
        f'extern "C" __global__ void v_{name}({arguments}const {c_type(row.result)}* d, {c_type(row.result)}* out, int n) {{'
        f" int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; {c_type(row.result)} r = d[i];"
        f' asm volatile("v_{mnemonic} {", ".join(operands)}{clamp_}" : "+v"(r) : {inputs}); out[i] = r; }}'
    )


def scalar_kernel(row: Row, name: str) -> str:
    operands = [f"%{k}" for k in [0, *range(2, 2 + len(row.sources))]]
    arguments = "".join(f"const {c_type(kind)}* {'abc'[k]}, " for k, kind in enumerate(row.sources))
    inputs = ", ".join(f'"s"({"abc"[k]}[i])' for k in range(len(row.sources)))
    return (
        f'extern "C" __global__ void s_{name}({arguments}const {c_type(row.result)}* d, const unsigned* scc,'
        f" {c_type(row.result)}* out, unsigned* flag, int n) {{"
        f" int i = blockIdx.x; {c_type(row.result)} r = d[i]; unsigned f = scc[i];"
        f' asm volatile("s_cmp_lg_u32 %1, 0\\n s_{name} {", ".join(operands)}\\n s_cselect_b32 %1, 1, 0"'
        f' : "+s"(r), "+s"(f) : {inputs} : "scc"); out[i] = r; flag[i] = f; }}'
    )


def assemble(compiler: HipRTC, target: str, kernels: dict[str, str]) -> tuple[bytes, set[str]]:
    """Compile all kernels whose instruction ``target`` has; the rest is found from the errors and left out."""
    present = dict(kernels)
    while True:
        source = "\n".join(present.values())
        try:
            return compiler.compile(source, target, ["-O1", "-ferror-limit=0", "-w"]), set(present)
        except CompileError as error:
            lines = {int(number) for number in re.findall(r"^kernel\.hip:(\d+):\d+: error", str(error), re.MULTILINE)}
            names = list(present)
            if not lines:
                raise
            for line in lines:
                del present[names[line - 1]]


def inputs(row: Row, seed: int) -> tuple[list[Array], Array]:
    kinds = (*row.sources, row.result)
    *sources, old = values(kinds, seed)
    return sources, old


def carried(bits: Array, kind: str) -> Array:
    """Values as a kernel's array has them; halves get rubbish above them."""
    if BITS[kind] == 16:
        return bits.astype(np.uint32) | np.uint32(0xDEAD0000)
    return np.ascontiguousarray(bits)


def expected(formula: Callable[..., Any], row: Row, sources: list[Array], extra: tuple[Array, ...] = ()) -> Array:
    """Bits of the formula's results."""
    typed = [bits.view(NUMPY[kind]) for bits, kind in zip(sources, row.sources, strict=True)]
    width = BITS[row.result]
    if formula in INTEGER.values():
        items = [formula(*map(int, t)) & ((1 << width) - 1) for t in zip(*typed, *extra, strict=True)]
        return np.array(items, f"u{width // 8}")
    with np.errstate(all="ignore"):
        result = formula(*typed, *extra)
    if isinstance(result, list):
        return np.array([int(x) & ((1 << width) - 1) for x in result], f"u{width // 8}")
    return np.asarray(result).astype(NUMPY[row.result]).view(f"u{width // 8}")


def differences(got: Array, want: Array, kind: str) -> Array:
    """Where the bits differ; a NaN equals every NaN."""
    different = got != want
    if kind[0] == "f":
        different &= ~(np.isnan(got.view(NUMPY[kind])) & np.isnan(want.view(NUMPY[kind])))
    return np.flatnonzero(different)


def cases(prefix: str) -> dict[str, Row]:
    rows = semantics.rows(semantics.VECTOR) if prefix == "v_" else semantics.rows(semantics.SCALAR, scc=True)
    return {name: row for row in rows for name in row.names}


@pytest.fixture(scope="module", params=TARGETS)
def vector_unit(request: pytest.FixtureRequest, compiler: HipRTC) -> tuple[str, Any, set[str]]:
    target = request.param
    kernels = {name: vector_kernel(row, name, target) for name, row in cases("v_").items()}
    code, present = assemble(compiler, target, kernels)
    return target, Device(target).load(code), present


def run_vector(module: Any, row: Row, name: str, sources: list[Array], old: Array) -> Array:
    out = np.zeros(len(old), np.uint64 if BITS[row.result] == 64 else np.uint32)
    count = len(old)
    arrays = [carried(bits, kind) for bits, kind in zip(sources, row.sources, strict=True)]
    module.launch(f"v_{name}", ((count + 127) // 128,), (128,), *arrays, carried(old, row.result), out, np.int32(count))
    return out.astype(f"u{BITS[row.result] // 8}")


TESTED: dict[str, set[str]] = {}


def test_vector_instructions(vector_unit: tuple[str, Any, set[str]]) -> None:
    target, module, present = vector_unit
    wrong = []
    for seed, (name, row) in enumerate(cases("v_").items()):
        formula = INTEGER.get(row.name) or FLOAT.get(row.name)
        if name not in present or formula is None:
            continue
        sources, old = inputs(row, seed)
        uses_old = re.search(r"\bd\b", row.expression) is not None
        extra = (old.view(NUMPY[row.result]),) if uses_old else ()
        got, want = run_vector(module, row, name, sources, old), expected(formula, row, sources, extra)
        bad = differences(got, want, row.result)
        TESTED.setdefault(target, set()).add(row.name)
        if len(bad):
            k = bad[0]
            shown = [hex(int(bits[k])) for bits in sources]
            wrong.append(f"v_{name}{shown}: {int(got[k]):#x}, not {int(want[k]):#x} ({len(bad)} of {len(got)})")
    assert not wrong, f"{target}:\n" + "\n".join(wrong)
    assert len(TESTED[target]) > 150


def test_transcendental_instructions_are_within_one_ulp(vector_unit: tuple[str, Any, set[str]]) -> None:
    target, module, present = vector_unit
    for name, formula in WITHIN_ONE_ULP.items():
        row = cases("v_")[name]
        if name not in present:
            continue
        kind = NUMPY[row.result]
        rng = np.random.default_rng(5)
        x = np.concatenate([rng.uniform(0, 15, 500), [1, 2, 0.5, 4]]).astype(kind)
        got = run_vector(module, row, name, [x.view(f"u{BITS[row.result] // 8}")], x.view(f"u{BITS[row.result] // 8}"))
        true = formula(x.astype(f64))
        error = np.abs(got.view(kind).astype(f64) - true)
        if "sin" in name or "cos" in name:
            assert error.max() < 2 * np.finfo(kind).eps, name
        else:
            assert np.all(error <= np.spacing(np.abs(true).astype(kind)).astype(f64)), name
        TESTED.setdefault(target, set()).add(row.name)


def test_no_vector_instruction_is_without_a_formula() -> None:
    names = {row.name for row in semantics.rows(semantics.VECTOR)}
    formulas = set(INTEGER) | set(FLOAT) | set(WITHIN_ONE_ULP) | TESTED_AS_A_WHOLE | ELSEWHERE
    assert names - formulas == set()
    assert formulas - names == set()


# ---- scalar unit ---------------------------------------------------------------------------------------------------------


def add_overflows(a: int, b: int) -> bool:
    return not -(2**31) <= signed(a, 32) + signed(b, 32) < 2**31


def subtract_overflows(a: int, b: int) -> bool:
    return not -(2**31) <= signed(a, 32) - signed(b, 32) < 2**31


# (a, b, old destination, SCC) → result, and SCC where it changes ("nonzero": result is not 0).
SCALAR: dict[str, tuple[Callable[..., int], Callable[..., bool] | str | None]] = {}
for _bits in (32, 64):
    _b = f"b{_bits}"
    SCALAR |= {
        f"mov_{_b}": (lambda a, b, d, s: a, None),
        f"cmov_{_b}": (lambda a, b, d, s: a if s else d, None),
        f"not_{_b}": (lambda a, b, d, s: ~a, "nonzero"),
        f"brev_{_b}": (lambda a, b, d, s, n=_bits: reversed_bits(a, n), None),
        f"and_{_b}": (lambda a, b, d, s: a & b, "nonzero"),
        f"or_{_b}": (lambda a, b, d, s: a | b, "nonzero"),
        f"xor_{_b}": (lambda a, b, d, s: a ^ b, "nonzero"),
        f"nand_{_b}": (lambda a, b, d, s: ~(a & b), "nonzero"),
        f"nor_{_b}": (lambda a, b, d, s: ~(a | b), "nonzero"),
        f"xnor_{_b}": (lambda a, b, d, s: ~(a ^ b), "nonzero"),
        f"and_not1_{_b}": (lambda a, b, d, s: a & ~b, "nonzero"),
        f"or_not1_{_b}": (lambda a, b, d, s: a | ~b, "nonzero"),
        f"lshl_{_b}": (lambda a, b, d, s, n=_bits: a << (b % n), "nonzero"),
        f"lshr_{_b}": (lambda a, b, d, s, n=_bits: a >> (b % n), "nonzero"),
        f"ashr_i{_bits}": (lambda a, b, d, s, n=_bits: a >> (b % n), "nonzero"),
        f"bfe_u{_bits}": (lambda a, b, d, s, n=_bits: field(a, b % n, b >> 16 & 127), "nonzero"),
        f"bfe_i{_bits}": (lambda a, b, d, s, n=_bits: signed_field(a, b % n, min(b >> 16 & 127, n)), "nonzero"),
        f"bfm_{_b}": (lambda a, b, d, s, n=_bits: (2 ** (a % n) - 1) << (b % n), None),
        f"bitset0_{_b}": (lambda a, b, d, s, n=_bits: d & ~(1 << (a % n)), None),
        f"bitset1_{_b}": (lambda a, b, d, s, n=_bits: d | 1 << (a % n), None),
        f"bcnt0_i32_{_b}": (lambda a, b, d, s, n=_bits: n - a.bit_count(), "nonzero"),
        f"bcnt1_i32_{_b}": (lambda a, b, d, s: a.bit_count(), "nonzero"),
        f"ctz_i32_{_b}": (lambda a, b, d, s: trailing_zeros(a), None),
        f"clz_i32_u{_bits}": (lambda a, b, d, s, n=_bits: leading_zeros(a, n), None),
        f"cselect_{_b}": (lambda a, b, d, s: a if s else b, None),
    }
SCALAR |= {
    "cls_i32": (lambda a, b, d, s: leading_signs(a), None),
    "sext_i32_i8": (lambda a, b, d, s: signed(a, 8), None),
    "sext_i32_i16": (lambda a, b, d, s: signed(a, 16), None),
    "abs_i32": (lambda a, b, d, s: abs(a), "nonzero"),
    "absdiff_i32": (lambda a, b, d, s: abs(a - b), "nonzero"),
    "add_u32": (lambda a, b, d, s: a + b, lambda a, b, d, s: a + b > M32),
    "sub_u32": (lambda a, b, d, s: a - b, lambda a, b, d, s: b > a),
    "add_i32": (lambda a, b, d, s: a + b, lambda a, b, d, s: add_overflows(a, b)),
    "sub_i32": (lambda a, b, d, s: a - b, lambda a, b, d, s: subtract_overflows(a, b)),
    "addc_u32": (lambda a, b, d, s: a + b + s, lambda a, b, d, s: a + b + s > M32),
    "subb_u32": (lambda a, b, d, s: a - b - s, lambda a, b, d, s: b + s > a),
    "add_nc_u64": (lambda a, b, d, s: a + b, None),
    "sub_nc_u64": (lambda a, b, d, s: a - b, None),
    "mul_u64": (lambda a, b, d, s: a * b, None),
    "mul_i32": (lambda a, b, d, s: a * b, None),
    "mul_hi_u32": (lambda a, b, d, s: a * b >> 32, None),
    "mul_hi_i32": (lambda a, b, d, s: a * b >> 32, None),
    "min_i32": (lambda a, b, d, s: min(a, b), lambda a, b, d, s: a < b),
    "max_i32": (lambda a, b, d, s: max(a, b), lambda a, b, d, s: a > b),
    "min_u32": (lambda a, b, d, s: min(a, b), lambda a, b, d, s: a < b),
    "max_u32": (lambda a, b, d, s: max(a, b), lambda a, b, d, s: a > b),
    "pack_ll_b32_b16": (lambda a, b, d, s: a % 65536 | b % 65536 << 16, None),
    "pack_lh_b32_b16": (lambda a, b, d, s: a % 65536 | b >> 16 << 16, None),
    "pack_hh_b32_b16": (lambda a, b, d, s: a >> 16 | b >> 16 << 16, None),
    "pack_hl_b32_b16": (lambda a, b, d, s: a >> 16 | b % 65536 << 16, None),
}
for _shift in (1, 2, 3, 4):
    SCALAR[f"lshl{_shift}_add_u32"] = (
        lambda a, b, d, s, n=_shift: (a << n) + b,
        lambda a, b, d, s, n=_shift: (a << n) + b > M32,
    )
# The scalar float unit has the vector unit's formulas; instructions with an immediate appear in compiled code only.
SCALAR_FLOAT = {
    name: name
    for name in [
        "add_f32",
        "sub_f32",
        "mul_f32",
        "fmac_f32",
        "min_f32",
        "max_f32",
        "minimum_f32",
        "maximum_f32",
        "ceil_f32",
        "floor_f32",
        "trunc_f32",
        "rndne_f32",
        "cvt_f32_i32",
        "cvt_f32_u32",
        "cvt_i32_f32",
        "cvt_u32_f32",
        "cvt_pk_rtz_f16_f32",
    ]
}
SCALAR_IMMEDIATE = {"addk_i32", "mulk_i32", "movk_i32", "cmovk_i32", "fmaak_f32"}
SCALAR_HALF: dict[str, Callable[[Array], Any]] = {
    "cvt_f16_f32": lambda a: a.astype(f16).view(np.uint16).astype(np.uint32),
    "cvt_f32_f16": lambda a: (a & 0xFFFF).astype(np.uint16).view(f16).astype(f32),
    "cvt_hi_f32_f16": lambda a: (a >> 16).astype(np.uint16).view(f16).astype(f32),
}


@pytest.mark.parametrize("target", TARGETS)
def test_scalar_instructions(compiler: HipRTC, target: str) -> None:
    kernels = {name: scalar_kernel(row, name) for name, row in cases("s_").items() if row.name not in SCALAR_IMMEDIATE}
    code, present = assemble(compiler, target, kernels)
    module = Device(target).load(code)
    wrong = []
    tested = 0
    for seed, (name, row) in enumerate(cases("s_").items()):
        if name not in present:
            continue
        sources, old = inputs(row, seed)
        keep = np.random.default_rng(seed).permutation(len(old))[:400]
        sources, old = [bits[keep] for bits in sources], old[keep]
        scc = np.random.default_rng(seed).integers(0, 2, len(old)).astype(np.uint32)
        out, flag = np.zeros(len(old), old.dtype), np.zeros(len(old), np.uint32)
        module.launch(
            f"s_{name}",
            (len(old),),
            (32,),
            *map(np.ascontiguousarray, (*sources, old)),
            scc,
            out,
            flag,
            np.int32(len(old)),
        )
        want_flag = scc
        if row.name in SCALAR:
            formula, carry = SCALAR[row.name]
            typed = [bits.view(NUMPY[kind]) for bits, kind in zip(sources, row.sources, strict=True)]
            typed += [np.zeros(len(old), np.int32)] * (2 - len(typed))
            rows = [(int(a), int(b), int(d), int(s)) for a, b, d, s in zip(*typed, old, scc, strict=True)]
            want = np.array([formula(*t) & ((1 << BITS[row.result]) - 1) for t in rows], old.dtype)
            if carry == "nonzero":
                want_flag = (want != 0).astype(np.uint32)
            elif callable(carry):
                want_flag = np.array([carry(*t) for t in rows], np.uint32)
        else:
            uses_old = re.search(r"\bd\b", row.expression) is not None
            formula = FLOAT[SCALAR_FLOAT[row.name]] if row.name in SCALAR_FLOAT else SCALAR_HALF[row.name]
            want = expected(formula, row, sources, (old.view(NUMPY[row.result]),) if uses_old else ())
        bad = sorted({*differences(out, want, row.result), *np.flatnonzero(flag != want_flag)})
        tested += 1
        if bad:
            k = bad[0]
            shown = [hex(int(bits[k])) for bits in sources]
            wrong.append(
                f"s_{name}{shown} d={int(old[k]):#x} scc={scc[k]}: {int(out[k]):#x} scc={flag[k]}, "
                f"not {int(want[k]):#x} scc={want_flag[k]} ({len(bad)} of {len(out)})"
            )
    assert not wrong, f"{target}:\n" + "\n".join(wrong)
    assert tested > 60


def test_no_scalar_instruction_is_without_a_formula() -> None:
    names = {row.name for row in semantics.rows(semantics.SCALAR, scc=True)}
    assert names - set(SCALAR) - set(SCALAR_FLOAT) - set(SCALAR_HALF) - SCALAR_IMMEDIATE == set()
