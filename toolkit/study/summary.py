"""Drift and health as rows of a record."""

from __future__ import annotations

from typing import Any

from toolkit.study.drift import Drift
from toolkit.study.health import Health
from toolkit.study.noise import NoiseFloor


def drift_rows(
    apart: Drift, reference: Drift, backend: Drift, health: Health, floor: NoiseFloor
) -> list[dict[str, Any]]:
    """One row per layer and stage: the sides' distances from each other and from the arbiter, and the noise floor.

    ``apart`` is the drift of the backend from the reference, ``health`` the backend's; all are of the same places.
    """
    return [
        {
            "layer": between.layer,
            "stage": between.stage,
            "rel_l2": between.level,
            "cosine_deficit": between.cosine_deficit,
            "norm_difference": between.norm_difference,
            "reference_to_float64": one.level,
            "backend_to_float64": other.level,
            "floor": limit.level,
            "floor_of": limit.level_of,
            "ratio": place.ratio,
            "state": place.state,
            "nonfinite": [one.nonfinite, other.nonfinite],
        }
        for between, one, other, limit, place in zip(
            apart.places, reference.places, backend.places, floor.places, health.places, strict=True
        )
    ]


def health_summary(reference: Health, backend: Health) -> dict[str, Any]:
    """State, largest ratios and the first place outside the floor, of both sides."""
    return {
        name: {
            "state": found.state,
            "largest_ratio": found.largest_ratio,
            "largest_row_ratio": found.largest_row_ratio,
            "first": None if found.first is None else [found.first.layer, found.first.stage],
        }
        for name, found in (("reference", reference), ("backend", backend))
    }
