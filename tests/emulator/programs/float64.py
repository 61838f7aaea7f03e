"""Double precision: a Horner polynomial, a quotient, a root, and sums in a fixed order."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void work(const double* x, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double v = x[i];
  out[i] = fma(fma(fma(0.25, v, -1.5), v, 2.0), v, -3.0);
  out[n + i] = (v + 1.0) / (v * v + 0.5);
  out[2 * n + i] = sqrt(fabs(v));
  out[3 * n + i] = (double)(long long)(v * 1e6) + rint(v) + floor(v);
}
""",
    "work",
)
x = np.random.default_rng(6).standard_normal(500) * 100
out = cp.empty(2000)
kernel((4,), (128,), (cp.asarray(x), out, np.int32(500)))
got = out.get().reshape(4, 500)
assert np.allclose(got[0], ((0.25 * x - 1.5) * x + 2) * x - 3, rtol=1e-13)
assert np.allclose(got[1], (x + 1) / (x * x + 0.5), rtol=1e-15)
assert np.array_equal(got[2], np.sqrt(np.abs(x)))
assert np.array_equal(got[3], np.trunc(x * 1e6) + np.rint(x) + np.floor(x))
