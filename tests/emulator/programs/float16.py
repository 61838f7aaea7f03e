"""Half precision: arrays, an elementwise kernel, and a raw kernel on __half."""

import cupy as cp
import numpy as np

x = np.random.default_rng(7).standard_normal(1000).astype(np.float16)
y = np.random.default_rng(8).standard_normal(1000).astype(np.float16)
assert np.array_equal((cp.asarray(x) * cp.asarray(y) + cp.asarray(x)).get(), x * y + x)
kernel = cp.RawKernel(
    r"""
#include <hip/hip_fp16.h>
extern "C" __global__ void scale(const __half* x, __half* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2half(__half2float(x[i]) * 3.0f + 0.5f);
}
""",
    "scale",
)
out = cp.empty(1000, cp.float16)
kernel((8,), (128,), (cp.asarray(x), out, np.int32(1000)))
assert np.array_equal(out.get(), (x.astype(np.float32) * 3 + np.float32(0.5)).astype(np.float16))
