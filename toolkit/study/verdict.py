"""The verdict: ordinary rounding, or a defect, with the rule and the numbers that decided it.

Two questions are kept apart. *Could this token have flipped by rounding?* is about a pair of tokens: the gap between
them, as the arbiter (float64) sees it, over the measured perturbation of that very pair. *Does the backend compute what
it should?* is about its health, layer by layer (``toolkit.study.health``). A defect need not flip a token and may flip
one that was nearly tied, so a near-tie is only ever the verdict of a backend found healthy.

What the numbers say is asked in this order, and the first that has an answer gives it: were the inputs the same; was
anything compared; does each side agree with itself; is the reference fit to judge; is the backend healthy; is every
divergence a near-tie. A number that is missing or not finite never counts for health.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Array
from toolkit.study.divergence import Divergence, Instability, SelectionError
from toolkit.study.health import Health, PlaceHealth
from toolkit.study.plain import Plain, plain
from toolkit.study.student import student_tail
from toolkit.study.ulps import Margin

PAIR_NEAR_TIE = 3.0
"""A gap of at most three standard perturbations: one that rounding closes with some probability worth the name. Of 380
flips between honest engines of the bundled models in bfloat16, 99 in 100 had a smaller gap. It does not grow when the
perturbation is known from few variations: ignorance must not make near-ties."""

PAIR_DEFECT = 10.0
"""Of 69,000 pairs no honest engine of the bundled models moved one by as much; a defect that flips a token usually moves it
by far more."""

PAIR_CHANCE = 0.01
"""How often, per battery, an honest engine may be condemned for one pair, given how few variations measured it."""

MIN_INDEPENDENT = 2.0
"""With fewer independent variations the perturbation of a pair may as well be half or twice what was measured."""

Name = Literal[
    "not-comparable", "identical", "near-tie", "defect", "nondeterministic", "reference-unstable", "undetermined"
]
Side = Literal["reference", "backend"]


@dataclass(frozen=True)
class Mismatch(Plain):
    """Something that both sides should have been given alike and were not: what, where, and how it differs."""

    what: str
    where: str
    detail: str


def compare_prompts(reference: Sequence[Sequence[int]], backend: Sequence[Sequence[int]]) -> list[Mismatch]:
    """How the token ids of the prompts of two sides differ; an empty list when they are the same."""
    if len(reference) != len(backend):
        return [Mismatch("prompts", "battery", f"{len(reference)} on the reference, {len(backend)} on the backend")]
    return [
        Mismatch("prompt ids", f"prompt {number}", f"{_shortened(one)} and {_shortened(other)}")
        for number, (one, other) in enumerate(zip(reference, backend, strict=True))
        if list(one) != list(other)
    ]


def _shortened(ids: Sequence[int]) -> str:
    head = ", ".join(str(i) for i in ids[:8])
    return f"[{head}{', …' if len(ids) > 8 else ''}] of length {len(ids)}"


def compare_bits(what: str, where: str, reference: Array, backend: Array) -> list[Mismatch]:
    """Whether two arrays are the same bytes of the same shape and dtype (embedding rows, weights)."""
    if reference.dtype != backend.dtype or reference.shape != backend.shape:
        kinds = [f"{a.dtype.name}{list(a.shape)}" for a in (reference, backend)]
        return [Mismatch(what, where, f"{kinds[0]} and {kinds[1]}")]
    bytes_of = [np.frombuffer(a.tobytes(), np.uint8) for a in (reference, backend)]
    different = int(np.count_nonzero(bytes_of[0] != bytes_of[1]))
    return [Mismatch(what, where, f"{different} bytes differ")] if different else []


@dataclass(frozen=True)
class Pair(Plain):
    """Two competing tokens at one step: ``reference`` chose the first, ``backend`` the second.

    Margins are of the first token over the second. ``gap_ratio`` is the arbiter's over ``sigma``, the measured
    perturbation of the pair. The deviations are those of each side's margin from the arbiter's over ``sigma``, and at
    least what its choice proves: a side that chose the token which the arbiter puts second was moved by the whole gap,
    whatever its forced pass says. ``chance`` is the probability, over all ``steps`` of the battery and given how few
    ``independent`` variations measured sigma, that an honest engine deviates as far as the farther side.
    """

    verdict: Name
    rule: str
    arbiter: Margin
    reference: Margin
    backend: Margin
    sigma: float
    independent: float
    steps: int
    gap_ratio: float
    reference_deviation: float
    backend_deviation: float
    chance: float


def judge_pair(
    arbiter: Margin, reference: Margin, backend: Margin, *, sigma: float, independent: float, steps: int
) -> Pair:
    """What the gap of a pair says by itself, whatever the health of the backend.

    ``steps`` is the number of steps compared, among which this one was selected for having diverged. Raises ToolkitError
    for less than one.
    """
    if steps < 1:
        raise ToolkitError(f"a divergence among {steps} compared steps cannot be")
    sigma, independent = float(sigma), float(independent)
    gap = _over(abs(arbiter.logits), sigma)
    of_reference = _over(_farther(abs(reference.logits - arbiter.logits), -arbiter.logits), sigma)
    of_backend = _over(_farther(abs(backend.logits - arbiter.logits), arbiter.logits), sigma)
    chances = [_chance(deviation, independent, steps) for deviation in (of_reference, of_backend)]
    beyond = [
        deviation > PAIR_DEFECT and chance < PAIR_CHANCE
        for deviation, chance in zip((of_reference, of_backend), chances, strict=True)
    ]
    verdict: Name
    if not all(math.isfinite(number) for number in (gap, of_reference, of_backend)):
        verdict, rule = "undetermined", "pair-numbers-missing"
    elif not independent >= MIN_INDEPENDENT:
        verdict, rule = "undetermined", "pair-noise-unmeasured"
    elif beyond[0]:
        verdict, rule = "reference-unstable", "reference-moved-beyond-chance"
    elif beyond[1]:
        verdict, rule = "defect", "backend-moved-beyond-chance"
    elif gap <= PAIR_NEAR_TIE:
        verdict, rule = "near-tie", "gap-within-perturbation"
    else:
        verdict, rule = "undetermined", "gap-beyond-perturbation"
    return Pair(
        verdict=verdict,
        rule=rule,
        arbiter=arbiter,
        reference=reference,
        backend=backend,
        sigma=sigma,
        independent=independent,
        steps=steps,
        gap_ratio=gap,
        reference_deviation=of_reference,
        backend_deviation=of_backend,
        chance=min(chances),
    )


def _over(value: float, sigma: float) -> float:
    return value / sigma if 0 < sigma < math.inf else math.nan


def _farther(observed: float, proven: float) -> float:
    return math.nan if math.isnan(observed) else max(observed, proven)


def _chance(deviation: float, independent: float, steps: int) -> float:
    """Bonferroni's bound for the largest of ``steps`` deviations under Student's distribution."""
    if math.isnan(deviation) or not independent >= 1:
        return 1.0
    return min(1.0, steps * student_tail(deviation, independent))


@dataclass(frozen=True)
class JudgedDivergence(Plain):
    """A divergence with its verdict.

    ``pair`` is what the gap says alone (None when a side had ended and there is no pair), ``verdict`` and ``rule`` what
    it says given the health of the backend, and ``whole_ratio`` the size of the whole perturbation of this step's
    logits against the noise floor (None when it was not measured).
    """

    divergence: Divergence
    verdict: Name
    rule: str
    pair: Pair | None
    whole_ratio: float | None


def judge_divergence(
    divergence: Divergence,
    pair: Pair | None,
    backend: Health | None,
    *,
    whole_ratio: float | None = None,
    other_references: Sequence[int] = (),
) -> JudgedDivergence:
    """The verdict on one divergence.

    ``other_references`` are the tokens that further, independent references chose at this step on the same prefix: when
    they do not agree with the reference at a near-tie, the question has no stable answer to differ from.
    """
    verdict: Name
    split = any(token != divergence.reference for token in other_references)
    if backend is not None and backend.state == "defect":
        verdict, rule = "defect", "backend-beyond-floor"
    elif pair is None:
        verdict, rule = "undetermined", "a-side-had-ended"
    elif split:
        near = pair.verdict == "near-tie"
        verdict, rule = ("reference-unstable" if near else "undetermined"), "references-disagree"
    elif pair.verdict != "near-tie":
        verdict, rule = pair.verdict, pair.rule
    elif backend is None or backend.state != "healthy":
        verdict, rule = "undetermined", "health-not-established"
    else:
        verdict, rule = "near-tie", pair.rule
    return JudgedDivergence(divergence, verdict, rule, pair, whole_ratio)


@dataclass(frozen=True)
class Verdict(Plain):
    """The verdict on a backend: one word, the rule that gave it, a sentence, the numbers it rests on.

    ``layer`` and ``stage`` are where a defect first appears (stage "selection": in the choice of the token).
    """

    verdict: Name
    rule: str
    reason: str
    layer: int | None = None
    stage: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)


def judge(
    *,
    steps: int,
    mismatches: Sequence[Mismatch],
    unstable: Mapping[Side, Sequence[Instability]],
    reference: Health | None,
    backend: Health | None,
    divergences: Sequence[JudgedDivergence],
    selection: Mapping[Side, Sequence[SelectionError]],
) -> Verdict:
    """The verdict on a backend from everything that was found.

    ``steps``        how many generated tokens were compared
    ``mismatches``   of the inputs
    ``unstable``     disagreements of each side with itself; a side that is absent was not repeated
    ``reference``    health of the reference itself, and ``backend`` that of the backend; None when not measured
    ``divergences``  the first divergence of every prompt that has one, judged
    ``selection``    choices that do not follow from a side's own logits; a side that is absent was not checked
    """
    if mismatches:
        first = mismatches[0]
        return Verdict(
            "not-comparable",
            "inputs-differ",
            f"the sides were given different inputs: {first.what} of {first.where} ({first.detail}); nothing else is "
            "concluded",
            numbers={"mismatches": len(mismatches)},
        )
    if steps < 1:
        return Verdict("undetermined", "nothing-compared", "no generated token was compared; give at least one prompt")
    return (
        _instability(unstable)
        or _unfit_reference(reference, selection.get("reference", ()), divergences)
        or _defect(backend, selection.get("backend", ()), divergences)
        or _open_question(unstable, selection, reference, backend, divergences)
        or _healthy(steps, backend, divergences)
    )


def _instability(unstable: Mapping[Side, Sequence[Instability]]) -> Verdict | None:
    for side in ("reference", "backend"):
        for found in unstable.get(side, ()):
            how = "between repeated runs" if found.kind == "repeat" else "after other prompts have run"
            return Verdict(
                "nondeterministic",
                "runs-differ",
                f"the {side} differs from itself {how}: prompt {found.prompt}, step {found.step}",
                numbers={"side": side, "prompts": len(unstable[side]), "first": plain(found)},
            )
    return None


def _unfit_reference(
    reference: Health | None, selection: Sequence[SelectionError], divergences: Sequence[JudgedDivergence]
) -> Verdict | None:
    if reference is not None and reference.state == "defect":
        where, numbers = _located(reference)
        return Verdict(
            "reference-unstable",
            "reference-beyond-floor",
            f"the reference itself is beyond the noise floor of its variations, first at {where}; it cannot judge",
            numbers=numbers,
        )
    if selection:
        return Verdict(
            "reference-unstable",
            "reference-choice-unexplained",
            f"the reference did not choose the largest of its own logits at prompt {selection[0].prompt}, step "
            f"{selection[0].step}; it cannot judge",
            numbers={"first": plain(selection[0]), "steps": len(selection)},
        )
    unsettled = [d for d in divergences if d.verdict == "reference-unstable"]
    if unsettled:
        at = unsettled[0].divergence
        return Verdict(
            "reference-unstable",
            unsettled[0].rule,
            f"at prompt {at.prompt}, step {at.step} there is no stable reference to differ from",
            numbers={"first": plain(unsettled[0]), "divergences": len(unsettled)},
        )
    return None


def _defect(
    backend: Health | None, selection: Sequence[SelectionError], divergences: Sequence[JudgedDivergence]
) -> Verdict | None:
    if backend is not None and backend.state == "defect":
        where, numbers = _located(backend)
        place = _first(backend)
        manner = "first at" if backend.sudden else "growing gradually, first at"
        return Verdict(
            "defect",
            "backend-beyond-floor",
            f"the backend is beyond the noise floor, {manner} {where}",
            place.layer,
            place.stage,
            numbers,
        )
    if selection:
        return Verdict(
            "defect",
            "choice-unexplained",
            f"the backend did not choose the largest of its own logits (lowest id of equals) at prompt "
            f"{selection[0].prompt}, step {selection[0].step}",
            stage="selection",
            numbers={"first": plain(selection[0]), "steps": len(selection)},
        )
    moved = [d for d in divergences if d.verdict == "defect"]
    if moved:
        at = moved[0].divergence
        return Verdict(
            "defect",
            moved[0].rule,
            f"at prompt {at.prompt}, step {at.step} the backend moved the pair of tokens farther than rounding can, "
            "while its layers look healthy: look at the head, and at what decoding does and a forced pass does not",
            stage="logits",
            numbers={"first": plain(moved[0]), "divergences": len(moved)},
        )
    return None


def _open_question(
    unstable: Mapping[Side, Sequence[Instability]],
    selection: Mapping[Side, Sequence[SelectionError]],
    reference: Health | None,
    backend: Health | None,
    divergences: Sequence[JudgedDivergence],
) -> Verdict | None:
    for name, checked in (("repeated runs", unstable), ("choices", selection)):
        missing = [side for side in ("reference", "backend") if side not in checked]
        if missing:
            return Verdict("undetermined", "check-missing", f"{name} of the {missing[0]} were not checked")
    for side, found in (("reference", reference), ("backend", backend)):
        if found is None:
            return Verdict("undetermined", "health-not-measured", f"the {side} was not held against a noise floor")
        if found.state != "healthy":
            why = "is outside the healthy limits without being beyond those of a defect"
            if found.state == "unknown":
                why = "has places without a finite noise floor"
            return Verdict("undetermined", f"health-{found.state}", f"the {side} {why}", numbers=_figures(found))
    undecided = [d for d in divergences if d.verdict != "near-tie"]
    if undecided:
        at = undecided[0].divergence
        return Verdict(
            "undetermined",
            undecided[0].rule,
            f"the backend is healthy, but the divergence at prompt {at.prompt}, step {at.step} is not explained",
            numbers={"first": plain(undecided[0]), "divergences": len(undecided)},
        )
    return None


def _healthy(steps: int, backend: Health | None, divergences: Sequence[JudgedDivergence]) -> Verdict:
    assert backend is not None
    numbers = {"steps": steps, "divergences": len(divergences), **_figures(backend)}
    if not divergences:
        return Verdict(
            "identical",
            "tokens-equal-and-healthy",
            f"all {steps} tokens are equal and no layer is beyond the noise floor",
            numbers=numbers,
        )
    ratios = [d.pair.gap_ratio for d in divergences if d.pair is not None]
    return Verdict(
        "near-tie",
        "gaps-within-perturbation-and-healthy",
        f"every one of {len(divergences)} first divergences is between tokens that rounding can swap, and no layer is "
        "beyond the noise floor",
        numbers={**numbers, "largest_gap_ratio": max(ratios)},
    )


def _first(found: Health) -> PlaceHealth:
    assert found.first is not None
    return found.first


def _located(found: Health) -> tuple[str, dict[str, Any]]:
    first = _first(found)
    where = f"layer {first.layer}, stage {first.stage}"
    return where, {"first": plain(first), "sudden": found.sudden, **_figures(found)}


def _figures(found: Health) -> dict[str, Any]:
    return {"largest_ratio": found.largest_ratio, "largest_row_ratio": found.largest_row_ratio}
