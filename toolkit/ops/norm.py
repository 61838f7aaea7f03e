"""RMS normalisation (Zhang & Sennrich, 2019): x / sqrt(mean(x²) + eps) · weight; its gated form; layer normalisation (Ba,
Kiros & Hinton, 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.activation import silu
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Ulps, Within, spacing

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


# ---------------------------------------------------------------------------------------------------------- gated RMS norm


def _check_gated(x: Array, gate: Array, weight: Array) -> None:
    if x.shape != gate.shape or weight.shape != x.shape[-1:]:
        raise ToolkitError(
            f"rms_norm_gated takes x and gate [..., columns] and a weight [columns], not {list(x.shape)}, "
            f"{list(gate.shape)} and {list(weight.shape)}"
        )


def _gated_bound(x: Array, gate: Array, weight: Array, *, eps: float, narrow_between: bool) -> Array:
    wide, factor = x.astype(np.float64), weight.astype(np.float64)
    with np.errstate(all="ignore"):
        normed = wide / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + eps)
        active = silu(gate.astype(np.float64))
        relative = (20.0 + x.shape[-1] / 512) * 2.0**-24
        bound: Array = (relative * np.abs(normed * factor)) * np.abs(active) + 2.0**-121 * np.abs(normed * factor)
        if narrow_between and x.dtype != FLOAT32:
            first = spacing(normed.astype(x.dtype)) * np.abs(factor)
            bound = bound + (first + spacing((normed * factor).astype(x.dtype))) * np.abs(active)
    return bound


@op(
    kernel="norm.hip",
    tolerance=Within(
        _gated_bound,
        because="half the relative error of a float32 sum (columns/256 terms a thread, then some twelve partial sums), the "
        "root, the quotient, three products, and a silu within 3 ULP; in a narrower dtype the normed row and its product "
        "with the weight may each fall on the other side of one rounding boundary; below a gate of -88.7 silu is zero, at "
        "most 2^-121 away",
    ),
)
def rms_norm_gated(x: Array, gate: Array, weight: Array, *, eps: float, narrow_between: bool = True) -> Array:
    """x [..., columns], gate of its shape (x's dtype or float32), weight [columns] → x's shape and dtype.

    x / sqrt(mean(x²) + eps) · weight · silu(gate): the norm comes before the gate, as in Qwen3-Next and Qwen3.5. With
    ``narrow_between`` the normed row, and then its product with the weight, are rounded to x's dtype, as transformers
    does; without, everything is float32 up to the one rounding at the end, as in the FLA and vLLM kernels. Raises
    ToolkitError when shapes do not fit.
    """
    _check_gated(x, gate, weight)
    wide = widen(x)
    normed = wide / np.sqrt(total(wide * wide)[..., None] / x.shape[-1] + eps)
    weighted = widen(narrow(normed, x.dtype)) * widen(weight) if narrow_between else normed * widen(weight)
    if narrow_between:
        weighted = widen(narrow(weighted, x.dtype))
    return narrow(weighted * silu(widen(gate)), x.dtype)


@rms_norm_gated.outputs
def _(x: Array, gate: Array, weight: Array, **_: Any) -> Spec:
    _check_gated(x, gate, weight)
    return Spec(x.shape, x.dtype)


@rms_norm_gated.provider(
    "row-per-block", when=lambda x, gate, weight, **_: gate.dtype in (x.dtype, FLOAT32) and weight.dtype == x.dtype
)
def _(out: Array, x: Array, gate: Array, weight: Array, eps: float, narrow_between: bool) -> Launch:
    columns = x.shape[-1]
    entry = f"rms_norm_gated_{suffix(x, gate)}"
    return Launch(entry, (x.size // columns,), (x, gate, weight, out, columns, float(eps), narrow_between))


@rms_norm_gated.cases
def _(draw: Draw) -> Iterator[Case]:
    for dtype in dict.fromkeys((draw.dtype, FLOAT32)):
        for narrow_between in (True, False):
            for shape in ((1, 128), (5, 64), (3, 17), (2, 1024), (2, 3, 300)):
                yield draw.case(
                    draw.normal(*shape),
                    draw.normal(*shape, scale=3.0, dtype=dtype),
                    draw.weight(shape[-1]),
                    eps=1e-6,
                    narrow_between=narrow_between,
                )
    yield draw.case(draw.normal(3, 96, scale=1e-4), draw.normal(3, 96), draw.weight(96), eps=1e-6)  # eps decides
    yield draw.case(draw.normal(3, 96), draw.normal(3, 96, scale=60.0), draw.weight(96), eps=1e-6)  # shut and open
    yield draw.case(np.zeros((2, 64), draw.dtype), draw.normal(2, 64), draw.weight(64), eps=1e-6)
    broken, gate = draw.normal(4, 64), draw.normal(4, 64)
    broken[1, 5] = np.nan
    broken[2, 7] = np.inf
    gate[3, 9] = np.nan
    yield draw.case(broken, gate, draw.weight(64), eps=1e-6)


# --------------------------------------------------------------------------------------------------------------- layer norm


def _check_layer_norm(x: Array, weight: Array, bias: Array) -> None:
    if not x.ndim or not x.shape[-1] or weight.shape != x.shape[-1:] or bias.shape != x.shape[-1:]:
        raise ToolkitError(
            f"layer_norm takes x [..., columns], a weight [columns] and a bias [columns], not {list(x.shape)}, "
            f"{list(weight.shape)} and {list(bias.shape)}"
        )


def _layer_norm_bound(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    wide, factor = x.astype(np.float64), np.abs(weight.astype(np.float64))
    with np.errstate(all="ignore"):
        mean = wide.mean(axis=-1, keepdims=True)
        variance = np.mean((wide - mean) ** 2, axis=-1, keepdims=True) + eps
        scale = 1.0 / np.sqrt(variance)
        sum_roundings = 16.0 + x.shape[-1] / 256
        mean_error = sum_roundings * 2.0**-24 * np.abs(wide).mean(axis=-1, keepdims=True)
        difference = np.abs(wide - mean)
        normed = difference * scale
        relative = (sum_roundings / 2 + 6.0) * 2.0**-24 + 0.5 * mean_error**2 / variance
        bound: Array = factor * (normed * relative + mean_error * scale)
    return bound


@op(
    kernel="norm.hip",
    tolerance=Within(
        _layer_norm_bound,
        because="the mean is a float32 sum of columns/256 terms a thread and then some twelve partial sums, each addition "
        "rounded, and moves every difference from it; the variance carries half of such a sum's relative error; "
        "difference, root, quotient and product round once each",
    ),
)
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    """x [..., columns], weight and bias [columns] → (x - mean) / sqrt(variance + eps) · weight + bias, as x.

    Mean and (biased) variance of the last axis in float32; rounded once, at the end. Raises ToolkitError when shapes do
    not fit.
    """
    _check_layer_norm(x, weight, bias)
    wide = widen(x)
    difference = wide - total(wide)[..., None] / x.shape[-1]
    normed = difference / np.sqrt(total(difference * difference)[..., None] / x.shape[-1] + eps)
    return narrow(normed * widen(weight) + widen(bias), x.dtype)


@layer_norm.outputs
def _(x: Array, weight: Array, bias: Array, **_: Any) -> Spec:
    _check_layer_norm(x, weight, bias)
    return Spec(x.shape, x.dtype)


@layer_norm.provider("row-per-block")
def _(out: Array, x: Array, weight: Array, bias: Array, eps: float) -> Launch:
    columns = x.shape[-1]
    return Launch(f"layer_norm_{suffix(x)}", (x.size // columns,), (x, weight, bias, out, columns, float(eps)))


@layer_norm.cases
def _(draw: Draw) -> Iterator[Case]:
    for shape in ((1, 128), (5, 64), (3, 17), (2, 1024), (2, 3, 1152), (2, 1)):
        columns = shape[-1]
        yield draw.case(draw.normal(*shape), draw.weight(columns), draw.normal(columns), eps=1e-5)
    # A mean that dwarfs the differences, and differences that eps dwarfs.
    yield draw.case(
        (draw.normal(3, 768, dtype=FLOAT32) + 100).astype(draw.dtype), draw.weight(768), draw.normal(768), eps=1e-5
    )
    yield draw.case(draw.normal(3, 96, scale=1e-4), draw.weight(96), draw.normal(96), eps=1e-5)
    yield draw.case(np.full((2, 64), 3.0, draw.dtype), draw.weight(64), draw.normal(64), eps=1e-5)
    broken = draw.normal(3, 64)
    broken[1, 5] = np.nan
    broken[2, 7] = np.inf
    yield draw.case(broken, draw.weight(64), draw.normal(64), eps=1e-5)
