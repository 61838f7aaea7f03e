"""No kernel of one's own: what CuPy makes of means, variances, cumulative sums, selections and broadcasts."""

import cupy as cp
import numpy as np

rng = np.random.default_rng(17)
a = rng.normal(size=(37, 53))
x = cp.asarray(a)
assert np.allclose(cp.asnumpy(x.mean(axis=0)), a.mean(axis=0), rtol=1e-14, atol=1e-15)
assert np.allclose(cp.asnumpy(x.var(axis=1)), a.var(axis=1), rtol=1e-13)
assert np.allclose(cp.asnumpy(cp.cumsum(x, axis=1)), np.cumsum(a, axis=1), rtol=1e-12, atol=1e-13)
assert int(x.argmax()) == int(a.argmax())
assert np.array_equal(cp.asnumpy(x.argmin(axis=0)), a.argmin(axis=0))
assert np.array_equal(cp.asnumpy(cp.where(x > 0, x, -x)), np.abs(a))
assert np.array_equal(cp.asnumpy(cp.clip(x, -0.5, 0.5)), np.clip(a, -0.5, 0.5))
assert np.array_equal(cp.asnumpy(x[:, None, :3] - x[None, :, :3]), a[:, None, :3] - a[None, :, :3])
assert bool((x > -100).all())
assert not bool((x > 0).all())
assert np.allclose(float(cp.linalg.norm(x)), np.linalg.norm(a), rtol=1e-14)
n = rng.integers(-50, 50, 1000).astype(np.int16)
m = cp.asarray(n)
assert np.array_equal(cp.asnumpy(m // 7), n // 7)
assert np.array_equal(cp.asnumpy(m % 7), n % 7)
assert np.array_equal(cp.asnumpy(cp.left_shift(m, 3)), np.left_shift(n, 3))
assert int(m.astype(cp.int64).sum()) == int(n.sum())
