"""What whole kernels show: defects that must be caught, exact division, denormals, lanes, matrices, the order of waves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from toolkit.emulator.device import Device, KernelError
from toolkit.emulator.hiprtc import HipRTC

pytestmark = pytest.mark.rocm

WAVE32 = ("gfx1100", "gfx1200")
ORDERS = ("forward", "reversed", "random:1", "random:2")
Array = np.ndarray[Any, Any]


def run(
    compiler: HipRTC, target: str, source: str, kernel: str, grid: Any, block: Any, *arguments: Any, **settings: Any
) -> None:
    shared = settings.pop("shared", 0)
    options = settings.pop("options", ())
    code = compiler.compile(source, target, ["-O3", *options])
    Device(target, **settings).load(code).launch(kernel, grid, block, *arguments, shared=shared)


# ---- mutants -------------------------------------------------------------------------------------------------------------

BLOCK_SUM = """
extern "C" __global__ void __launch_bounds__(256) block_sum(const float* x, float* y) {
  __shared__ float part[256];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (t < half) part[t] += part[t + half];
    BARRIER
  }
  if (t == 0) y[blockIdx.x] = part[0];
}
"""


@pytest.mark.parametrize("target", WAVE32)
@pytest.mark.parametrize("order", ORDERS)
def test_block_sum_in_every_order_of_waves(compiler: HipRTC, target: str, order: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, 1024).astype(np.float32)
    y = np.zeros(4, np.float32)
    run(
        compiler, target, BLOCK_SUM.replace("BARRIER", "__syncthreads();"), "block_sum", (4,), (256,), x, y, order=order
    )
    assert np.array_equal(y, x.reshape(4, 256).sum(1))


@pytest.mark.parametrize("target", WAVE32)
@pytest.mark.parametrize("order", ORDERS)
def test_removed_barrier_is_a_reported_race(compiler: HipRTC, target: str, order: str) -> None:
    x, y = np.ones(256, np.float32), np.zeros(1, np.float32)
    with pytest.raises(
        KernelError, match=r"kernel block_sum, block \(0, 0, 0\), wave \d, instruction at .*`ds_.*data race in LDS"
    ):
        run(compiler, target, BLOCK_SUM.replace("BARRIER", ""), "block_sum", (1,), (256,), x, y, order=order)


def test_removed_barrier_changes_the_result_without_checks(compiler: HipRTC) -> None:
    x, y = np.ones(256, np.float32), np.zeros(1, np.float32)
    source = BLOCK_SUM.replace("BARRIER", "")
    run(compiler, "gfx1200", source, "block_sum", (1,), (256,), x, y, order="forward", lds="off")
    assert y[0] != 256


WAVE_SUM = """
extern "C" __global__ void __launch_bounds__(64) wave_sum(const float* x, float* y) {
  float v = x[threadIdx.x];
  for (int o = FIRST; o > 0; o >>= 1) v += __shfl_xor(v, o, WIDTH);
  if (threadIdx.x == 0) y[0] = v;
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_wave64_reduction_over_32_lanes_is_wrong(compiler: HipRTC, target: str) -> None:
    x, y = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    run(compiler, target, WAVE_SUM.replace("FIRST", "32").replace("WIDTH", "64"), "wave_sum", (1,), (64,), x, y)
    assert y[0] == x.sum()
    run(compiler, target, WAVE_SUM.replace("FIRST", "16").replace("WIDTH", "32"), "wave_sum", (1,), (64,), x, y)
    assert y[0] == x[:32].sum()


TILE = """
typedef unsigned short u16;
typedef short s16x16 __attribute__((ext_vector_type(16)));
typedef short s16x8 __attribute__((ext_vector_type(8)));
typedef __bf16 b16x8 __attribute__((ext_vector_type(8)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
extern "C" __global__ void __launch_bounds__(32) tile(const u16* A, const u16* B, float* C) {
  int l = threadIdx.x & 31, hi = l >> 4, r = l & 15;
  int row = LANE(r);
  f32x8 c = {0, 0, 0, 0, 0, 0, 0, 0};
#if defined(__GFX11__)
  s16x16 a, b;
  for (int j = 0; j < 16; ++j) { a[j] = A[row * 16 + j]; b[j] = B[r * 16 + j]; }
  c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
  for (int v = 0; v < 8; ++v) C[(2 * v + hi) * 16 + r] = c[v];
#else
  s16x8 a, b;
  for (int j = 0; j < 8; ++j) { a[j] = A[row * 16 + hi * 8 + j]; b[j] = B[r * 16 + hi * 8 + j]; }
  c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
  for (int v = 0; v < 8; ++v) C[(v + 8 * hi) * 16 + r] = c[v];
#endif
}
"""


@pytest.mark.parametrize("target", WAVE32)
def test_matrix_tile_and_its_mutant_with_two_lanes_swapped(compiler: HipRTC, target: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, (16, 16)).astype(ml_dtypes.bfloat16) for _ in "ab")
    want = a.astype(np.float32) @ b.astype(np.float32).T
    c = np.zeros((16, 16), np.float32)
    run(compiler, target, TILE.replace("LANE(r)", "r"), "tile", (1,), (32,), a, b, c)
    assert np.array_equal(c, want)
    run(compiler, target, TILE.replace("LANE(r)", "(r == 3 ? 7 : r == 7 ? 3 : r)"), "tile", (1,), (32,), a, b, c)
    assert not np.array_equal(c, want)


def test_gfx11_matrix_operands_must_be_there_twice(compiler: HipRTC) -> None:
    a = np.random.default_rng(1).integers(-8, 8, (32, 16)).astype(ml_dtypes.bfloat16)
    with pytest.raises(KernelError, match="gfx11 wants the 16 lanes of operand A twice, but lanes 0 and 16 differ"):
        run(
            compiler, "gfx1100", TILE.replace("LANE(r)", "l"), "tile", (1,), (32,), a, a, np.zeros((16, 16), np.float32)
        )


MFMA = """
typedef unsigned short u16;
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void __launch_bounds__(64) tile(const u16* A, const u16* B, float* C) {
  int l = threadIdx.x, r = l & 15, g = l >> 4;
  s16x4 a, b;
  for (int j = 0; j < 4; ++j) { a[j] = A[r * 16 + 4 * g + j]; b[j] = B[r * 16 + 4 * g + j]; }
  f32x4 c = {0, 0, 0, 0};
  c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
  for (int v = 0; v < 4; ++v) C[(4 * g + v) * 16 + r] = c[v];
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_matrix_fused_multiply_add(compiler: HipRTC, target: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, (16, 16)).astype(ml_dtypes.bfloat16) for _ in "ab")
    c = np.zeros((16, 16), np.float32)
    run(compiler, target, MFMA, "tile", (1,), (64,), a, b, c)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


COPY = (
    'extern "C" __global__ void copy(const int* x, int* y, int n) { int i = threadIdx.x; if (i LIMIT n) y[0] = x[i]; }'
)


@pytest.mark.parametrize("target", [*WAVE32, "gfx90a", "gfx942"])
def test_read_past_the_end_is_a_memory_fault(compiler: HipRTC, target: str) -> None:
    x, y = np.arange(64, dtype=np.int32), np.zeros(1, np.int32)
    run(compiler, target, COPY.replace("LIMIT", "<"), "copy", (1,), (128,), x, y, np.int32(64))
    with pytest.raises(KernelError, match=r"`global_load_\w+ .*: 0 bytes past the end of an allocation of 256 bytes"):
        run(compiler, target, COPY.replace("LIMIT", "<="), "copy", (1,), (128,), x, y, np.int32(64))


UNWRITTEN = """
extern "C" __global__ void unwritten(float* y) {
  __shared__ float part[64];
  int t = threadIdx.x;
  if (t != 5) part[t] = t;
  __syncthreads();
  y[t] = part[63 - t];
}
"""


@pytest.mark.parametrize("target", [*WAVE32, "gfx90a", "gfx942"])
def test_uninitialised_lds_word_is_reported_and_is_nan_without_the_check(compiler: HipRTC, target: str) -> None:
    y = np.zeros(64, np.float32)
    with pytest.raises(KernelError, match="reads byte 20 of LDS, which nothing has written"):
        run(compiler, target, UNWRITTEN, "unwritten", (1,), (64,), y)
    run(compiler, target, UNWRITTEN, "unwritten", (1,), (64,), y, lds="off")
    assert np.isnan(y[58])
    assert np.array_equal(np.delete(y, 58), np.delete(63 - np.arange(64), 58))


def test_lds_beyond_the_launch_is_reported(compiler: HipRTC) -> None:
    source = 'extern "C" __global__ void f(int* y) { extern __shared__ int s[]; s[threadIdx.x] = 1; y[0] = s[0]; }'
    with pytest.raises(KernelError, match="of LDS, which holds 100 bytes in this launch"):
        run(compiler, "gfx1200", source, "f", (1,), (32,), np.zeros(1, np.int32), shared=100)


def test_atomics_on_one_counter_are_no_race(compiler: HipRTC) -> None:
    source = """extern "C" __global__ void f(int* y) {
      __shared__ int n; if (!threadIdx.x) n = 0; __syncthreads(); atomicAdd(&n, 1); __syncthreads(); y[threadIdx.x] = n; }"""
    y = np.zeros(256, np.int32)
    run(compiler, "gfx1200", source, "f", (1,), (256,), y, order="random:3")
    assert np.all(y == 256)


def test_reading_a_counter_before_the_barrier_is_a_race(compiler: HipRTC) -> None:
    source = """extern "C" __global__ void f(int* y) {
      __shared__ int n; if (!threadIdx.x) n = 0; __syncthreads(); atomicAdd(&n, 1); y[threadIdx.x] = *(volatile int*)&n; }"""
    with pytest.raises(KernelError, match="data race in LDS"):
        run(compiler, "gfx1200", source, "f", (1,), (256,), np.zeros(256, np.int32))


def test_unknown_instruction_stops_with_its_text_and_address(compiler: HipRTC) -> None:
    source = """extern "C" __global__ void f(int* y) {
      int r; asm volatile("s_wqm_b32 %0, %1" : "=s"(r) : "s"(y[0])); y[0] = r; }"""
    with pytest.raises(
        KernelError, match=r"instruction at 0x[0-9a-f]+ `s_wqm_b32 s\d+, s\d+`: the emulator does not know"
    ):
        run(compiler, "gfx1200", source, "f", (1,), (32,), np.zeros(1, np.int32))


def test_too_many_threads_for_the_launch_bounds(compiler: HipRTC) -> None:
    with pytest.raises(
        KernelError, match=r"blocks of 512 threads, but it was compiled for at most 256 \(__launch_bounds__\)"
    ):
        run(compiler, "gfx1200", BLOCK_SUM.replace("BARRIER", ""), "block_sum", (1,), (512,), np.ones(1), np.ones(1))


def test_code_for_another_target_is_refused(compiler: HipRTC) -> None:
    code = compiler.compile(COPY.replace("LIMIT", "<"), "gfx1100")
    with pytest.raises(KernelError, match="a code object for gfx1100 on an emulated gfx1200"):
        Device("gfx1200").load(code)


# ---- division and denormals ----------------------------------------------------------------------------------------------

QUOTIENT = """
extern "C" __global__ void f32(const float* a, const float* b, float* q, float* r, int n) {
  int i = blockIdx.x * 64 + threadIdx.x; if (i < n) { q[i] = a[i] / b[i]; r[i] = sqrtf(a[i]); } }
extern "C" __global__ void f64(const double* a, const double* b, double* q, double* r, int n) {
  int i = blockIdx.x * 64 + threadIdx.x; if (i < n) { q[i] = a[i] / b[i]; r[i] = sqrt(a[i]); } }
extern "C" __global__ void f16(const _Float16* a, const _Float16* b, _Float16* q, int n) {
  int i = blockIdx.x * 64 + threadIdx.x; if (i < n) q[i] = a[i] / b[i]; }
"""


def spread(kind: Any, count: int, seed: int) -> Array:
    """Numbers of every magnitude, denormals and specials among them."""
    rng = np.random.default_rng(seed)
    width = np.dtype(kind).itemsize
    random = rng.integers(0, 256, count * width, dtype=np.uint8).view(kind)
    info = np.finfo(kind)
    small, one = info.smallest_subnormal, kind(1)
    edges = np.array(
        [0, small, small * kind(3), info.tiny, info.tiny * kind(1.5), one, kind(3), info.max, np.inf, np.nan], kind
    )
    edges = np.concatenate([edges, -edges])
    return np.concatenate([random, np.repeat(edges, len(edges)) if seed % 2 else np.tile(edges, len(edges))])


def same(got: Array, want: Array) -> bool:
    bits = f"u{got.dtype.itemsize}"
    return bool(np.all((got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))))


@pytest.mark.parametrize("target", [*WAVE32, "gfx90a", "gfx942"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_division_and_square_root_are_exactly_rounded(compiler: HipRTC, target: str, kind: Any) -> None:
    a, b = spread(kind, 4000, 1), spread(kind, 4000, 2)
    q, r = np.zeros_like(a), np.zeros_like(a)
    name = "f32" if kind == np.float32 else "f64"
    run(compiler, target, QUOTIENT, name, ((len(a) + 63) // 64,), (64,), a, b, q, r, np.int32(len(a)))
    with np.errstate(all="ignore"):
        assert same(q, a / b)
        assert same(r, np.sqrt(a))


@pytest.mark.parametrize("target", [*WAVE32, "gfx90a", "gfx942"])
def test_half_precision_division_is_exactly_rounded(compiler: HipRTC, target: str) -> None:
    a, b = spread(np.float16, 4000, 1), spread(np.float16, 4000, 2)
    q = np.zeros_like(a)
    run(compiler, target, QUOTIENT, "f16", ((len(a) + 63) // 64,), (64,), a, b, q, np.int32(len(a)))
    with np.errstate(all="ignore"):
        assert same(q, (a.astype(np.float64) / b.astype(np.float64)).astype(np.float16))


ARITHMETIC = """
extern "C" __global__ void f(const float* a, const float* b, float* s, float* m, float* x, double* d) {
  int i = threadIdx.x; s[i] = a[i] + b[i]; m[i] = a[i] * b[i]; x[i] = fmaxf(a[i], b[i]); d[i] = (double)1e-310 * (1 + i); }
"""


@pytest.mark.parametrize("target", [*WAVE32, "gfx942"])
@pytest.mark.parametrize("flush", [False, True])
def test_denormals_follow_the_mode_of_the_kernel(compiler: HipRTC, target: str, flush: bool) -> None:
    small = np.float32(1e-40)
    a = np.array([small, -small, 1e-30, 1.5e-38, 3, -small], np.float32)
    b = np.array([small, small, 1e-10, -1e-38, 4, -small * 2], np.float32)
    s, m, x, d = (np.zeros(6, np.float32) for _ in range(3)), None, None, np.zeros(6)
    s, m, x = s
    options = ["-fgpu-flush-denormals-to-zero"] if flush else []
    run(compiler, target, ARITHMETIC, "f", (1,), (6,), a, b, s, m, x, d, options=options)

    def flushed(values: Array) -> Array:
        return (
            np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)
            if flush
            else values
        )

    fa, fb = flushed(a), flushed(b)
    assert same(s, flushed(fa + fb))
    assert same(m, flushed(fa * fb))
    assert same(x, flushed(np.maximum(fa, fb)))
    assert np.array_equal(d, 1e-310 * (1 + np.arange(6)))  # double precision keeps its denormals


# ---- lanes ----------------------------------------------------------------------------------------------------

LANES = """
extern "C" __global__ void lanes(const int* x, int* y) {
  int l = threadIdx.x, v = x[l];
  y[l] = __builtin_amdgcn_update_dpp(-1, v, 0xB1, 0xf, 0xf, false);         // quad_perm:[1,0,3,2]
  y[32 + l] = __builtin_amdgcn_update_dpp(-1, v, 0x111, 0xf, 0xf, false);   // row_shr:1
  y[64 + l] = __builtin_amdgcn_update_dpp(-1, v, 0x102, 0xf, 0xf, true);    // row_shl:2, zero outside
  y[96 + l] = __builtin_amdgcn_update_dpp(-1, v, 0x140, 0xf, 0xf, false);   // row_mirror
  y[128 + l] = __builtin_amdgcn_update_dpp(-1, v, 0x123, 0x1, 0xf, false);  // row_ror:3, first row only
  y[160 + l] = __builtin_amdgcn_ds_swizzle(v, 0x401f);                      // lane ^ 16
  y[192 + l] = __builtin_amdgcn_ds_bpermute(4 * (l * 7 % 32), v);
  y[224 + l] = __builtin_amdgcn_ds_permute(4 * (l * 7 % 32), v);
  y[256 + l] = __builtin_amdgcn_readlane(v, 5) + __builtin_amdgcn_readfirstlane(v);
  y[288 + l] = (int)__ballot(v & 1);
  y[320 + l] = __builtin_amdgcn_mbcnt_lo(~0u, 100);
  y[352 + l] = __builtin_amdgcn_permlane16(0, v, 0x76543210, 0x01234567, false, false);
  y[384 + l] = __builtin_amdgcn_permlanex16(0, v, 0x76543210, 0xfedcba98, false, false);
  y[416 + l] = __builtin_amdgcn_mov_dpp8(v, 0x053977);                      // 7 6 5 4 3 2 1 0 is 0x053977
}
"""


@pytest.mark.parametrize("target", WAVE32)
def test_exchange_between_lanes(compiler: HipRTC, target: str) -> None:
    x = np.random.default_rng(3).integers(0, 1000, 32).astype(np.int32)
    y = np.zeros(448, np.int32)
    run(compiler, target, LANES, "lanes", (1,), (32,), x, y)
    lane = np.arange(32)
    row, at = lane & ~15, lane & 15
    eights = [0x053977 >> 3 * k & 7 for k in range(8)]
    sixteen = np.array([0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0])
    want = [
        x[lane ^ 1],
        np.where(at >= 1, x[np.maximum(lane - 1, 0)], -1),
        np.where(at + 2 < 16, x[np.minimum(lane + 2, 31)], 0),
        x[row | (15 - at)],
        np.where(lane < 16, x[row | ((at - 3) & 15)], -1),
        x[lane ^ 16],
        x[lane * 7 % 32],
        x[np.argsort(lane * 7 % 32)],
        np.full(32, x[5] + x[0]),
        np.full(32, sum(int(v & 1) << k for k, v in enumerate(x))).astype(np.uint32).view(np.int32)[:32],
        100 + lane,
        x[row | sixteen[at]],
        x[(row ^ 16) | at],
        x[(lane & ~7) | np.array(eights)[lane & 7]],
    ]
    for k, values in enumerate(want):
        assert np.array_equal(y[32 * k : 32 * k + 32], values), k


def test_functions_are_called_and_registers_spilled(compiler: HipRTC) -> None:
    source = """
    __device__ __attribute__((noinline)) float tower(float x, int n) { return n ? tower(x * 0.5f, n - 1) + n : x; }
    extern "C" __global__ void f(const float* x, float* y, const int* pick) {
      float table[48]; int t = threadIdx.x;
      for (int i = 0; i < 48; ++i) table[i] = x[t] * i;
      y[t] = tower(table[pick[t]], t & 3);
    }"""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    pick = np.random.default_rng(1).integers(0, 48, 64).astype(np.int32)
    for target in ("gfx1100", "gfx1200", "gfx90a", "gfx942"):
        y = np.zeros(64, np.float32)
        run(compiler, target, source, "f", (1,), (64,), x, y, pick)
        want = [tower(np.float32(v * np.float32(p)), k & 3) for k, (v, p) in enumerate(zip(x, pick, strict=True))]
        assert np.array_equal(y, np.array(want, np.float32)), target


def tower(x: np.float32, n: int) -> np.float32:
    return np.float32(tower(np.float32(x * np.float32(0.5)), n - 1) + np.float32(n)) if n else x
