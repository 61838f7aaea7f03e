"""Atomic operations on device memory from many blocks: sums, extrema, exchange, compare and swap."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void work(const int* x, int* i, float* f, double* d, unsigned long long* u, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  atomicAdd(&i[0], x[t]); atomicMax(&i[1], x[t]); atomicMin(&i[2], x[t]); atomicXor(&i[3], x[t]); atomicOr(&i[4], x[t]);
  atomicAdd(&f[0], (float)x[t]); atomicAdd(&d[0], 0.5 * x[t]); atomicAdd(&u[0], 1ull << 33);
  int old = i[5], seen;
  do { seen = old; old = atomicCAS(&i[5], seen, seen + 2); } while (old != seen);
}
""",
    "work",
)
x = np.random.default_rng(16).integers(-1000, 1000, 2000).astype(np.int32)
i, f, d, u = cp.zeros(6, cp.int32), cp.zeros(1, cp.float32), cp.zeros(1), cp.zeros(1, cp.uint64)
kernel((16,), (128,), (cp.asarray(x), i, f, d, u, np.int32(2000)))
want = [x.sum(), max(x.max(), 0), min(x.min(), 0), np.bitwise_xor.reduce(x), np.bitwise_or.reduce(x), 4000]
assert i.get().tolist() == want
assert (float(f[0]), float(d[0]), int(u[0])) == (x.sum(), 0.5 * x.sum(), 2000 << 33)
