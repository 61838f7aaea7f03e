"""Paged attention beyond its cases: against the formula, who sees whom, and that batching leaves no trace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import mpmath
import numpy as np
import pytest

from tests.devices import kernel_devices
from toolkit.devices.arithmetic import SUM_ORDERS, SumOrder
from toolkit.devices.base import NoKernel
from toolkit.devices.host import HostDevice
from toolkit.devices.numpy_devices import exact, reference
from toolkit.dtypes import BFLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops import paged_attention, write_cache

Array = np.ndarray[Any, np.dtype[Any]]

DEVICES = [pytest.param(reference(), id="reference"), *kernel_devices()]
ORDERS = [pytest.param(reference(order), id=order) for order in SUM_ORDERS]


@dataclass(frozen=True)
class Setting:
    """Sequences in a paged cache, and the tokens that attend: everything that paged_attention takes."""

    q: Array
    keys: Array
    values: Array
    table: Array
    sequence: Array
    position: Array
    options: dict[str, Any] = field(default_factory=dict)

    def on(self, device: Any, **options: Any) -> Array:
        arrays = (self.q, self.keys, self.values, self.table, self.sequence, self.position)
        options = {"scale": self.q.shape[-1] ** -0.5, **self.options, **options}
        result: Array = device.get(device.run(paged_attention, tuple(map(device.put, arrays)), options))
        return result

    def only(self, tokens: Any) -> Setting:
        """The same cache, of the tokens only these."""
        return replace(self, q=self.q[tokens], sequence=self.sequence[tokens], position=self.position[tokens])


def setting(
    lengths: tuple[int, ...] = (10, 23),
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    block_size: int = 4,
    dtype: Any = BFLOAT16,
    **options: Any,
) -> Setting:
    """Every token of every sequence attends; the cache was filled by write_cache, its other slots hold NaN."""
    random = np.random.Generator(np.random.PCG64(11))

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32).astype(dtype)

    blocks = -(-max(lengths) // block_size)
    table = random.permutation(len(lengths) * blocks).astype(np.int32).reshape(len(lengths), blocks)
    sequence = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    position = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    tokens = len(sequence)
    keys, values = np.full((2, table.size, block_size, kv_heads, head_dim), np.nan, dtype)
    slots = table[sequence, position // block_size] * block_size + position % block_size
    reference().run(
        write_cache, (normal(tokens, kv_heads, head_dim), normal(tokens, kv_heads, head_dim), keys, values, slots), {}
    )
    return Setting(normal(tokens, heads, head_dim), keys, values, table, sequence, position, options)


def test_exact_is_softmax_of_scaled_products_times_values() -> None:
    given = setting((5, 3), heads=2, kv_heads=1, head_dim=6, dtype=np.float64, window=3, softcap=2.0)
    got = given.on(exact(), scale=0.7)
    with mpmath.workdps(60):
        for token, head in np.ndindex(len(given.q), 2):
            last = int(given.position[token])
            places = [
                (int(given.table[given.sequence[token], p // 4]), p % 4, 0) for p in range(max(0, last - 2), last + 1)
            ]
            q = [mpmath.mpf(value) for value in given.q[token, head]]
            scores = [
                mpmath.mpf(0.7) * mpmath.fsum(a * mpmath.mpf(b) for a, b in zip(q, given.keys[place], strict=True))
                for place in places
            ]
            weights = [mpmath.exp(2 * mpmath.tanh(score / 2)) for score in scores]
            for d in range(6):
                terms = [w * mpmath.mpf(given.values[(*place, d)]) for w, place in zip(weights, places, strict=True)]
                want = mpmath.fsum(terms) / mpmath.fsum(weights)
                size = mpmath.fsum(map(abs, terms)) / mpmath.fsum(weights)
                assert abs(got[token, head, d] - want) <= 1e-13 * size


@pytest.mark.parametrize("window", [None, 1, 4, 10, 100])
@pytest.mark.parametrize("device", DEVICES)
def test_a_token_sees_its_window_and_nothing_later(device: Any, window: int | None) -> None:
    # Queries of zero weigh all they see equally; values that name their position tell what that was.
    given = setting((10,), heads=2, kv_heads=1, head_dim=16, dtype=FLOAT32, window=window)
    given.q[:] = 0.0
    for p in range(10):
        given.values[given.table[0, p // 4], p % 4, 0] = np.eye(16)[p]
    got = given.on(device)
    for t in range(10):
        seen = range(0 if window is None else max(0, t - window + 1), t + 1)
        assert np.flatnonzero(got[t, 0]).tolist() == list(seen)
        assert np.allclose(got[t, :, list(seen)], 1 / len(seen), rtol=1e-6)
    if window == 4:
        assert np.count_nonzero(got[5, 0]) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_query_heads_share_their_own_key_head(device: Any) -> None:
    given = setting((7,), heads=6, kv_heads=2, dtype=FLOAT32)
    got = given.on(device)
    changed = replace(given, values=given.values * np.array([1, 2], np.float32)[:, None])
    other = changed.on(device)
    assert np.array_equal(other[:, :3], got[:, :3])
    assert np.array_equal(other[:, 3:], 2 * got[:, 3:])


@pytest.mark.parametrize("device", [*DEVICES, *ORDERS])
def test_padding_leaves_no_trace(device: Any) -> None:
    given = setting(window=9)
    alone = given.on(device)
    kept = np.array([4, 5, 9, 12, 13, 14, 20, 30, 32])
    rows = np.setdiff1d(np.arange(len(given.q) + 12), np.arange(0, 24, 2))
    q = np.full((len(rows) + 12, *given.q.shape[1:]), np.nan, BFLOAT16)
    sequence, position = np.full(len(q), -1, np.int32), np.zeros(len(q), np.int32)
    q[rows], sequence[rows], position[rows] = given.q, given.sequence, given.position
    padded = replace(given, q=q, sequence=sequence, position=position).on(device)
    assert padded[rows].tobytes() == alone.tobytes()
    assert not np.delete(padded, rows, axis=0).any()
    assert given.only(kept).on(device).tobytes() == alone[kept].tobytes()


@pytest.mark.parametrize("device", [*DEVICES, *ORDERS])
@pytest.mark.parametrize("window", [None, 5])
def test_chunks_and_single_tokens_equal_the_whole(device: Any, window: int | None) -> None:
    given = setting((40, 151), dtype=FLOAT32, window=window)
    whole = given.on(device)
    for size in (1, 7, 64):
        parts = [given.only(slice(at, at + size)).on(device) for at in range(0, len(given.q), size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_an_order_of_summation_shows_in_float32_only_slightly(order: SumOrder) -> None:
    given = setting((90,), dtype=FLOAT32)
    ours, theirs = given.on(reference(order)), given.on(reference())
    assert (ours != theirs).any()
    assert paged_attention.tolerance.check(ours, theirs, _arguments(given)).ok


def _arguments(given: Setting) -> dict[str, Any]:
    arrays = (given.q, given.keys, given.values, given.table, given.sequence, given.position)
    return paged_attention.bind(arrays, {"scale": given.q.shape[-1] ** -0.5, **given.options})


@pytest.mark.parametrize("device", DEVICES)
def test_a_wrong_block_table_shows(device: Any) -> None:
    given = setting(dtype=FLOAT32)
    right = given.on(device)
    table = given.table.copy()
    table[1, [1, 2]] = table[1, [2, 1]]  # swap positions 4-7 and 8-11 of the longer sequence
    wrong = replace(given, table=table).on(device)
    unaffected = (given.sequence == 0) | (given.position < 4)
    assert np.array_equal(wrong[unaffected], right[unaffected])
    # Only order is lost where all twelve are seen: a sum of the same terms.
    between = (given.sequence == 1) & (given.position >= 4) & (given.position < 11)
    assert (wrong[between] != right[between]).any(axis=(1, 2)).all()


@pytest.mark.parametrize("device", [*DEVICES, *ORDERS])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_what_is_not_finite_reaches_only_those_who_see_it(device: Any, part: str) -> None:
    given = setting((12, 12), dtype=FLOAT32, window=4)
    clean = given.on(device)
    cache = getattr(given, part).copy()
    cache[given.table[0, 1], 2, 1] = np.nan  # position 6 of sequence 0, key head 1
    got = replace(given, **{part: cache}).on(device)
    sees = (given.sequence == 0) & (given.position >= 6) & (given.position < 10)
    assert np.isnan(got[sees, 2:]).all()
    assert np.array_equal(got[~sees], clean[~sees])
    assert np.array_equal(got[:, :2], clean[:, :2])


def test_narrow_probabilities_are_those_of_eager_code() -> None:
    given = setting((9,), heads=2, kv_heads=2, head_dim=8)
    got = given.on(reference(), narrow_probabilities=True)
    places = [(given.table[0, p // 4], p % 4) for p in range(9)]
    keys, values = (
        np.stack([cache[place] for place in places]).astype(np.float64) for cache in (given.keys, given.values)
    )
    for token, head in np.ndindex(9, 2):
        seen = slice(0, token + 1)
        scores = (keys[seen, head] @ given.q[token, head].astype(np.float64)).astype(np.float32) * np.float32(8**-0.5)
        weights = np.exp(scores.astype(np.float64) - scores.max()).astype(np.float32).astype(np.float64)
        narrow = (weights / np.float32(weights.sum())).astype(np.float32).astype(BFLOAT16)
        want = narrow.astype(np.float64) @ values[seen, head]
        assert got[token, head].tobytes() == want.astype(np.float32).astype(BFLOAT16).tobytes()
    assert (got != given.on(reference())).any()


def test_kernels_refuse_by_name_what_they_do_not_do() -> None:
    with pytest.raises(NoKernel, match="paged_attention on device cpu"):
        setting().on(HostDevice(), narrow_probabilities=True)
    with pytest.raises(NoKernel, match="paged_attention on device cpu"):
        setting((3,), head_dim=264).on(HostDevice())


@pytest.mark.parametrize("device", [pytest.param(reference(), id="reference"), pytest.param(HostDevice(), id="cpu")])
def test_shapes_that_do_not_fit_are_refused(device: Any) -> None:
    given = setting()
    with pytest.raises(ToolkitError, match=r"5 heads of 16 over caches .* divisor of 5"):
        replace(given, q=given.q[:, :1].repeat(5, axis=1)).on(device)
    with pytest.raises(ToolkitError, match="a sequence and a position for each of 33 tokens"):
        replace(given, position=given.position[1:]).on(device)


@pytest.mark.parametrize("device", kernel_devices())
def test_a_hundred_thousand_positions(device: Any) -> None:
    length = 100_000
    random = np.random.Generator(np.random.PCG64(12))
    keys, values = random.standard_normal((2, length // 16, 16, 1, 8)).astype(np.float32)
    table = random.permutation(length // 16).astype(np.int32)[None]
    q = random.standard_normal((2, 2, 8)).astype(np.float32)
    last = np.array([length - 1, 50_000], np.int32)
    for window in (None, 4096):
        given = Setting(q, keys, values, table, np.zeros(2, np.int32), last, {"window": window})
        want = given.on(reference())
        agreement = paged_attention.tolerance.check(given.on(device), want, _arguments(given))
        assert agreement.ok, agreement
        assert np.abs(given.on(device) - want).max() < 1e-6
