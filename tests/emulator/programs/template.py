"""One template, three types, looked up by name expressions."""

import cupy as cp
import numpy as np

code = r"""
template <typename T, int STEP>
__global__ void axpy(T* y, const T* x, T a, int n) {
  for (int i = threadIdx.x; i < n; i += STEP) y[i] = a * x[i] + y[i];
}
"""
names = ["axpy<float, 32>", "axpy<double, 64>", "axpy<long long, 16>"]
module = cp.RawModule(code=code, options=("-std=c++14",), name_expressions=names)
for name, kind, step in zip(names, (np.float32, np.float64, np.int64), (32, 64, 16), strict=True):
    x, y = np.arange(100).astype(kind), np.ones(100, kind)
    device = cp.asarray(y)
    module.get_function(name)((1,), (step,), (device, cp.asarray(x), kind(3), np.int32(100)))
    assert np.array_equal(device.get(), 3 * x + 1), name
