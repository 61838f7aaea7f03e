"""CuPy's indexing: slices with steps, masks, index arrays, assignment, where, cumulative sums."""

import cupy as cp
import numpy as np

x = np.random.default_rng(18).integers(-9, 9, (20, 31))
d = cp.asarray(x)
assert np.array_equal(d[::3, ::-2].get(), x[::3, ::-2])
assert np.array_equal(d[d > 2].get(), x[x > 2])
assert np.array_equal(d[cp.asarray([4, 1, 4]), 2:5].get(), x[[4, 1, 4], 2:5])
d[d < 0] = 7
x[x < 0] = 7
d[3:5] += 10
x[3:5] += 10
assert np.array_equal(d.get(), x)
assert np.array_equal(cp.cumsum(d, axis=1).get(), np.cumsum(x, axis=1))
assert np.array_equal(cp.where(d > 5, d, -1).get(), np.where(x > 5, x, -1))
assert np.array_equal(cp.concatenate([d, d[:3]]).T.copy().get(), np.concatenate([x, x[:3]]).T)
