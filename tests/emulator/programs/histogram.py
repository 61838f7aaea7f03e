"""Histogram with a private copy for each block in shared memory."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void histogram(const unsigned char* data, unsigned int* bins, int n) {
  __shared__ unsigned int local[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}
""",
    "histogram",
)
data = np.random.default_rng(1).integers(0, 256, 10007).astype(np.uint8)
bins = cp.zeros(256, cp.uint32)
kernel((8,), (192,), (cp.asarray(data), bins, np.int32(data.size)))
assert np.array_equal(bins.get(), np.bincount(data, minlength=256))
