"""Lanes that leave a loop at different times: the Mandelbrot set in double precision."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void mandelbrot(int* steps, int w, int h, int limit) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= w) return;
  double cr = __dsub_rn(__dmul_rn(x, 3.0 / 64), 2.25), ci = __dsub_rn(__dmul_rn(y, 2.5 / 32), 1.25), zr = 0, zi = 0;
  int n = 0;
  while (n < limit) {
    double rr = __dmul_rn(zr, zr), ii = __dmul_rn(zi, zi);
    if (__dadd_rn(rr, ii) > 4.0) break;
    double next = __dadd_rn(__dsub_rn(rr, ii), cr);
    zi = __dadd_rn(__dmul_rn(__dmul_rn(2.0, zr), zi), ci);
    zr = next;
    ++n;
  }
  steps[y * w + x] = n;
}
""",
    "mandelbrot",
    options=("-ffp-contract=off",),
)
w, h, limit = 70, 32, 50
steps = cp.zeros((h, w), cp.int32)
kernel((3, h), (32,), (steps, np.int32(w), np.int32(h), np.int32(limit)))
c = (np.arange(w) * (3.0 / 64) - 2.25)[None, :] + 1j * (np.arange(h) * (2.5 / 32) - 1.25)[:, None]
want = np.full((h, w), limit)
zr, zi = np.zeros((h, w)), np.zeros((h, w))
for n in range(limit):
    with np.errstate(all="ignore"):
        want[(zr * zr + zi * zi > 4.0) & (want == limit)] = n
        zr, zi = zr * zr - zi * zi + c.real, 2.0 * zr * zi + c.imag
assert len(np.unique(want)) > 5
assert np.array_equal(steps.get(), want)
