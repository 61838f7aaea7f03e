"""64-bit integers: products, quotients, remainders, shifts, a hash."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void work(const long long* a, const long long* b, long long* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long x = a[i], y = b[i];
  out[i] = x * y;
  out[n + i] = x / y;
  out[2 * n + i] = x % y;
  out[3 * n + i] = (x << (y & 63)) ^ (x >> (y & 31));
  unsigned long long h = (unsigned long long)x;
  h ^= h >> 33; h *= 0xff51afd7ed558ccdull; h ^= h >> 33;
  out[4 * n + i] = (long long)h;
  out[5 * n + i] = __popcll(x) + __clzll(y) + __ffsll(x);
}
""",
    "work",
)
rng = np.random.default_rng(5)
n = 400
a = rng.integers(-(2**62), 2**62, n)
b = rng.integers(1, 2**40, n) * rng.choice([-1, 1], n)
a[:3] = 0, -1, 2**62
out = cp.empty(6 * n, cp.int64)
kernel((4,), (128,), (cp.asarray(a), cp.asarray(b), out, np.int32(n)))
got = out.get().reshape(6, n)
with np.errstate(over="ignore"):
    assert np.array_equal(got[0], a * b)
    quotient = np.array(
        [abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b, strict=True)]
    )
    assert np.array_equal(got[1], quotient)
    assert np.array_equal(got[2], a - quotient * b)
    assert np.array_equal(got[3], (a << (b & 63)) ^ (a >> (b & 31)))
    h = a.astype(np.uint64)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    assert np.array_equal(got[4].astype(np.uint64), h)
bits = [
    bin(int(x) & (2**64 - 1)).count("1") + 64 - (int(y) & (2**64 - 1)).bit_length() + ((int(x) & -int(x)).bit_length())
    for x, y in zip(a, b, strict=True)
]
assert np.array_equal(got[5], bits)
