"""Health, layer by layer: the size of an engine's whole perturbation against the noise floor.

The statistic is a ratio of rounding errors. The arbiter has none, so an engine's drift from it is its error; the floor
is the largest error of a legitimate variation at the same place on the same tokens. An honest engine rounds about as
often as they do and each layer treats its errors as it treats theirs, so that its ratio stays about 1 however much the
layers amplify: no count of roundings and no gain of a layer has to be assumed, which a propagated envelope would need.

**What a place adds.** If a place turns an incoming squared error D² into g²D² + a², and the floor's F² into g²F² + b²,
then an engine that adds no more than the floor (a ≤ b) leaves with a ratio of at most max(1, D/F): no place can raise
the ratio above 1 and above what came in unless it adds error of its own. ``added`` is the ratio over the largest one
before it (or 1), and a defect is located at the first place outside the floor that adds.

Faults smaller than the floor cannot be seen here. In float32 the floor is some thousand times lower than in bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Floats
from toolkit.study.drift import Drift, Place, PlaceDrift, Rows
from toolkit.study.noise import NoiseFloor, PlaceFloor, noise_floor
from toolkit.study.plain import INTERNAL, Plain

LEVEL_HEALTHY = 1.5
"""An engine that rounds twice where every variation rounds once has √2 times their error; the rest is sampling."""

LEVEL_DEFECT = 2.0
"""Twice the error of the least exact variation is four times its variance: three further roundings at every one."""

ROW_HEALTHY = 4.0
"""A row's error has few effective components and scatters; over some 10⁵ honest rows of the bundled models (their weights
under summation orders, rounding-point families, combinations of them and stochastic rounding) the largest was 3.5."""

ROW_DEFECT = 6.0
"""One and a half times the limit of the healthy, as 2.0 is to 1.5 and a little more: it is a maximum over many rows."""

ADDED_FACTOR = 1.25
"""A place adds when its ratio is this much above every ratio before it; honest ratios move by less from place to place."""

PlaceState = Literal["inside", "outside", "beyond", "nonfinite", "unknown"]
State = Literal["healthy", "unclear", "defect", "unknown"]


@dataclass(frozen=True)
class PlaceHealth(Plain):
    """One place of an engine against the floor.

    ``ratio``        the engine's level over the floor's (0 where both are 0, infinite where only the floor is)
    ``added``        the ratio over the largest one before it, or over 1 if that is larger
    ``row_ratio``    the largest ratio of a row, and ``row_part``, ``row_number`` which
    ``row_added``    as ``added``
    ``widened``      by how much the limits are raised where a variation is outside the healthy limits of the floor that
                     the others make: few or short prompts scatter. ``row_widened`` is the same for rows
    ``state``        inside the healthy limits, outside them, beyond those of a defect, nonfinite (the engine holds a
                     NaN or an infinity where the floor does not) or unknown (the floor or the arbiter is not finite)
    """

    layer: int
    stage: str
    level: float
    floor: float
    ratio: float
    added: float
    row_ratio: float
    row_part: int
    row_number: int
    row_added: float
    widened: float
    row_widened: float
    state: PlaceState
    row_ratios: Floats = field(metadata=INTERNAL, repr=False)
    rows: Rows = field(metadata=INTERNAL, repr=False)

    @property
    def place(self) -> Place:
        return self.layer, self.stage


@dataclass(frozen=True)
class Health(Plain):
    """An engine against the floor.

    ``state``   defect: some place is beyond the limits; unknown: else, some place has no floor to be held against;
                unclear: else, some place is outside the healthy limits; healthy: none is
    ``first``   where the engine leaves the floor: the first place outside it that adds; None while all are inside
    ``sudden``  whether that place adds; if none does, the drift grows gradually and ``first`` is the first outside
    """

    state: State
    first: PlaceHealth | None
    sudden: bool
    largest_ratio: float
    largest_row_ratio: float
    places: tuple[PlaceHealth, ...]

    def row_ratio(self, layer: int, stage: str, part: int, row: int) -> float:
        """The whole perturbation of one row against its floor. Raises ToolkitError when the row was not tapped."""
        for place in self.places:
            if place.place == (layer, stage):
                found = place.rows.find(part, row)
                if found is not None:
                    return float(place.row_ratios[found])
        raise ToolkitError(f"no row {row} of part {part} was tapped at layer {layer}, stage {stage!r}")


def judge_health(engine: Drift, floor: NoiseFloor) -> Health:
    """``engine``'s drift from the floor's arbiter, on the floor's tokens, against the floor.

    Raises ToolkitError when the places or rows differ.
    """
    floor.rows.require_same_rows(engine, "the engine")
    places: list[PlaceHealth] = []
    carried = carried_row = 1.0
    for drift, at in zip(engine.places, floor.places, strict=True):
        place = _place_health(drift, at, carried, carried_row)
        places.append(place)
        # A NaN is never the larger one.
        carried = max(carried, place.ratio)
        carried_row = max(carried_row, place.row_ratio)
    out = [p for p in places if p.state in ("outside", "beyond", "nonfinite")]
    adding = [p for p in out if p.state == "nonfinite" or max(p.added, p.row_added) > ADDED_FACTOR]
    return Health(
        state=_state(places),
        first=next(iter(adding or out), None),
        sudden=bool(adding),
        largest_ratio=float(np.max([p.ratio for p in places])),
        largest_row_ratio=float(np.max([p.row_ratio for p in places])),
        places=tuple(places),
    )


def leave_one_out(variations: Mapping[str, Drift]) -> dict[str, Health]:
    """Each variation judged as an engine against the floor of the others: what the rule says of honest engines.

    Raises ToolkitError for fewer than three variations.
    """
    if len(variations) < 3:
        raise ToolkitError(
            f"leaving one of {len(variations)} variations out leaves no floor; at least three are needed"
        )
    return {
        name: judge_health(drift, noise_floor({other: d for other, d in variations.items() if other != name}))
        for name, drift in variations.items()
    }


def _place_health(drift: PlaceDrift, floor: PlaceFloor, carried: float, carried_row: float) -> PlaceHealth:
    ratio = _ratio(drift.level, floor.level)
    row_ratios = np.array([_ratio(row, level) for row, level in zip(drift.rel_l2, floor.row_levels, strict=True)])
    # NaN counts as the worst.
    worst = int(np.argmax(np.where(np.isnan(row_ratios), np.inf, row_ratios)))
    row_ratio = float(row_ratios[worst])
    widened = max(1.0, floor.spread / LEVEL_HEALTHY)
    row_widened = max(1.0, floor.row_spread / ROW_HEALTHY)
    state: PlaceState
    if drift.nonfinite_arbiter or not math.isfinite(floor.level):
        state = "unknown"
    elif drift.nonfinite:
        state = "nonfinite"
    elif ratio <= LEVEL_HEALTHY * widened and row_ratio <= ROW_HEALTHY * row_widened:
        state = "inside"
    elif ratio <= LEVEL_DEFECT * widened and row_ratio <= ROW_DEFECT * row_widened:
        state = "outside"
    else:
        state = "beyond"
    return PlaceHealth(
        layer=drift.layer,
        stage=drift.stage,
        level=drift.level,
        floor=floor.level,
        ratio=ratio,
        added=_ratio(ratio, carried),
        row_ratio=row_ratio,
        row_part=int(drift.rows.part[worst]),
        row_number=int(drift.rows.number[worst]),
        row_added=_ratio(row_ratio, carried_row),
        widened=widened,
        row_widened=row_widened,
        state=state,
        row_ratios=row_ratios,
        rows=drift.rows,
    )


def _ratio(value: float, floor: float) -> float:
    """value / floor; 0 / 0 is 0, x / 0 infinite, and infinity over infinity 1."""
    if value == floor == math.inf:
        return 1.0
    if floor == 0:
        return math.inf if value > 0 else value
    return float(value / floor)


def _state(places: list[PlaceHealth]) -> State:
    states = {p.state for p in places}
    if states & {"beyond", "nonfinite"}:
        return "defect"
    if "unknown" in states:
        return "unknown"
    return "unclear" if "outside" in states else "healthy"
