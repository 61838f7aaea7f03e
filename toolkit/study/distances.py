"""How far apart two tensors are: three figures side by side, because each is blind to something.

``rel_l2`` of the difference sees everything but does not say in which way; ``cosine`` sees rotations and no scaling;
the difference of norms sees scalings and no rotation. All are computed in float64, from the difference of the tensors
and never as a difference of two large numbers, so that small distances have as many correct digits as large ones.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.plain import Plain

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# A row of logits may have 262,144 entries: rows are widened to float64 in portions of this many elements (32 MiB).
PORTION = 1 << 22


@dataclass(frozen=True)
class Distances(Plain):
    """The distances of a tensor from a reference.

    ``rel_l2``           ‖actual - reference‖ / ‖reference‖; 0 if both norms are 0, infinite if only the reference's is
    ``cosine_deficit``   1 - cosine of the angle between them; 0 if both norms are 0, 1 if one is
    ``norm_difference``  (‖actual‖ - ‖reference‖) / ‖reference‖, with the conventions of ``rel_l2``
    ``max_abs``          largest absolute difference
    ``worst``            where it is: an index per axis, the first one of equals
    ``nonfinite``        elements that are NaN or infinite on either side

    ``cosine`` is 1 - ``cosine_deficit``. With any non-finite element all figures are NaN, which no comparison passes, and
    ``worst`` is the first such element.
    """

    rel_l2: float
    cosine_deficit: float
    norm_difference: float
    max_abs: float
    worst: tuple[int, ...]
    nonfinite: int

    @property
    def cosine(self) -> float:
        return 1.0 - self.cosine_deficit


@dataclass(frozen=True)
class RowDistances:
    """``Distances`` of every row (the last axis), each figure as an array [rows]; ``worst`` is an index in the row."""

    rel_l2: Floats
    cosine_deficit: Floats
    norm_difference: Floats
    max_abs: Floats
    worst: Ints
    nonfinite: Ints

    @property
    def cosine(self) -> Floats:
        return 1.0 - self.cosine_deficit


def compare(actual: Array, reference: Array) -> Distances:
    """The distances of ``actual`` from ``reference``, taken as two long vectors of equal shape and any real dtype.

    Raises ToolkitError when the shapes differ or there is nothing to compare.
    """
    _comparable(actual, reference)
    row = _measure(actual.reshape(1, -1), reference.reshape(1, -1))
    return Distances(
        rel_l2=float(row.rel_l2[0]),
        cosine_deficit=float(row.cosine_deficit[0]),
        norm_difference=float(row.norm_difference[0]),
        max_abs=float(row.max_abs[0]),
        worst=tuple(int(i) for i in np.unravel_index(row.worst[0], actual.shape)),
        nonfinite=int(row.nonfinite[0]),
    )


def compare_rows(actual: Array, reference: Array) -> RowDistances:
    """The distances of each row of ``actual`` [..., features] from the same row of ``reference``; rows are flattened.

    Raises ToolkitError when the shapes differ or there is nothing to compare.
    """
    _comparable(actual, reference)
    columns = actual.shape[-1] if actual.ndim else 1
    actual, reference = actual.reshape(-1, columns), reference.reshape(-1, columns)
    step = max(1, PORTION // columns)
    parts = [
        _measure(actual[start : start + step], reference[start : start + step]) for start in range(0, len(actual), step)
    ]
    return RowDistances(*(np.concatenate(figure) for figure in zip(*map(astuple, parts), strict=True)))


def _comparable(actual: Array, reference: Array) -> None:
    if actual.shape != reference.shape:
        raise ToolkitError(
            f"shapes {list(actual.shape)} and {list(reference.shape)} cannot be compared; "
            "were both sides given the same tokens and the same model?"
        )
    if actual.size == 0:
        raise ToolkitError(f"there is nothing to compare in arrays of shape {list(actual.shape)}")


def _measure(actual: Array, reference: Array) -> RowDistances:
    a = actual.astype(np.float64)
    r = reference.astype(np.float64)
    unusable = ~(np.isfinite(a) & np.isfinite(r))
    nonfinite = np.count_nonzero(unusable, axis=1)
    broken = nonfinite > 0
    a[broken] = r[broken] = 0.0

    # One power of two for both sides keeps the difference of the largest float64 numbers finite, and is exact.
    exponent = _exponent(np.maximum(np.abs(a).max(axis=1), np.abs(r).max(axis=1)))
    a, r = np.ldexp(a, -exponent[:, None]), np.ldexp(r, -exponent[:, None])
    difference = a - r
    apart = np.abs(difference)
    unit_a, norm_a = _normalised(a)
    unit_r, norm_r = _normalised(r)
    unit_difference, norm_apart = _normalised(difference)

    rel_l2 = _ratio(norm_apart, norm_r)
    # |u - v|² = 2 - 2 cos for unit vectors; where one of them is zero this would be 1/2.
    one_is_zero = (norm_a == 0) ^ (norm_r == 0)
    deficit = np.where(one_is_zero, 1.0, 0.5 * np.sum((unit_a - unit_r) ** 2, axis=1))
    # ‖a‖ - ‖r‖ = (a - r)·(a + r) / (‖a‖ + ‖r‖).
    along = norm_apart * np.sum(unit_difference * (a + r), axis=1)
    excess = np.divide(along, norm_a + norm_r, out=np.zeros_like(along), where=norm_apart > 0)
    norm_difference = np.sign(excess) * _ratio(np.abs(excess), norm_r)
    with np.errstate(over="ignore"):
        max_abs = np.ldexp(apart.max(axis=1), exponent)
    for figure in (rel_l2, deficit, norm_difference, max_abs):
        figure[broken] = np.nan
    worst = np.where(broken, unusable.argmax(axis=1), apart.argmax(axis=1))
    return RowDistances(rel_l2, deficit, norm_difference, max_abs, worst, nonfinite)


def _exponent(largest: Floats) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.frexp(largest)[1]


def _normalised(x: Floats) -> tuple[Floats, Floats]:
    """Rows divided by their Euclidean norm (zero rows stay), and the norms; squares neither overflow nor vanish."""
    exponent = _exponent(np.abs(x).max(axis=1))
    scaled = np.ldexp(x, -exponent[:, None])
    norm = np.sqrt(np.sum(scaled * scaled, axis=1))
    unit = np.divide(scaled, norm[:, None], out=np.zeros_like(scaled), where=norm[:, None] > 0)
    return unit, np.ldexp(norm, exponent)


def _ratio(value: Floats, reference: Floats) -> Floats:
    """value / reference for non-negative numbers, 0 / 0 = 0 and x / 0 = infinity."""
    out = np.where(value > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        return np.divide(value, reference, out=out, where=reference > 0)
