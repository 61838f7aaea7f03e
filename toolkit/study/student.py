"""Student's t: how often an estimate from few samples is off by this much."""

from __future__ import annotations

import math

from toolkit.errors import ToolkitError


def student_tail(t: float, freedom: float) -> float:
    """P(|T| > t) for Student's distribution with ``freedom`` degrees of freedom, which need not be an integer.

    It is the regularised incomplete beta function I_x(freedom / 2, 1 / 2) at x = freedom / (freedom + t²), as a continued
    fraction (DLMF 8.17.22): small tails have as many correct digits as large ones. Raises ToolkitError for fewer than
    one degree of freedom and for NaN.
    """
    if not 1 <= freedom < math.inf or math.isnan(t):
        raise ToolkitError(f"Student's distribution is not defined for t = {t} and {freedom} degrees of freedom")
    x = freedom / (freedom + t * t)
    a, b = freedom / 2, 0.5
    if x < (a + 1) / (a + b + 2):
        return _incomplete_beta(x, a, b)
    return 1 - _incomplete_beta(t * t / (freedom + t * t), b, a)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) for x below (a + 1) / (a + b + 2), where some tens of terms of the fraction suffice."""
    if x == 0:
        return 0.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # Lentz's evaluation of 1 / (1 + d1 / (1 + d2 / (1 + ...))).
    fraction = ahead = 1.0
    behind = 0.0
    for n in range(1, 1000):
        m = n // 2
        if n % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        behind = 1 / (1 + d * behind)
        ahead = 1 + d / ahead
        fraction *= ahead * behind
        if abs(ahead * behind - 1) < 1e-15:
            break
    return math.exp(log_front) / (a * fraction)
