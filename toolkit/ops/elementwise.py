"""Elementwise ops: the residual addition, scales, the logits' softcap, and casts between storage dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices import arithmetic
from toolkit.devices.arithmetic import Array, narrow, to_float32, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32, mantissa_bits
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact, Ulps

ONE_ROUNDING = BitExact(because="one exactly rounded float32 operation, then one rounding to the storage dtype")


def _shapes(draw: Draw) -> Iterator[Array]:
    for shape in ((1,), (3, 17), (2, 1024), (5, 1025), (2, 3, 64)):
        yield draw.normal(*shape)
    yield draw.special()


def _check_add(x: Array, y: Array) -> None:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ToolkitError(
            f"add takes two arrays of one shape and dtype, not {x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
        )


@op(kernel="elementwise.hip", tolerance=ONE_ROUNDING)
def add(x: Array, y: Array) -> Array:
    """x and y of one shape and dtype → x + y in that dtype. Raises ToolkitError when they differ."""
    _check_add(x, y)
    return narrow(widen(x) + widen(y), x.dtype)


@add.outputs
def _(x: Array, y: Array) -> Spec:
    _check_add(x, y)
    return Spec(x.shape, x.dtype)


@add.provider("tiles")
def _(out: Array, x: Array, y: Array) -> Launch:
    return Launch(f"add_{suffix(x)}", (tiles(x.size),), (x, y, out, np.int64(x.size)))


@add.cases
def _(draw: Draw) -> Iterator[Case]:
    for x in _shapes(draw):
        yield draw.case(x, draw.normal(*x.shape, scale=30.0))
    special = draw.special()
    x, y = (np.ascontiguousarray(side) for side in np.meshgrid(special, special))
    yield draw.case(x, y)
    # Halfway between two numbers of a 16-bit dtype, above an even and an odd one: ties go to even.
    step = 2.0 ** -mantissa_bits(draw.dtype)
    yield draw.case(
        np.array([1.0, 1.0 + step, -1.0], draw.dtype), np.array([step / 2, step / 2, -step / 2], draw.dtype)
    )


def _check_bias(x: Array, bias: Array) -> None:
    if x.ndim < 1 or bias.shape != x.shape[-1:] or bias.dtype != x.dtype:
        raise ToolkitError(
            f"add_bias takes x [..., columns] and a bias [columns] of its dtype, not {x.dtype}{list(x.shape)} and "
            f"{bias.dtype}{list(bias.shape)}"
        )


@op(kernel="elementwise.hip", tolerance=ONE_ROUNDING)
def add_bias(x: Array, bias: Array) -> Array:
    """x [..., columns] and bias [columns] of one dtype → x + bias in that dtype, the bias added to every row.

    Raises ToolkitError when they do not fit.
    """
    _check_bias(x, bias)
    return narrow(widen(x) + widen(bias), x.dtype)


@add_bias.outputs
def _(x: Array, bias: Array) -> Spec:
    _check_bias(x, bias)
    return Spec(x.shape, x.dtype)


@add_bias.provider("tiles")
def _(out: Array, x: Array, bias: Array) -> Launch:
    columns = x.shape[-1]
    rows = x.size // columns if columns else 0
    return Launch(f"add_bias_{suffix(x)}", (rows, tiles(columns)), (x, bias, out, columns))


@add_bias.cases
def _(draw: Draw) -> Iterator[Case]:
    for shape in ((1, 1), (3, 17), (2, 1024), (5, 1025), (2, 3, 64), (0, 8)):
        yield draw.case(draw.normal(*shape), draw.normal(shape[-1], scale=30.0))
    special = draw.special()
    yield draw.case(np.tile(special[:, None], (1, len(special))), special)


@op(kernel="elementwise.hip", tolerance=ONE_ROUNDING)
def scale(x: Array, *, factor: float) -> Array:
    """x of any shape → x · factor in x's dtype; the factor is float32."""
    return narrow(widen(x) * to_float32(np.asarray(factor, np.float64)), x.dtype)


@scale.outputs
def _(x: Array, **_: Any) -> Spec:
    return Spec(x.shape, x.dtype)


@scale.provider("tiles")
def _(out: Array, x: Array, factor: float) -> Launch:
    return Launch(f"scale_{suffix(x)}", (tiles(x.size),), (x, out, np.int64(x.size), float(factor)))


@scale.cases
def _(draw: Draw) -> Iterator[Case]:
    for x in _shapes(draw):
        yield draw.case(x, factor=0.1)
    yield draw.case(draw.normal(3, 17), factor=-0.0)
    yield draw.case(draw.normal(3, 17), factor=1e30)


@op(
    kernel="elementwise.hip",
    tolerance=Ulps(
        1,
        float32=5,
        because="x/cap is rounded to half an ULP and tanh is within 1.5: together 2^-22 of the result, which is four ULP "
        "where its significand is close to two; the product with the cap rounds once more; in a narrower dtype that "
        "crosses one rounding boundary at most",
    ),
)
def softcap(x: Array, *, cap: float) -> Array:
    """x of any shape → cap · tanh(x / cap) in x's dtype, rounded once; the cap is float32."""
    limit = to_float32(np.asarray(cap, np.float64))
    return narrow(limit * np.tanh(widen(x) / limit), x.dtype)


@softcap.outputs
def _(x: Array, **_: Any) -> Spec:
    return Spec(x.shape, x.dtype)


@softcap.provider("tiles")
def _(out: Array, x: Array, cap: float) -> Launch:
    return Launch(f"softcap_{suffix(x)}", (tiles(x.size),), (x, out, np.int64(x.size), float(cap)))


@softcap.cases
def _(draw: Draw) -> Iterator[Case]:
    for x in _shapes(draw):
        yield draw.case(x, cap=30.0)
    yield draw.case(draw.normal(4, 300, scale=20.0), cap=30.0)
    yield draw.case(draw.normal(4, 300, scale=200.0), cap=50.0)  # mostly at the cap


CAST_DTYPES = (BFLOAT16, FLOAT16, FLOAT32)


def _check_cast(dtype: np.dtype[Any]) -> None:
    if dtype not in CAST_DTYPES:
        raise ToolkitError(f"cast to {np.dtype(dtype)}: known are {', '.join(known.name for known in CAST_DTYPES)}")


@op(
    kernel="elementwise.hip",
    tolerance=BitExact(because="rounding to the nearest, ties to even, has one result; denormals and NaN are kept"),
)
def cast(x: Array, *, dtype: np.dtype[Any]) -> Array:
    """x of any shape → the same numbers in ``dtype`` (bfloat16, float16 or float32), rounded to nearest, ties to even.

    Denormal numbers are kept and NaN stays NaN. Raises ToolkitError for another dtype.
    """
    _check_cast(dtype)
    return x if arithmetic.current().exact else x.astype(dtype)


@cast.outputs
def _(x: Array, dtype: np.dtype[Any]) -> Spec:
    _check_cast(dtype)
    return Spec(x.shape, dtype)


@cast.provider("tiles")
def _(out: Array, x: Array, dtype: np.dtype[Any]) -> Launch:
    return Launch(f"cast_{suffix(x, out)}", (tiles(x.size),), (x, out, np.int64(x.size)))


@cast.cases
def _(draw: Draw) -> Iterator[Case]:
    # Every number of a 16-bit dtype; as many of float32, of every exponent, halfway cases of both 16-bit dtypes too.
    patterns = np.arange(2**16, dtype=np.uint32)
    if draw.dtype == FLOAT32:
        ties = [(patterns << 16 | low).view(np.float32) for low in (0x7FFF, 0x8000, 0x8001, 0x0FFF, 0x1000, 0x3000)]
        everything = np.concatenate(ties)
    else:
        everything = patterns.astype(np.uint16).view(draw.dtype)
    for dtype in CAST_DTYPES:
        for x in _shapes(draw):
            yield draw.case(x, dtype=dtype)
        yield draw.case(everything, dtype=dtype)
        yield draw.case(draw.normal(4096, scale=1e-7), dtype=dtype)  # float16 denormals
