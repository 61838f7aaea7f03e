"""A candidate's dump held against a reference's, by the rule of the near-tie investigation and the same functions.

An exact dump is the arbiter and further honest dumps are the noise: both are files here, where the investigation runs
engines of its own. What dumps cannot show (whether a decoding engine chose the largest of its logits) is not judged, and the
record says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from toolkit import dtypes, study
from toolkit.errors import ToolkitError
from toolkit.judging.dumps import Array, Dump, described

Decode: TypeAlias = Callable[[Sequence[int]], str]

INVESTIGATION = "judge"
QUESTION = (
    "An engine and a reference were given the same tokens, and what both computed was written to files. Does the engine "
    "differ from the reference by ordinary rounding, or by a defect?"
)
RULE = """
Inputs come first: unless all dumps are of the same token ids, the verdict is not-comparable.
A NaN, an infinity or a missing number never passes anything.
Health is judged place by place, at every dumped stage of every layer: a dump's distance from the exact one is held against
the noise floor, which is the largest such distance of any noise dump at the same place on the same tokens.
A candidate beyond the floor has a defect, whether or not a token has flipped, and the first place that adds to the ratio is
where it begins.
What an engine chooses at a step is the largest of its logits (lowest id of equals) after the same tokens as the others were
given. A divergence of a healthy candidate is a near-tie when the exact gap between the two competing tokens is within three
times the perturbation of that very pair, as the noise dumps show it (and at least what storing logits in their dtype does).
A pair that was moved farther than chance allows is a defect in the head. Anything between is undetermined.
Whether the candidate repeats itself is judged where dumps of further runs are given. How it chooses from its logits, and
what it does otherwise when it decodes token by token, cannot be seen in dumps.
The thresholds are constants of toolkit.study, each with its reason.
"""
DENSITY_MARGINS = (0.01, 0.03, 0.0625, 0.125, 0.25, 0.5, 1.0)
SHOWN_CANDIDATES = 5


@dataclass(frozen=True)
class Judgement:
    """The verdict on a candidate, and everything for its record as plain data."""

    verdict: study.Verdict
    not_checked: list[str]
    digested: dict[str, Any]


def judge_dumps(
    candidate: Dump,
    *,
    reference: Dump,
    exact: Dump,
    noise: Sequence[Dump],
    again: Sequence[Dump] = (),
    decode: Decode | None = None,
) -> Judgement:
    """The verdict on ``candidate``.

    ``reference``  what it is compared with
    ``exact``      the same weights in float32 or float64: the arbiter of both
    ``noise``      two or more further dumps of honest engines, in the reference's precision
    ``again``      dumps of further runs of the candidate
    ``decode``     the text of token ids, for the record

    Raises ToolkitError when the exact dump or a noise dump does not fit the reference (tokens, stages, shapes), holds a
    NaN or an infinity, or is the same file as another that must be independent of it.
    """
    _refuse_unfit(candidate, reference, exact, noise)
    mismatches = study.compare_prompts(reference.ids, candidate.ids)
    not_checked = ["how the engine chooses from its logits, and decoding token by token"]
    if not again:
        not_checked.insert(0, "repeated runs (give further dumps of the candidate with --again)")
    steps = sum(len(rows) for rows in reference.logits)
    numbers: dict[str, Any] = {"inputs": {"mismatches": study.plain(mismatches)}, "not_checked": not_checked}
    if mismatches:
        verdict = _verdict(steps, mismatches, [], None, None, [])
    else:
        _refuse_other_shapes(candidate, reference)
        measured = _Measured(candidate, reference, exact, noise, decode)
        unstable = _unstable(candidate, again)
        judged = [measured.judge(d, steps) for d in measured.divergences]
        verdict = _verdict(steps, [], unstable, measured.of_reference, measured.of_candidate, judged)
        numbers |= {
            "stability": {"runs": 1 + len(again), "unstable": {"backend": study.plain(unstable)}},
            **measured.results(judged),
        }
    files = {"candidate": candidate, "reference": reference, "exact": exact}
    digests = [dump.digest for dump in (*files.values(), *noise, *again)]
    return Judgement(
        verdict,
        not_checked,
        {
            "investigation": INVESTIGATION,
            "question": QUESTION,
            "rule": RULE,
            "parameters": {
                **{role: dump.name for role, dump in files.items()},
                "noise": [dump.name for dump in noise],
                "again": [dump.name for dump in again],
            },
            "data": hashlib.sha256(" ".join(digests).encode()).hexdigest(),
            "results": numbers,
            "verdict": study.plain(verdict),
        },
    )


def _verdict(
    steps: int,
    mismatches: Sequence[study.Mismatch],
    unstable: Sequence[study.Instability],
    reference: study.Health | None,
    candidate: study.Health | None,
    judged: Sequence[study.JudgedDivergence],
) -> study.Verdict:
    return study.judge(
        steps=steps,
        mismatches=mismatches,
        unstable={"reference": [], "backend": unstable},
        reference=reference,
        backend=candidate,
        divergences=judged,
        selection={"reference": [], "backend": []},
    )


def _unstable(candidate: Dump, again: Sequence[Dump]) -> list[study.Instability]:
    """Where further dumps of the candidate choose otherwise than the first."""
    for run in again:
        if study.compare_prompts(candidate.ids, run.ids) or [a.shape for a in candidate.logits] != [
            a.shape for a in run.logits
        ]:
            raise ToolkitError(f"the dump {run.name} is of other tokens than {candidate.name}, which it should repeat")
    runs = [[_choices(rows) for rows in dump.logits] for dump in (candidate, *again)]
    return study.repeats(runs) if again else []


def _choices(logits: Array) -> list[int]:
    """What greedy decoding takes after each row: the largest logit, lowest id of equals; -1 where there is a NaN."""
    rows = logits.astype(np.float64)
    return [-1 if np.isnan(row).any() else int(row.argmax()) for row in rows]


def _refuse_unfit(candidate: Dump, reference: Dump, exact: Dump, noise: Sequence[Dump]) -> None:
    if len(noise) < 2:
        raise ToolkitError(
            f"{len(noise)} noise dump makes no noise floor; give two or more of honest engines: another attention "
            "implementation, another library, another version"
        )
    roles = [("exact", exact), *(("noise", dump) for dump in noise)]
    for role, dump in roles:
        mismatches = study.compare_prompts(reference.ids, dump.ids)
        if mismatches:
            first = mismatches[0]
            raise ToolkitError(
                f"the {role} dump {dump.name} is of other tokens than the reference {reference.name}: {first.what} of "
                f"{first.where} ({first.detail}); dump every engine on the same ids"
            )
        _refuse_other_shapes(dump, reference)
    for role, dump in [("reference", reference), *roles]:
        where = dump.nonfinite()
        if where:
            raise ToolkitError(
                f"the {role} dump {dump.name} holds a NaN or an infinity at {where}; nothing can be held against it"
            )
    seen: dict[str, str] = {}
    for dump in (reference, exact, *noise):
        if dump.digest in seen and dump is not reference:
            raise ToolkitError(
                f"the dumps {seen[dump.digest]} and {dump.name} are the same file, so that one of them shows nothing; "
                "give independent ones"
            )
        seen[dump.digest] = dump.name
    if candidate.digest in {dump.digest for dump in (exact, *noise)}:
        raise ToolkitError(
            f"the candidate {candidate.name} is also the exact or a noise dump: it cannot be its own measure"
        )


def _refuse_other_shapes(dump: Dump, reference: Dump) -> None:
    """Raises ToolkitError unless both have the same stages in the same shapes."""
    odd = [place for place in [*reference.taps, *dump.taps] if (place in reference.taps) != (place in dump.taps)]
    if odd:
        part, layer, stage = odd[0]
        have, lack = (reference, dump) if odd[0] in reference.taps else (dump, reference)
        raise ToolkitError(
            f"the dump {have.name} has {described(layer, stage)} of prompt {part} and {lack.name} does not; dump the same "
            "stages of the same model in every engine"
        )
    for (part, layer, stage), values in reference.taps.items():
        other = dump.taps[part, layer, stage]
        if other.shape != values.shape:
            raise ToolkitError(
                f"prompt {part}, {described(layer, stage)} has the shape {list(values.shape)} in {reference.name} and "
                f"{list(other.shape)} in {dump.name}; is it the same model, without padding of tokens or vocabulary?"
            )


class _Measured:
    """The numbers of one candidate whose dumps all fit."""

    def __init__(
        self, candidate: Dump, reference: Dump, exact: Dump, noise: Sequence[Dump], decode: Decode | None
    ) -> None:
        self.dumps = {"exact": exact, "reference": reference, "backend": candidate}
        self.decode = decode
        self.last = max(layer for layer, _ in exact.places)
        self.choices = {name: [_choices(rows) for rows in dump.logits] for name, dump in self.dumps.items()}
        self.divergences = study.first_divergences(self.choices["reference"], self.choices["backend"])
        self.logits = {name: np.concatenate(dump.logits) for name, dump in self.dumps.items()}
        self.pairs = self._pairs()

        self.drifts = {name: study.drift_of(self.dumps[name].taps, exact.taps) for name in ("reference", "backend")}
        self.apart = study.drift_of(candidate.taps, reference.taps)
        self.floor = study.noise_floor({dump.name: study.drift_of(dump.taps, exact.taps) for dump in noise})
        self.of_reference = study.judge_health(self.drifts["reference"], self.floor)
        self.of_candidate = study.judge_health(self.drifts["backend"], self.floor)

        both = np.take_along_axis(self.logits["exact"], self.pairs, axis=1).astype(np.float64)
        self.dtype = stored_dtype(self.logits["backend"])
        self.noise = study.pair_noise(
            np.stack([study.pair_margins(np.concatenate(dump.logits), self.pairs) for dump in noise]),
            study.pair_margins(self.logits["exact"], self.pairs),
            study.margin_resolution(both[:, 0], both[:, 1], self.dtype),
        )

    def _pairs(self) -> Array:
        """The two tokens followed at every step: the exact dump's two best, or the two that competed at a divergence."""
        pairs, _ = study.top_k(self.logits["exact"], 2)
        for divergence in self.divergences:
            if divergence.reference is not None and divergence.backend is not None and divergence.backend >= 0:
                pairs[self._row(divergence)] = divergence.reference, divergence.backend
        return pairs

    def _row(self, divergence: study.Divergence) -> int:
        return sum(len(rows) for rows in self.dumps["exact"].logits[: divergence.prompt]) + divergence.step

    def judge(self, divergence: study.Divergence, steps: int) -> study.JudgedDivergence:
        """The verdict on one divergence; a step at which the candidate has a NaN has no pair."""
        pair = None
        if divergence.backend is not None and divergence.backend >= 0:
            row = self._row(divergence)
            first, second = self.pairs[row]
            of = {
                name: study.margin(rows[row, first], rows[row, second], self.dtype)
                for name, rows in self.logits.items()
            }
            pair = study.judge_pair(
                of["exact"],
                of["reference"],
                of["backend"],
                sigma=float(self.noise.sigma[row]),
                independent=self.noise.independent,
                steps=steps,
            )
        whole = self.of_candidate.row_ratio(self.last, "logits", divergence.prompt, divergence.step)
        return study.judge_divergence(divergence, pair, self.of_candidate, whole_ratio=whole)

    def results(self, judged: Sequence[study.JudgedDivergence]) -> dict[str, Any]:
        """Everything that was measured, under the names of the near-tie investigation's record."""
        margins = study.top_margins(self.logits["exact"])
        shares = study.margin_density(margins, DENSITY_MARGINS)
        levels = {name: drift.at(self.last, "logits").level for name, drift in self.drifts.items()}
        nearer = "equal" if levels["reference"] == levels["backend"] else min(levels, key=lambda name: levels[name])
        return {
            "battery": self._battery(),
            "divergences": [{**study.plain(d), "candidates": self._candidates(d.divergence)} for d in judged],
            "near_tie_density": {
                "steps": len(margins),
                "below": dict(zip(map(str, DENSITY_MARGINS), shares, strict=True)),
                "exact_ties": int(np.count_nonzero(study.exact_ties(self.logits["reference"], self.dtype) > 1)),
            },
            "drift": study.drift_rows(
                self.apart, self.drifts["reference"], self.drifts["backend"], self.of_candidate, self.floor
            ),
            "noise": {
                "variations": list(self.floor.variations),
                "independent": self.noise.independent,
                "pair_sigma_median": float(np.median(self.noise.sigma)),
            },
            "nearer_to_float64": {**levels, "nearer": nearer},
            "health": study.health_summary(self.of_reference, self.of_candidate),
        }

    def _battery(self) -> list[dict[str, Any]]:
        rows = []
        for number, ids in enumerate(self.dumps["reference"].ids):
            tokens = {name: self.choices[name][number] for name in ("reference", "backend")}
            row: dict[str, Any] = {"ids": ids, "tokens": tokens}
            if self.decode:
                steps = len(tokens["reference"])
                row["prompt"] = self.decode(ids[: len(ids) - steps + 1])
                row["texts"] = {name: self.decode(made) for name, made in tokens.items()}
            rows.append(row)
        return rows

    def _candidates(self, divergence: study.Divergence) -> dict[str, list[dict[str, Any]]]:
        """The best tokens of each side at a divergence, with their logits."""
        row = self._row(divergence)
        found = {}
        for name, rows in self.logits.items():
            if not np.isfinite(rows[row].astype(np.float64)).all():
                continue
            ids, values = study.top_k(rows[row], min(SHOWN_CANDIDATES, rows.shape[1]))
            found[name] = [
                {"id": int(i), "logit": float(value)} | ({"text": self.decode([int(i)])} if self.decode else {})
                for i, value in zip(ids, values, strict=True)
            ]
        return found


def stored_dtype(values: Array) -> str:
    """The narrowest of bfloat16, float16 and float32 that holds all ``values`` exactly: what they were stored in."""
    wide = values.astype(np.float64)
    for name in ("bfloat16", "float16"):
        with np.errstate(over="ignore"):
            narrow = wide.astype(dtypes.dtype(name)).astype(np.float64)
        if np.array_equal(narrow, wide, equal_nan=True):
            return name
    return "float32"
