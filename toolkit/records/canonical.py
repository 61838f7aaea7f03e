"""Canonical JSON: one text for one content, so that a digest of the text is a digest of the content."""

from __future__ import annotations

import hashlib
import json
import math
from decimal import ROUND_HALF_EVEN, Context
from typing import Any

SIGNIFICANT_DIGITS = 4
"""To how many significant digits results are rounded before they are digested.

Results are computed in float64 from stored bfloat16 or float32 numbers, which are the same bits on every CPU, but by sums
whose order is not: their last digits differ by some 1e-13 relative. Two things could make that flip a rounded form.

A result that lies on a boundary between two decimals by its nature: margins of bfloat16 logits are multiples of a power
of two, and 2⁻⁷ = 0.0078125 is as near to 0.007812 as to 0.007813. Every number is therefore rounded to ``GUARD_DIGITS``
first, which takes the noise away, and a tie of the digits that remain goes to the even one, by decimal arithmetic.

A result that lies within its noise of a boundary by chance: boundaries are at least 1e-4 apart, relative, so that happens
to 2e-9 of numbers, or to one record of a hundred thousand with five thousand numbers each.
"""

GUARD_DIGITS = 10

_SHORTENING = Context(prec=SIGNIFICANT_DIGITS, rounding=ROUND_HALF_EVEN)


def rounded(value: Any) -> Any:
    """Plain data with every float rounded to ``SIGNIFICANT_DIGITS``; NaN and infinities become "nan", "inf" and "-inf".

    Raises TypeError for anything that is not plain data: dictionaries with text keys, lists, text, numbers, booleans, None.
    """
    return _plain(value, _shortened)


def unrounded(value: Any) -> Any:
    """Plain data as it is, but for NaN and infinities, which become text as in ``rounded``. Raises TypeError as it does."""
    return _plain(value, float)


def _plain(value: Any, number: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        kept = number(value) if math.isfinite(value) else value
        # Rounding up may leave the range of float64.
        return kept if math.isfinite(kept) else str(kept)
    if isinstance(value, list | tuple):
        return [_plain(item, number) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a record's keys are text")
        return {key: _plain(item, number) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} is not plain data")


def _shortened(value: float) -> float:
    guarded = f"{value:.{GUARD_DIGITS - 1}e}"
    # Adding zero leaves one form of zero.
    return float(_SHORTENING.create_decimal(guarded)) + 0.0


def dumps(value: Any) -> str:
    """The canonical text of plain data: sorted keys, one line, ASCII, shortest form of floats, no NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """sha256, in hexadecimal, of the canonical text."""
    return hashlib.sha256(dumps(value).encode("ascii")).hexdigest()
