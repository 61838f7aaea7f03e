"""Two streams, events between them, and copies that do not wait."""

import cupy as cp
import numpy as np

add = cp.RawKernel(
    'extern "C" __global__ void add(float* x, float a) { x[blockIdx.x * blockDim.x + threadIdx.x] += a; }', "add"
)
first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
x = cp.zeros(512, cp.float32)
cp.cuda.Device().synchronize()
done = cp.cuda.Event()
start, stop = cp.cuda.Event(), cp.cuda.Event()
with first:
    start.record()
    add((4,), (128,), (x, np.float32(1)))
    done.record()
second.wait_event(done)
with second:
    add((4,), (128,), (x, np.float32(2)))
    stop.record()
    host = cp.asnumpy(x, stream=second)
second.synchronize()
assert np.all(host == 3)
assert cp.cuda.get_elapsed_time(start, stop) >= 0
