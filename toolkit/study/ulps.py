"""Distances in units in the last place (ULP) of a storage dtype: the grid on which its numbers lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from toolkit import dtypes
from toolkit.errors import ToolkitError
from toolkit.study.distances import Array, Floats
from toolkit.study.plain import Plain


def ulp(magnitude: npt.ArrayLike, dtype: str = "bfloat16") -> Floats:
    """The spacing of ``dtype``'s numbers at ``magnitude`` (any real array), as float64 of the same shape.

    From a power of two the spacing is that above it: 0.125 for bfloat16 in [16, 32). At zero and in the denormal range
    it is the smallest denormal; at NaN and infinity it is NaN.
    """
    info = ml_dtypes.finfo(dtypes.dtype(dtype))  # type: ignore[no-untyped-call]
    x = np.abs(np.asarray(magnitude).astype(np.float64))
    exponent = np.frexp(x)[1] - 1
    exponent = np.where(x > 0, np.maximum(exponent, info.minexp), info.minexp)
    spacing = np.ldexp(np.ones_like(x), exponent - info.nmant)
    return np.where(np.isfinite(x), spacing, np.nan)


def ulp_distance(a: Array, b: Array) -> Floats:
    """How many representable numbers lie from ``a`` to ``b`` (one dtype, at most 32 bits wide), as float64.

    0 and -0 are the same number, infinity follows the largest finite one, and NaN on either side gives NaN. Raises
    ToolkitError for dtypes or shapes that differ and for wider dtypes, whose distances float64 cannot hold.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        raise ToolkitError(
            f"ULPs between {a.dtype.name}{list(a.shape)} and {b.dtype.name}{list(b.shape)} are not defined; "
            "bring both to one dtype and shape"
        )
    if a.dtype not in (dtypes.BFLOAT16, dtypes.FLOAT16, dtypes.FLOAT32):
        raise ToolkitError(f"ULPs are counted for bfloat16, float16 and float32, not for {a.dtype.name}")
    steps = np.abs(_position(a) - _position(b))
    return np.where(np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64)), np.nan, steps)


def _position(x: Array) -> Floats:
    """Place of each number on the dtype's number line, 0 for both zeros."""
    width = x.dtype.itemsize * 8
    bits = np.ascontiguousarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.int64)
    sign = 1 << (width - 1)
    return np.where(bits & sign, -(bits & (sign - 1)), bits).astype(np.float64)


@dataclass(frozen=True)
class Margin(Plain):
    """How much one token is preferred to another: negative when it is not.

    ``logits``  difference of their logits
    ``nats``    difference of their log-probabilities: the same number, since softmax subtracts one constant from both
    ``ulps``    the difference in ULPs of ``dtype`` at the larger of the two logits
    """

    logits: float
    nats: float
    ulps: float
    dtype: str


def margin(first: float, second: float, dtype: str = "bfloat16") -> Margin:
    """The margin of the token with logit ``first`` over the one with logit ``second``; NaN for non-finite logits."""
    difference = float(first) - float(second)
    if not math.isfinite(difference):
        return Margin(math.nan, math.nan, math.nan, dtype)
    spacing = float(ulp(max(abs(first), abs(second)), dtype))
    return Margin(difference, difference, difference / spacing, dtype)


def margin_resolution(first: npt.ArrayLike, second: npt.ArrayLike, dtype: str = "bfloat16") -> Floats:
    """Root mean square error of a margin whose two logits are stored in ``dtype``.

    Rounding to a grid of spacing u leaves an error that is uniform in ±u/2, with variance u²/12; two logits have two.
    No engine that stores its logits in ``dtype`` knows a margin better, however well its variations agree.
    """
    return np.sqrt((ulp(first, dtype) ** 2 + ulp(second, dtype) ** 2) / 12)
