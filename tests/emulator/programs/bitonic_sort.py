"""Bitonic sort of a block's keys in dynamic shared memory."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void sort(unsigned int* keys) {
  extern __shared__ unsigned int s[];
  int t = threadIdx.x;
  s[t] = keys[blockIdx.x * blockDim.x + t];
  for (int k = 2; k <= blockDim.x; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      __syncthreads();
      int other = t ^ j;
      if (other > t) {
        bool up = (t & k) == 0;
        unsigned int x = s[t], y = s[other];
        if ((x > y) == up) { s[t] = y; s[other] = x; }
      }
    }
  __syncthreads();
  keys[blockIdx.x * blockDim.x + t] = s[t];
}
""",
    "sort",
)
keys = np.random.default_rng(15).integers(0, 2**32, (3, 512), dtype=np.uint64).astype(np.uint32)
device = cp.asarray(keys)
kernel((3,), (512,), (device,), shared_mem=512 * 4)
assert np.array_equal(device.get(), np.sort(keys, axis=1))
