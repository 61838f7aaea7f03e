"""Matrix products with a weight: x · Wᵀ, accumulated in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow_product
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.alignment import aligned
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Within

# Geometry of kernels/linear.hip.
VECTOR_COLUMNS = 8
MATRIX_TILE = 64
PRODUCT_THREADS = 256
PRODUCT_ROWS = 4
MATRIX_DEPTH = 32


def rounding_bound(x: Array, weight: Array, **_: Any) -> Array:
    """How far float32 sums of the products can be from the true ones, each [..., N].

    Every rounding costs at most 2⁻²⁴ of the sum of the terms' magnitudes. The tiled kernel rounds a term most often: up
    to 32 times in its tile and then once per tile.
    """
    depth = x.shape[-1]
    roundings = MATRIX_DEPTH + -(-depth // MATRIX_DEPTH)
    magnitude = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)).T
    bound: Array = roundings * 2.0**-24 * magnitude
    return bound


@op(
    kernel="linear.hip",
    tolerance=Within(
        rounding_bound,
        because="the order of a float32 sum is the kernel's; its roundings are bounded by their number times 2^-24 of "
        "sum |x w|, and may then cross one boundary of the output dtype",
    ),
)
def linear(x: Array, weight: Array, *, float32_out: bool = False) -> Array:
    """x [..., K] times weight [N, K] transposed → [..., N], in x's dtype or, with ``float32_out``, in float32.

    The products are summed in float32 and rounded once. ``float32_out`` is for a head whose logits are declared
    float32 (llama.cpp); transformers and vLLM round them to the model's dtype.
    """
    return narrow_product(x, weight, FLOAT32 if float32_out else x.dtype)


@linear.outputs
def _(x: Array, weight: Array, float32_out: bool) -> Spec:
    return Spec((*x.shape[:-1], weight.shape[0]), FLOAT32 if float32_out else x.dtype)


def _rows(x: Array) -> int:
    return int(x.size // x.shape[-1])


def _skinny(x: Array, weight: Array, **_: Any) -> bool:
    return 0 < _rows(x) <= 8 and x.shape[-1] % 8 == 0 and aligned(x) and aligned(weight)


@linear.provider("matrix-vector", when=_skinny)
def _(out: Array, x: Array, weight: Array, float32_out: bool) -> Launch:
    rows, columns = _rows(x), weight.shape[0]
    rows_of_wave = 1 if rows == 1 else 4
    grid = (-(-rows // rows_of_wave), -(-columns // VECTOR_COLUMNS))
    return Launch(f"matrix_vector_{rows_of_wave}_{suffix(x)}", grid, _arguments(out, x, weight, float32_out))


def _units_take(x: Array, weight: Array, **_: Any) -> bool:
    return x.dtype == BFLOAT16 and _rows(x) > 0 and x.shape[-1] % 8 == 0 and aligned(x) and aligned(weight)


@linear.provider("matrix-unit", when=_units_take, matrix_unit=True)
def _(out: Array, x: Array, weight: Array, float32_out: bool) -> Launch:
    grid = (-(-_rows(x) // MATRIX_TILE), -(-weight.shape[0] // MATRIX_TILE))
    return Launch("matrix_unit_bf16", grid, _arguments(out, x, weight, float32_out))


@linear.provider("tiled")
def _(out: Array, x: Array, weight: Array, float32_out: bool) -> Launch:
    grid = (-(-_rows(x) // MATRIX_TILE), -(-weight.shape[0] // MATRIX_TILE))
    return Launch(f"matrix_matrix_{suffix(x)}", grid, _arguments(out, x, weight, float32_out))


def _arguments(out: Array, x: Array, weight: Array, float32_out: bool) -> tuple[Any, ...]:
    outputs = (None, out) if float32_out else (out, None)
    return (x, weight, *outputs, _rows(x), weight.shape[0], x.shape[-1])


@linear.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(rows: tuple[int, ...], columns: int, depth: int, **options: Any) -> Case:
        return draw.case(draw.normal(*rows, depth), draw.normal(columns, depth, scale=depth**-0.5), **options)

    for rows in (1, 2, 4, 5, 8):  # matrix-vector: ragged numbers of columns, depths of part of a wave and of several
        yield case((rows,), 13, 576)
    for columns, depth in ((1, 8), (100, 1024), (9, 248), (24, 2560)):
        yield case((1,), columns, depth)
    yield case((2, 3), 20, 64)
    for rows, columns, depth in ((9, 70, 96), (64, 64, 64), (70, 130, 72), (131, 5, 264)):  # tiles, full and ragged
        yield case((rows,), columns, depth)
    for rows, columns, depth in ((1, 19, 37), (5, 65, 33), (67, 3, 1)):  # rows that no 16-byte load may read
        yield case((rows,), columns, depth)
    yield case((0,), 8, 16)
    for rows in (1, 7, 12):
        yield case((rows,), 40, 128, float32_out=True)
    yield case((70,), 65, 1000, float32_out=True)  # a long sum, unrounded
    for rows in (3, 10):
        x, weight = draw.normal(rows, 64), draw.normal(16, 64)
        x[1, 5] = np.nan
        x[2, 7] = np.inf
        weight[3] = 0.0
        yield draw.case(x, weight)
    # Sums that cancel: the terms are thousands of times the result.
    x = draw.normal(4, 256, scale=1000.0)
    yield draw.case(np.concatenate([x, x], -1), np.tile(np.repeat([1.0, -1.0], 256), (11, 1)).astype(draw.dtype))


def _check_matmul(x: Array, y: Array) -> None:
    if x.ndim < 1 or y.ndim != 2 or x.shape[-1] != y.shape[0] or x.dtype != y.dtype:
        raise ToolkitError(
            f"matmul takes x [..., K] and y [K, N] of one dtype, not {x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
        )


@op(
    kernel="linear.hip",
    tolerance=Within(
        lambda x, y: (x.shape[-1] + 1) * 2.0**-24 * (np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64))),
        because="a float32 sum of K products, one after the other, rounds at most K + 1 times 2^-24 of sum |x y|",
    ),
)
def matmul(x: Array, y: Array) -> Array:
    """x [..., K] times y [K, N] → [..., N] in their dtype: a product with a matrix that is not transposed.

    The products are summed in float32 and rounded once. Weights are stored [N, K], for which ``linear`` is the op; this
    one is for the rest. Raises ToolkitError when shapes or dtypes do not fit.
    """
    _check_matmul(x, y)
    return narrow_product(x, np.ascontiguousarray(y.T), x.dtype)


@matmul.outputs
def _(x: Array, y: Array) -> Spec:
    _check_matmul(x, y)
    return Spec((*x.shape[:-1], y.shape[1]), x.dtype)


@matmul.provider("column-per-thread")
def _(out: Array, x: Array, y: Array) -> Launch:
    depth, columns = y.shape
    rows = out.size // columns if columns else 0
    grid = (-(-columns // PRODUCT_THREADS), -(-rows // PRODUCT_ROWS))
    return Launch(f"matrix_product_{suffix(x)}", grid, (x, y, out, rows, columns, depth))


@matmul.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, depth, columns in ((1, 1, 1), (2, 64, 256), (5, 37, 300), (9, 130, 17), (4, 1000, 65), (0, 8, 4)):
        yield draw.case(draw.normal(rows, depth), draw.normal(depth, columns, scale=depth**-0.5))
    yield draw.case(draw.normal(2, 3, 48), draw.normal(48, 20))
    x, y = draw.normal(4, 32), draw.normal(32, 8)
    x[1, 5] = np.nan
    x[2, 7] = np.inf
    yield draw.case(x, y)
