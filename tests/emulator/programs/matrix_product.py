"""Matrix product through tiles of shared memory, each thread with four results."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float ta[16][16], tb[16][64];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty;
  float sum[4] = {0, 0, 0, 0};
  for (int k0 = 0; k0 < k; k0 += 16) {
    ta[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0;
    for (int q = 0; q < 4; ++q) {
      int column = blockIdx.x * 64 + q * 16 + tx;
      tb[ty][q * 16 + tx] = column < n && k0 + ty < k ? b[(k0 + ty) * n + column] : 0;
    }
    __syncthreads();
    for (int j = 0; j < 16; ++j)
      for (int q = 0; q < 4; ++q) sum[q] += ta[ty][j] * tb[j][q * 16 + tx];
    __syncthreads();
  }
  for (int q = 0; q < 4; ++q) {
    int column = blockIdx.x * 64 + q * 16 + tx;
    if (row < m && column < n) c[row * n + column] = sum[q];
  }
}
""",
    "product",
)
rng = np.random.default_rng(14)
m, n, k = 37, 90, 50
a, b = rng.integers(-9, 9, (m, k)).astype(np.float32), rng.integers(-9, 9, (k, n)).astype(np.float32)
c = cp.empty((m, n), cp.float32)
kernel((2, 3), (16, 16), (cp.asarray(a), cp.asarray(b), c, np.int32(m), np.int32(n), np.int32(k)))
assert np.array_equal(c.get(), a @ b)
