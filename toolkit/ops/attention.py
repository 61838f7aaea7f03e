"""Scaled dot-product attention (Vaswani et al., 2017) over a paged cache, for prefill and decode alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.devices import arithmetic
from toolkit.devices.arithmetic import Array, narrow, product, to_float32, total, widen
from toolkit.devices.launching import Launch
from toolkit.errors import ToolkitError
from toolkit.ops.alignment import aligned
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import Within

# Geometry of kernels/attention.hip.
KEYS_AT_ONCE = 128
LARGEST_HEAD = 256

# The reference scores at most so many pairs of query and key at once: 128 MiB of float64.
PAIRS_AT_ONCE = 2**24


@dataclass(frozen=True)
class _Batch:
    """Tokens of sequences that have equally many of them, with all that they see. Grouped-query attention: the
    ``group`` query heads that share a key head follow each other in ``queries``."""

    tokens: Array  # [sequences, tokens], indices
    queries: Array  # [sequences, kv_heads, tokens · group, head_dim], float64
    keys: Array  # [sequences, kv_heads, positions, head_dim], float64
    values: Array
    seen: Array  # [sequences, 1, tokens · group, positions], which keys a query attends

    def per_token(self, result: Array) -> Array:
        """[sequences, kv_heads, tokens · group, head_dim] → [sequences, tokens, heads, head_dim]."""
        sequences, kv_heads, _, head_dim = result.shape
        count = self.tokens.shape[1]
        result = result.reshape(sequences, kv_heads, count, -1, head_dim).transpose(0, 2, 1, 3, 4)
        return result.reshape(sequences, count, -1, head_dim)


def _batches(
    q: Array,
    key_cache: Array,
    value_cache: Array,
    block_table: Array,
    sequence: Array,
    position: Array,
    window: int | None,
) -> Iterator[_Batch]:
    """Every token that attends anything, in batches. A token's result does not depend on its batch."""
    for tokens in _equally_many(sequence, position, q.shape[1]):
        batch = _gather(q, key_cache, value_cache, block_table, sequence, position, window, tokens)
        if tokens.shape[1] > 1 and not np.isfinite(batch.values).all():
            # Zero times infinity is NaN: what one token may not see must not be among what it sums.
            for alone in tokens.T:
                yield _gather(q, key_cache, value_cache, block_table, sequence, position, window, alone[:, None])
        else:
            yield batch


def _equally_many(sequence: Array, position: Array, heads: int) -> Iterator[Array]:
    """Indices [sequences, tokens] of the tokens to compute, padding left out."""
    order = np.argsort(sequence, kind="stable")
    order = order[(sequence[order] >= 0) & (position[order] >= 0)]
    _, starts, counts = np.unique(sequence[order], return_index=True, return_counts=True)
    for count in np.unique(counts):
        tokens = order[starts[counts == count][:, None] + np.arange(count)]
        pairs = tokens.size * heads * (int(position[tokens].max()) + 1)
        pieces = -(-pairs // PAIRS_AT_ONCE)
        axis = 0 if pieces <= tokens.shape[0] else 1
        yield from np.array_split(tokens, min(pieces, tokens.shape[axis]), axis=axis)


def _gather(
    q: Array,
    key_cache: Array,
    value_cache: Array,
    block_table: Array,
    sequence: Array,
    position: Array,
    window: int | None,
    tokens: Array,
) -> _Batch:
    block_size, kv_heads = key_cache.shape[1:3]
    at = position[tokens]
    start = 0
    # A float32 sum in a stated order begins at position 0, so that no grouping of tokens shows in it.
    if window is not None and arithmetic.current().sum_order is None:
        start = max(0, int(at.min()) - window + 1)
    positions = np.arange(start, int(at.max()) + 1)
    seen: Array = positions <= at[..., None]
    if window is not None:
        seen &= positions > at[..., None] - window
    reached: Array = np.logical_or.reduce(seen, axis=1)
    # Where a shorter sequence has no block, any will do: what is not reached is cleared.
    block = np.where(reached, block_table[sequence[tokens[:, :1]], positions // block_size], 0)
    keys, values = (
        widen(np.where(reached[..., None, None], cache[block, positions % block_size], 0)).transpose(0, 2, 1, 3)
        for cache in (key_cache, value_cache)
    )
    sequences, count = tokens.shape
    group = q.shape[1] // kv_heads
    queries = widen(q[tokens]).reshape(sequences, count, kv_heads, group, -1).transpose(0, 2, 1, 3, 4)
    queries = queries.reshape(sequences, kv_heads, count * group, -1)
    return _Batch(tokens, queries, keys, values, np.repeat(seen, group, axis=1)[:, None])


def _rounding_bound(
    q: Array,
    key_cache: Array,
    value_cache: Array,
    block_table: Array,
    sequence: Array,
    position: Array,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    **_: Any,
) -> Array:
    """How far the kernel's float32 attention can be from the true one, [tokens, heads, head_dim].

    In units of 2⁻²⁴, with m the largest scale · sum |q k| of a row's scores and tiles of 128 keys: a score is off by
    (head_dim / 8 + 4) m (its sum, the scale) and 8 m more when capped; a weight exp(score - largest) relatively by two
    such errors, 2 m for the difference and 2 for exp; shrinking what was summed before by 3 per tile; the sum of
    weight · value by its additions, of which a thread makes its share of 128 per tile and then one per share. All of
    it bears on sum weight |value| / sum weight, and once more on the denominator.
    """
    head_dim = q.shape[-1]
    shares = KEYS_AT_ONCE // -(-head_dim // 8)
    bound = np.zeros(q.shape)
    for batch in _batches(q, key_cache, value_cache, block_table, sequence, position, window):
        scores = scale * batch.queries @ batch.keys.swapaxes(-1, -2)
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        scores = np.where(batch.seen, scores, -np.inf)
        weights = np.where(batch.seen, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
        mixed = weights @ np.abs(batch.values) / weights.sum(-1, keepdims=True)
        magnitudes = scale * np.abs(batch.queries) @ np.abs(batch.keys).swapaxes(-1, -2)
        largest = np.where(batch.seen, magnitudes, 0.0).max(-1, keepdims=True)
        tiles = -(-batch.keys.shape[-2] // KEYS_AT_ONCE)
        score = (head_dim / 8 + 4 + (8 if softcap is not None else 0)) * largest
        weight = 2 * score + 2 * largest + 2 + 3 * tiles
        additions = tiles * -(-KEYS_AT_ONCE // shares) + shares
        bound[batch.tokens] = batch.per_token((2 * weight + additions + 16) * 2.0**-24 * mixed)
    return bound


def _check(q: Array, key_cache: Array, value_cache: Array, sequence: Array, position: Array) -> None:
    tokens, heads, head_dim = q.shape
    kv_heads = key_cache.shape[2]
    if key_cache.shape != value_cache.shape or key_cache.shape[3] != head_dim or heads % kv_heads:
        raise ToolkitError(
            f"paged_attention cannot attend {heads} heads of {head_dim} over caches {list(key_cache.shape)} and "
            f"{list(value_cache.shape)}: both must be [blocks, block_size, kv_heads, {head_dim}] with kv_heads a "
            f"divisor of {heads}"
        )
    if sequence.shape != (tokens,) or position.shape != (tokens,):
        raise ToolkitError(
            f"paged_attention needs a sequence and a position for each of {tokens} tokens, not "
            f"{list(sequence.shape)} and {list(position.shape)}"
        )


@op(
    kernel="attention.hip",
    tolerance=Within(
        _rounding_bound,
        because="the orders of the float32 sums are the kernel's; its roundings, each 2^-24 relative, are counted along "
        "the way from a product to the quotient",
    ),
)
def paged_attention(
    q: Array,
    key_cache: Array,
    value_cache: Array,
    block_table: Array,
    sequence: Array,
    position: Array,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    narrow_probabilities: bool = False,
) -> Array:
    """Attention of q [tokens, heads, head_dim] over caches [blocks, block_size, kv_heads, head_dim] → q's shape, dtype.

    Token t belongs to the sequence in row sequence[t] of block_table [sequences, max_blocks] and attends that
    sequence's cached positions p <= position[t], with ``window`` only the last ``window`` of them (itself included).
    Query head h attends key head h // (heads / kv_heads). A token of a negative sequence (padding) and one that has
    nothing to attend give zeros. block_table, sequence and position are int32.

    Scores are rounded to float32, scaled, capped to softcap · tanh(score / softcap) if asked, and exponentiated
    relative to the row's largest; the sum of weight · value is divided by the sum of the weights and rounded once. With
    ``narrow_probabilities`` the quotients weight / sum are rounded to q's dtype before they meet the values, as
    transformers' eager code does. Raises ToolkitError when shapes do not fit.
    """
    _check(q, key_cache, value_cache, sequence, position)
    factor = to_float32(np.asarray(scale, np.float64))
    out = np.zeros(q.shape, np.float64)
    for batch in _batches(q, key_cache, value_cache, block_table, sequence, position, window):
        scores = to_float32(product(batch.queries, batch.keys) * factor)
        if softcap is not None:
            limit = to_float32(np.asarray(softcap, np.float64))
            scores = to_float32(limit * np.tanh(scores / limit))
        np.copyto(scores, -np.inf, where=~batch.seen)
        scores -= scores.max(axis=-1, keepdims=True)
        weights = to_float32(np.exp(scores, out=scores))
        sums = total(weights)[..., None]
        if narrow_probabilities:
            weights, sums = widen(narrow(weights / sums, q.dtype)), np.ones(())
        out[batch.tokens] = batch.per_token(product(weights, batch.values.swapaxes(-1, -2)) / sums)
    return narrow(out, q.dtype)


@paged_attention.outputs
def _(q: Array, key_cache: Array, value_cache: Array, sequence: Array, position: Array, **_: Any) -> Spec:
    _check(q, key_cache, value_cache, sequence, position)
    return Spec(q.shape, q.dtype)


def _kernel_takes(q: Array, narrow_probabilities: bool, **_: Any) -> bool:
    return not narrow_probabilities and q.shape[-1] <= LARGEST_HEAD


@paged_attention.provider("head-per-block", when=_kernel_takes)
def _(
    out: Array,
    q: Array,
    key_cache: Array,
    value_cache: Array,
    block_table: Array,
    sequence: Array,
    position: Array,
    scale: float,
    window: int | None,
    softcap: float | None,
    **_: Any,
) -> Launch:
    tokens, heads, head_dim = q.shape
    block_size, kv_heads = key_cache.shape[1:3]
    whole = head_dim % 8 == 0 and aligned(key_cache) and aligned(value_cache)
    return Launch(
        f"{'paged' if whole else 'ragged'}_attention_{suffix(q)}",
        (tokens, heads),
        (
            *(q, key_cache, value_cache, block_table, sequence, position, out),
            *(block_table.shape[1], block_size, heads, kv_heads, head_dim),
            *(window or 0, float(scale), float(softcap or 0.0)),
        ),
    )


@paged_attention.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(
        lengths: tuple[tuple[int, int], ...],
        heads: tuple[int, int],
        head_dim: int,
        block_size: int = 4,
        spread: float = 1.0,
        **options: Any,
    ) -> Case:
        """Sequences of (cached, new) tokens with blocks in random order. NaN lies where no token may look."""
        max_blocks = max(-(-(cached + new) // block_size) for cached, new in lengths) + 1
        blocks = draw.random.permutation(len(lengths) * max_blocks + 1).astype(np.int32)
        table = blocks[: len(lengths) * max_blocks].reshape(len(lengths), max_blocks)
        shape = (len(blocks), block_size, heads[1], head_dim)
        keys, values = np.full((2, *shape), np.nan, draw.dtype)
        sequence: list[int] = []
        position: list[int] = []
        for row, (cached, new) in enumerate(lengths):
            for p in range(cached + new):
                slot = table[row, p // block_size], p % block_size
                keys[slot], values[slot] = draw.normal(heads[1], head_dim), draw.normal(heads[1], head_dim)
            sequence += [row] * new
            position += range(cached, cached + new)
        # Tokens of different sequences may come in any order.
        order = draw.random.permutation(len(sequence))
        q = draw.normal(len(sequence), heads[0], head_dim, scale=spread)
        indices = (np.array(column, np.int32)[order] for column in (sequence, position))
        return draw.case(q, keys, values, table, *indices, scale=head_dim**-0.5, **options)

    yield case(((0, 1),), (4, 2), 64)
    yield case(((0, 10),), (4, 2), 64, window=4)
    yield case(((0, 9), (3, 5)), (9, 3), 64, block_size=16)
    yield case(((0, 1), (16, 1), (299, 1)), (16, 8), 128, block_size=16)  # decode, over several tiles of keys
    yield case(((127, 1), (128, 1), (300, 2)), (2, 1), 64, window=129)
    yield case(((4, 7),), (4, 1), 256, window=5, softcap=30.0)
    yield case(((0, 12), (1, 1)), (4, 2), 8, softcap=30.0, spread=60.0)
    yield case(((0, 20),), (6, 6), 32, spread=30.0)  # one key outweighs the others
    for head_dim in (5, 20, 80, 96, 250):
        yield case(((2, 6), (140, 1)), (4, 2), head_dim, window=100)

    def padded(case: Case, rows: slice) -> Case:
        case.args[4][rows] = -1
        return case

    yield padded(case(((0, 6),), (4, 2), 64), slice(1, None, 2))
    yield padded(case(((0, 6),), (4, 2), 64), slice(None))
    nothing = case(((0, 4),), (4, 2), 64)
    nothing.args[5][1] = -1
    yield nothing
    for part in range(3):  # a query, a key, a value
        for special in (np.nan, np.inf, -np.inf):
            broken = case(((0, 8), (3, 2)), (4, 2), 16, window=5)
            where = (
                (3, 1) if part == 0 else (*np.argwhere(np.isfinite(broken.args[part][..., 0, 0].astype(float)))[6], 1)
            )
            broken.args[part][(*where, 2)] = special
            yield broken
