"""Inclusive prefix sum of a block, doubling the distance (Hillis and Steele), then of the block totals."""

import cupy as cp
import numpy as np

module = cp.RawModule(
    code=r"""
extern "C" __global__ void scan_block(const float* in, float* out, float* totals, int n) {
  extern __shared__ float s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? in[i] : 0.0f;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d <<= 1) {
    float v = t >= d ? s[t - d] : 0.0f;
    __syncthreads();
    s[t] += v;
    __syncthreads();
  }
  if (i < n) out[i] = s[t];
  if (t == blockDim.x - 1) totals[blockIdx.x] = s[t];
}
extern "C" __global__ void add_before(float* out, const float* totals, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (blockIdx.x > 0 && i < n) out[i] += totals[blockIdx.x - 1];
}
"""
)
n, block = 5000, 256
grid = (n + block - 1) // block
x = cp.asarray(np.random.default_rng(0).integers(0, 5, n).astype(np.float32))
y, totals, sums = cp.empty_like(x), cp.empty(grid, cp.float32), cp.empty(grid, cp.float32)
module.get_function("scan_block")((grid,), (block,), (x, y, totals, np.int32(n)), shared_mem=4 * block)
module.get_function("scan_block")(
    (1,), (block,), (totals, sums, cp.empty(1, cp.float32), np.int32(grid)), shared_mem=4 * block
)
module.get_function("add_before")((grid,), (block,), (y, sums, np.int32(n)))
assert np.array_equal(y.get(), np.cumsum(x.get()))
