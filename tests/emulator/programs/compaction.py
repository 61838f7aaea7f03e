"""Keep the positive elements in order: votes of a wave, counts of a block, an offset from the host."""

import cupy as cp
import numpy as np

wave = cp.cuda.runtime.getDeviceProperties(0)["warpSize"]
kernel = cp.RawKernel(
    f"#define WAVE {wave}\n"
    + r"""
extern "C" __global__ void keep(const int* x, int* out, int* count) {
  __shared__ int before[256 / WAVE + 1];
  int t = threadIdx.x, lane = t % WAVE, w = t / WAVE, v = x[t];
  unsigned long long votes = __ballot(v > 0);
  if (lane == 0) before[w + 1] = __popcll(votes);
  if (t == 0) before[0] = 0;
  __syncthreads();
  if (t == 0) for (int k = 1; k <= 256 / WAVE; ++k) before[k] += before[k - 1];
  __syncthreads();
  if (v > 0) out[before[w] + __popcll(votes & ((1ull << lane) - 1))] = v;
  if (t == 0) *count = before[256 / WAVE];
}
""",
    "keep",
)
x = np.random.default_rng(17).integers(-50, 50, 256).astype(np.int32)
out, count = cp.zeros(256, cp.int32), cp.zeros(1, cp.int32)
kernel((1,), (256,), (cp.asarray(x), out, count))
assert np.array_equal(out.get()[: int(count[0])], x[x > 0])
