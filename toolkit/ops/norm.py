"""RMS normalisation (Zhang & Sennrich, 2019): x / sqrt(mean(x²) + eps) · weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Ulps

TOLERANCE = Ulps(
    2,
    float32=4,
    because="the order of the float32 sum moves the mean, and then 1/sqrt, the product with x and the product with the "
    "weight each round once more: in float32 a half ULP each, in a narrower dtype one rounding boundary each",
)


@op(kernel="norm.hip", tolerance=TOLERANCE)
def rms_norm(
    x: Array, weight: Array, *, eps: float, unit_offset: bool = False, narrow_before_weight: bool = True
) -> Array:
    """x [..., columns], weight [columns] → x's shape and dtype; the mean is over the last axis.

    Per-head normalisation is the same op on [tokens, heads, head_dim]. Llama and Qwen3 round to the storage dtype
    before the weight is applied (``narrow_before_weight``); Gemma-3 multiplies by 1 + weight (``unit_offset``) in
    float32 and rounds once, after it.
    """
    wide = widen(x)
    mean = total(wide * wide)[..., None] / x.shape[-1]
    normed = wide / np.sqrt(mean + eps)
    if narrow_before_weight:
        normed = widen(narrow(normed, x.dtype))
    return narrow(normed * (widen(weight) + float(unit_offset)), x.dtype)


@rms_norm.outputs
def _(x: Array, **_: Any) -> Spec:
    return Spec(x.shape, x.dtype)


@rms_norm.provider("row-per-block")
def _(out: Array, x: Array, weight: Array, eps: float, unit_offset: bool, narrow_before_weight: bool) -> Launch:
    columns = x.shape[-1]
    rows = x.size // columns
    entry = f"rms_norm_{suffix(x)}"
    return Launch(entry, (rows,), (x, weight, out, columns, float(eps), unit_offset, narrow_before_weight))


@rms_norm.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, columns in ((1, 128), (5, 64), (3, 17), (2, 1024), (7, 1152)):
        yield draw.case(draw.normal(rows, columns), draw.weight(columns), eps=1e-6)
    yield draw.case(
        draw.normal(4, 640), draw.normal(640, scale=0.1), eps=1e-6, unit_offset=True, narrow_before_weight=False
    )
    yield draw.case(draw.normal(2, 3, 128), draw.weight(128), eps=1e-5)  # per head
    yield draw.case(draw.normal(3, 96, scale=1e-4), draw.weight(96), eps=1e-6)  # eps decides
    yield draw.case(np.zeros((2, 64), draw.dtype), draw.weight(64), eps=1e-6)
    broken = draw.normal(3, 64)
    broken[1, 5] = np.nan
    broken[2, 7] = np.inf
    yield draw.case(broken, draw.weight(64), eps=1e-6)


@op(kernel="norm.hip", tolerance=TOLERANCE)
def add_rms_norm(
    x: Array,
    residual: Array,
    weight: Array,
    *,
    eps: float,
    unit_offset: bool = False,
    narrow_before_weight: bool = True,
) -> tuple[Array, Array]:
    """The residual stream x + residual, rounded to its dtype as the model rounds it, and its RMS norm.

    x and residual [..., columns], weight [columns] → (stream, normed), both of x's shape and dtype.
    """
    stream = narrow(widen(x) + widen(residual), x.dtype)
    normed = rms_norm.reference(
        stream, weight, eps=eps, unit_offset=unit_offset, narrow_before_weight=narrow_before_weight
    )
    return stream, normed


@add_rms_norm.outputs
def _(x: Array, **_: Any) -> tuple[Spec, Spec]:
    return Spec(x.shape, x.dtype), Spec(x.shape, x.dtype)


@add_rms_norm.provider("row-per-block")
def _(
    out: tuple[Array, Array],
    x: Array,
    residual: Array,
    weight: Array,
    eps: float,
    unit_offset: bool,
    narrow_before_weight: bool,
) -> Launch:
    stream, normed = out
    columns = x.shape[-1]
    entry = f"add_rms_norm_{suffix(x)}"
    arguments = (x, residual, weight, stream, normed, columns, float(eps), unit_offset, narrow_before_weight)
    return Launch(entry, (x.size // columns,), arguments)


@add_rms_norm.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, columns in ((1, 128), (3, 17), (5, 1024)):
        yield draw.case(draw.normal(rows, columns), draw.normal(rows, columns), draw.weight(columns), eps=1e-6)
    yield draw.case(
        draw.normal(4, 640),
        draw.normal(4, 640, scale=30.0),
        draw.normal(640, scale=0.1),
        eps=1e-6,
        unit_offset=True,
        narrow_before_weight=False,
    )
