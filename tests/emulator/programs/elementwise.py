"""ElementwiseKernel with broadcasting, an index, and a loop; ufuncs with types that differ."""

import cupy as cp
import numpy as np

collatz = cp.ElementwiseKernel(
    "int64 n",
    "int32 steps",
    "long long m = n; steps = 0; while (m != 1) { m = m % 2 ? 3 * m + 1 : m / 2; ++steps; }",
    "collatz",
)


def steps(n):
    count = 0
    while n != 1:
        n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
    return count


assert collatz(cp.arange(1, 60)).get().tolist() == [steps(n) for n in range(1, 60)]
outer = cp.ElementwiseKernel("T x, T y", "T z", "z = x * y + i", "outer")
a, b = np.arange(5.0), np.arange(7.0)
assert np.array_equal(outer(cp.asarray(a)[:, None], cp.asarray(b)).get(), a[:, None] * b + np.arange(35).reshape(5, 7))
mixed = cp.asarray(np.arange(-5, 5, dtype=np.int8)) * cp.float32(0.5) + cp.asarray(np.arange(10, dtype=np.uint16))
assert np.array_equal(mixed.get(), np.arange(-5, 5) * 0.5 + np.arange(10))
