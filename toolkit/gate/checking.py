"""The gate itself: one run of a battery against its goldens, by the classical rule and by ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit import study
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.gate.goldens import Goldens
from toolkit.oracles import OracleRecord, Steps
from toolkit.study.classical import Classical, classical, gap_mnats
from toolkit.study.distances import Floats
from toolkit.study.flips import parting_chances, tail
from toolkit.study.health import LEVEL_DEFECT, LEVEL_HEALTHY
from toolkit.study.verdict import PAIR_DEFECT, PAIR_NEAR_TIE

COUNT_CHANCE = 0.01
"""How often, per battery, honest rounding may part as many prompts as were parted before that is called a failure."""


@dataclass(frozen=True)
class Accounting:
    """Which kernels ran: selections and declines by (op, provider), and calls that no kernel took, by op."""

    selections: Mapping[tuple[str, str], int]
    declines: Mapping[tuple[str, str], int]
    refusals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Parting:
    """The first divergence of one prompt from the reference.

    ``gap`` is the arbiter's preference of the reference's token over ours, in logits (nats); ``ulps`` the same in
    bfloat16 ULPs of the arbiter's largest logit; ``ratio`` its size over the perturbation of that pair.
    """

    prompt: int
    step: int
    reference: int
    ours: int
    gap: float
    ulps: float
    ratio: float
    classical_mnats: int


@dataclass(frozen=True)
class Result:
    """A battery's numbers and every reason why it does not pass; it passes when there is none.

    ``level`` and ``floor`` are root mean squares, in logits, of the error of the arbiter's best pair over all steps:
    ours, and that of the honest engine that is farthest from the arbiter.
    """

    classical: Classical
    partings: tuple[Parting, ...]
    expected: float
    chance: float
    level: float
    floor: float
    largest_deviation: float
    failures: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """How many times the honest engines' error ours is."""
        return self.level / self.floor

    @property
    def passed(self) -> bool:
        """Whether our rule passes it."""
        return not self.failures


def accounting(found: Accounting, required: Sequence[str]) -> list[str]:
    """What is wrong with the kernels that ran; ``required`` are names of ops, or OP=PROVIDER.

    An op passes with selections and without a call that no kernel took. A provider named with its op must have taken
    every call: that is the classical condition, selections > 0 and declines = 0.
    """
    ran = {op for (op, _), count in found.selections.items() if count}
    wrong = [f"op {op}: {count} calls were declined by every kernel" for op, count in found.refusals.items() if count]
    if not ran:
        wrong.append("no kernel was selected: zero selections prove nothing about any kernel")
    for name in required:
        op, _, provider = name.partition("=")
        if op not in ran:
            wrong.append(f"op {op}: zero selections")
        elif provider:
            selected, declined = found.selections.get((op, provider), 0), found.declines.get((op, provider), 0)
            if not selected or declined:
                wrong.append(f"op {op}, provider {provider}: {selected} selections and {declined} declines")
    return wrong


def check_gate(ours: OracleRecord, goldens: Goldens, kernels: Accounting, required: Sequence[str] = ()) -> Result:
    """Hold a run of the battery (``ours``, greedy, one run) against its goldens.

    Raises CheckFailed, before any number is made, when the run is not of the anchor's prompts or departs from its
    tokens: the goldens say nothing about other tokens. Raises ToolkitError when a record lacks what is needed.
    """
    _repeats_the_anchor(ours, goldens.anchor)
    prompts = range(len(ours.prompts))
    steps = {
        "ours": [p.runs[0] for p in ours.prompts],
        "exact": [_forced(goldens.exact, n) for n in prompts],
        **{f"honest {k}": [_forced(r, n) for n in prompts] for k, r in enumerate(goldens.honest)},
    }
    pairs = [s.top_ids[:, :2] for s in steps["exact"]]
    margins = {name: _margins(of, pairs) for name, of in steps.items()}
    errors = {name: values - margins["exact"] for name, values in margins.items() if name != "exact"}
    honest = np.stack([values for name, values in errors.items() if name != "ours"])
    failures = accounting(kernels, required)
    failures += _unstable(goldens.reference)
    sigma = _sigma(honest, np.concatenate([_logits(s)[:, :2] for s in steps["exact"]]))
    level = float(np.sqrt(np.mean(errors["ours"] ** 2)))
    floor = max(float(np.sqrt(np.mean(row**2))) for row in honest)
    deviation = float(np.max(np.abs(errors["ours"]) / sigma))
    failures += _too_far(level, floor, deviation)

    edges = np.cumsum([len(s) for s in steps["exact"]])[:-1]
    sigmas = np.split(sigma, edges)
    partings = _partings(ours, goldens, sigmas)
    failures += [
        f"prompt {p.prompt}, step {p.step}: the gap is {p.ratio:.3g} perturbations of its pair "
        f"({p.gap:.3g} nats, {p.ulps:.2g} bfloat16 ULPs), more than {PAIR_NEAR_TIE:g}"
        for p in partings
        if not p.ratio <= PAIR_NEAR_TIE
    ]
    chances = parting_chances(np.split(margins["exact"], edges), sigmas)
    chance = tail(chances, len(partings))
    if not chance >= COUNT_CHANCE:
        failures.append(
            f"{len(partings)} of {len(ours.prompts)} prompts part from the reference where rounding makes "
            f"{float(chances.sum()):.2g} expected; the chance of as many is {chance:.2g}"
        )
    return Result(
        _classical(ours, goldens),
        tuple(partings),
        float(chances.sum()),
        chance,
        level,
        floor,
        deviation,
        tuple(failures),
    )


def _repeats_the_anchor(ours: OracleRecord, anchor: OracleRecord) -> None:
    if not ours.prompts or not ours.runs:
        raise CheckFailed("the battery is empty: nothing was run, so nothing is checked")
    if [p.ids for p in ours.prompts] != [p.ids for p in anchor.prompts]:
        raise CheckFailed("the prompts have other token ids than the anchor's: not comparable; look at the tokenizer")
    for number, (now, then) in enumerate(zip(ours.prompts, anchor.prompts, strict=True)):
        step = study.first_divergence(then.tokens, now.tokens)
        if step is not None:
            raise CheckFailed(
                f"the engine drifted from its anchor at prompt {number}, step {step}: {_at(now.tokens, step)} where it "
                f"said {_at(then.tokens, step)}. Suspect a regression first; when the new tokens are right, anchor them "
                "with a reason (toolkit gate anchor --because) and force the goldens on them"
            )


def _at(tokens: Sequence[int], step: int) -> str:
    return str(tokens[step]) if step < len(tokens) else "the end"


def _forced(record: OracleRecord, prompt: int) -> Steps:
    forced = record.prompts[prompt].forced
    assert forced is not None  # read_goldens has looked
    return forced.steps


def _logits(steps: Steps) -> Floats:
    if steps.logits is None:
        raise ToolkitError(
            "exact.json has no logits, so that no ULP is known; capture it with an implementation that gives them"
        )
    return steps.logits


def _margins(of: Sequence[Steps], pairs: Sequence[Any]) -> Floats:
    """[steps of all prompts] log-probability of the first of each pair minus that of the second."""
    found = []
    for prompt, (steps, both) in enumerate(zip(of, pairs, strict=True)):
        for step, (first, second) in enumerate(both.tolist()):
            one, other = steps.logprob_of(step, first), steps.logprob_of(step, second)
            if one is None or other is None or not np.isfinite([one, other]).all():
                # What is no longer among the candidates moved by at least the distance to the last of them.
                last = float(steps.logprobs[step, -1])
                one, other = (last if value is None else value for value in (one, other))
                if not np.isfinite([one, other]).all():
                    raise CheckFailed(f"prompt {prompt}, step {step}: a log-probability is not finite")
            found.append(one - other)
    return np.array(found)


def _sigma(honest: Floats, logits: Floats) -> Floats:
    """[steps] how far rounding moves the margin of a pair.

    Two or three captures say little about one step and much about the battery: a step's own variance and that of all
    steps are averaged. Storing two bfloat16 logits moves a margin at least by its resolution.
    """
    own = np.mean(honest**2, axis=0)
    stored = study.margin_resolution(logits[:, 0], logits[:, 1], "bfloat16")
    sigma: Floats = np.maximum(np.sqrt((own + np.mean(honest**2)) / 2), stored)
    return sigma


def _too_far(level: float, floor: float, deviation: float) -> list[str]:
    wrong = []
    if not floor > 0:
        return ["the honest engines do not differ from the arbiter at all: their noise is not measured"]
    if not level / floor <= LEVEL_HEALTHY:
        what = "a defect" if not level / floor <= LEVEL_DEFECT else "more than healthy engines have"
        wrong.append(
            f"the margins of all steps are off by {level:.3g} logits (rms), {level / floor:.2g} times the worst honest "
            f"engine's {floor:.3g}: {what}"
        )
    if not deviation <= PAIR_DEFECT:
        wrong.append(f"one margin is off by {deviation:.3g} perturbations, more than {PAIR_DEFECT:g}")
    return wrong


def _unstable(reference: OracleRecord) -> list[str]:
    runs = [[p.runs[k].tokens.tolist() for p in reference.prompts] for k in range(reference.runs)]
    return [f"the reference differs from itself at prompt {i.prompt}, step {i.step}" for i in study.repeats(runs)]


def _partings(ours: OracleRecord, goldens: Goldens, sigmas: Sequence[Floats]) -> list[Parting]:
    found = []
    for number, (made, reference) in enumerate(zip(ours.prompts, goldens.reference.prompts, strict=True)):
        step = study.first_divergence(reference.tokens, made.tokens)
        if step is None:
            continue
        if step >= min(len(made.tokens), len(reference.tokens)):
            raise CheckFailed(f"prompt {number}: one side has fewer tokens; run both without stop tokens")
        pair = reference.tokens[step], made.tokens[step]
        exact = _forced(goldens.exact, number)
        here = slice(step, step + 1)
        one = Steps(exact.tokens[here], exact.top_ids[here], exact.logprobs[here], _logits(exact)[here])
        # A token beyond the candidates lies at least as far below the best one as the last of them does.
        gap = float(_margins([one], [np.array([pair])])[0])
        ulp = float(study.ulp(_logits(exact)[step, 0]))
        mnats = int(gap_mnats([pair[1]], *_row(_forced(goldens.reference, number), step))[0])
        ratio = abs(gap) / float(sigmas[number][step])
        if one.logprob_of(0, pair[1]) is None:
            ratio = float("inf")
        found.append(Parting(number, step, *pair, gap, gap / ulp, ratio, mnats))
    return found


def _row(steps: Steps, step: int) -> tuple[Any, Any]:
    return steps.top_ids[step : step + 1], steps.logprobs[step : step + 1]


def _classical(ours: OracleRecord, goldens: Goldens) -> Classical:
    reference = goldens.reference
    gaps = [
        gap_mnats(p.tokens, f.top_ids, f.logprobs)
        for p, f in zip(ours.prompts, [_forced(reference, n) for n in range(len(ours.prompts))], strict=True)
    ]
    lengths = {len(p.tokens) for record in (ours, reference) for p in record.prompts}
    if len(lengths) > 1:
        raise CheckFailed(f"prompts have between {min(lengths)} and {max(lengths)} tokens; run all without stop tokens")
    return classical(
        np.array([p.tokens for p in reference.prompts]),
        np.array([[run.tokens for run in p.runs] for p in reference.prompts]).transpose(0, 2, 1),
        np.array([p.tokens for p in ours.prompts]),
        np.array(gaps),
    )
