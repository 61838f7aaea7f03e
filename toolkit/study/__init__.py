"""Comparisons, drift, noise floors and verdicts: pure functions of NumPy arrays."""

from toolkit.study.distances import Distances, RowDistances, compare, compare_rows
from toolkit.study.divergence import (
    Divergence,
    Instability,
    SelectionError,
    first_divergence,
    first_divergences,
    repeats,
    selection_errors,
    state_leak,
)
from toolkit.study.drift import Drift, Increment, Place, PlaceDrift, Taps, by_part, drift_of, random_walk
from toolkit.study.health import Health, PlaceHealth, judge_health, leave_one_out
from toolkit.study.logits import exact_ties, log_softmax, margin_density, pair_margins, top_k, top_margins
from toolkit.study.noise import NoiseFloor, PairNoise, noise_floor, pair_noise
from toolkit.study.plain import Plain, plain
from toolkit.study.student import student_tail
from toolkit.study.summary import drift_rows, health_summary
from toolkit.study.ulps import Margin, margin, margin_resolution, ulp, ulp_distance
from toolkit.study.verdict import (
    JudgedDivergence,
    Mismatch,
    Pair,
    Verdict,
    compare_bits,
    compare_prompts,
    judge,
    judge_divergence,
    judge_pair,
)

__all__ = [
    "Distances",
    "Divergence",
    "Drift",
    "Health",
    "Increment",
    "Instability",
    "JudgedDivergence",
    "Margin",
    "Mismatch",
    "NoiseFloor",
    "Pair",
    "PairNoise",
    "Place",
    "PlaceDrift",
    "PlaceHealth",
    "Plain",
    "RowDistances",
    "SelectionError",
    "Taps",
    "Verdict",
    "by_part",
    "compare",
    "compare_bits",
    "compare_prompts",
    "compare_rows",
    "drift_of",
    "drift_rows",
    "exact_ties",
    "first_divergence",
    "first_divergences",
    "health_summary",
    "judge",
    "judge_divergence",
    "judge_health",
    "judge_pair",
    "leave_one_out",
    "log_softmax",
    "margin",
    "margin_density",
    "margin_resolution",
    "noise_floor",
    "pair_margins",
    "pair_noise",
    "plain",
    "random_walk",
    "repeats",
    "selection_errors",
    "state_leak",
    "student_tail",
    "top_k",
    "top_margins",
    "ulp",
    "ulp_distance",
]
