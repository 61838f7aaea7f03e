"""Sum, maximum and its index of many rows, in shared memory and between lanes."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void row_max(const float* x, float* best, int* where, int columns) {
  __shared__ float value[128];
  __shared__ int index[128];
  int t = threadIdx.x;
  float v = -1e30f;
  int at = 0;
  for (int i = t; i < columns; i += blockDim.x) { float w = x[blockIdx.x * columns + i]; if (w > v) { v = w; at = i; } }
  value[t] = v;
  index[t] = at;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (t < half && (value[t + half] > value[t] || (value[t + half] == value[t] && index[t + half] < index[t]))) {
      value[t] = value[t + half];
      index[t] = index[t + half];
    }
    __syncthreads();
  }
  if (t == 0) { best[blockIdx.x] = value[0]; where[blockIdx.x] = index[0]; }
}
""",
    "row_max",
)
x = np.random.default_rng(10).integers(0, 50, (6, 777)).astype(np.float32)
best, where = cp.empty(6, cp.float32), cp.empty(6, cp.int32)
kernel((6,), (128,), (cp.asarray(x), best, where, np.int32(777)))
assert np.array_equal(best.get(), x.max(1))
assert np.array_equal(where.get(), x.argmax(1))
