from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import ToolkitError
from toolkit.study import Drift, drift_of, noise_floor, pair_noise

Array = np.ndarray[Any, np.dtype[Any]]


def drifts(**rows: list[float]) -> dict[str, Drift]:
    """Drifts with the given rel_l2 per row, at one place."""
    arbiter = {(0, 0, "mlp"): np.ones((len(next(iter(rows.values()))), 1))}
    return {name: drift_of({(0, 0, "mlp"): 1 + np.array(values)[:, None]}, arbiter) for name, values in rows.items()}


def test_the_floor_is_the_variation_farthest_from_the_arbiter() -> None:
    (place,) = noise_floor(drifts(a=[0.1, 0.1], b=[0.4, 0.2], c=[0.2, 0.2])).places
    level = math.sqrt((0.4**2 + 0.2**2) / 2)
    assert place.level == pytest.approx(level)
    assert place.level_of == "b"
    assert place.spread == pytest.approx(level / 0.2)


def test_a_row_may_be_as_far_away_as_rows_usually_are() -> None:
    (place,) = noise_floor(drifts(a=[0.9, 0.0, 0.1], b=[0.1, 0.0, 0.1])).places
    level = math.sqrt((0.9**2 + 0.1**2) / 3)
    assert place.row_levels.tolist() == pytest.approx([0.9, level, level])


def test_row_spread_is_how_far_a_row_is_beyond_what_the_others_make_of_it() -> None:
    found = drifts(a=[0.6, 0.1, 0.1, 0.1], b=[0.1, 0.1, 0.1, 0.2], c=[0.1, 0.1, 0.1, 0.1])
    (place,) = noise_floor(found).places
    level_of_b = math.sqrt((3 * 0.1**2 + 0.2**2) / 4)
    assert place.row_spread == pytest.approx(0.6 / level_of_b)
    # A row of a variation that does not make the level is held against that level.
    found = drifts(a=[0.1, 0.1, 0.1, 0.8], b=[0.3, 0.3, 0.3, 0.3], c=[0.1, 0.1, 0.1, 0.1])
    (place,) = noise_floor(found).places
    assert place.level_of == "a"
    assert place.row_spread == pytest.approx(0.8 / 0.3)


def test_agreeing_variations_have_no_spread() -> None:
    (place,) = noise_floor(drifts(a=[0.2, 0.2], b=[0.2, 0.2])).places
    assert (place.spread, place.row_spread) == (1.0, 1.0)


def test_a_place_where_none_or_only_one_moves_has_no_spread() -> None:
    (none,) = noise_floor(drifts(a=[0.0], b=[0.0])).places
    assert (none.level, none.spread, none.row_spread) == (0.0, 1.0, 1.0)
    (one,) = noise_floor(drifts(a=[0.0], b=[0.3])).places
    assert one.level == pytest.approx(0.3)
    assert (one.spread, one.row_spread) == (1.0, 1.0)


def test_a_nan_in_a_variation_leaves_no_floor() -> None:
    (place,) = noise_floor(drifts(a=[0.1, 0.1], b=[math.nan, 0.1], c=[0.1, 0.1])).places
    assert math.isnan(place.level)


@given(
    st.lists(st.lists(st.floats(0.001, 1), min_size=3, max_size=3), min_size=2, max_size=5),
    st.randoms(use_true_random=False),
)
@settings(max_examples=30)
def test_the_order_of_variations_does_not_matter(values: list[list[float]], random: Any) -> None:
    named = {f"v{i}": rows for i, rows in enumerate(values)}
    names = list(named)
    random.shuffle(names)
    (one,), (other,) = noise_floor(drifts(**named)).places, noise_floor(drifts(**{n: named[n] for n in names})).places
    assert one.level == other.level
    assert one.spread == pytest.approx(other.spread)
    np.testing.assert_array_equal(one.row_levels, other.row_levels)


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_variations_are_refused(number: int) -> None:
    with pytest.raises(ToolkitError, match=f"at least two variations of the reference, not {number}"):
        noise_floor(dict(list(drifts(a=[0.1]).items())[:number]))


def test_variations_of_other_rows_are_refused() -> None:
    with pytest.raises(ToolkitError, match="variation 'b' has other rows"):
        noise_floor({**drifts(a=[0.1, 0.1]), **drifts(b=[0.1])})


def test_json_names_the_variations() -> None:
    found = noise_floor(drifts(a=[0.1], b=[0.2])).to_json()
    assert found["variations"] == ["a", "b"]
    assert set(found) == {"variations", "places"}
    assert set(found["places"][0]) == {"layer", "stage", "level", "level_of", "spread", "row_spread"}


# One pair at a time.


def test_sigma_is_the_root_mean_square_about_the_arbiter() -> None:
    found = pair_noise(np.array([[1.5, 2.0], [0.5, 2.0], [1.0, 2.6]]), np.array([1.0, 2.0]), np.array([0.0, 0.0]))
    assert found.measured.tolist() == pytest.approx([math.sqrt(0.5 / 3), math.sqrt(0.36 / 3)])
    assert found.sigma.tolist() == found.measured.tolist()
    assert found.variations == 3


def test_a_common_shift_of_all_variations_is_perturbation_too() -> None:
    found = pair_noise(np.full((4, 1), 1.3), np.array([1.0]), np.array([0.0]))
    assert found.sigma.tolist() == pytest.approx([0.3])


def test_a_coarse_grid_does_not_show_that_there_is_no_noise() -> None:
    found = pair_noise(np.full((4, 2), 1.0), np.array([1.0, 1.0]), np.array([0.05, 0.0]))
    assert found.sigma.tolist() == [0.05, 0.0]
    assert found.independent == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_step_that_is_not_finite_has_no_sigma_and_does_not_spoil_the_others(value: float) -> None:
    draw = np.random.default_rng(0)
    margins = draw.normal(size=(3, 50))
    clean = pair_noise(margins[:, 1:], np.zeros(49), np.full(49, 0.1))
    margins[1, 0] = value
    found = pair_noise(margins, np.zeros(50), np.full(50, 0.1))
    assert math.isnan(found.sigma[0])
    np.testing.assert_allclose(found.sigma[1:], clean.sigma)
    assert found.independent == pytest.approx(clean.independent)
    infinite = pair_noise(np.full((2, 1), value), np.array([value]), np.array([0.1]))
    assert math.isnan(infinite.sigma[0])


def test_independent_variations_count_fully_and_copies_once() -> None:
    draw = np.random.default_rng(1)
    errors = draw.normal(size=(6, 20_000))
    steps = errors.shape[1]
    zero, fine = np.zeros(steps), np.full(steps, 1e-9)
    assert pair_noise(errors, zero, fine).independent == pytest.approx(6, rel=0.02)
    assert pair_noise(np.repeat(errors[:2], 3, axis=0), zero, fine).independent == pytest.approx(2, rel=0.02)
    assert pair_noise(np.repeat(errors[:1], 6, axis=0), zero, fine).independent == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_how_many_are_independent_does_not_depend_on_the_scale_of_logits(scale: float) -> None:
    errors = np.random.default_rng(4).normal(size=(4, 300))
    plain = pair_noise(errors, np.zeros(300), np.full(300, 1e-9))
    scaled = pair_noise(errors * scale, np.zeros(300), np.full(300, 1e-9 * scale))
    assert scaled.independent == pytest.approx(plain.independent)
    below_resolution = pair_noise(errors[:1, :1] * 1e-3, np.zeros(1), np.ones(1))
    assert below_resolution.independent == pytest.approx(1)


def test_a_variation_that_hardly_moves_hardly_counts() -> None:
    errors = np.random.default_rng(2).normal(size=(3, 20_000))
    errors[2] *= 1e-3
    found = pair_noise(errors, np.zeros(20_000), np.full(20_000, 1e-9))
    assert found.independent == pytest.approx(2, rel=0.02)


def test_few_steps_understate_how_many_are_independent() -> None:
    errors = np.random.default_rng(3).normal(size=(8, 1))
    assert pair_noise(errors, np.zeros(1), np.full(1, 1e-9)).independent == pytest.approx(1)


@pytest.mark.parametrize(
    ("variations", "arbiter", "resolution"),
    [((3,), (3,), (3,)), ((2, 3), (2,), (3,)), ((2, 3), (3,), (2,))],
)
def test_margins_that_do_not_fit_are_refused(variations: Any, arbiter: Any, resolution: Any) -> None:
    with pytest.raises(ToolkitError, match="are not"):
        pair_noise(np.zeros(variations), np.zeros(arbiter), np.zeros(resolution))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_no_margins_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ToolkitError, match="no margins"):
        pair_noise(np.zeros(shape), np.zeros(shape[1]), np.zeros(shape[1]))
