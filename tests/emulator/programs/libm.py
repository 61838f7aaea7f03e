"""The mathematical functions of a C library in single and double precision."""

import cupy as cp
import numpy as np

names = [
    "exp", "log", "sin", "cos", "tan", "tanh", "atan", "sqrt", "cbrt", "log1p", "expm1", "asinh", "exp2", "log10", "erf",
]  # fmt: skip
for suffix, kind, tolerance in (("f", np.float32, 3e-6), ("", np.float64, 1e-13)):
    real = "float" if suffix else "double"
    code = "\n".join(
        f'extern "C" __global__ void k_{name}(const {real}* x, {real}* y)'
        f" {{ int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = {name}{suffix}(x[i]); }}"
        for name in names
    )
    module = cp.RawModule(code=code)
    x = np.random.default_rng(9).uniform(0.01, 8, 256).astype(kind)
    for name in names:
        y = cp.empty(256, kind)
        module.get_function("k_" + name)((4,), (64,), (cp.asarray(x), y))
        if name == "erf":
            from math import erf

            want = np.array([erf(v) for v in x.astype(np.float64)])
        else:
            want = getattr(np, {"atan": "arctan", "asinh": "arcsinh"}.get(name, name))(x.astype(np.float64))
        assert np.all(np.abs(y.get() - want) <= tolerance * np.maximum(1, np.abs(want))), (name, kind)
