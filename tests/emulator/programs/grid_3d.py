"""A stencil in three dimensions, with a grid and blocks in three dimensions."""

import cupy as cp
import numpy as np

kernel = cp.RawKernel(
    r"""
extern "C" __global__ void laplace(const float* u, float* v, int nx, int ny, int nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= nx || y >= ny || z >= nz) return;
  auto at = [&](int i, int j, int k) {
    bool inside = i >= 0 && j >= 0 && k >= 0 && i < nx && j < ny && k < nz;
    return inside ? u[(k * ny + j) * nx + i] : 0.f;
  };
  v[(z * ny + y) * nx + x] = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) +
                               at(x, y, z - 1) + at(x, y, z + 1) - 6 * at(x, y, z);
}
""",
    "laplace",
)
nz, ny, nx = 7, 9, 21
u = np.random.default_rng(4).integers(-5, 5, (nz, ny, nx)).astype(np.float32)
v = cp.empty((nz, ny, nx), cp.float32)
kernel((3, 3, 2), (8, 4, 4), (cp.asarray(u), v, np.int32(nx), np.int32(ny), np.int32(nz)))
p = np.pad(u, 1)
want = (
    p[:-2, 1:-1, 1:-1]
    + p[2:, 1:-1, 1:-1]
    + p[1:-1, :-2, 1:-1]
    + p[1:-1, 2:, 1:-1]
    + p[1:-1, 1:-1, :-2]
    + p[1:-1, 1:-1, 2:]
    - 6 * u
)
assert np.array_equal(v.get(), want)
