from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.unit.study.network import LAYERS, Network, Run, prompts
from toolkit.errors import ToolkitError
from toolkit.study import Drift, by_part, drift_of, random_walk
from toolkit.study.drift import Rows


def two_places() -> tuple[dict[tuple[int, int, str], np.ndarray], dict[tuple[int, int, str], np.ndarray]]:
    arbiter = {
        (0, -1, "embedding"): np.array([[3.0, 4.0], [6.0, 8.0]]),
        (0, 0, "residual"): np.array([[1.0, 0.0], [0.0, 2.0]]),
        (1, -1, "embedding"): np.array([[5.0, 0.0]]),
        (1, 0, "residual"): np.array([[0.0, 4.0]]),
    }
    run = {key: value.copy() for key, value in arbiter.items()}
    run[0, 0, "residual"][1] = [0.0, 2.5]
    run[1, 0, "residual"][0] = [2.0, 4.0]
    return run, arbiter


def test_places_come_in_the_order_of_the_arbiter_and_join_their_parts() -> None:
    run, arbiter = two_places()
    found = drift_of(dict(reversed(run.items())), arbiter)
    assert [p.place for p in found.places] == [(-1, "embedding"), (0, "residual")]
    place = found.at(0, "residual")
    assert place.rel_l2.tolist() == [0.0, 0.25, 0.5]
    assert place.rows.part.tolist() == [0, 0, 1]
    assert place.rows.number.tolist() == [0, 1, 0]
    assert place.level == pytest.approx(math.sqrt((0.25**2 + 0.5**2) / 3))
    assert (place.worst_rel_l2, place.worst_part, place.worst_row) == (0.5, 1, 0)
    assert place.max_abs == 2.0
    assert place.norm_difference == pytest.approx(math.sqrt((0.25**2 + (math.sqrt(20) / 4 - 1) ** 2) / 3))
    assert place.cosine == pytest.approx((1 + 1 + 4 / math.sqrt(20)) / 3)
    assert found.at(-1, "embedding").level == 0


def test_rows_are_found_by_part_and_number() -> None:
    rows = drift_of(*two_places()).at(0, "residual").rows
    assert rows.find(1, 0) == 2
    assert rows.find(1, 1) is None
    assert rows.same_as(Rows(rows.part.copy(), rows.number.copy()))
    assert not rows.same_as(Rows(rows.part + 1, rows.number))
    assert not rows.same_as(Rows(rows.part, rows.number + 1))


def test_every_row_counts_alike_whatever_its_norm() -> None:
    arbiter = {(0, 0, "mlp"): np.array([[1e6, 0.0], [1e-6, 0.0]])}
    run = {(0, 0, "mlp"): np.array([[1e6, 0.0], [1.3e-6, 0.0]])}
    assert drift_of(run, arbiter).at(0, "mlp").level == pytest.approx(0.3 / math.sqrt(2))


def test_a_row_that_is_not_finite_makes_its_place_nan_and_is_the_worst() -> None:
    run, arbiter = two_places()
    run[1, 0, "residual"][0, 0] = np.nan
    place = drift_of(run, arbiter).at(0, "residual")
    assert math.isnan(place.level)
    assert math.isnan(place.worst_rel_l2)
    assert (place.worst_part, place.worst_row) == (1, 0)
    assert (place.nonfinite, place.nonfinite_arbiter) == (1, 0)
    assert not drift_of(run, arbiter).at(-1, "embedding").nonfinite
    place = drift_of(arbiter, run).at(0, "residual")
    assert (place.nonfinite, place.nonfinite_arbiter) == (0, 1)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64])
def test_infinities_are_seen_in_every_dtype(dtype: type) -> None:
    arbiter = {(0, 0, "mlp"): np.ones((2, 2))}
    run = {(0, 0, "mlp"): np.array([[1, np.inf], [1, 1]], dtype)}
    assert drift_of(run, arbiter).at(0, "mlp").nonfinite == 1


def test_a_large_float64_is_not_taken_for_an_infinity() -> None:
    taps = {(0, 0, "mlp"): np.array([[1e300, 1.0]])}
    assert drift_of(taps, taps).at(0, "mlp").nonfinite == 0


def test_taps_that_one_side_lacks_are_refused() -> None:
    run, arbiter = two_places()
    del run[1, 0, "residual"]
    with pytest.raises(ToolkitError, match="the run has no tap of layer 0, stage 'residual', part 1"):
        drift_of(run, arbiter)
    with pytest.raises(ToolkitError, match="the arbiter has no tap of layer 0, stage 'residual', part 1"):
        drift_of(arbiter, run)
    with pytest.raises(ToolkitError, match="no taps"):
        drift_of({}, {})


def test_shapes_that_differ_are_refused_with_their_place() -> None:
    run, arbiter = two_places()
    run[0, 0, "residual"] = run[0, 0, "residual"][:1]
    with pytest.raises(ToolkitError, match=r"layer 0, stage 'residual', part 0: shapes \[1, 2\] and \[2, 2\]"):
        drift_of(run, arbiter)


def test_a_place_that_was_not_tapped_is_refused() -> None:
    with pytest.raises(ToolkitError, match="layer 3 has no stage 'mlp'"):
        drift_of(*two_places()).at(3, "mlp")


def test_stages_per_prompt_become_parts() -> None:
    one, other = np.zeros((1, 2)), np.ones((1, 2))
    assert by_part({(0, "mlp"): [one, other]}) == {(0, 0, "mlp"): one, (1, 0, "mlp"): other}


def test_increments_are_differences_of_squares() -> None:
    def taps(*shares: float) -> dict[tuple[int, int, str], np.ndarray]:
        keys = [(0, -1, "embedding"), (0, 0, "mlp"), (0, 0, "residual"), (0, 1, "residual")]
        return {key: np.array([[1.0 + share]]) for key, share in zip(keys, shares, strict=True)}

    found = drift_of(taps(0.1, 9.0, 0.3, 0.2), taps(0.0, 0.0, 0.0, 0.0)).increments()
    assert [i.layer for i in found] == [0, 1]
    assert [i.squared for i in found] == pytest.approx([0.08, -0.05])
    assert sum(i.squared for i in found) == pytest.approx(0.2**2 - 0.1**2)


def test_increments_without_an_embedding_start_from_nothing() -> None:
    found = drift_of({(0, 0, "residual"): np.array([[1.5]])}, {(0, 0, "residual"): np.array([[1.0]])})
    assert [i.squared for i in found.increments()] == [0.25]
    assert found.increments("mlp") == []


def test_random_walk_is_the_published_prediction() -> None:
    assert random_walk(1) == pytest.approx(3.1894e-3, rel=1e-4)
    assert random_walk(64) == pytest.approx(2.5516e-2, rel=1e-4)
    assert random_walk(0) == 0
    assert random_walk(1, "float32") == pytest.approx(math.sqrt(2 / 3) * 2.0**-24)
    for stores in (-1, math.nan):
        with pytest.raises(ToolkitError, match="cannot be"):
            random_walk(stores)


def test_random_walk_bounds_two_independent_roundings() -> None:
    # The relative error of a rounding is largest just above a power of two: there the prediction is met.
    draw = np.random.default_rng(0)
    truth = 1 + draw.uniform(0, 0.01, (1, 100_000))
    dithered = [truth + draw.uniform(-(2.0**-8), 2.0**-8, truth.shape) for _ in range(2)]
    found = drift_of({(0, 0, "mlp"): dithered[0]}, {(0, 0, "mlp"): dithered[1]})
    assert found.at(0, "mlp").level == pytest.approx(random_walk(1), rel=0.01)


def test_a_walk_grows_through_the_layers_of_a_network() -> None:
    network, ids = Network(), prompts()
    found = drift_of(network.taps(ids, Run()), network.taps(ids, Run(exact=True)))
    residual = [found.at(layer, "residual").level for layer in range(LAYERS)]
    assert residual == sorted(residual)
    # One run is √2 nearer to the truth than two are to each other.
    assert 0.3 < residual[-1] / (random_walk(3 * LAYERS) / math.sqrt(2)) < 3


def test_json_has_the_figures_and_no_rows() -> None:
    table = drift_of(*two_places()).to_json()
    assert set(table["places"][0]) == {
        "layer",
        "stage",
        "level",
        "worst_rel_l2",
        "worst_part",
        "worst_row",
        "cosine_deficit",
        "norm_difference",
        "max_abs",
        "nonfinite",
        "nonfinite_arbiter",
    }


def test_rows_must_be_the_same() -> None:
    run, arbiter = two_places()
    whole = drift_of(run, arbiter)
    fewer = {key: value for key, value in run.items() if key[0] == 0}
    with pytest.raises(ToolkitError, match="the engine has other rows than the noise floor at layer -1"):
        whole.require_same_rows(drift_of(fewer, {key: arbiter[key] for key in fewer}), "the engine")
    with pytest.raises(ToolkitError, match="the engine was tapped at other places"):
        whole.require_same_rows(Drift(whole.places[:1]), "the engine")
    whole.require_same_rows(drift_of(run, arbiter), "the engine")
