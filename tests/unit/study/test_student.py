from __future__ import annotations

import math

import mpmath
import pytest

from toolkit.errors import ToolkitError
from toolkit.study import student_tail


@pytest.mark.parametrize("freedom", [1, 2, 2.7, 3, 5, 7.5, 13, 40, 300])
@pytest.mark.parametrize("t", [0.0, 1e-3, 0.3, 1.0, 2.5, 6.0, 20.0, 300.0])
def test_tail_is_the_regularised_incomplete_beta_function(t: float, freedom: float) -> None:
    with mpmath.workdps(60):
        x = mpmath.mpf(freedom) / (freedom + mpmath.mpf(t) ** 2)
        expected = mpmath.betainc(mpmath.mpf(freedom) / 2, mpmath.mpf(1) / 2, 0, x, regularized=True)
    assert student_tail(t, freedom) == pytest.approx(float(expected), rel=1e-11)


def test_published_quantiles() -> None:
    for t, freedom, tail in ((12.706, 1, 0.05), (4.303, 2, 0.05), (3.169, 10, 0.01), (2.042, 30, 0.05)):
        assert student_tail(t, freedom) == pytest.approx(tail, rel=1e-3)


def test_tails_are_two_sided_and_end() -> None:
    assert student_tail(-2.0, 5) == student_tail(2.0, 5)
    assert student_tail(math.inf, 3) == 0
    assert student_tail(0.0, 3) == 1


@pytest.mark.parametrize(("t", "freedom"), [(1.0, 0.9), (1.0, math.nan), (1.0, math.inf), (math.nan, 3.0)])
def test_what_is_not_defined_is_refused(t: float, freedom: float) -> None:
    with pytest.raises(ToolkitError, match="not defined"):
        student_tail(t, freedom)
