"""Atomic operations made of compare-and-swap: maximum of floats, and a hash table with open addressing."""

import cupy as cp
import numpy as np

module = cp.RawModule(
    code=r"""
extern "C" __global__ void largest(const float* x, int n, unsigned int* best) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned int seen = *(volatile unsigned int*)best;
    while (x[i] > __uint_as_float(seen)) {
      unsigned int old = atomicCAS(best, seen, __float_as_uint(x[i]));
      if (old == seen) break;
      seen = old;
    }
  }
}
extern "C" __global__ void insert(const int* keys, int n, int* slots, int* counts, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int at = (unsigned)keys[i] * 2654435761u % size;; at = (at + 1) % size) {
    int old = atomicCAS(&slots[at], -1, keys[i]);
    if (old == -1 || old == keys[i]) { atomicAdd(&counts[at], 1); return; }
  }
}
extern "C" __global__ void wide(const long long* x, int n, unsigned long long* sum, long long* most) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { atomicAdd(sum, (unsigned long long)x[i]); atomicMax(most, x[i]); }
}
"""
)
rng = np.random.default_rng(13)
x = rng.normal(size=3000).astype(np.float32)
best = cp.full(1, np.float32(-np.inf).view(np.uint32), cp.uint32)
module.get_function("largest")((4,), (128,), (cp.asarray(x), np.int32(x.size), best))
assert best.view(cp.float32).get()[0] == x.max()

keys = rng.integers(0, 150, 900).astype(np.int32)
slots, counts = cp.full(256, -1, cp.int32), cp.zeros(256, cp.int32)
module.get_function("insert")((8,), (128,), (cp.asarray(keys), np.int32(keys.size), slots, counts, np.int32(256)))
got = {int(k): int(c) for k, c in zip(slots.get(), counts.get(), strict=True) if k >= 0}
assert got == dict(zip(*(a.tolist() for a in np.unique(keys, return_counts=True)), strict=True))

y = rng.integers(-(2**62), 2**62, 500)
total, most = cp.zeros(1, cp.uint64), cp.full(1, -(2**63), cp.int64)
module.get_function("wide")((4,), (128,), (cp.asarray(y), np.int32(y.size), total, most))
assert total.get()[0] == y.astype(np.uint64).sum(dtype=np.uint64)
assert most.get()[0] == y.max()
