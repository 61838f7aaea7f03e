"""Transpose through a padded tile of shared memory, of a matrix that no tile divides."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void transpose(const double* in, double* out, int rows, int columns) {
  __shared__ double tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
  __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x;
  y = blockIdx.x * 16 + threadIdx.y;
  if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}
""",
    "transpose",
)
a = np.random.default_rng(2).standard_normal((37, 70))
out = cp.empty((70, 37))
kernel((5, 3), (16, 16), (cp.asarray(a), out, np.int32(37), np.int32(70)))
assert np.array_equal(out.get(), a.T)
