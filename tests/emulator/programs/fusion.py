"""cupy.fuse: several operations, and a reduction, in one kernel."""

import cupy as cp
import numpy as np


@cp.fuse()
def gelu(x):
    return 0.5 * x * (1 + cp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@cp.fuse()
def distance(x, y):
    return cp.sum(cp.abs(x - y))


x = np.random.default_rng(13).standard_normal(400)
want = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
assert np.allclose(gelu(cp.asarray(x)).get(), want, rtol=1e-12)
assert np.allclose(float(distance(cp.asarray(x), cp.asarray(want))), np.abs(x - want).sum(), rtol=1e-12)
