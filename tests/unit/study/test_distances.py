from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from toolkit.errors import ToolkitError
from toolkit.study import compare, compare_rows, distances

SHAPES = hn.array_shapes(max_dims=2, max_side=4)
MODERATE = st.integers(-(2**24), 2**24).map(lambda i: i / 4096)
ARRAYS = SHAPES.flatmap(lambda shape: hn.arrays(np.float64, shape, elements=MODERATE))
PAIRS = SHAPES.flatmap(lambda s: st.tuples(*[hn.arrays(np.float64, s, elements=MODERATE)] * 2))


def test_known_answer() -> None:
    found = compare(np.array([[3.0, 4.0]]), np.array([[3.0, 0.0]]))
    assert found.rel_l2 == pytest.approx(4 / 3, rel=1e-15)
    assert found.cosine == pytest.approx(0.6, rel=1e-15)
    assert found.norm_difference == pytest.approx(2 / 3, rel=1e-15)
    assert found.max_abs == 4.0
    assert found.worst == (0, 1)
    assert found.nonfinite == 0


def test_a_rotation_is_invisible_to_the_difference_of_norms_only() -> None:
    found = compare(np.array([0.0, 2.0]), np.array([2.0, 0.0]))
    assert found.norm_difference == 0
    assert found.cosine == 0
    assert found.rel_l2 == pytest.approx(math.sqrt(2))


def test_a_scaling_is_invisible_to_the_cosine_only() -> None:
    found = compare(np.array([1.0, 2.0]) * 0.75, np.array([1.0, 2.0]))
    assert found.cosine == pytest.approx(1)
    assert found.norm_difference == pytest.approx(-0.25)
    assert found.rel_l2 == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("actual", "reference", "rel_l2", "cosine", "difference"),
    [
        ([0.0, 0.0], [0.0, -0.0], 0.0, 1.0, 0.0),
        ([1.0, 0.0], [0.0, 0.0], math.inf, 0.0, math.inf),
        ([0.0, 0.0], [1.0, 0.0], 1.0, 0.0, -1.0),
    ],
)
def test_zero_norms(
    actual: list[float], reference: list[float], rel_l2: float, cosine: float, difference: float
) -> None:
    found = compare(np.array(actual), np.array(reference))
    assert (found.rel_l2, found.cosine, found.norm_difference) == (rel_l2, cosine, difference)


def test_the_first_of_equal_differences_is_the_worst() -> None:
    assert compare(np.array([1.0, 5.0, 5.0]), np.array([1.0, 4.0, 4.0])).worst == (1,)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["actual", "reference", "both"])
def test_anything_not_finite_makes_every_figure_nan(value: float, side: str) -> None:
    arrays = {"actual": np.ones((2, 3)), "reference": np.ones((2, 3))}
    for name in arrays if side == "both" else [side]:
        arrays[name][1, 2] = value
    found = compare(**arrays)
    assert found.nonfinite == 1
    assert found.worst == (1, 2)
    for figure in (found.rel_l2, found.cosine, found.cosine_deficit, found.norm_difference, found.max_abs):
        assert math.isnan(figure)
        assert not figure <= math.inf


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32, np.int32])
def test_every_storage_dtype_is_widened_first(dtype: Any) -> None:
    # 300 + 1 is not a bfloat16, 300² not a float16.
    found = compare(np.array([300, 4], dtype), np.array([300, 8], dtype))
    assert found.max_abs == 4
    assert found.rel_l2 == pytest.approx(4 / math.hypot(300, 8), rel=1e-14)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_squares_neither_overflow_nor_vanish(scale: float) -> None:
    found = compare(np.array([3.0, 4.0]) * scale, np.array([3.0, 0.0]) * scale)
    assert found.rel_l2 == pytest.approx(4 / 3, rel=1e-14)
    assert found.cosine == pytest.approx(0.6, rel=1e-14)
    assert found.max_abs == pytest.approx(4 * scale, rel=1e-14)


def test_opposite_numbers_near_the_largest_are_apart() -> None:
    found = compare(np.array([1e308]), np.array([-1e308]))
    assert found.rel_l2 == 2
    assert found.cosine == -1


def test_a_tiny_difference_is_not_nothing() -> None:
    found = compare(np.array([1.0, 1e-200]), np.array([1.0, 0.0]))
    assert found.rel_l2 == pytest.approx(1e-200)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_to_compare_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ToolkitError, match="nothing to compare"):
        compare(np.zeros(shape), np.zeros(shape))
    with pytest.raises(ToolkitError, match="nothing to compare"):
        compare_rows(np.zeros(shape), np.zeros(shape))


def test_shapes_that_differ_are_refused_even_if_they_broadcast() -> None:
    with pytest.raises(ToolkitError, match=r"\[3\] and \[1\]"):
        compare(np.zeros(3), np.zeros(1))
    with pytest.raises(ToolkitError, match=r"\[2, 3\] and \[3\]"):
        compare_rows(np.zeros((2, 3)), np.zeros(3))


@pytest.mark.parametrize("share", [1e-3, 1e-7, 1e-11])
def test_small_distances_have_as_many_digits_as_large_ones(share: float) -> None:
    # A rotation by ``share`` and a scaling by 1 + share, both small: cos and norms differ from 1 in their last digits.
    draw = np.random.default_rng(0)
    x, y = np.linalg.qr(draw.normal(size=(64, 2)))[0].T
    turned = compare(np.cos(share) * x + np.sin(share) * y, x)
    assert turned.cosine_deficit == pytest.approx(2 * np.sin(share / 2) ** 2, rel=1e-4)
    grown = compare(x * (1 + share), x)
    assert grown.norm_difference == pytest.approx(share, rel=1e-4)
    assert grown.rel_l2 == pytest.approx(share, rel=1e-4)


def test_inputs_are_left_alone() -> None:
    actual, reference = np.array([1.0, np.nan]), np.array([2.0, 3.0])
    compare(actual, reference)
    np.testing.assert_array_equal(actual, [1.0, np.nan])
    np.testing.assert_array_equal(reference, [2.0, 3.0])


def test_rows_are_measured_one_by_one() -> None:
    actual = np.array([[[3.0, 4.0], [1.0, 0.0]], [[np.nan, 0.0], [0.0, 0.0]]])
    reference = np.array([[[3.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])
    found = compare_rows(actual, reference)
    np.testing.assert_allclose(found.rel_l2, [4 / 3, 0, np.nan, 0])
    np.testing.assert_allclose(found.cosine, [0.6, 1, np.nan, 1])
    np.testing.assert_allclose(found.norm_difference, [2 / 3, 0, np.nan, 0])
    np.testing.assert_allclose(found.max_abs, [4, 0, np.nan, 0])
    np.testing.assert_array_equal(found.nonfinite, [0, 0, 1, 0])


def test_rows_do_not_depend_on_how_they_are_portioned(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    actual, reference = draw.normal(size=(7, 5)), draw.normal(size=(7, 5))
    whole = compare_rows(actual, reference)
    monkeypatch.setattr(distances, "PORTION", 11)
    parts = compare_rows(actual, reference)
    np.testing.assert_array_equal(whole.rel_l2, parts.rel_l2)
    np.testing.assert_array_equal(whole.max_abs, parts.max_abs)


def test_a_number_is_a_row() -> None:
    assert compare_rows(np.array(3.0), np.array(2.0)).rel_l2.tolist() == [0.5]


@given(ARRAYS)
def test_equal_tensors_have_no_distance(x: np.ndarray[Any, Any]) -> None:
    found = compare(x, x.copy())
    assert (found.rel_l2, found.cosine, found.norm_difference, found.max_abs) == (0.0, 1.0, 0.0, 0.0)


@given(PAIRS, st.integers(-300, 300))
def test_a_common_power_of_two_changes_nothing(pair: tuple[Any, Any], exponent: int) -> None:
    a, b = pair
    plain, scaled = compare(a, b), compare(np.ldexp(a, exponent), np.ldexp(b, exponent))
    assert (plain.rel_l2, plain.cosine, plain.norm_difference, plain.worst) == (
        scaled.rel_l2,
        scaled.cosine,
        scaled.norm_difference,
        scaled.worst,
    )
    assert scaled.max_abs == math.ldexp(plain.max_abs, exponent)


@given(PAIRS)
def test_cosine_and_largest_difference_are_symmetric(pair: tuple[Any, Any]) -> None:
    a, b = pair
    one, other = compare(a, b), compare(b, a)
    assert one.max_abs == other.max_abs
    assert one.worst == other.worst
    assert one.cosine == pytest.approx(other.cosine, abs=1e-12)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_elements_does_not_matter(pair: tuple[Any, Any], random: Any) -> None:
    a, b = pair[0].reshape(-1), pair[1].reshape(-1)
    order = list(range(len(a)))
    random.shuffle(order)
    one, other = compare(a, b), compare(a[order], b[order])
    assert one.rel_l2 == pytest.approx(other.rel_l2, rel=1e-12, abs=1e-300)
    assert one.max_abs == other.max_abs


@given(PAIRS)
def test_the_three_figures_fit_together(pair: tuple[Any, Any]) -> None:
    # ‖a-b‖² = ‖a‖² + ‖b‖² - 2‖a‖‖b‖cos, over ‖b‖².
    a, b = pair
    found = compare(a, b)
    if np.any(b) and np.any(a):
        ratio = 1 + found.norm_difference
        assert found.rel_l2**2 == pytest.approx(ratio**2 + 1 - 2 * ratio * found.cosine, rel=1e-9, abs=1e-9 * ratio**2)
