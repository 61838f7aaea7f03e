from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolkit.errors import ToolkitError
from toolkit.study import (
    Divergence,
    Health,
    Instability,
    JudgedDivergence,
    Mismatch,
    Pair,
    SelectionError,
    Verdict,
    compare_bits,
    compare_prompts,
    drift_of,
    judge,
    judge_divergence,
    judge_health,
    judge_pair,
    margin,
    noise_floor,
    student_tail,
)
from toolkit.study.verdict import MIN_INDEPENDENT, PAIR_CHANCE, PAIR_DEFECT, PAIR_NEAR_TIE

SIGMA = 0.5
MANY = 30.0


def pair(arbiter: float, reference: float, backend: float, **given: Any) -> Pair:
    """Margins of the reference's token over the backend's, in units of sigma."""
    margins = [margin(20.0 + SIGMA * m, 20.0) for m in (arbiter, reference, backend)]
    return judge_pair(*margins, **{"sigma": SIGMA, "independent": MANY, "steps": 100, **given})


def healthy(state: str = "healthy") -> Health:
    level = {"healthy": 0.01, "unclear": 0.017, "defect": 0.05, "unknown": 0.01}[state]
    truth = {(0, 2, "mixer"): np.ones((3, 1)), (0, 2, "mlp"): np.ones((3, 1))}

    def run(level: float) -> Any:
        return drift_of({(0, 2, "mixer"): np.full((3, 1), 1.01), (0, 2, "mlp"): np.full((3, 1), 1 + level)}, truth)

    floor = run(math.nan if state == "unknown" else 0.01)
    found = judge_health(run(level), noise_floor({"x": floor, "y": floor}))
    assert found.state == state
    return found


def diverged(judged: Pair | None = None, backend: Health | None = None, **given: Any) -> JudgedDivergence:
    return judge_divergence(Divergence(4, 7, 11, 12), judged or pair(0.5, 1, -1), backend or healthy(), **given)


def verdict(**given: Any) -> Verdict:
    """A battery in which everything is as it should be, but for what is given."""
    defaults: dict[str, Any] = {
        "steps": 100,
        "mismatches": [],
        "unstable": {"reference": [], "backend": []},
        "reference": healthy(),
        "backend": healthy(),
        "divergences": [],
        "selection": {"reference": [], "backend": []},
    }
    return judge(**{**defaults, **given})


def test_the_limits_are_those_that_are_documented() -> None:
    assert (PAIR_NEAR_TIE, PAIR_DEFECT, PAIR_CHANCE, MIN_INDEPENDENT) == (3.0, 10.0, 0.01, 2.0)


# The inputs.


def test_equal_prompts_have_no_mismatch() -> None:
    assert compare_prompts([[1, 2], [3]], [(1, 2), (3,)]) == []  # type: ignore[list-item]


def test_prompts_that_differ_are_shown() -> None:
    found = compare_prompts([[2, 5], [3]], [[2, 2, 5], [3]])
    assert found == [Mismatch("prompt ids", "prompt 0", "[2, 5] of length 2 and [2, 2, 5] of length 3")]
    (long,) = compare_prompts([list(range(9))], [list(range(8))])
    assert long.detail == "[0, 1, 2, 3, 4, 5, 6, 7, …] of length 9 and [0, 1, 2, 3, 4, 5, 6, 7] of length 8"


def test_batteries_of_different_length_are_one_mismatch() -> None:
    assert [m.where for m in compare_prompts([[1]], [[1], [2]])] == ["battery"]


def test_bits_are_compared_as_bytes() -> None:
    row = np.array([1.0, 0.0, np.nan], ml_dtypes.bfloat16)
    assert compare_bits("embedding row", "token 5", row, row.copy()) == []
    negative_zero = row.copy()
    negative_zero[1] = -0.0
    assert compare_bits("embedding row", "token 5", row, negative_zero) == [
        Mismatch("embedding row", "token 5", "1 bytes differ")
    ]
    (found,) = compare_bits("embedding row", "token 5", row, row.astype(np.float32))
    assert found.detail == "bfloat16[3] and float32[3]"
    (found,) = compare_bits("embedding row", "token 5", row, row[:2])
    assert found.detail == "bfloat16[3] and bfloat16[2]"


# One pair.


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (0.0, "near-tie"),
        (PAIR_NEAR_TIE, "near-tie"),
        (PAIR_NEAR_TIE + 1e-6, "undetermined"),
        (PAIR_DEFECT, "undetermined"),
        (PAIR_DEFECT + 1e-6, "defect"),
    ],
)
def test_both_sides_of_the_limits_of_a_gap(gap: float, expected: str) -> None:
    # The backend was moved by just the gap, the reference not at all.
    found = pair(gap, gap, 0.0)
    assert found.verdict == expected
    assert found.gap_ratio == pytest.approx(gap)
    assert found.backend_deviation == pytest.approx(gap)
    assert found.reference_deviation == 0


def test_the_reports_that_the_rule_was_made_for() -> None:
    # ferrox #103: a gap of 3.55e-2, 37,271 float32 ULPs, under a perturbation of 3.52e-2.
    numbers = {"sigma": 0.0352, "independent": 10, "steps": 1}
    one = judge_pair(margin(20.0355, 20), margin(20.0355, 20), margin(20, 20.001), **numbers)
    assert one.verdict == "near-tie"
    assert one.gap_ratio == pytest.approx(1.01, rel=0.01)
    ten = judge_pair(margin(20.36, 20), margin(20.36, 20), margin(20, 20.001), **numbers)
    assert ten.verdict == "defect"


def test_a_choice_proves_a_deviation_that_a_forced_pass_does_not_show() -> None:
    # The backend's forced pass agrees with the reference, but it chose the other token.
    found = pair(12.0, 12.0, 12.0)
    assert found.backend_deviation == pytest.approx(12)
    assert (found.verdict, found.rule) == ("defect", "backend-moved-beyond-chance")
    # The same of a reference that chose what the arbiter puts second.
    found = pair(-12.0, -12.0, -12.0)
    assert found.reference_deviation == pytest.approx(12)
    assert (found.verdict, found.rule) == ("reference-unstable", "reference-moved-beyond-chance")


def test_at_an_exact_tie_a_backend_that_moved_far_is_not_excused() -> None:
    assert pair(0.0, 0.0, -PAIR_DEFECT - 1).verdict == "defect"
    assert pair(0.0, 0.0, -PAIR_DEFECT + 1).verdict == "near-tie"


def test_a_reference_that_moved_far_cannot_judge_whatever_the_backend_did() -> None:
    assert pair(0.0, PAIR_DEFECT + 1, -PAIR_DEFECT - 1).verdict == "reference-unstable"


def test_few_independent_variations_condemn_nobody() -> None:
    for independent in (MIN_INDEPENDENT, 3.0):
        assert pair(12.0, 12.0, 0.0, independent=independent).verdict == "undetermined"
    assert pair(12.0, 12.0, 0.0, independent=12.0).verdict == "defect"


@pytest.mark.parametrize(("factor", "expected"), [(0.99, "defect"), (1.01, "undetermined")])
def test_both_sides_of_the_chance_of_an_honest_engine(factor: float, expected: str) -> None:
    freedom, deviation = 6, 12.0
    steps = 1
    tail = student_tail(deviation, freedom)
    steps = max(1, round(PAIR_CHANCE / tail * factor))
    found = pair(deviation, deviation, 0.0, independent=freedom, steps=steps)
    assert found.chance == pytest.approx(steps * tail)
    assert found.verdict == expected


@pytest.mark.parametrize(
    ("independent", "expected"),
    [(MIN_INDEPENDENT - 1e-9, "undetermined"), (MIN_INDEPENDENT, "near-tie"), (math.nan, "undetermined")],
)
def test_a_near_tie_needs_a_measured_perturbation(independent: float, expected: str) -> None:
    found = pair(0.5, 0.5, -0.5, independent=independent)
    assert found.verdict == expected
    assert found.rule == ("pair-noise-unmeasured" if expected == "undetermined" else "gap-within-perturbation")


def test_no_independent_variation_leaves_everything_to_chance() -> None:
    assert pair(20.0, 20.0, 0.0, independent=0.0).chance == 1.0
    assert pair(20.0, 20.0, 0.0, independent=1.5, steps=1).chance == pytest.approx(student_tail(20.0, 1.5))


@pytest.mark.parametrize("numbers", [(math.nan, 1, 1), (1, math.nan, 1), (1, 1, math.nan), (math.inf, 1, 1)])
def test_missing_margins_decide_nothing(numbers: tuple[float, float, float]) -> None:
    found = pair(*numbers)
    assert (found.verdict, found.rule) == ("undetermined", "pair-numbers-missing")


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_perturbation_that_is_no_number_decides_nothing(sigma: float) -> None:
    found = judge_pair(margin(20, 20), margin(20, 20), margin(20, 20), sigma=sigma, independent=MANY, steps=1)
    assert (found.verdict, found.rule) == ("undetermined", "pair-numbers-missing")


def test_a_divergence_among_no_steps_is_refused() -> None:
    with pytest.raises(ToolkitError, match="0 compared steps"):
        pair(0.0, 0.0, 0.0, steps=0)


NUMBERS = st.floats(-30, 30) | st.sampled_from([math.nan, math.inf, -math.inf])


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 40), st.integers(1, 1000))
@example(0.0, 0.0, 0.0, math.inf, 20.0, 1)
def test_nothing_that_is_not_finite_is_ever_a_near_tie(
    a: float, r: float, b: float, sigma: float, independent: float, steps: int
) -> None:
    margins = [margin(20 + m, 20.0) for m in (a, r, b)]
    found = judge_pair(*margins, sigma=sigma, independent=independent, steps=steps)
    if found.verdict == "near-tie":
        assert all(math.isfinite(x) for x in (a, r, b, sigma))
        assert found.gap_ratio <= PAIR_NEAR_TIE


GRID = st.integers(-1920, 1920).map(lambda i: i / 64)


@given(GRID, GRID, GRID, st.sampled_from([0.25, 2.0, 8.0]))
def test_logits_of_another_scale_give_the_same_verdict(a: float, r: float, b: float, scale: float) -> None:
    def at(scale: float) -> Pair:
        margins = [margin(m * scale, 0.0) for m in (a, r, b)]
        return judge_pair(*margins, sigma=scale, independent=12, steps=50)

    assert at(1.0).verdict == at(scale).verdict
    assert at(1.0).gap_ratio == at(scale).gap_ratio


@given(GRID, GRID, GRID)
def test_exchanging_the_sides_exchanges_the_blame(a: float, r: float, b: float) -> None:
    one, other = pair(a, r, b), pair(-a, -b, -r)
    assert one.gap_ratio == pytest.approx(other.gap_ratio)
    assert one.backend_deviation == pytest.approx(other.reference_deviation)
    blame = {"defect": "reference-unstable", "reference-unstable": "defect"}
    if (
        max(one.backend_deviation, one.reference_deviation)
        > PAIR_DEFECT
        > min(one.backend_deviation, one.reference_deviation)
    ):
        assert other.verdict == blame[one.verdict]


# One divergence.


def test_a_near_tie_needs_a_healthy_backend() -> None:
    assert diverged().verdict == "near-tie"
    assert diverged(backend=healthy("defect")).verdict == "defect"
    assert diverged(backend=healthy("defect")).rule == "backend-beyond-floor"
    for state in ("unclear", "unknown"):
        found = diverged(backend=healthy(state))
        assert (found.verdict, found.rule) == ("undetermined", "health-not-established")
    found = judge_divergence(Divergence(0, 0, 1, 2), pair(0.5, 1, -1), None)
    assert found.verdict == "undetermined"


def test_the_gap_is_reported_even_if_health_decides() -> None:
    found = diverged(backend=healthy("defect"), whole_ratio=9.0)
    assert found.pair is not None
    assert found.pair.verdict == "near-tie"
    assert found.whole_ratio == 9.0


def test_a_pair_that_is_no_near_tie_keeps_its_verdict() -> None:
    assert diverged(pair(5, 5, 0)).verdict == "undetermined"
    assert diverged(pair(20, 20, 0)).verdict == "defect"
    assert diverged(pair(-20, 0, 0)).verdict == "reference-unstable"


def test_a_side_that_had_ended_leaves_no_pair() -> None:
    found = judge_divergence(Divergence(0, 3, 5, None), None, healthy())
    assert (found.verdict, found.rule, found.pair) == ("undetermined", "a-side-had-ended", None)
    assert judge_divergence(Divergence(0, 3, 5, None), None, healthy("defect")).verdict == "defect"


def test_references_that_disagree_at_a_near_tie_are_no_reference() -> None:
    assert diverged(other_references=[11, 11]).verdict == "near-tie"
    found = diverged(other_references=[11, 12])
    assert (found.verdict, found.rule) == ("reference-unstable", "references-disagree")
    # Beyond the perturbation one of them is wrong, and nothing says which.
    assert diverged(pair(20, 20, 0), other_references=[12]).verdict == "undetermined"
    assert diverged(backend=healthy("defect"), other_references=[12]).verdict == "defect"


# The backend.


def test_equal_tokens_and_health_are_identical() -> None:
    found = verdict()
    assert (found.verdict, found.rule) == ("identical", "tokens-equal-and-healthy")
    assert found.numbers["steps"] == 100
    assert found.numbers["largest_ratio"] == pytest.approx(1)
    assert (found.layer, found.stage) == (None, None)


def test_near_ties_of_a_healthy_backend_are_a_near_tie() -> None:
    found = verdict(divergences=[diverged(), diverged(pair(2.5, 2.5, -0.1))])
    assert (found.verdict, found.rule) == ("near-tie", "gaps-within-perturbation-and-healthy")
    assert found.numbers["divergences"] == 2
    assert found.numbers["largest_gap_ratio"] == pytest.approx(2.5)


def test_a_defect_need_not_flip_a_token() -> None:
    found = verdict(backend=healthy("defect"))
    assert (found.verdict, found.layer, found.stage) == ("defect", 2, "mlp")
    assert "layer 2, stage mlp" in found.reason
    assert found.numbers["first"]["ratio"] == pytest.approx(5)
    assert found.numbers["sudden"] is True


def test_a_defect_that_grows_gradually_says_so() -> None:
    truth = {(0, layer, "mlp"): np.ones((2, 1)) for layer in range(4)}

    def run(*levels: float) -> Any:
        return drift_of({key: np.full((2, 1), 1 + x) for key, x in zip(truth, levels, strict=True)}, truth)

    flat = noise_floor({"x": run(*[0.01] * 4), "y": run(*[0.01] * 4)})
    found = verdict(backend=judge_health(run(0.0125, 0.0145, 0.0165, 0.0205), flat))
    assert (found.verdict, found.layer) == ("defect", 2)
    assert "growing gradually" in found.reason


def test_a_nan_in_the_backend_is_a_defect() -> None:
    truth = {(0, 5, "mlp"): np.ones((2, 1))}
    good = drift_of({(0, 5, "mlp"): np.full((2, 1), 1.01)}, truth)
    bad = drift_of({(0, 5, "mlp"): np.array([[1.0], [np.nan]])}, truth)
    found = verdict(backend=judge_health(bad, noise_floor({"x": good, "y": good})))
    assert (found.verdict, found.layer, found.stage) == ("defect", 5, "mlp")


def test_a_pair_beyond_chance_is_a_defect_of_the_head_or_of_decoding() -> None:
    found = verdict(divergences=[diverged(), diverged(pair(20, 20, 0))])
    assert (found.verdict, found.stage, found.rule) == ("defect", "logits", "backend-moved-beyond-chance")
    assert found.numbers["first"]["pair"]["gap_ratio"] == pytest.approx(20)


def test_a_choice_that_does_not_follow_from_the_logits_is_a_defect() -> None:
    found = verdict(selection={"reference": [], "backend": [SelectionError(2, 5, 9, 4)]})
    assert (found.verdict, found.stage, found.rule) == ("defect", "selection", "choice-unexplained")
    assert "prompt 2, step 5" in found.reason


def test_the_first_layer_of_a_defect_is_named_before_its_consequences() -> None:
    found = verdict(
        backend=healthy("defect"),
        divergences=[diverged(pair(20, 20, 0))],
        selection={"reference": [], "backend": [SelectionError(2, 5, 9, 4)]},
    )
    assert (found.layer, found.stage) == (2, "mlp")


def test_a_reference_that_is_unfit_cannot_judge() -> None:
    assert verdict(reference=healthy("defect")).rule == "reference-beyond-floor"
    assert verdict(reference=healthy("defect"), backend=healthy("defect")).verdict == "reference-unstable"
    found = verdict(selection={"reference": [SelectionError(2, 5, 9, None)], "backend": []})
    assert (found.verdict, found.rule) == ("reference-unstable", "reference-choice-unexplained")
    found = verdict(divergences=[diverged(other_references=[12])])
    assert (found.verdict, found.rule) == ("reference-unstable", "references-disagree")
    assert "prompt 4, step 7" in found.reason


@pytest.mark.parametrize("side", ["reference", "backend"])
@pytest.mark.parametrize(("kind", "words"), [("repeat", "between repeated runs"), ("state", "after other prompts")])
def test_a_side_that_differs_from_itself_is_nondeterministic(side: str, kind: Any, words: str) -> None:
    unstable = {"reference": [], "backend": [], side: [Instability(kind, 3, 2, (1, 2))]}
    found = verdict(unstable=unstable, backend=healthy("defect"))
    assert (found.verdict, found.rule) == ("nondeterministic", "runs-differ")
    assert found.numbers["side"] == side
    assert words in found.reason


def test_different_inputs_block_every_other_verdict() -> None:
    found = verdict(
        mismatches=[Mismatch("prompt ids", "prompt 0", "[1] and [2]")],
        steps=0,
        backend=healthy("defect"),
        reference=healthy("defect"),
        unstable={"backend": [Instability("repeat", 0, 0, (1, 2))]},
        divergences=[diverged(pair(20, 20, 0))],
    )
    assert (found.verdict, found.rule) == ("not-comparable", "inputs-differ")
    assert "prompt ids of prompt 0" in found.reason


@pytest.mark.parametrize(
    ("missing", "rule"),
    [
        ({"steps": 0}, "nothing-compared"),
        ({"steps": -1}, "nothing-compared"),
        ({"unstable": {}}, "check-missing"),
        ({"unstable": {"reference": []}}, "check-missing"),
        ({"selection": {"backend": []}}, "check-missing"),
        ({"reference": None}, "health-not-measured"),
        ({"backend": None}, "health-not-measured"),
    ],
)
def test_what_was_not_measured_never_counts_for_health(missing: dict[str, Any], rule: str) -> None:
    for divergences in ([], [diverged()]):
        found = verdict(**{"divergences": divergences, **missing})
        assert (found.verdict, found.rule) == ("undetermined", rule)


@pytest.mark.parametrize("side", ["reference", "backend"])
@pytest.mark.parametrize("state", ["unclear", "unknown"])
def test_between_healthy_and_defect_nothing_is_claimed(side: str, state: str) -> None:
    found = verdict(**{side: healthy(state)})
    assert (found.verdict, found.rule) == ("undetermined", f"health-{state}")
    assert side in found.reason


def test_an_unexplained_divergence_of_a_healthy_backend_is_undetermined() -> None:
    found = verdict(divergences=[diverged(), diverged(pair(5, 5, 0))])
    assert (found.verdict, found.rule) == ("undetermined", "gap-beyond-perturbation")
    assert "prompt 4, step 7" in found.reason


def test_verdicts_become_json() -> None:
    found = verdict(divergences=[diverged(pair(20, 20, 0))]).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert json.dumps(diverged().to_json(), allow_nan=False)


def test_only_plain_values_have_a_plain_form() -> None:
    with pytest.raises(TypeError, match="set has no plain form"):
        Verdict("identical", "", "", numbers={"x": {1}}).to_json()
    found = Verdict("identical", "", "", numbers={"x": (np.float32(1.5), np.int8(2), np.bool_(True), np.ones(2), None)})
    assert found.to_json()["numbers"] == {"x": [1.5, 2, True, [1.0, 1.0], None]}
