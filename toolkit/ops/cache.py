"""Keys and values on their way to attention: splitting the joint projection, and the paged cache.

The cache of a layer is cut into blocks of ``block_size`` positions. A sequence owns blocks in any order; its row of the
block table lists them. Slot s is position s % block_size of block s // block_size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toolkit.devices.arithmetic import Array
from toolkit.devices.launching import Launch
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import BitExact


@op(kernel="attention.hip", tolerance=BitExact())
def qkv_split(qkv: Array, *, heads: int, kv_heads: int, head_dim: int) -> tuple[Array, Array, Array]:
    """qkv [tokens, (heads + 2 kv_heads) · head_dim] → copies of q [tokens, heads, head_dim], k and v [tokens, kv_heads,
    head_dim]."""
    tokens = qkv.shape[0]
    parts = np.split(qkv, [heads * head_dim, (heads + kv_heads) * head_dim], axis=-1)
    q, k, v = (part.reshape(tokens, -1, head_dim).copy() for part in parts)
    return q, k, v


@qkv_split.outputs
def _(qkv: Array, heads: int, kv_heads: int, head_dim: int) -> tuple[Spec, Spec, Spec]:
    keys = Spec((qkv.shape[0], kv_heads, head_dim), qkv.dtype)
    return Spec((qkv.shape[0], heads, head_dim), qkv.dtype), keys, keys


@qkv_split.provider("token-per-block")
def _(out: tuple[Array, Array, Array], qkv: Array, heads: int, kv_heads: int, head_dim: int) -> Launch:
    arguments = (qkv, *out, heads * head_dim, kv_heads * head_dim)
    return Launch(f"qkv_split_{suffix(qkv)}", (qkv.shape[0],), arguments)


@qkv_split.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, heads, kv_heads, head_dim in ((1, 16, 8, 128), (5, 9, 3, 64), (3, 4, 1, 256), (4, 3, 3, 5)):
        qkv = draw.normal(tokens, (heads + 2 * kv_heads) * head_dim)
        yield draw.case(qkv, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    qkv = draw.normal(2, 24)
    qkv[0, :4] = np.nan, np.inf, -np.inf, -0.0
    yield draw.case(qkv, heads=2, kv_heads=1, head_dim=6)


@op(kernel="attention.hip", tolerance=BitExact(), mutates=("key_cache", "value_cache"))
def write_cache(keys: Array, values: Array, key_cache: Array, value_cache: Array, slots: Array) -> None:
    """Copy keys and values [tokens, kv_heads, head_dim] into caches [blocks, block_size, kv_heads, head_dim] of the same
    dtype, token i at slot slots[i] (int32). A token whose slot is negative (padding) is skipped."""
    written = slots >= 0
    block, offset = np.divmod(slots[written], key_cache.shape[1])
    key_cache[block, offset] = keys[written]
    value_cache[block, offset] = values[written]


@write_cache.provider("token-per-block")
def _(out: None, keys: Array, values: Array, key_cache: Array, value_cache: Array, slots: Array) -> Launch:
    tokens, kv_heads, head_dim = keys.shape
    arguments = (keys, values, key_cache, value_cache, slots, kv_heads * head_dim)
    return Launch(f"write_cache_{suffix(keys)}", (tokens,), arguments)


@write_cache.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, kv_heads, head_dim, blocks, block_size in ((1, 8, 128, 3, 16), (7, 3, 64, 4, 4), (9, 2, 5, 6, 3)):
        # Slots that are filled keep nothing, the others keep what they hold.
        cache = draw.normal(2, blocks, block_size, kv_heads, head_dim)
        slots = draw.random.permutation(blocks * block_size)[:tokens].astype(np.int32)
        slots[2::3] = -1
        keys, values = draw.normal(tokens, kv_heads, head_dim), draw.normal(tokens, kv_heads, head_dim)
        yield draw.case(keys, values, cache[0].copy(), cache[1].copy(), slots)
    keys, values = draw.normal(2, 1, 4), draw.normal(2, 1, 4)
    keys[0, 0] = np.nan, np.inf, -np.inf, -0.0
    yield draw.case(keys, values, draw.normal(1, 4, 1, 4), draw.normal(1, 4, 1, 4), np.array([3, 0], np.int32))
    yield draw.case(keys, values, draw.normal(1, 4, 1, 4), draw.normal(1, 4, 1, 4), np.array([-1, -1], np.int32))
