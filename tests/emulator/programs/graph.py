"""A captured graph replays with the parameters it was recorded with; what a capture forbids fails."""

import cupy as cp
import numpy as np

step = cp.RawKernel(
    'extern "C" __global__ void step(double* x, double a) { x[threadIdx.x] = x[threadIdx.x] * a + 1; }', "step"
)
x = cp.zeros(32)
step((1,), (32,), (x, np.float64(0)))
x.fill(0)
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    stream.begin_capture()
    a = np.float64(2)
    step((1,), (32,), (x, a))
    a = np.float64(3)
    step((1,), (32,), (x, a))
    assert stream.is_capturing()
    graph = stream.end_capture()
assert not stream.is_capturing()
assert np.all(x.get() == 0)
value = 0.0
for _ in range(3):
    graph.launch(stream)
    value = (value * 2 + 1) * 3 + 1
stream.synchronize()
assert np.all(x.get() == value)

with stream:
    stream.begin_capture()
    step((1,), (32,), (x, a))
    try:
        x.get()
        raise SystemExit("a copy that waits was accepted in a capture")
    except (cp.cuda.runtime.CUDARuntimeError, RuntimeError):
        pass
    try:
        stream.end_capture()
        raise SystemExit("an invalidated capture gave a graph")
    except cp.cuda.runtime.CUDARuntimeError as error:
        if "StreamCapture" not in str(error):
            raise
assert np.all(x.get() == value)
