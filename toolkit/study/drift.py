"""Drift: how far a run has moved away from an arbiter at every stage of every layer.

The arbiter of the method is the same model in float64 without rounding points (device ``exact``): the distance from it
is an engine's rounding error, and engines that are equally honest have errors of equal size even where they round
differently. The distance between two engines is drift too (take one of them as the arbiter); it is what the random-walk
prediction speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from toolkit import dtypes
from toolkit.errors import ToolkitError
from toolkit.study.distances import Array, Floats, Ints, compare_rows
from toolkit.study.plain import INTERNAL, Plain

Place: TypeAlias = tuple[int, str]
"""A layer (-1 for the embedding) and one of its stages."""

Taps: TypeAlias = Mapping[tuple[int, int, str], Array]
"""What a run computed: (part, layer, stage) to [rows, features]. A part is a prompt, or a decoding step."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Which rows a figure per row is about: the part and the row's number in it, each [rows]."""

    part: Ints
    number: Ints

    def same_as(self, other: Rows) -> bool:
        return np.array_equal(self.part, other.part) and np.array_equal(self.number, other.number)

    def find(self, part: int, number: int) -> int | None:
        """Index of a row; None when there is no such row."""
        found = np.flatnonzero((self.part == part) & (self.number == number))
        return int(found[0]) if found.size else None


@dataclass(frozen=True)
class PlaceDrift(Plain):
    """The drift at one place, over the rows of all parts.

    ``level``            root mean square over the rows of ``rel_l2``: every row counts alike, whatever its norm
    ``worst_rel_l2``     the largest ``rel_l2`` of a row, and ``worst_part``, ``worst_row`` where it is
    ``cosine_deficit``   mean over the rows of 1 - cosine
    ``norm_difference``  root mean square over the rows of the relative difference of norms
    ``max_abs``          largest absolute difference
    ``nonfinite``        rows in which the run holds a NaN or an infinity
    ``nonfinite_arbiter``  rows in which the arbiter does

    Any non-finite row makes the figures NaN. ``rel_l2`` [rows] is that of every row.
    """

    layer: int
    stage: str
    level: float
    worst_rel_l2: float
    worst_part: int
    worst_row: int
    cosine_deficit: float
    norm_difference: float
    max_abs: float
    nonfinite: int
    nonfinite_arbiter: int
    rel_l2: Floats = field(metadata=INTERNAL, repr=False)
    rows: Rows = field(metadata=INTERNAL, repr=False)

    @property
    def cosine(self) -> float:
        return 1.0 - self.cosine_deficit

    @property
    def place(self) -> Place:
        return self.layer, self.stage


@dataclass(frozen=True)
class Increment(Plain):
    """What a layer adds to the squared drift of the residual stream, the quantity in which independent errors add."""

    layer: int
    squared: float


@dataclass(frozen=True)
class Drift(Plain):
    """The drift of a run at every place, in the order in which the model computes them."""

    places: tuple[PlaceDrift, ...]

    def at(self, layer: int, stage: str) -> PlaceDrift:
        """The drift at one place. Raises ToolkitError when it was not tapped."""
        for place in self.places:
            if place.place == (layer, stage):
                return place
        raise ToolkitError(f"layer {layer} has no stage {stage!r} among the taps")

    def require_same_rows(self, other: Drift, whose: str) -> None:
        """Raises ToolkitError, naming ``whose`` drift ``other`` is, unless both are of the same places and rows."""
        if [p.place for p in self.places] != [p.place for p in other.places]:
            raise ToolkitError(f"{whose} was tapped at other places than the noise floor; tap the same stages")
        for mine, theirs in zip(self.places, other.places, strict=True):
            if not mine.rows.same_as(theirs.rows):
                raise ToolkitError(
                    f"{whose} has other rows than the noise floor at layer {mine.layer}, stage {mine.stage!r}; "
                    "run it on the same tokens"
                )

    def increments(self, stage: str = "residual") -> list[Increment]:
        """What each layer adds to rel_l2² of its output over that of the layer before it (the embedding at first).

        Independent errors add in squares, so that this is the additive quantity; it is negative where a layer damps
        what it was given.
        """
        before = next((p.level for p in self.places if p.stage == "embedding"), 0.0)
        found = []
        for place in self.places:
            if place.stage == stage:
                found.append(Increment(place.layer, place.level**2 - before**2))
                before = place.level
        return found


def by_part(stages: Mapping[Place, Sequence[Array]]) -> dict[tuple[int, int, str], Array]:
    """Taps from (layer, stage) → one array per prompt, the parts numbered as the prompts are."""
    return {
        (part, layer, stage): array for (layer, stage), arrays in stages.items() for part, array in enumerate(arrays)
    }


def drift_of(run: Taps, arbiter: Taps) -> Drift:
    """The drift of ``run`` from ``arbiter``. Places come in the order in which the arbiter's taps first name them.

    Raises ToolkitError when there are no taps, when one side lacks what the other has, and when shapes differ.
    """
    if not arbiter:
        raise ToolkitError("there are no taps to compare; run both sides with a tap")
    for key in [*arbiter, *run]:
        if key not in run or key not in arbiter:
            part, layer, stage = key
            side = "run" if key not in run else "arbiter"
            raise ToolkitError(
                f"the {side} has no tap of layer {layer}, stage {stage!r}, part {part}, which the other side has; "
                "tap the same stages of the same model on the same tokens"
            )
    parts_of: dict[Place, list[int]] = {}
    for part, layer, stage in arbiter:
        parts_of.setdefault((layer, stage), []).append(part)
    return Drift(tuple(_at(place, parts, run, arbiter) for place, parts in parts_of.items()))


def _at(place: Place, parts: list[int], run: Taps, arbiter: Taps) -> PlaceDrift:
    layer, stage = place
    measured = []
    for part in parts:
        try:
            measured.append(compare_rows(run[part, layer, stage], arbiter[part, layer, stage]))
        except ToolkitError as error:
            raise ToolkitError(f"layer {layer}, stage {stage!r}, part {part}: {error}") from None
    rel_l2 = np.concatenate([m.rel_l2 for m in measured])
    numbers = np.concatenate([np.arange(len(m.rel_l2)) for m in measured])
    owners = np.repeat(np.array(parts, np.int64), [len(m.rel_l2) for m in measured])
    # NaN counts as the worst.
    worst = int(np.argmax(np.where(np.isnan(rel_l2), np.inf, rel_l2)))
    return PlaceDrift(
        layer=layer,
        stage=stage,
        level=_root_mean_square(rel_l2),
        worst_rel_l2=float(rel_l2[worst]),
        worst_part=int(owners[worst]),
        worst_row=int(numbers[worst]),
        cosine_deficit=float(np.mean(np.concatenate([m.cosine_deficit for m in measured]))),
        norm_difference=_root_mean_square(np.concatenate([m.norm_difference for m in measured])),
        max_abs=float(np.max(np.concatenate([m.max_abs for m in measured]))),
        nonfinite=sum(_nonfinite_rows(run[part, layer, stage]) for part in parts),
        nonfinite_arbiter=sum(_nonfinite_rows(arbiter[part, layer, stage]) for part in parts),
        rel_l2=rel_l2,
        rows=Rows(owners, numbers),
    )


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values * values)))


def _nonfinite_rows(x: Array) -> int:
    # bfloat16 has no isfinite of its own in every NumPy; float32 holds it, float16 and itself exactly.
    wide = x if x.dtype == dtypes.FLOAT64 else x.astype(np.float32)
    finite = np.isfinite(wide)
    return int(np.count_nonzero(~finite.all(axis=-1)))


def random_walk(stores: float, dtype: str = "bfloat16") -> float:
    """rel_l2 between two runs whose values were rounded to ``dtype`` ``stores`` times each, independently.

    One store leaves a relative error that is at most the unit roundoff u (2⁻⁸ for bfloat16); uniform in ±u, its root
    mean square is u/√3. Two independent runs are √2 times as far from each other as from the truth, and n independent
    errors of equal size add in squares: √2 · u/√3 · √n. Nothing is fitted, and nothing is known of how layers amplify
    or damp an error: it is a yardstick to draw beside a measurement, not a bound.

    Raises ToolkitError for a negative number of stores.
    """
    if not stores >= 0:
        raise ToolkitError(f"{stores} stores cannot be; count the roundings from the embedding to the place")
    roundoff = 2.0 ** -(dtypes.mantissa_bits(dtypes.dtype(dtype)) + 1)
    return math.sqrt(2) * roundoff / math.sqrt(3) * math.sqrt(stores)
