"""What comes before the attention of Qwen3-Next and Qwen3.5, fused: per-head norms of q and k, RoPE, and the output gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.rope import rotate, rotation_bound
from toolkit.ops.tolerance import BitExact, PerOutput, Within, spacing

LARGEST_HEAD = 512  # of kernels/preamble.hip


def _check(
    q_gate: Array, k: Array, q_weight: Array, k_weight: Array, cos: Array, sin: Array, dtype: np.dtype[Any]
) -> None:
    fits = q_gate.ndim == k.ndim == 3 and cos.ndim == 2 and q_gate.shape[0] == k.shape[0] == cos.shape[0]
    head_dim = k.shape[-1]
    if (
        not fits
        or q_gate.shape[2] != 2 * head_dim
        or q_weight.shape != (head_dim,)
        or k_weight.shape != (head_dim,)
        or cos.shape != sin.shape
        or 2 * cos.shape[1] > head_dim
    ):
        raise ToolkitError(
            "qk_norm_rope_gate takes q_gate [tokens, heads, 2 · head_dim], k [tokens, kv_heads, head_dim], two weights "
            "[head_dim] and cos and sin [tokens, pairs] of at most head_dim / 2 pairs, not "
            f"{', '.join(str(list(array.shape)) for array in (q_gate, k, q_weight, k_weight, cos, sin))}"
        )
    if dtype not in (BFLOAT16, FLOAT16, FLOAT32):
        raise ToolkitError(f"qk_norm_rope_gate gives bfloat16, float16 or float32, not {np.dtype(dtype)}")


def _head_bound(
    x: Array,
    weight: Array,
    cos: Array,
    sin: Array,
    *,
    eps: float,
    unit_offset: bool,
    narrow_before_weight: bool,
    narrow_between: bool,
    narrow_products: bool,
    **_: Any,
) -> Array:
    wide, factor = x.astype(np.float64), np.abs(weight.astype(np.float64) + float(unit_offset))
    with np.errstate(all="ignore"):
        normed = wide / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + eps)
        weighted = np.abs(normed) * factor
        error = (16.0 + x.shape[-1] / 256) * 2.0**-24 * weighted
        if x.dtype != FLOAT32:
            error = error + narrow_before_weight * spacing(normed.astype(x.dtype)) * factor
            error = error + narrow_between * spacing(weighted.astype(x.dtype))
        # What a rotation makes of errors of its operands is at most |a| |cos| + |b| |sin|: 2^24 times its own bound.
        turned = 2.0**24 * rotation_bound(error, cos, sin)
        rest = np.arange(x.shape[-1]) >= 2 * cos.shape[-1]
        bound: Array = np.where(rest, error, turned + rotation_bound(weighted, cos, sin))
        if narrow_products and x.dtype != FLOAT32:
            largest = 2.0**24 * rotation_bound(weighted, cos, sin)  # no product is larger
            bound = bound + np.where(rest, 0.0, 2.0 * spacing(largest.astype(x.dtype)))
    return bound


def _q_bound(
    q_gate: Array, k: Array, q_weight: Array, k_weight: Array, cos: Array, sin: Array, **options: Any
) -> Array:
    return _head_bound(q_gate[..., : k.shape[-1]], q_weight, cos, sin, **options)


def _k_bound(
    q_gate: Array, k: Array, q_weight: Array, k_weight: Array, cos: Array, sin: Array, **options: Any
) -> Array:
    return _head_bound(k, k_weight, cos, sin, **options)


BECAUSE = (
    "half the relative error of a float32 sum (head_dim/128 terms a thread, then some ten partial sums), a root, a quotient "
    "and two products; in a narrower dtype each rounding that is asked for may fall on the other side of one boundary; the "
    "rotation adds what its operands carry and rounds each product once"
)


@op(
    kernel="preamble.hip",
    tolerance=PerOutput(
        Within(_q_bound, because=BECAUSE), Within(_k_bound, because=BECAUSE), BitExact(because="the gate is copied")
    ),
)
def qk_norm_rope_gate(
    q_gate: Array,
    k: Array,
    q_weight: Array,
    k_weight: Array,
    cos: Array,
    sin: Array,
    *,
    eps: float,
    dtype: np.dtype[Any],
    unit_offset: bool = True,
    narrow_before_weight: bool = False,
    narrow_between: bool = True,
    narrow_products: bool = False,
) -> tuple[Array, Array, Array]:
    """Heads of q and k, normed and rotated, and the output gate.

    q_gate [tokens, heads, 2 · head_dim], in every head first q and then its gate; k [tokens, kv_heads, head_dim]; weights
    [head_dim]; cos and sin [tokens, pairs], of the source's dtype or float32 → q [tokens, heads, head_dim] and k
    [tokens, kv_heads, head_dim] in ``dtype``, gate [tokens, heads, head_dim] in the source's dtype.

    The norm is ``rms_norm`` with its options, over each head; ``narrow_between`` rounds what it gives to the source's
    dtype, as two separate ops do. Then the first 2 · pairs columns are rotated as ``rope`` does (GPT-NeoX). The result is
    rounded once, to ``dtype``, which need not be the source's: a public bug (vllm.cpp #570) was a kernel that took one
    for the other. Raises ToolkitError when shapes do not fit and for another ``dtype``.
    """
    _check(q_gate, k, q_weight, k_weight, cos, sin, dtype)
    head_dim = k.shape[-1]

    def prepared(x: Array, weight: Array) -> Array:
        wide = widen(x)
        normed = wide / np.sqrt(total(wide * wide)[..., None] / head_dim + eps)
        if narrow_before_weight:
            normed = widen(narrow(normed, x.dtype))
        normed = normed * (widen(weight) + float(unit_offset))
        if narrow_between:
            normed = widen(narrow(normed, x.dtype))
        turned = rotate(normed, cos, sin, x.dtype, interleaved=False, narrow_products=narrow_products)
        return narrow(turned, np.dtype(dtype))

    return prepared(q_gate[..., :head_dim], q_weight), prepared(k, k_weight), q_gate[..., head_dim:].copy()


@qk_norm_rope_gate.outputs
def _(
    q_gate: Array, k: Array, q_weight: Array, k_weight: Array, cos: Array, sin: Array, dtype: np.dtype[Any], **_: Any
) -> tuple[Spec, Spec, Spec]:
    _check(q_gate, k, q_weight, k_weight, cos, sin, dtype)
    heads = (*q_gate.shape[:2], k.shape[2])
    return Spec(heads, np.dtype(dtype)), Spec(k.shape, np.dtype(dtype)), Spec(heads, q_gate.dtype)


def _takes(q_gate: Array, k: Array, cos: Array, dtype: np.dtype[Any], **_: Any) -> bool:
    of_source = (q_gate.dtype, FLOAT32)
    return k.shape[-1] <= LARGEST_HEAD and cos.dtype in of_source and np.dtype(dtype) in of_source


@qk_norm_rope_gate.provider("head-per-block", when=_takes)
def _(
    out: tuple[Array, Array, Array],
    q_gate: Array,
    k: Array,
    q_weight: Array,
    k_weight: Array,
    cos: Array,
    sin: Array,
    eps: float,
    dtype: np.dtype[Any],
    unit_offset: bool,
    narrow_before_weight: bool,
    narrow_between: bool,
    narrow_products: bool,
) -> Launch:
    tokens, heads, _ = q_gate.shape
    kv_heads, head_dim = k.shape[1:]
    shape = (heads, kv_heads, head_dim, cos.shape[1])
    flags = (unit_offset, narrow_before_weight, narrow_between, narrow_products)
    arguments = (q_gate, k, q_weight, k_weight, cos, sin, *out, *shape, float(eps), *flags)
    return Launch(f"qk_norm_rope_gate_{suffix(q_gate, cos, out[0])}", (tokens, heads + kv_heads), arguments)


@qk_norm_rope_gate.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(
        tokens: int, heads: int, kv_heads: int, head_dim: int, pairs: int, angle: np.dtype[Any], **options: Any
    ) -> Case:
        angles = draw.random.uniform(0.0, 7.0, (tokens, pairs))
        cos, sin = (function(angles).astype(np.float32).astype(angle) for function in (np.cos, np.sin))
        q_gate, k = draw.normal(tokens, heads, 2 * head_dim, scale=2.0), draw.normal(tokens, kv_heads, head_dim)
        weights = draw.normal(head_dim, scale=0.1), draw.weight(head_dim)
        return draw.case(q_gate, k, *weights, cos, sin, **{"eps": 1e-6, **options})

    both = tuple(dict.fromkeys((draw.dtype, FLOAT32)))
    for angle in both:
        for dtype in both:
            # Qwen3.5-0.8B's own: 8 and 2 heads of 256, of which 64 columns are rotated.
            for shape in ((1, 8, 2, 256, 32), (3, 2, 1, 64, 32), (5, 3, 2, 40, 5), (2, 1, 1, 7, 0), (2, 2, 1, 512, 64)):
                yield case(*shape, angle, dtype=dtype)
    options = {"unit_offset": False, "narrow_before_weight": True}
    for narrow_between in (True, False):
        for narrow_products in (True, False):
            rounding = {"narrow_between": narrow_between, "narrow_products": narrow_products}
            for dtype in both:
                yield case(3, 4, 2, 128, 32, draw.dtype, dtype=dtype, **rounding, **options)
                yield case(3, 4, 2, 128, 64, FLOAT32, dtype=dtype, **rounding)
    broken = case(4, 2, 2, 32, 8, draw.dtype, dtype=draw.dtype)
    broken.args[0][1, 0, 3] = np.nan
    broken.args[0][2, 1, 40] = np.inf  # a gate
    broken.args[1][3, 1, 5] = np.inf
    broken.args[0][0] = 0.0
    yield broken
