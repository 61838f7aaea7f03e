"""float32 sums in a stated order, by a kernel built for this machine: fast enough for whole sequences.

``arithmetic.ordered_product`` is the definition. kernels/ordered.hip gives the same bits: every output keeps its order,
only different outputs are computed side by side. Without a C++ compiler the definition itself is evaluated.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from toolkit import progress
from toolkit.devices import kernels
from toolkit.devices.host import HostModule, build, compiler
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.errors import ToolkitError

FILE = "ordered.hip"
TILE = 64  # outputs of a block in each direction
PAIRWISE_ROWS = 32

_STORAGE = {BFLOAT16: "bf16", FLOAT16: "f16", FLOAT32: "f32"}

Array = np.ndarray[Any, np.dtype[Any]]

# How many sums of products were computed by which means, for provenance.
runs: Counter[str] = Counter()


@cache
def available() -> bool:
    """Whether there is a compiler to build the kernel with; said once when there is none."""
    try:
        compiler()
    except ToolkitError as error:
        progress.note(f"float32 sums in a stated order are computed by NumPy, with the same bits but slowly: {error}")
        return False
    return True


def product(x: Array, weight: Array, order: str) -> Array:
    """x [stack, M, K] times weight [stack, N, K] transposed, float32 [stack, M, N], summed in ``order``.

    x is float32; weight is of any storage dtype. Raises ToolkitError when the kernel cannot be built.
    """
    stack, rows, depth = x.shape
    columns = weight.shape[1]
    out = np.empty((stack, rows, columns), FLOAT32)
    if not out.size:
        return out
    x, weight = np.ascontiguousarray(x), np.ascontiguousarray(weight)
    sizes = [ctypes.c_int(size) for size in (rows, columns, depth)]
    if order == "pairwise":
        entry, rows_of_block = "product_by_pairs", PAIRWISE_ROWS
    else:
        entry, rows_of_block = "product_in_runs", TILE
        run = int(order.removeprefix("blocked-")) if order.startswith("blocked-") else 2**30
        sizes += [ctypes.c_int(run), ctypes.c_int(order == "reversed")]
    arguments = [*(ctypes.c_void_p(array.ctypes.data) for array in (x, weight, out)), *sizes]
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    grid = (ctypes.c_uint * 3)(-(-rows // rows_of_block), -(-columns // TILE), stack)
    _module().entry(f"{entry}_{_STORAGE[weight.dtype]}")(grid, pointers)
    return out


@cache
def _module() -> HostModule:
    return HostModule(build(kernels.source(FILE), FILE))
