"""linear beyond its cases: exact against mpmath, the same bits for a row in any batch, and a bound with teeth."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from tests.devices import kernel_devices
from toolkit.devices.numpy_devices import exact, reference
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.ops import linear

Array = np.ndarray[Any, np.dtype[Any]]


def normal(*shape: int, dtype: Any = np.float64) -> Array:
    return np.random.Generator(np.random.PCG64(3)).standard_normal(shape).astype(np.float32).astype(dtype)


def on(device: Any, *arrays: Array, **options: Any) -> Array:
    result: Array = device.get(device.run(linear, tuple(device.put(array) for array in arrays), options))
    return result


def test_exact_is_the_sum_of_products() -> None:
    x, weight = normal(3, 19) * 10, normal(4, 19)
    got = on(exact(), x, weight)
    with mpmath.workdps(60):
        for row, line in enumerate(x):
            for column, weights in enumerate(weight):
                want = mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(w) for a, w in zip(line, weights, strict=True))
                assert abs(got[row, column] - want) <= 1e-13 * np.abs(line * weights).sum()


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16, FLOAT32], ids=lambda dtype: dtype.name)
def test_the_reference_rounds_once(dtype: Any) -> None:
    x, weight = normal(5, 300, dtype=dtype), normal(40, 300, dtype=dtype)
    with mpmath.workdps(60):
        sums = [
            [mpmath.fsum(mpmath.mpf(float(a)) * float(b) for a, b in zip(r, c, strict=True)) for c in weight] for r in x
        ]
    once = np.array([[float(value) for value in row] for row in sums]).astype(np.float32)
    assert on(reference(), x, weight).tobytes() == once.astype(dtype).tobytes()
    assert on(reference(), x, weight, float32_out=True).tobytes() == once.tobytes()


@pytest.mark.parametrize("device", kernel_devices())
def test_rows_have_the_bits_they_have_alone(device: Any) -> None:
    weight = normal(37, 584, dtype=BFLOAT16)
    few, many = normal(8, 584, dtype=BFLOAT16), normal(140, 584, dtype=BFLOAT16)
    alone = np.concatenate([on(device, few[row : row + 1], weight) for row in range(8)])
    for rows in range(1, 9):
        assert on(device, few[:rows], weight).tobytes() == alone[:rows].tobytes()
    # Longer batches go to the tiles, whatever the length.
    together = on(device, many, weight)
    for first, last in ((0, 9), (60, 75), (100, 140)):
        assert on(device, many[first:last], weight).tobytes() == together[first:last].tobytes()


@pytest.mark.parametrize("rows", [1, 12])
def test_one_product_left_out_is_outside_the_tolerance(rows: int) -> None:
    x, weight = normal(rows, 1024, dtype=FLOAT32), normal(64, 1024, dtype=FLOAT32)
    want = on(reference(), x, weight)
    bound = {"x": x, "weight": weight, "float32_out": False}
    caught = [
        not linear.tolerance.check(want - np.outer(x[:, k], weight[:, k]), want, bound).ok for k in range(0, 1024, 8)
    ]
    assert all(caught)
