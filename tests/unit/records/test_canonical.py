from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolkit.records import digest, rounded, unrounded
from toolkit.records.canonical import GUARD_DIGITS, SIGNIFICANT_DIGITS, dumps

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (1.0, "1.0"),
        (123456.0, "123500.0"),
        (1234567890123.0, "1235000000000.0"),
        (0.000123449, "0.0001234"),
        (-2 / 3, "-0.6667"),
        (9.9999e-5, "0.0001"),
        (5e-324, "5e-324"),
        (1.7e308, "1.7e+308"),
        (1.7976931348623157e308, '"inf"'),
    ],
)
def test_four_significant_digits(value: float, expected: str) -> None:
    assert dumps(rounded(value)) == expected


@pytest.mark.parametrize(
    ("tie", "expected"), [(2.0**-7, 0.007812), (3 * 2.0**-7, 0.02344), (2.0**-6, 0.01562), (0.10625, 0.1062)]
)
@pytest.mark.parametrize("noise", [0, 1e-15, -1e-15, 1e-13, -1e-13])
def test_noise_does_not_decide_a_tie(tie: float, expected: float, noise: float) -> None:
    assert rounded(tie * (1 + noise)) == expected
    assert rounded(-tie * (1 + noise)) == -expected


@given(st.integers(-(2**10), 2**10), st.integers(-20, 20), st.integers(-8, 8))
def test_what_lies_on_a_bfloat16_grid_survives_the_noise_of_sums(mantissa: int, exponent: int, steps: int) -> None:
    value = math.ldexp(float(mantissa), exponent)
    nudged = value
    for _ in range(abs(steps)):
        nudged = math.nextafter(nudged, math.copysign(math.inf, steps))
    if value:
        assert rounded(nudged) == rounded(value)


def test_few_numbers_lie_within_their_noise_of_a_boundary() -> None:
    draw = np.exp(np.random.default_rng(0).uniform(-10, 10, 20_000))
    # With a million times the noise of sums some flip: the share is that of the documented bound, scaled.
    noise = 1e-7
    flipped = np.mean([rounded(float(x)) != rounded(float(x) * (1 + noise)) for x in draw])
    assert 0 < flipped < 2 * noise / 10.0**-SIGNIFICANT_DIGITS
    quiet = np.mean([rounded(float(x)) != rounded(float(x) * (1 + 1e-13)) for x in draw])
    assert quiet == 0


@given(NUMBERS)
def test_rounding_is_near_and_stays(x: float) -> None:
    once = rounded(x)
    if not isinstance(once, str):
        assert rounded(once) == once
        if abs(x) > 1e-300:
            assert once == pytest.approx(x, rel=0.51 * 10.0 ** (1 - SIGNIFICANT_DIGITS))


def test_guard_digits_leave_room_for_what_a_grid_needs() -> None:
    assert GUARD_DIGITS >= SIGNIFICANT_DIGITS + 4


@pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_what_is_no_number_becomes_text(value: float, text: str) -> None:
    assert rounded({"x": [value]}) == {"x": [text]}
    assert unrounded({"x": [value]}) == {"x": [text]}


def test_only_floats_are_rounded() -> None:
    value = {"a": [1234567, True, None, "1.23456"], "b": {"c": (1.23456, 2)}}
    assert rounded(value) == {"a": [1234567, True, None, "1.23456"], "b": {"c": [1.235, 2]}}
    assert unrounded(value) == {"a": [1234567, True, None, "1.23456"], "b": {"c": [1.23456, 2]}}


@pytest.mark.parametrize("value", [np.float32(1), np.ones(2), {1, 2}, b"x", 1j, object()])
@pytest.mark.parametrize("function", [rounded, unrounded])
def test_what_is_not_plain_is_refused(function: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="is not plain data"):
        function({"x": [value]})


def test_keys_are_text() -> None:
    with pytest.raises(TypeError, match="keys are text"):
        rounded({1: 2})


def test_the_canonical_text_is_one_line_of_ascii_with_sorted_keys() -> None:
    assert dumps({"b": [1.0, 1], "a": "é\n"}) == '{"a":"\\u00e9\\n","b":[1.0,1]}'
    with pytest.raises(ValueError, match="JSON"):
        dumps(math.nan)


def test_a_digest_is_the_sha256_of_the_canonical_text() -> None:
    # printf '%s' '{"a":1}' | sha256sum
    assert digest({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@given(PLAIN)
@example(1.7976931348623157e308)
def test_a_digest_survives_writing_and_reading(value: Any) -> None:
    kept = rounded(value)
    assert digest(json.loads(json.dumps(kept, indent=1))) == digest(kept)


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_a_digest_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), ("1", 1), (None, "null"), ([], {}), ([1, 2], [2, 1])])
def test_different_contents_have_different_digests(one: Any, other: Any) -> None:
    assert digest({"x": one}) != digest({"x": other})
