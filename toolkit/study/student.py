"""Student's t: how often an estimate from few samples is off by this much."""

from __future__ import annotations

import math

from toolkit.errors import ToolkitError


def student_tail(t: float, freedom: float) -> float:
    """P(|T| > t) for Student's distribution with ``freedom`` degrees of freedom, rounded down to an integer.

    Finite sums of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even); rounding down overstates the tail, never the
    evidence. Raises ToolkitError for fewer than one degree of freedom and for NaN.
    """
    if not freedom >= 1 or math.isnan(t):
        raise ToolkitError(f"Student's distribution is not defined for t = {t} and {freedom} degrees of freedom")
    n = math.floor(freedom)
    angle = math.atan(abs(t) / math.sqrt(n))
    sine, cosine = math.sin(angle), math.cos(angle)
    if n == 1:
        return max(0.0, 1 - 2 * angle / math.pi)
    first = 3 if n % 2 else 2
    term = total = cosine if n % 2 else 1.0
    for k in range(first, n - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if n % 2 else sine * total
    return max(0.0, 1 - inside)
