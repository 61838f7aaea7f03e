"""Complex arithmetic, and a Mandelbrot set."""

import cupy as cp
import numpy as np

rng = np.random.default_rng(19)
z = rng.standard_normal(200) + 1j * rng.standard_normal(200)
w = rng.standard_normal(200) + 1j * rng.standard_normal(200)
assert np.allclose((cp.asarray(z) * cp.asarray(w) / (cp.asarray(z) + 2)).get(), z * w / (z + 2), rtol=1e-13)
assert np.allclose(cp.exp(cp.asarray(z)).get(), np.exp(z), rtol=1e-13)
assert np.allclose(cp.abs(cp.asarray(z)).get(), np.abs(z), rtol=1e-14)
kernel = cp.ElementwiseKernel(
    "complex128 c",
    "int32 n",
    "complex<double> v = 0; for (n = 0; n < 40 && norm(v) < 4; ++n) v = v * v + c;",
    "mandelbrot",
)
c = np.linspace(-2, 0.5, 23)[None, :] + 1j * np.linspace(-1.1, 1.1, 17)[:, None]
count = np.zeros(c.shape, int)
v = np.zeros_like(c)
for _ in range(40):
    inside = np.abs(v) ** 2 < 4
    v = np.where(inside, v * v + c, v)
    count += inside
assert np.mean(kernel(cp.asarray(c)).get() == count) > 0.99
