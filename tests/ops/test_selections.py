"""What argmax, top_k, casts and the embedding's scale promise beyond their cases: small examples worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import kernel_devices
from toolkit.devices.numpy_devices import reference
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops import add, argmax, cast, embedding, gather_rows, log_softmax, silu_mul, top_k

DEVICES = [pytest.param(reference(), id="reference"), *kernel_devices()]
DTYPES = [pytest.param(dtype, id=dtype.name) for dtype in (BFLOAT16, FLOAT16, FLOAT32)]

NAN, INF = np.nan, np.inf
Array = np.ndarray[Any, Any]


def on(device: Any, op: Any, *args: Array, **kwargs: Any) -> Any:
    result = device.run(op, tuple(device.put(argument) for argument in args), kwargs)
    return tuple(map(device.get, result)) if isinstance(result, tuple) else device.get(result)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([3.0], 0),
        ([1.0, 2.0, 2.0], 1),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([-INF, -INF, -INF], 0),
        ([-INF, -3.0, -INF], 1),
        ([1.0, INF, INF], 1),
        ([1.0, NAN, 5.0], -1),
        ([INF, -NAN], -1),
        ([NAN], -1),
    ],
)
def test_argmax(device: Any, dtype: Any, row: list[float], wanted: int) -> None:
    assert on(device, argmax, np.array([row], dtype)).tolist() == [wanted]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("place", [0, 31, 32, 1023, 1024, 4999])
def test_argmax_finds_the_first_of_two_wherever_they_are(device: Any, place: int) -> None:
    x = np.zeros((1, 5000), BFLOAT16)
    x[0, place] = x[0, 4999] = 1.0
    assert on(device, argmax, x).tolist() == [place]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("row", "values", "indices"),
    [
        ([3.0], [3.0], [0]),
        ([1.0, 4.0, 2.0, 4.0], [4.0, 4.0, 2.0, 1.0], [1, 3, 2, 0]),
        ([0.0, -0.0, 0.0], [0.0, -0.0, 0.0], [0, 1, 2]),
        ([-INF, 2.0, INF, -INF], [INF, 2.0, -INF, -INF], [2, 1, 0, 3]),
        ([1.0, NAN, 2.0], [NAN, NAN, NAN], [-1, -1, -1]),
    ],
)
def test_top_k_of_all(device: Any, dtype: Any, row: list[float], values: list[float], indices: list[int]) -> None:
    found, where = on(device, top_k, np.array([row], dtype), k=len(row))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float64), [values])
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(values)[~np.isnan(values)])
    assert where.tolist() == [indices]


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_with_nan_does_not_touch_its_neighbours(device: Any) -> None:
    x = np.array([[1, 2], [NAN, 2], [2, 1]], FLOAT32)
    assert on(device, argmax, x).tolist() == [1, -1, 0]
    assert on(device, top_k, x, k=1)[1].tolist() == [[1], [-1], [0]]
    assert np.isnan(on(device, log_softmax, x)).tolist() == [[False] * 2, [True] * 2, [False] * 2]


@pytest.mark.parametrize("device", DEVICES)
def test_log_softmax_of_rows_without_a_finite_maximum(device: Any) -> None:
    x = np.array([[-INF, -INF], [INF, 0.0], [-INF, 3.0]], FLOAT32)
    np.testing.assert_array_equal(on(device, log_softmax, x), [[NAN, NAN], [NAN, NAN], [-INF, 0.0]])


def bits(x: Array) -> Array:
    return x.view({2: np.uint16, 4: np.uint32}[x.dtype.itemsize])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (1.00390625, BFLOAT16, 0x3F80),  # halfway to the next number: to even
        (1.01171875, BFLOAT16, 0x3F82),
        (3.4e38, BFLOAT16, 0x7F80),
        (-0.0, BFLOAT16, 0x8000),
        (1e-45, BFLOAT16, 0x0000),
        (9.2e-41, BFLOAT16, 0x0001),
        (65519.0, FLOAT16, 0x7BFF),
        (65520.0, FLOAT16, 0x7C00),
        (2.0**-24, FLOAT16, 0x0001),
        (2.0**-25, FLOAT16, 0x0000),
        (-1.5 * 2.0**-25, FLOAT16, 0x8001),
        (3 * 2.0**-25, FLOAT16, 0x0002),
        (-INF, FLOAT16, 0xFC00),
        (1e-45, FLOAT32, 0x00000001),
    ],
)
def test_cast_from_float32(device: Any, value: float, dtype: Any, wanted: int) -> None:
    assert bits(on(device, cast, np.array([value], FLOAT32), dtype=dtype)).tolist() == [wanted]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("narrow", [BFLOAT16, FLOAT16], ids=str)
def test_widening_and_back_gives_every_16_bit_number_its_own_bits(device: Any, narrow: Any) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(narrow)
    back = on(device, cast, on(device, cast, x, dtype=FLOAT32), dtype=narrow)
    nan = np.isnan(x)
    np.testing.assert_array_equal(bits(back)[~nan], bits(x)[~nan])
    assert np.isnan(back[nan]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_where_the_embedding_scale_is_rounded_decides_the_product(device: Any) -> None:
    # √1152 = 33.94; bfloat16 has 34 and 33.75.
    table, ids = np.array([[1.0, 3.0]], BFLOAT16), np.zeros(1, np.int32)
    assert on(device, embedding, table, ids, scale=1152**0.5).tolist() == [[34.0, 102.0]]
    float32 = on(device, embedding, table, ids, scale=1152**0.5, scale_in_storage_dtype=False)
    assert float32.tolist() == [[34.0, float(np.asarray(3 * 1152**0.5).astype(BFLOAT16))]]
    single = on(device, embedding, np.ones((1, 1), FLOAT32), ids, scale=1152**0.5, scale_in_storage_dtype=False)
    assert single.tolist() == [[float(np.float32(1152**0.5))]]


@pytest.mark.parametrize("device", DEVICES)
def test_the_activation_is_rounded_before_the_product(device: Any) -> None:
    # silu(1.25) = 0.97162 rounds to 0.97265625; times 1.2421875 that is 1.20822, nearest 1.2109375. Unrounded it would be
    # 1.20694, nearest 1.203125.
    assert on(device, silu_mul, np.array([[1.25, 1.2421875]], BFLOAT16)).tolist() == [[1.2109375]]


IDS = np.zeros(1, np.int32)
MISUSES = [
    (lambda: top_k(np.zeros((1, 4), FLOAT32), k=5), "k = 5 of 4 columns"),
    (lambda: top_k(np.zeros((1, 4), FLOAT32), k=0), "k = 0 of 4 columns"),
    (lambda: argmax(np.zeros((1, 0), FLOAT32)), "at least one column"),
    (lambda: log_softmax(np.zeros((1, 0), FLOAT32)), "at least one column"),
    (lambda: add(np.zeros(3, FLOAT32), np.zeros(1, FLOAT32)), r"float32\[3\] and float32\[1\]"),
    (lambda: add(np.zeros(3, FLOAT32), np.zeros(3, FLOAT16)), r"float32\[3\] and float16\[3\]"),
    (lambda: silu_mul(np.zeros((2, 3), FLOAT32)), r"even number of columns, not \[2, 3\]"),
    (lambda: cast(np.zeros(3, FLOAT32), dtype=np.dtype(np.int32)), "cast to int32"),
    (lambda: gather_rows(np.zeros((2, 3), FLOAT32), IDS.astype(np.int64)), r"int64\[1\]"),
    (lambda: embedding(np.zeros((2, 3), FLOAT32), IDS[None]), r"int32\[1, 1\]"),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("call", "message"), MISUSES)
def test_misuse_is_refused_in_one_sentence(device: Any, call: Any, message: str) -> None:
    with device, pytest.raises(ToolkitError, match=message):
        call()


@pytest.mark.parametrize("device", kernel_devices())
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: add(np.zeros(3), np.zeros(3)), "no kernel takes float64"),
        (lambda: argmax(np.zeros((1, 3))), "no kernel takes float64"),
        (lambda: gather_rows(np.zeros((2, 3)), IDS), "no kernel of op gather_rows"),
        (lambda: embedding(np.zeros((2, 3)), IDS), "no kernel of op embedding"),
        (lambda: embedding(np.zeros((2, 3)), IDS, scale=2.0), "no kernel takes float64"),
    ],
)
def test_a_dtype_without_kernels_is_refused(device: Any, call: Any, message: str) -> None:
    with device, pytest.raises(ToolkitError, match=message):
        call()
