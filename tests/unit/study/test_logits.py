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
from toolkit.study import exact_ties, log_softmax, margin_density, pair_margins, top_k, top_margins

ROWS = st.tuples(st.integers(1, 4), st.integers(2, 9)).flatmap(
    lambda shape: hn.arrays(np.float64, shape, elements=st.floats(-50, 50))
)


def test_log_softmax_known_answer() -> None:
    found = log_softmax(np.log(np.array([[1.0, 2.0, 5.0], [1.0, 1.0, 2.0]])))
    np.testing.assert_allclose(np.exp(found), [[1 / 8, 2 / 8, 5 / 8], [1 / 4, 1 / 4, 1 / 2]], rtol=1e-15)


def test_log_softmax_of_large_and_impossible_logits() -> None:
    found = log_softmax(np.array([1e4, 1e4, -np.inf]))
    np.testing.assert_allclose(found, [-math.log(2), -math.log(2), -np.inf])


@given(ROWS, st.floats(-100, 100))
def test_log_softmax_sums_to_one_and_ignores_a_constant(x: np.ndarray[Any, Any], shift: float) -> None:
    found = log_softmax(x)
    np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(log_softmax(x + shift), found, atol=1e-10)


def test_ties_go_to_the_lowest_id() -> None:
    ids, values = top_k(np.array([1.0, 7.0, 3.0, 7.0, 3.0, 3.0]), 4)
    assert ids.tolist() == [1, 3, 2, 4]
    assert values.tolist() == [7.0, 7.0, 3.0, 3.0]


@given(ROWS, st.data())
def test_top_k_is_the_head_of_a_stable_sort(x: np.ndarray[Any, Any], data: st.DataObject) -> None:
    x = np.round(x / 10)  # many ties
    k = data.draw(st.integers(1, x.shape[1]))
    ids, values = top_k(x, k)
    for row, found, value in zip(x, ids, values, strict=True):
        expected = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
        assert found.tolist() == expected
        assert value.tolist() == [row[i] for i in expected]


def test_top_k_keeps_leading_axes_and_reads_bfloat16() -> None:
    ids, values = top_k(np.arange(24, dtype=np.float32).reshape(2, 3, 4).astype(ml_dtypes.bfloat16), 2)
    assert ids.shape == values.shape == (2, 3, 2)
    assert (ids == [3, 2]).all()


@pytest.mark.parametrize("k", [0, -1, 5])
def test_a_k_that_a_row_does_not_have_is_refused(k: int) -> None:
    with pytest.raises(ToolkitError, match=f"top {k}"):
        top_k(np.zeros(4), k)


@pytest.mark.parametrize("function", [log_softmax, lambda x: top_k(x, 1), top_margins, exact_ties])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, np.nan], "row 1 of the logits holds a NaN"),
        ([0.0, np.inf], "row 1 of the logits holds a NaN or"),
        ([-np.inf, -np.inf], "no token is possible"),
    ],
)
def test_rows_that_cannot_be_ranked_are_refused(function: Any, row: list[float], message: str) -> None:
    with pytest.raises(ToolkitError, match=message):
        function(np.array([[1.0, 2.0], row]))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 3)])
def test_no_row_of_candidates_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ToolkitError, match="no row of candidates"):
        log_softmax(np.zeros(shape))


def test_top_margins() -> None:
    found = top_margins(np.array([[1.0, 4.0, 2.5], [3.0, 3.0, 0.0], [1.0, -np.inf, -np.inf]]))
    assert found.tolist() == [1.5, 0.0, np.inf]


def test_pair_margins_are_signed_and_nan_where_not_finite() -> None:
    logits = np.array([[1.0, 4.0], [2.0, np.inf], [np.inf, np.inf], [0.5, np.nan]], np.float32)
    found = pair_margins(logits, np.array([[0, 1]] * 4))
    np.testing.assert_array_equal(found, [-3.0, np.nan, np.nan, np.nan])
    assert pair_margins(logits[:1], np.array([[1, 0]])).tolist() == [3.0]
    assert logits[1, 1] == np.inf


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (np.zeros((3, 2), int), "one pair for each"),
        (np.zeros(2, int), "one pair for each"),
        (np.array([[0, 1], [0, 4]]), "outside the 4"),
        (np.array([[0, 1], [-1, 0]]), "outside the 4"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(pairs: Any, message: str) -> None:
    with pytest.raises(ToolkitError, match=message):
        pair_margins(np.zeros((2, 4)), pairs)


def test_no_steps_have_no_margins() -> None:
    assert pair_margins(np.zeros((0, 4)), np.zeros((0, 2), int)).shape == (0,)


def test_density_counts_what_is_strictly_below() -> None:
    assert margin_density(np.array([0.0, 0.1, 0.2, np.inf]), (0.0, 0.1, 0.15, 10.0)) == [0.0, 0.25, 0.5, 0.75]


def test_a_density_of_nothing_or_of_nan_is_refused() -> None:
    with pytest.raises(ToolkitError, match="no margins"):
        margin_density(np.array([]), (1.0,))
    with pytest.raises(ToolkitError, match="NaN"):
        margin_density(np.array([1.0, np.nan]), (1.0,))


def test_exact_ties_arise_from_storage() -> None:
    logits = np.array([[20.01, 20.0, 19.99, 3.0], [20.2, 20.0, 19.0, 3.0]])
    assert exact_ties(logits).tolist() == [3, 1]
    assert exact_ties(logits, "float32").tolist() == [1, 1]
