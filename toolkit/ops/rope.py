"""Rotary position embedding (Su et al., 2021): in the form of GPT-NeoX, where the two halves of a head are the coordinates,
and in that of GPT-J, where neighbours are; of a whole head or its first part; with several positions per token (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32, INT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Ulps, Within

TABLE = Ulps(
    1,
    because="sin and cos in float64 are good to its last places, which decides a rounding to float32 about once in "
    "2^28, and then perhaps the rounding to a narrower dtype",
)


@op(kernel="rope.hip", tolerance=TABLE)
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


def _check_mrope(positions: Array, inverse_frequencies: Array, axis: Array) -> None:
    if positions.ndim != 2 or not positions.shape[0] or axis.shape != inverse_frequencies.shape or axis.dtype != INT32:
        raise ToolkitError(
            f"mrope_table takes positions [axes, tokens], inverse frequencies [pairs] and axis int32 [pairs], not "
            f"{list(positions.shape)}, {list(inverse_frequencies.shape)} and {axis.dtype}{list(axis.shape)}"
        )


@op(kernel="rope.hip", tolerance=TABLE)
def mrope_table(
    positions: Array, inverse_frequencies: Array, axis: Array, *, dtype: np.dtype[Any], attention_factor: float = 1.0
) -> tuple[Array, Array]:
    """cos and sin of every token's angles where a token has a position on each of several axes (M-RoPE of Qwen2-VL).

    positions int32 [axes, tokens] (time, height, width), inverse_frequencies float64 [pairs], axis int32 [pairs] → two
    arrays [tokens, pairs] of ``dtype``: pair i turns by positions[axis[i]] · inverse_frequencies[i]. Contiguous sections
    and the interleaved order of Qwen3.5 are both a matter of ``axis``. Otherwise as ``rope_table``. A pair whose axis is
    none of them is NaN. Raises ToolkitError when shapes do not fit.
    """
    _check_mrope(positions, inverse_frequencies, axis)
    known = (axis >= 0) & (axis < positions.shape[0])
    angles = positions[np.where(known, axis, 0)].T.astype(np.float64) * inverse_frequencies
    cos, sin = (np.where(known, function(angles) * attention_factor, np.nan) for function in (np.cos, np.sin))
    return narrow(cos, dtype), narrow(sin, dtype)


@mrope_table.outputs
def _(positions: Array, inverse_frequencies: Array, axis: Array, dtype: np.dtype[Any], **_: Any) -> tuple[Spec, Spec]:
    _check_mrope(positions, inverse_frequencies, axis)
    table = Spec((positions.shape[1], inverse_frequencies.shape[0]), np.dtype(dtype))
    return table, table


@mrope_table.provider("token-per-block")
def _(
    out: tuple[Array, Array],
    positions: Array,
    inverse_frequencies: Array,
    axis: Array,
    dtype: np.dtype[Any],
    attention_factor: float,
) -> Launch:
    cosines, sines = out
    tokens, pairs = cosines.shape
    shape = (positions.shape[0], tokens, pairs, np.float64(attention_factor))
    arguments = (positions, inverse_frequencies, axis, cosines, sines, *shape)
    return Launch(f"mrope_table_{suffix(cosines)}", (tokens,), arguments)


@mrope_table.cases
def _(draw: Draw) -> Iterator[Case]:
    contiguous = np.repeat(np.arange(3, dtype=np.int32), (16, 24, 24))
    interleaved = (np.arange(32) % 3).astype(np.int32)
    interleaved[30:] = 0
    for axis in (contiguous, interleaved, np.zeros(5, np.int32), np.array([1], np.int32)):
        frequencies = 1e7 ** (-np.arange(len(axis)) / len(axis))
        for tokens in (1, 7):
            yield draw.case(draw.integers(0, 131_072, 3, tokens), frequencies, axis, dtype=draw.dtype)
    frequencies = 1e4 ** (-np.arange(80) / 80)
    axis = draw.integers(0, 2, 80)
    yield draw.case(draw.integers(0, 99, 2, 4), frequencies, axis, dtype=draw.dtype, attention_factor=1.2079)
    axis[[3, 70]] = (-1, 2)  # no axis of these
    yield draw.case(draw.integers(0, 99, 2, 4), frequencies, axis, dtype=draw.dtype)
    yield draw.case(np.zeros((3, 0), np.int32), frequencies, axis, dtype=draw.dtype)


def _coordinates(x: Array, pairs: int, interleaved: bool) -> tuple[Array, Array]:
    """The first and the second coordinates of a head's pairs, each [..., pairs]."""
    rotated = x[..., : 2 * pairs]
    return (rotated[..., ::2], rotated[..., 1::2]) if interleaved else (rotated[..., :pairs], rotated[..., pairs:])


def _assemble(first: Array, second: Array, rest: Array, interleaved: bool) -> Array:
    if interleaved:
        rotated = np.stack([first, second], axis=-1).reshape(*first.shape[:-1], 2 * first.shape[-1])
    else:
        rotated = np.concatenate([first, second], axis=-1)
    return np.concatenate([rotated, rest], axis=-1)


def rotation_bound(x: Array, cos: Array, sin: Array, *, interleaved: bool = False, **_: Any) -> Array:
    """How far a rotation in float32 can be from the true one, each as x: two products are rounded to float32 and then
    their sum, half a float32 ULP of each product."""
    first, second = _coordinates(np.abs(x.astype(np.float64)), cos.shape[-1], interleaved)
    cosine, sine = (np.abs(table.astype(np.float64))[:, None] for table in (cos, sin))
    rest = np.zeros(x.shape)[..., 2 * cos.shape[-1] :]
    turned = _assemble(first * cosine + second * sine, second * cosine + first * sine, rest, interleaved)
    bound: Array = 2.0**-24 * turned
    return bound


def rotate(
    x: Array, cos: Array, sin: Array, dtype: np.dtype[Any], *, interleaved: bool, narrow_products: bool
) -> Array:
    """x float64 [tokens, heads, head_dim], its first 2 · pairs columns turned, unrounded; the others as they are.

    ``narrow_products`` rounds each product to ``dtype``.
    """
    first, second = _coordinates(x, cos.shape[-1], interleaved)
    cosine, sine = widen(cos)[:, None], widen(sin)[:, None]
    products = first * cosine, second * sine, second * cosine, first * sine
    if narrow_products:
        ac, bs, bc, as_ = (widen(narrow(value, dtype)) for value in products)
    else:
        ac, bs, bc, as_ = products
    return _assemble(ac - bs, bc + as_, x[..., 2 * cos.shape[-1] :], interleaved)


def _check_rope(x: Array, cos: Array, sin: Array) -> None:
    fits = x.ndim == 3 and cos.ndim == 2 and cos.shape == sin.shape and cos.shape[0] == x.shape[0]
    if not fits or 2 * cos.shape[1] > x.shape[2]:
        raise ToolkitError(
            f"rope takes x [tokens, heads, head_dim] and cos and sin [tokens, pairs] of at most head_dim / 2 pairs, not "
            f"{list(x.shape)}, {list(cos.shape)} and {list(sin.shape)}"
        )


@op(
    kernel="rope.hip",
    tolerance=Within(
        rotation_bound,
        because="the kernel rounds each product to float32 before they are added; where cos and sin are 16-bit the "
        "products are exact",
    ),
)
def rope(x: Array, cos: Array, sin: Array, *, interleaved: bool = False, narrow_products: bool = False) -> Array:
    """x [tokens, heads, head_dim], cos and sin [tokens, pairs] → x's shape and dtype, every head rotated.

    The first 2 · pairs columns of a head are rotated, the others copied (partial rotation). A pair (a, b) becomes
    (a·cos - b·sin, b·cos + a·sin), rounded once; with ``narrow_products`` each product is first rounded to x's dtype, as
    transformers' eager code does. Pair i is columns i and pairs + i (GPT-NeoX) or, ``interleaved``, 2i and 2i + 1
    (GPT-J). cos and sin are of x's dtype or float32. Raises ToolkitError when shapes do not fit.
    """
    _check_rope(x, cos, sin)
    turned = rotate(widen(x), cos, sin, x.dtype, interleaved=interleaved, narrow_products=narrow_products)
    out = narrow(turned, x.dtype)
    out[..., 2 * cos.shape[1] :] = x[..., 2 * cos.shape[1] :]  # copied: denormals keep their bits
    return out


@rope.outputs
def _(x: Array, cos: Array, sin: Array, **_: Any) -> Spec:
    _check_rope(x, cos, sin)
    return Spec(x.shape, x.dtype)


@rope.provider("head-per-block", when=lambda x, cos, **_: cos.dtype in (x.dtype, FLOAT32))
def _(out: Array, x: Array, cos: Array, sin: Array, interleaved: bool, narrow_products: bool) -> Launch:
    tokens, heads, head_dim = x.shape
    arguments = (x, cos, sin, out, head_dim, cos.shape[1], interleaved, narrow_products)
    return Launch(f"rope_{suffix(x, cos)}", (tokens, heads), arguments)


@rope.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(
        tokens: int, heads: int, head_dim: int, dtype: np.dtype[Any], pairs: int | None = None, **options: Any
    ) -> Case:
        angles = draw.random.uniform(0.0, 7.0, (tokens, head_dim // 2 if pairs is None else pairs))
        cos, sin = (function(angles).astype(np.float32).astype(dtype) for function in (np.cos, np.sin))
        return draw.case(draw.normal(tokens, heads, head_dim), cos, sin, **options)

    for dtype in dict.fromkeys((draw.dtype, FLOAT32)):
        for tokens, heads, head_dim in ((1, 16, 128), (5, 9, 64), (3, 4, 256), (2, 3, 160), (4, 3, 40), (2, 2, 6)):
            for narrow_products in (False, True):
                yield case(tokens, heads, head_dim, dtype, narrow_products=narrow_products)
        for head_dim, pairs in ((128, 64), (256, 32), (80, 16), (7, 2), (9, 0)):
            for interleaved in (False, True):
                for narrow_products in (False, True):
                    options = {"interleaved": interleaved, "narrow_products": narrow_products}
                    yield case(3, 2, head_dim, dtype, pairs, **options)
    special = np.tile(draw.special(), (2, 2, 2))
    yield draw.case(special, np.full((2, 8), 0.5, draw.dtype), np.full((2, 8), 0.25, draw.dtype))  # half of it copied
    # Products that cancel.
    x = np.ones((2, 2, 64), draw.dtype)
    same = np.full((2, 32), np.sqrt(0.5)).astype(draw.dtype)
    yield draw.case(x, same, same)
    x = draw.normal(3, 2, 32)
    x[1, 0, 3] = np.nan
    x[2, 1, 20] = np.inf
    yield draw.case(x, same[:1].repeat(3, 0)[:, :16], same[:1].repeat(3, 0)[:, :16].copy())
