"""Rotary embedding beyond its cases: exact against mpmath, far positions, and transformers' eager rounding."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from tests.devices import kernel_devices
from toolkit.devices.numpy_devices import exact, reference
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.ops import rope, rope_table

Array = np.ndarray[Any, np.dtype[Any]]

WITHIN = 1e-13


def normal(*shape: int, dtype: Any = np.float64) -> Array:
    return np.random.Generator(np.random.PCG64(5)).standard_normal(shape).astype(np.float32).astype(dtype)


def frequencies(pairs: int, theta: float = 1e4) -> Array:
    inverse: Array = theta ** (-np.arange(pairs) / pairs)
    return inverse


def test_exact_table_is_cos_and_sin() -> None:
    positions, inverse = np.array([0, 1, 2, 7, 50], np.int32), frequencies(6)
    with exact():
        cos, sin = rope_table(positions, inverse, dtype=BFLOAT16, attention_factor=1.25)
    assert cos.dtype == sin.dtype == np.float64
    with mpmath.workdps(60):
        for token, position in enumerate(positions.tolist()):
            for pair, frequency in enumerate(inverse.tolist()):
                angle = position * mpmath.mpf(frequency)
                assert abs(cos[token, pair] - 1.25 * mpmath.cos(angle)) <= WITHIN
                assert abs(sin[token, pair] - 1.25 * mpmath.sin(angle)) <= WITHIN


def test_exact_rope_turns_each_pair() -> None:
    x, positions, inverse = normal(4, 3, 10), np.array([0, 1, 5, 30], np.int32), frequencies(5)
    with exact():
        turned = rope(x, *rope_table(positions, inverse, dtype=FLOAT32))
    with mpmath.workdps(60):
        for token, head, pair in np.ndindex(4, 3, 5):
            start = mpmath.mpc(x[token, head, pair], x[token, head, pair + 5])
            end = start * mpmath.expj(int(positions[token]) * mpmath.mpf(inverse[pair]))
            assert abs(turned[token, head, pair] - end.real) <= WITHIN * abs(start)
            assert abs(turned[token, head, pair + 5] - end.imag) <= WITHIN * abs(start)


def test_only_the_distance_of_two_positions_counts() -> None:
    q, k = normal(2, 1, 64)
    with exact():
        scores = []
        for shift in (0, 11, 4000):
            cos, sin = rope_table(np.array([shift, shift + 9], np.int32), frequencies(32), dtype=FLOAT32)
            turned = rope(np.stack([q, k]), cos, sin)
            scores.append(float((turned[0] * turned[1]).sum()))
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-9)
    assert scores[0] != pytest.approx(float((q * k).sum()), rel=1e-3)


@pytest.mark.parametrize("device", kernel_devices())
def test_far_positions_are_rounded_from_the_float64_angle(device: Any) -> None:
    positions = np.array([1, 1000, 65_536, 99_999, 131_071], np.int32)
    inverse = frequencies(40, 1e6)
    got = device.run(rope_table, (device.put(positions), device.put(inverse)), {"dtype": FLOAT32})
    with mpmath.workdps(60):
        for table, function in zip(map(device.get, got), (mpmath.cos, mpmath.sin), strict=True):
            angles = positions[:, None] * inverse
            want = np.array([[float(function(mpmath.mpf(angle))) for angle in row] for row in angles.tolist()])
            assert table.tobytes() == want.astype(np.float32).tobytes()


@pytest.mark.parametrize("device", [pytest.param(reference(), id="reference"), *kernel_devices()])
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=lambda dtype: dtype.name)
def test_narrow_products_are_those_of_eager_code(dtype: Any, device: Any) -> None:
    x, angles = normal(6, 4, 64, dtype=dtype), np.random.Generator(np.random.PCG64(6)).uniform(0, 7, (6, 32))
    cos, sin = np.cos(angles).astype(np.float32).astype(dtype), np.sin(angles).astype(np.float32).astype(dtype)
    got = device.get(device.run(rope, tuple(map(device.put, (x, cos, sin))), {"narrow_products": True}))
    # x * cos + rotate_half(x) * sin, every operation in the storage dtype.
    rotated = np.concatenate([-x[..., 32:], x[..., :32]], axis=-1)
    twice = [np.concatenate([table, table], axis=-1)[:, None] for table in (cos, sin)]
    assert got.tobytes() == (x * twice[0] + rotated * twice[1]).tobytes()
    once = device.get(device.run(rope, tuple(map(device.put, (x, cos, sin))), {}))
    assert 0.1 < np.mean(once != got) < 0.9  # it is another rounding


def test_cos_and_sin_may_be_wider_than_the_heads() -> None:
    x, angles = normal(3, 2, 32, dtype=BFLOAT16), np.random.Generator(np.random.PCG64(8)).uniform(0, 7, (3, 16))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    with reference():
        wide, narrow = rope(x, cos, sin), rope(x, cos.astype(BFLOAT16), sin.astype(BFLOAT16))
    assert wide.dtype == narrow.dtype == BFLOAT16
    assert (wide != narrow).any()
