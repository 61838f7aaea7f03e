from __future__ import annotations

import math

import mpmath
import pytest

from toolkit.errors import ToolkitError
from toolkit.study import student_tail


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 13, 40])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 6.0, 20.0])
def test_tail_is_the_regularised_incomplete_beta_function(t: float, freedom: int) -> None:
    inside = mpmath.betainc(0.5, freedom / 2, 0, t * t / (freedom + t * t), regularized=True)
    assert student_tail(t, freedom) == pytest.approx(float(1 - inside), rel=1e-6, abs=1e-14)


def test_tails_are_two_sided() -> None:
    assert student_tail(-2.0, 5) == student_tail(2.0, 5)


def test_fractions_of_a_degree_of_freedom_do_not_count() -> None:
    assert student_tail(3.0, 4.9) == student_tail(3.0, 4)
    assert student_tail(math.inf, 3) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("t", "freedom"), [(1.0, 0.9), (1.0, math.nan), (math.nan, 3.0)])
def test_what_is_not_defined_is_refused(t: float, freedom: float) -> None:
    with pytest.raises(ToolkitError, match="not defined"):
        student_tail(t, freedom)
