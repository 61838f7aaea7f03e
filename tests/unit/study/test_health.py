from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.unit.study.network import VARIATIONS, Network, Run, prompts
from toolkit.errors import ToolkitError
from toolkit.study import Drift, Health, drift_of, judge_health, leave_one_out, noise_floor
from toolkit.study.health import ADDED_FACTOR, LEVEL_DEFECT, LEVEL_HEALTHY, ROW_DEFECT, ROW_HEALTHY

STAGES = ("a", "b", "c", "d")
JUST = 1e-6


def drift(*levels: float | list[float], arbiter: float = 1.0) -> Drift:
    """A drift whose rows have the given rel_l2, one number (four equal rows) or four per place."""
    rows = [level if isinstance(level, list) else [level] * 4 for level in levels]
    taps = {(0, 0, stage): 1 + np.array(row)[:, None] for stage, row in zip(STAGES, rows, strict=False)}
    truth = {key: np.full((4, 1), arbiter) for key in taps}
    return drift_of(taps, truth)


def judged(*levels: float | list[float]) -> Health:
    """Against a floor of 1 per cent everywhere."""
    flat = drift(*([0.01] * len(levels)))
    return judge_health(drift(*levels), noise_floor({"x": flat, "y": flat}))


def test_the_floor_itself_is_healthy() -> None:
    found = judged(0.01, 0.01)
    assert found.state == "healthy"
    assert found.first is None
    assert not found.sudden
    assert found.largest_ratio == pytest.approx(1)
    assert found.largest_row_ratio == pytest.approx(1)


def test_less_noise_than_the_floor_is_healthy() -> None:
    assert judged(0.0, 0.001).state == "healthy"


def test_the_limits_are_those_that_are_documented() -> None:
    assert (LEVEL_HEALTHY, LEVEL_DEFECT, ROW_HEALTHY, ROW_DEFECT, ADDED_FACTOR) == (1.5, 2.0, 4.0, 6.0, 1.25)


def test_a_limit_itself_is_inside() -> None:
    # Powers of two, so that the ratio is exact.
    unit = 2.0**-7
    floor = noise_floor({"x": drift(unit), "y": drift(unit)})
    assert judge_health(drift(LEVEL_HEALTHY * unit), floor).state == "healthy"
    assert judge_health(drift(LEVEL_DEFECT * unit), floor).state == "unclear"


@pytest.mark.parametrize(
    ("ratio", "state"),
    [
        (LEVEL_HEALTHY - JUST, "healthy"),
        (LEVEL_HEALTHY + JUST, "unclear"),
        (LEVEL_DEFECT - JUST, "unclear"),
        (LEVEL_DEFECT + JUST, "defect"),
    ],
)
def test_both_sides_of_the_limits_of_the_level(ratio: float, state: str) -> None:
    found = judged(0.01, 0.01 * ratio)
    assert found.state == state
    assert found.largest_ratio == pytest.approx(ratio)
    if state != "healthy":
        assert found.first is not None
        assert found.first.place == (0, "b")


@pytest.mark.parametrize(
    ("ratio", "state"),
    [
        (ROW_HEALTHY - JUST, "healthy"),
        (ROW_HEALTHY + JUST, "unclear"),
        (ROW_DEFECT - JUST, "unclear"),
        (ROW_DEFECT + JUST, "defect"),
    ],
)
def test_both_sides_of_the_limits_of_a_row(ratio: float, state: str) -> None:
    rows = 40  # so many that one row hardly moves the level

    def one(value: float) -> Drift:
        values = np.full((rows, 1), 1.01)
        values[7] = 1 + value
        return drift_of({(0, 0, "a"): values}, {(0, 0, "a"): np.ones((rows, 1))})

    found = judge_health(one(0.01 * ratio), noise_floor({"x": one(0.01), "y": one(0.01)}))
    assert found.state == state
    assert found.largest_ratio < LEVEL_HEALTHY
    (place,) = found.places
    assert (place.row_part, place.row_number) == (0, 7)
    assert found.row_ratio(0, "a", 0, 7) == pytest.approx(ratio)
    assert found.row_ratio(0, "a", 0, 8) == pytest.approx(1)


def test_a_row_that_was_not_tapped_is_refused() -> None:
    for place in ((0, "a", 0, 4), (0, "a", 1, 0), (1, "a", 0, 0), (0, "z", 0, 0)):
        with pytest.raises(ToolkitError, match="no row"):
            judged(0.01).row_ratio(*place)


def test_anything_where_the_floor_has_nothing_is_beyond_it() -> None:
    still = drift(0.0)
    floor = noise_floor({"x": still, "y": still})
    assert judge_health(still, floor).state == "healthy"
    found = judge_health(drift(1e-12), floor)
    assert found.state == "defect"
    assert found.largest_ratio == math.inf
    assert found.first is not None
    assert found.first.added == math.inf


def test_what_is_carried_from_an_infinite_ratio_is_not_added_again() -> None:
    floor = noise_floor({"x": drift(0.0, 0.01, 0.0), "y": drift(0.0, 0.01, 0.0)})
    found = judge_health(drift(0.1, 0.1, 0.1), floor)
    assert [p.added for p in found.places] == [math.inf, 0.0, 1.0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_engine_that_is_not_finite_is_a_defect_where_it_begins(value: float) -> None:
    taps = {(0, 0, stage): np.full((2, 2), 1.01) for stage in STAGES}
    truth = {key: np.ones((2, 2)) for key in taps}
    floor = noise_floor({"x": drift_of(taps, truth), "y": drift_of(taps, truth)})
    taps[0, 0, "b"] = np.array([[1.0, 1.0], [value, 1.0]])
    taps[0, 0, "c"] = np.full((2, 2), 1.5)
    found = judge_health(drift_of(taps, truth), floor)
    assert found.state == "defect"
    assert found.first is not None
    assert found.first.place == (0, "b")
    assert found.first.state == "nonfinite"
    assert (found.first.row_part, found.first.row_number) == (0, 1)
    assert found.sudden


def test_a_floor_that_is_not_finite_says_nothing() -> None:
    broken = noise_floor({"x": drift(0.01, math.nan), "y": drift(0.01, 0.01)})
    found = judge_health(drift(0.01, 0.01), broken)
    assert found.state == "unknown"
    assert [p.state for p in found.places] == ["inside", "unknown"]
    # What can be judged still is.
    assert judge_health(drift(0.1, 0.01), broken).state == "defect"
    assert judge_health(drift(0.016, 0.01), broken).state == "unknown"
    infinite = noise_floor({"x": drift(math.inf), "y": drift(0.01)})
    assert judge_health(drift(0.01), infinite).state == "unknown"


def test_an_arbiter_that_is_not_finite_says_nothing() -> None:
    truth = {(0, 0, "a"): np.array([[np.nan]])}
    run = drift_of({(0, 0, "a"): np.array([[1.0]])}, truth)
    found = judge_health(run, noise_floor({"x": run, "y": run}))
    assert found.state == "unknown"
    fine = drift_of({(0, 0, "a"): np.array([[1.01]])}, {(0, 0, "a"): np.array([[1.0]])})
    assert judge_health(run, noise_floor({"x": fine, "y": fine})).state == "unknown"


def test_a_place_is_charged_only_with_what_it_adds() -> None:
    found = judged(0.01, 0.05, 0.05, 0.10)
    assert [p.added for p in found.places] == pytest.approx([1, 5, 1, 2])
    assert found.state == "defect"
    assert found.first is not None
    assert found.first.place == (0, "b")
    assert found.sudden


def test_a_later_jump_is_found_behind_a_slow_growth() -> None:
    grown = LEVEL_HEALTHY * 1.02
    found = judged(0.01 * grown / 1.2, 0.01 * grown, 0.01 * grown, 0.3)
    assert [p.state for p in found.places] == ["inside", "outside", "outside", "beyond"]
    assert found.first is not None
    assert found.first.place == (0, "d")
    assert found.sudden


@pytest.mark.parametrize(("step", "sudden"), [(ADDED_FACTOR - 1e-3, False), (ADDED_FACTOR + 1e-3, True)])
def test_both_sides_of_what_counts_as_adding(step: float, sudden: bool) -> None:
    start = LEVEL_DEFECT / step**2 * 1.01
    found = judged(*(0.01 * start * step**i for i in range(3)))
    assert found.state == "defect"
    assert found.sudden is sudden
    assert found.first is not None


def test_growth_without_a_jump_is_located_where_it_leaves_the_floor() -> None:
    found = judged(0.0125, 0.0145, 0.0165, 0.0205)
    assert found.state == "defect"
    assert not found.sudden
    assert found.first is not None
    assert found.first.place == (0, "c")


def test_limits_widen_where_the_variations_exceed_each_other() -> None:
    wild = noise_floor({"x": drift(0.03), "y": drift(0.01)})
    found = judge_health(drift(0.03 * 2.5), wild)
    assert found.places[0].widened == pytest.approx(3 / LEVEL_HEALTHY)
    assert found.state == "healthy"
    assert judge_health(drift(0.03 * 3.5), wild).state == "unclear"
    assert judge_health(drift(0.03 * 4.5), wild).state == "defect"
    tame = noise_floor({"x": drift(0.01 * LEVEL_HEALTHY), "y": drift(0.01)})
    assert judge_health(drift(0.01), tame).places[0].widened == pytest.approx(1)


def test_row_limits_widen_too() -> None:
    rows = 40_000  # so many that one row hardly moves the level
    values = np.full((rows, 1), 1.01)
    truth = {(0, 0, "a"): np.ones((rows, 1))}

    def one(value: float) -> Drift:
        changed = values.copy()
        changed[3] = 1 + value
        return drift_of({(0, 0, "a"): changed}, truth)

    found = judge_health(one(0.08 * 5), noise_floor({"x": one(0.08), "y": one(0.01)}))
    assert found.places[0].row_widened == pytest.approx(0.08 / 0.01 / ROW_HEALTHY, rel=1e-3)
    assert found.places[0].row_ratio == pytest.approx(5)
    assert found.state == "healthy"
    floor = noise_floor({"x": one(0.08), "y": one(0.01)})
    assert judge_health(one(0.08 * 9), floor).state == "unclear"
    assert judge_health(one(0.08 * 13), floor).state == "defect"


def test_other_rows_are_refused() -> None:
    flat = drift(0.01, 0.01)
    floor = noise_floor({"x": flat, "y": flat})
    with pytest.raises(ToolkitError, match="the engine was tapped at other places"):
        judge_health(drift(0.01), floor)
    fewer = drift_of(
        {(0, 0, "a"): np.ones((1, 1)), (0, 0, "b"): np.ones((1, 1))},
        {(0, 0, "a"): np.ones((1, 1)), (0, 0, "b"): np.ones((1, 1))},
    )
    with pytest.raises(ToolkitError, match="the engine has other rows"):
        judge_health(fewer, floor)


def test_leaving_out_needs_what_remains() -> None:
    with pytest.raises(ToolkitError, match="at least three"):
        leave_one_out({"x": drift(0.01), "y": drift(0.01)})


def test_json_is_plain_and_has_no_rows() -> None:
    found = judged(0.01, 0.1).to_json()
    assert found["state"] == "defect"
    assert found["first"]["stage"] == "b"
    assert "rows" not in found["places"][0]
    assert "row_ratios" not in found["places"][0]
    assert isinstance(found["places"][0]["ratio"], float)


# Real propagation: a network with rounding points.

SEEDS = range(3)


@cache
def measured(seed: int, *lengths: int) -> tuple[Network, list[list[int]], Any, dict[str, Drift]]:
    network, ids = Network(seed), prompts(seed, lengths or (5, 9, 3, 12, 7, 10))
    exact = network.taps(ids, Run(exact=True))
    return network, ids, exact, {name: drift_of(network.taps(ids, run), exact) for name, run in VARIATIONS.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_variation_is_condemned_by_the_others(seed: int) -> None:
    *_, variations = measured(seed)
    for name, found in leave_one_out(variations).items():
        assert found.state == "healthy", (name, found.largest_ratio, found.largest_row_ratio)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_variation_is_condemned_on_a_single_short_prompt(seed: int) -> None:
    *_, variations = measured(seed, 3)
    for name, found in leave_one_out(variations).items():
        assert found.state in ("healthy", "unclear"), (name, found.largest_ratio, found.largest_row_ratio)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({"norm weight lost": 2}, (2, "post_input_norm")),
        ({"norm weight lost": 0}, (0, "post_input_norm")),
        ({"slope": 1}, (1, "mixer")),
        ({"row": 3}, (3, "mixer")),
        ({"row": 0}, (0, "mixer")),
        ({"scale": (2, 1.05)}, (2, "mixer")),
        ({"nan": 1}, (1, "mixer")),
    ],
)
def test_a_fault_is_found_where_it_is(seed: int, fault: dict[str, Any], place: tuple[int, str]) -> None:
    network, ids, exact, variations = measured(seed)
    found = judge_health(drift_of(network.taps(ids, Run(fault=fault)), exact), noise_floor(variations))
    assert found.state == "defect"
    assert found.first is not None
    assert found.first.place == place
    assert found.sudden


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reference_is_healthy(seed: int) -> None:
    network, ids, exact, variations = measured(seed)
    found = judge_health(drift_of(network.taps(ids, Run()), exact), noise_floor(variations))
    assert found.state == "healthy"
