"""bfloat16 arrays of ml_dtypes, and raw kernels on their bits."""

import cupy as cp
import ml_dtypes
import numpy as np

x = np.random.default_rng(20).standard_normal(600).astype(ml_dtypes.bfloat16)
assert np.array_equal((cp.asarray(x) * cp.asarray(x)).get().view(np.uint16), (x * x).view(np.uint16))
assert np.array_equal(cp.asarray(x).astype(cp.float32).get(), x.astype(np.float32))
kernel = cp.RawKernel(
    r"""
extern "C" __global__ void half_of(const unsigned short* x, unsigned short* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = __uint_as_float((unsigned)x[i] << 16) * 0.5f;
  unsigned u = __float_as_uint(v);
  y[i] = (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
""",
    "half_of",
)
y = cp.empty(600, ml_dtypes.bfloat16)
kernel((6,), (100,), (cp.asarray(x), y))
assert np.array_equal(y.get().view(np.uint16), (x * ml_dtypes.bfloat16(0.5)).view(np.uint16))
