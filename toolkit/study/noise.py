"""The noise floor, measured: how far legitimate variations of the reference are from the arbiter.

Two floors come from the same teacher-forced runs. One is of the whole perturbation, at every stage of every layer and
for every row: what health is judged by. The other is of one pair of tokens at one step: what decides a near-tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Array, Floats
from toolkit.study.drift import Drift, PlaceDrift
from toolkit.study.plain import INTERNAL, Plain


@dataclass(frozen=True)
class PlaceFloor(Plain):
    """The floor at one place.

    ``level``       drift of the variation that is farthest from the arbiter here, and ``level_of`` its name
    ``spread``      that level over the next one: how far a variation is beyond the floor that the others would make
    ``row_spread``  the same of single rows, the largest of them
    ``row_levels``  floor of each row [rows]: its largest drift in any variation, and at least ``level``, since one row
                    may be as far away as rows usually are
    """

    layer: int
    stage: str
    level: float
    level_of: str
    spread: float
    row_spread: float
    row_levels: Floats = field(metadata=INTERNAL, repr=False)


@dataclass(frozen=True)
class NoiseFloor(Plain):
    """The floor at every place, in the order in which the model computes them, and the variations that made it.

    ``rows`` is the drift of one of them: what is held against the floor must be of the same places and rows.
    """

    variations: tuple[str, ...]
    places: tuple[PlaceFloor, ...]
    rows: Drift = field(metadata=INTERNAL, repr=False)


def noise_floor(variations: Mapping[str, Drift]) -> NoiseFloor:
    """The floor that ``variations`` make: their drifts from one arbiter on the same tokens, by name.

    A NaN among them makes the floor of its place NaN, against which nothing is healthy. Raises ToolkitError for fewer
    than two variations, whose agreement says nothing, and when their places or rows differ.
    """
    if len(variations) < 2:
        raise ToolkitError(f"a noise floor takes at least two variations of the reference, not {len(variations)}")
    names = tuple(variations)
    first = variations[names[0]]
    for name in names[1:]:
        first.require_same_rows(variations[name], f"variation {name!r}")
    places = zip(*(variations[name].places for name in names), strict=True)
    return NoiseFloor(names, tuple(_place_floor(names, drifts) for drifts in places), first)


def _place_floor(names: tuple[str, ...], drifts: tuple[PlaceDrift, ...]) -> PlaceFloor:
    levels = np.array([d.level for d in drifts])
    largest = int(np.argmax(levels))
    level = float(levels.max())
    next_level = float(np.delete(levels, largest).max())
    rows = np.stack([d.rel_l2 for d in drifts])
    # Only the variation that makes a row's floor can be beyond what the others make of it.
    makers = rows.argmax(axis=0)
    top, second = np.sort(rows, axis=0)[:-3:-1]
    others = np.maximum(second, np.where(makers == largest, next_level, level))
    return PlaceFloor(
        layer=drifts[0].layer,
        stage=drifts[0].stage,
        level=level,
        level_of=names[largest],
        spread=float(_spread(np.array([level]), np.array([next_level])).max()),
        row_spread=float(_spread(top, others).max()),
        row_levels=np.maximum(top, level),
    )


def _spread(largest: Floats, others: Floats) -> Floats:
    # Where only one variation moves at all (a copy, say, that it alone rounds), the floor rests on it: no spread.
    return np.maximum(1.0, np.divide(largest, others, out=np.ones_like(largest), where=others > 0))


@dataclass(frozen=True)
class PairNoise(Plain):
    """How far a margin between two tokens is perturbed, step by step, in logits.

    ``sigma``        [steps] the larger of ``measured`` and ``resolution``
    ``measured``     [steps] root mean square error of the variations' margins about the arbiter's. The centre is known,
                     so nothing is subtracted and no degree of freedom is lost
    ``resolution``   [steps] what storing logits in their dtype does to a margin whatever else happens: variations that
                     agree to the last bit of a coarse grid do not show that there is no noise
    ``variations``   how many there are
    ``independent``  how many independent ones they are worth, the degrees of freedom of ``measured``: for errors with
                     covariance C the sum of squares has (tr C)² / tr C² of them (Satterthwaite, 1946). Summation
                     orders mostly repeat the reference's own error; rounding-point families do not
    """

    sigma: Floats
    measured: Floats
    resolution: Floats
    variations: int
    independent: float


def pair_noise(variations: Array, arbiter: Array, resolution: Array) -> PairNoise:
    """The noise of one pair per step, from margins [variations, steps], the arbiter's [steps] and their resolution.

    Steps with a NaN or an infinity get a sigma of NaN and are left out of ``independent``. Raises ToolkitError for
    shapes that do not fit, no variation or no step.
    """
    if variations.ndim != 2 or arbiter.shape != variations.shape[1:] or resolution.shape != arbiter.shape:
        raise ToolkitError(
            f"margins {list(variations.shape)}, the arbiter's {list(arbiter.shape)} and resolutions "
            f"{list(resolution.shape)} are not [variations, steps], [steps] and [steps]"
        )
    if not variations.size:
        raise ToolkitError("the noise of no margins is not defined; run at least one variation over one step")
    with np.errstate(invalid="ignore"):
        errors = variations.astype(np.float64) - arbiter.astype(np.float64)
    finite = np.isfinite(errors).all(axis=0) & np.isfinite(resolution)
    errors[:, ~finite] = np.nan
    measured = np.sqrt(np.mean(errors * errors, axis=0))
    sigma = np.where(finite, np.maximum(measured, resolution), np.nan)
    # Steps differ in how noisy they are; each counts by its own measure.
    usable = finite & (sigma > 0)
    standard = errors[:, usable] / sigma[usable]
    covariance = standard @ standard.T
    squares = float(np.sum(covariance * covariance))
    independent = float(np.trace(covariance)) ** 2 / squares if squares > 0 else 0.0
    return PairNoise(sigma, measured, np.asarray(resolution, np.float64), len(variations), independent)
