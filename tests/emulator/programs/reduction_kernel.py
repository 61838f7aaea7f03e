"""ReductionKernel over axes, and CuPy's own reductions."""

import cupy as cp
import numpy as np

norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
x = np.random.default_rng(12).standard_normal((13, 70, 5))
d = cp.asarray(x)
assert np.allclose(norm(d, axis=1).get(), np.sqrt((x * x).sum(1)), rtol=1e-13)
assert np.allclose(float(norm(d)), np.sqrt((x * x).sum()), rtol=1e-13)
assert np.array_equal(d.max((0, 2)).get(), x.max((0, 2)))
assert np.array_equal(d.argmin(1).get(), x.argmin(1))
assert bool((d > -100).all())
assert not bool((d > 100).any())
assert np.allclose(d.var(0).get(), x.var(0), rtol=1e-12)
