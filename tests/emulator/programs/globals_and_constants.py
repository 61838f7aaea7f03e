"""A filter in constant memory and a counter in device memory, both reached from the host."""

import cupy as cp
import numpy as np

module = cp.RawModule(
    code=r"""
extern "C" {
__constant__ float taps[5];
__device__ int launches;
__global__ void filter(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) launches += 1;
  if (i >= n) return;
  float sum = 0;
  for (int k = -2; k <= 2; ++k) { int j = min(max(i + k, 0), n - 1); sum += taps[k + 2] * in[j]; }
  out[i] = sum;
}
}
"""
)
taps = cp.ndarray(5, cp.float32, module.get_global("taps"))
launches = cp.ndarray(1, cp.int32, module.get_global("launches"))
weights = np.array([1, 2, 4, 2, 1], np.float32)
taps[...] = cp.asarray(weights)
launches[...] = 0
x = np.random.default_rng(3).integers(-9, 9, 300).astype(np.float32)
out = cp.empty(300, cp.float32)
for _ in range(3):
    module.get_function("filter")((3,), (128,), (cp.asarray(x), out, np.int32(300)))
padded = np.pad(x, 2, mode="edge")
assert np.array_equal(out.get(), sum(w * padded[k : k + 300] for k, w in enumerate(weights)))
assert int(launches[0]) == 3
