"""Canonical JSON: one text for one content, so that a digest of the text is a digest of the content."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

SIGNIFICANT_DIGITS = 4
"""To how many significant digits results are rounded before they are digested.

What is recorded is computed from float32 and bfloat16 results that are the same bits on every CPU, in float64 sums whose
order, and so whose last bits, may differ between CPUs by some 1e-15 relative. A number flips its rounded form only when
it lies that close to a boundary between two decimals of 4 digits: about one in 10¹¹ numbers, one in 10⁷ records.
"""


def rounded(value: Any) -> Any:
    """``value`` with every float rounded to ``SIGNIFICANT_DIGITS``; NaN and infinities become text, which JSON can hold.

    Raises TypeError for anything that is not plain data: dictionaries with text keys, lists, text, numbers, booleans, None.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        # Zero has one form, and a whole number is written as the float that it is.
        return float(f"{value:.{SIGNIFICANT_DIGITS - 1}e}") + 0.0
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a record's keys are text")
        return {key: rounded(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} is not plain data")


def dumps(value: Any) -> str:
    """The canonical text of plain data: sorted keys, one line, UTF-8, shortest form of floats, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """sha256, in hexadecimal, of the canonical text."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()
