"""Rotary position embedding (Su et al., 2021) in the form of GPT-NeoX: the two halves of a head are the coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Ulps, Within


@op(
    kernel="rope.hip",
    tolerance=Ulps(
        1,
        because="sin and cos in float64 are good to its last places, which decides a rounding to float32 about once in "
        "2^28, and then perhaps the rounding to a narrower dtype",
    ),
)
def rope_table(
    positions: Array, inverse_frequencies: Array, *, dtype: np.dtype[Any], attention_factor: float = 1.0
) -> tuple[Array, Array]:
    """cos and sin of every token's angles.

    positions int32 [tokens], inverse_frequencies float64 [pairs] in radians per position → two arrays [tokens, pairs]
    of ``dtype``. The angle is position · inverse frequency in float64; so are cos and sin and their product with
    ``attention_factor`` (YaRN), which is rounded to float32 and then to ``dtype``.
    """
    angles = positions[:, None].astype(np.float64) * inverse_frequencies
    return narrow(np.cos(angles) * attention_factor, dtype), narrow(np.sin(angles) * attention_factor, dtype)


@rope_table.outputs
def _(positions: Array, inverse_frequencies: Array, dtype: np.dtype[Any], **_: Any) -> tuple[Spec, Spec]:
    table = Spec((positions.shape[0], inverse_frequencies.shape[0]), np.dtype(dtype))
    return table, table


@rope_table.provider("token-per-block")
def _(
    out: tuple[Array, Array],
    positions: Array,
    inverse_frequencies: Array,
    dtype: np.dtype[Any],
    attention_factor: float,
) -> Launch:
    cosines, sines = out
    tokens, pairs = cosines.shape
    arguments = (positions, inverse_frequencies, cosines, sines, pairs, np.float64(attention_factor))
    return Launch(f"rope_table_{suffix(cosines)}", (tokens,), arguments)


@rope_table.cases
def _(draw: Draw) -> Iterator[Case]:
    for pairs, theta in ((1, 1e4), (20, 1e4), (32, 1e5), (64, 1e6), (80, 1e4), (128, 1e4)):
        frequencies = theta ** (-np.arange(pairs) / pairs)
        yield draw.case(np.arange(7, dtype=np.int32), frequencies, dtype=draw.dtype)
        yield draw.case(draw.integers(0, 131_072, 40), frequencies, dtype=draw.dtype)
    frequencies = 1e6 ** (-np.arange(64) / 64)
    yield draw.case(draw.integers(0, 100_000, 9), frequencies / 8.0, dtype=draw.dtype, attention_factor=1.2079)
    yield draw.case(np.zeros(0, np.int32), frequencies, dtype=draw.dtype)


def _rotation_bound(x: Array, cos: Array, sin: Array, **_: Any) -> Array:
    """Two products are rounded to float32 and then their sum: half a float32 ULP of each product."""
    first, second = np.split(np.abs(x.astype(np.float64)), 2, axis=-1)
    cosine, sine = (np.abs(table.astype(np.float64))[:, None] for table in (cos, sin))
    bound: Array = 2.0**-24 * np.concatenate([first * cosine + second * sine, second * cosine + first * sine], -1)
    return bound


@op(
    kernel="rope.hip",
    tolerance=Within(
        _rotation_bound,
        because="the kernel rounds each product to float32 before they are added; where cos and sin are 16-bit the "
        "products are exact",
    ),
)
def rope(x: Array, cos: Array, sin: Array, *, narrow_products: bool = False) -> Array:
    """x [tokens, heads, head_dim], cos and sin [tokens, head_dim / 2] → x's shape and dtype, every head rotated.

    With (a, b) the halves of a head: (a·cos - b·sin, b·cos + a·sin), rounded once; with ``narrow_products`` each product
    is first rounded to x's dtype, as transformers' eager code does. cos and sin are of x's dtype or float32.
    """
    first, second = np.split(widen(x), 2, axis=-1)
    cosine, sine = widen(cos)[:, None], widen(sin)[:, None]
    products = first * cosine, second * sine, second * cosine, first * sine
    if narrow_products:
        ac, bs, bc, as_ = (widen(narrow(value, x.dtype)) for value in products)
    else:
        ac, bs, bc, as_ = products
    return narrow(np.concatenate([ac - bs, bc + as_], axis=-1), x.dtype)


@rope.outputs
def _(x: Array, **_: Any) -> Spec:
    return Spec(x.shape, x.dtype)


@rope.provider("head-per-block", when=lambda x, cos, **_: cos.dtype in (x.dtype, FLOAT32))
def _(out: Array, x: Array, cos: Array, sin: Array, narrow_products: bool) -> Launch:
    tokens, heads, head_dim = x.shape
    return Launch(f"rope_{suffix(x, cos)}", (tokens, heads), (x, cos, sin, out, head_dim // 2, narrow_products))


@rope.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(tokens: int, heads: int, head_dim: int, dtype: np.dtype[Any], **options: Any) -> Case:
        angles = draw.random.uniform(0.0, 7.0, (tokens, head_dim // 2))
        cos, sin = (function(angles).astype(np.float32).astype(dtype) for function in (np.cos, np.sin))
        return draw.case(draw.normal(tokens, heads, head_dim), cos, sin, **options)

    for dtype in dict.fromkeys((draw.dtype, FLOAT32)):
        for tokens, heads, head_dim in ((1, 16, 128), (5, 9, 64), (3, 4, 256), (2, 3, 160), (4, 3, 40), (2, 2, 6)):
            for narrow_products in (False, True):
                yield case(tokens, heads, head_dim, dtype, narrow_products=narrow_products)
    # Products that cancel.
    x = np.ones((2, 2, 64), draw.dtype)
    same = np.full((2, 32), np.sqrt(0.5)).astype(draw.dtype)
    yield draw.case(x, same, same)
    x = draw.normal(3, 2, 32)
    x[1, 0, 3] = np.nan
    x[2, 1, 20] = np.inf
    yield draw.case(x, same[:1].repeat(3, 0)[:, :16], same[:1].repeat(3, 0)[:, :16].copy())
