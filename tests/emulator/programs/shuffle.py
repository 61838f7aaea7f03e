"""Sum of a wave by shuffles, whatever its size, then of the block."""

import cupy as cp
import numpy as np

wave = cp.cuda.runtime.getDeviceProperties(0)["warpSize"]
kernel = cp.RawKernel(
    f"#define WAVE {wave}\n"
    + r"""
extern "C" __global__ void total(const double* x, double* out, int n) {
  __shared__ double part[1024 / WAVE];
  double v = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
  for (int o = WAVE / 2; o > 0; o >>= 1) v += __shfl_down(v, o);
  if (threadIdx.x % WAVE == 0) part[threadIdx.x / WAVE] = v;
  __syncthreads();
  if (threadIdx.x < WAVE) {
    v = threadIdx.x < blockDim.x / WAVE ? part[threadIdx.x] : 0;
    for (int o = WAVE / 2; o > 0; o >>= 1) v += __shfl_down(v, o);
    if (threadIdx.x == 0) out[0] = v;
  }
}
""",
    "total",
)
x = np.random.default_rng(11).integers(-100, 100, 3000).astype(np.float64)
out = cp.zeros(1)
kernel((1,), (512,), (cp.asarray(x), out, np.int32(3000)))
assert float(out[0]) == x.sum()
