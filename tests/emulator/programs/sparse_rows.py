"""A sparse matrix in compressed rows times a vector: a wave for each row, rows of all lengths, a structure by value."""

import itertools

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
struct Rows { const int* start; const int* column; const float* value; int count; int unused; };
__device__ __noinline__ float wave_sum(float v) {
  for (int o = warpSize / 2; o > 0; o >>= 1) v += __shfl_down(v, o);
  return v;
}
extern "C" __global__ void times(Rows rows, const float* x, float* y) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
  if (row >= rows.count) return;
  float sum = 0;
  for (int k = rows.start[row] + lane; k < rows.start[row + 1]; k += warpSize) sum += rows.value[k] * x[rows.column[k]];
  sum = wave_sum(sum);
  if (lane == 0) y[row] = sum;
}
""",
    "times",
)
rng = np.random.default_rng(11)
count, columns = 37, 500
lengths = rng.integers(0, 200, count)
lengths[[0, 5]] = 0
start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
column = rng.integers(0, columns, start[-1]).astype(np.int32)
value = rng.integers(-8, 8, start[-1]).astype(np.float32)
x = rng.integers(-8, 8, columns).astype(np.float32)
held = [cp.asarray(a) for a in (start, column, value)]
kind = np.dtype([("start", "u8"), ("column", "u8"), ("value", "u8"), ("count", "i4"), ("unused", "i4")])
rows = np.array((*(a.data.ptr for a in held), count, 0), kind)
y = cp.full(count, cp.nan, cp.float32)
kernel((10,), (256,), (rows, cp.asarray(x), y))
want = [np.dot(value[a:b], x[column[a:b]]) for a, b in itertools.pairwise(start)]
assert np.array_equal(y.get(), np.array(want, np.float32))
