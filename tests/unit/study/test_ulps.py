from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import ToolkitError
from toolkit.study import margin, margin_resolution, ulp, ulp_distance

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("magnitude", "dtype", "expected"),
    [
        (16.0, "bfloat16", 0.125),
        (31.9, "bfloat16", 0.125),
        (-20.0, "bfloat16", 0.125),
        (32.0, "bfloat16", 0.25),
        (15.1216, "bfloat16", 0.0625),
        (1.0, "float16", 2.0**-10),
        (1.0, "float32", 2.0**-23),
        (1.0, "float64", 2.0**-52),
        (0.0, "bfloat16", 2.0**-133),
        (2.0**-130, "bfloat16", 2.0**-133),
        (2.0**-126, "bfloat16", 2.0**-133),
        (2.0**-125, "bfloat16", 2.0**-132),
        (0.0, "float16", 2.0**-24),
    ],
)
def test_spacing(magnitude: float, dtype: str, expected: float) -> None:
    assert ulp(magnitude, dtype) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_there_is_no_spacing_beyond_the_numbers(value: float) -> None:
    assert np.isnan(ulp(value))


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_spacing_is_that_of_numpy_in_float32(x: float) -> None:
    assert ulp(x, "float32") == np.abs(np.spacing(np.float32(x)))


def test_unknown_dtypes_are_refused() -> None:
    with pytest.raises(ToolkitError, match="unknown dtype"):
        ulp(1.0, "float8")


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
def test_neighbours_are_one_apart(dtype: Any) -> None:
    for x in (1.0, -1.0, 0.0, 255.5, 6e-8, -1e-3):
        a = np.array([x], dtype)
        b = np.nextafter(a, np.array([np.inf], dtype))
        assert ulp_distance(a, b).tolist() == [1.0]
        assert ulp_distance(b, a).tolist() == [1.0]


def test_counting_goes_through_zero_and_to_infinity() -> None:
    tiny = float(np.finfo(np.float16).smallest_subnormal)
    a = np.array([0.0, -tiny, np.inf, 1.0], np.float16)
    b = np.array([-0.0, tiny, np.finfo(np.float16).max, 2.0], np.float16)
    assert ulp_distance(a, b).tolist() == [0.0, 2.0, 1.0, 1024.0]


def test_nan_is_at_no_distance_even_from_itself() -> None:
    for a, b in ((np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan)):
        assert np.isnan(ulp_distance(np.array([a], BF16), np.array([b], BF16))).all()


def test_what_cannot_be_counted_is_refused() -> None:
    one = np.ones(2, np.float32)
    with pytest.raises(ToolkitError, match="one dtype"):
        ulp_distance(one, one.astype(np.float16))
    with pytest.raises(ToolkitError, match="one dtype"):
        ulp_distance(one, one[:1])
    with pytest.raises(ToolkitError, match="float64"):
        ulp_distance(one.astype(np.float64), one.astype(np.float64))


@given(st.floats(-60000, 60000, width=16), st.floats(-60000, 60000, width=16))
def test_distance_is_symmetric_and_adds_up(x: float, y: float) -> None:
    a, b, zero = (np.array([v], np.float16) for v in (x, y, 0.0))
    assert ulp_distance(a, b) == ulp_distance(b, a)
    if x <= 0 <= y:
        assert ulp_distance(a, b) == ulp_distance(a, zero) + ulp_distance(zero, b)


def test_margin_of_the_public_case_is_one_bfloat16_ulp() -> None:
    # gfx1200, Qwen3-0.6B: " Paris" 15.1216 and "Ġ" 15.0483 on the CPU.
    found = margin(15.1216, 15.0483)
    assert found.logits == pytest.approx(0.0733)
    assert found.nats == found.logits
    assert found.ulps == pytest.approx(0.0733 / 0.0625)


def test_the_same_gap_is_fewer_ulps_where_logits_are_larger() -> None:
    assert margin(20.25, 20.0).ulps == 2.0
    assert margin(40.25, 40.0).ulps == 1.0
    assert margin(20.0, 20.25).ulps == -2.0
    # The larger magnitude counts, not the larger number.
    assert margin(1.0, -40.0, "bfloat16").ulps == 41 / 0.25


@pytest.mark.parametrize("pair", [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (np.inf, np.inf), (1.0, -np.inf)])
def test_a_margin_of_something_not_finite_is_nan(pair: tuple[float, float]) -> None:
    found = margin(*pair)
    assert math.isnan(found.logits)
    assert math.isnan(found.nats)
    assert math.isnan(found.ulps)


def test_resolution_is_the_error_of_two_roundings() -> None:
    assert margin_resolution(20.0, 17.0) == pytest.approx(0.125 / math.sqrt(6))
    assert margin_resolution(33.0, 31.0) == pytest.approx(math.sqrt((0.25**2 + 0.125**2) / 12))
    draw = np.random.default_rng(0).uniform(16, 32, (2, 200_000))
    errors = np.subtract(*(draw.astype(np.float32).astype(BF16).astype(np.float64) - draw))
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(float(margin_resolution(20.0, 20.0)), rel=0.01)
