"""Counting, reversing and finding bits; votes of a wave."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void bits(const unsigned int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = __popc(x[i]);
  out[n + i] = __clz(x[i]);
  out[2 * n + i] = __ffs(x[i]);
  out[3 * n + i] = __brev(x[i]);
  out[4 * n + i] = __popcll((unsigned long long)x[i] * 0x10001ull);
  out[5 * n + i] = (int)__umulhi(x[i], 0x9e3779b9u);
}
extern "C" __global__ void votes(const int* x, int* out) {
  int i = threadIdx.x;
  unsigned long long set = __ballot(x[i] > 0);
  out[i] = __popcll(set & ((1ull << (i % warpSize)) - 1));  // positives before this lane
  out[blockDim.x + i] = __any(x[i] == 7) + 2 * __all(x[i] > -100);
}
""",
    "bits",
)
rng = np.random.default_rng(9)
x = np.concatenate([rng.integers(0, 2**32, 300), [0, 1, 2**31, 2**32 - 1]]).astype(np.uint32)
n = x.size
out = cp.zeros((6, n), cp.int32)
kernel(((n + 63) // 64,), (64,), (cp.asarray(x), out, np.int32(n)))
text = [f"{value:032b}" for value in x]
want = [
    [t.count("1") for t in text],
    [len(t) - len(t.lstrip("0")) for t in text],
    [0 if "1" not in t else 32 - t.rindex("1") for t in text],
    np.array([int(t[::-1], 2) for t in text], np.uint32).view(np.int32),
    [f"{int(value) * 0x10001:b}".count("1") for value in x],
    ((x.astype(np.uint64) * np.uint64(0x9E3779B9)) >> np.uint64(32)).astype(np.uint32).view(np.int32),
]
assert np.array_equal(out.get(), np.array(want, np.int64).astype(np.int32))

votes = cp.RawKernel(kernel.code, "votes")
y = rng.integers(-20, 20, 128).astype(np.int32)
said = cp.zeros((2, 128), cp.int32)
votes((1,), (128,), (cp.asarray(y), said))
wave = cp.cuda.runtime.getDeviceProperties(0)["warpSize"]
groups = y.reshape(-1, wave)
before = np.cumsum(groups > 0, 1) - (groups > 0)
assert np.array_equal(said[0].get(), before.ravel())
assert np.array_equal(said[1].get(), np.repeat((groups == 7).any(1) + 2, wave))
