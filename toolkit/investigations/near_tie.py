"""The near-tie investigation: from "my token differs" to a verdict, step by step.

``NearTie`` has one method per section of ``notebooks/near_tie.ipynb``, in order; each keeps what it found and returns it
for the notebook to show. The first side is the reference of the study's vocabulary, the second the backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import bundled, study
from toolkit.api import open_checkpoint
from toolkit.checkpoints.layout import EMBEDDING
from toolkit.checkpoints.prompts import read_prompts
from toolkit.dtypes import FLOAT32
from toolkit.engine import Continuation, Engine
from toolkit.investigations import specs
from toolkit.investigations.measure import Array, forced_pass
from toolkit.investigations.sides import Side, exact_engine, parse_faults, side, variation_engine
from toolkit.investigations.variations import variations
from toolkit.ops import embedding
from toolkit.progress import track
from toolkit.study.verdict import PAIR_NEAR_TIE
from toolkit.study.verdict import Side as SideName

# Margins below which a step is near enough to a tie to be worth counting, in logits.
DENSITY_MARGINS = (0.01, 0.03, 0.0625, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Stability:
    """Each side against itself: its first run's continuations, and where later runs differ from it."""

    runs: int
    continuations: dict[SideName, list[Continuation]]
    unstable: dict[SideName, list[study.Instability]]


@dataclass(frozen=True)
class Forced:
    """The first side's continuations forced on every engine.

    ``drifts`` are distances from float64 by engine: the sides, then every variation. ``apart`` is the distance of the
    second side from the first. ``logits`` are [steps, vocabulary] over all prompts; ``margins`` of the followed pairs.
    """

    drifts: dict[str, study.Drift]
    apart: study.Drift
    floor: study.NoiseFloor
    reference: study.Health
    backend: study.Health
    pairs: Array
    exact_margins: Array
    resolution: Array
    noise: study.PairNoise
    logits: dict[str, Array]


class NearTie:
    """One run of the investigation.

    ``parameters`` as in specs/near-tie/spec.toml. Raises ToolkitError for anything wrong with model, prompts or devices.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters
        self.dtype = str(parameters["dtype"])
        self.checkpoint = open_checkpoint(
            parameters["model"], dtype=self.dtype, weights_dtype=parameters["weights_dtype"] or None
        )
        reference = side(self.checkpoint, parameters["device_a"], self.dtype)
        backend = side(self.checkpoint, parameters["device_b"], self.dtype, parse_faults(parameters["faults"]))
        self.sides: dict[SideName, Side] = {"reference": reference, "backend": backend}
        self.prompts = read_prompts(parameters["prompts"] or default_prompts(parameters["model"]))
        self.ids = {name: s.prompt_ids(self.checkpoint, self.prompts) for name, s in self.sides.items()}

    def run(self) -> study.Verdict:
        """All steps in order."""
        self.compare_inputs()
        self.repeat()
        self.force()
        return self.judge()[0]

    def compare_inputs(self) -> list[study.Mismatch]:
        """What the sides were given differently: prompt ids, and embedding rows against the bytes of the file."""
        self.mismatches = study.compare_prompts(self.ids["reference"], self.ids["backend"])
        tokens = np.unique(np.concatenate([np.array(row, np.int32) for ids in self.ids.values() for row in ids]))
        stored = self.checkpoint.tensors[EMBEDDING][tokens]
        self.embedding_rows = len(tokens)
        for name, s in self.sides.items():
            device = s.engine.device
            with device:
                gathered = device.get(embedding(s.engine.model.embedding, device.put(tokens)))
            want = stored.astype(s.engine.dtype).astype(gathered.dtype)
            self.mismatches += study.compare_bits(f"embedding rows of the {name}", "the file", want, gathered)
        return self.mismatches

    def repeat(self) -> Stability:
        """The greedy battery ``repeats`` times on each side, then its first prompt before and after the others."""
        tokens, runs = int(self.parameters["tokens"]), int(self.parameters["repeats"])
        continuations: dict[SideName, list[Continuation]] = {}
        unstable: dict[SideName, list[study.Instability]] = {}
        for name, s in self.sides.items():
            made = [
                s.engine.generate(self.ids[name], tokens)
                for _ in track(range(runs), f"greedy battery on the {name} ({s.label}), runs")
            ]
            continuations[name] = made[0]
            found = study.repeats([[c.ids for c in run] for run in made]) if runs > 1 else []
            unstable[name] = found + self._leak(s.engine, self.ids[name], tokens)
        self.stability = Stability(runs, continuations, unstable)
        # Continuations of different prompts do not diverge, they have nothing in common.
        self.divergences = (
            []
            if self.mismatches
            else study.first_divergences(
                [c.ids for c in continuations["reference"]], [c.ids for c in continuations["backend"]]
            )
        )
        return self.stability

    def _leak(self, engine: Engine, ids: list[list[int]], tokens: int) -> list[study.Instability]:
        before = engine.generate(ids[:1], tokens)
        engine.generate(ids[1:] or ids, tokens)
        after = engine.generate(ids[:1], tokens)
        return study.state_leak([c.ids for c in before], [c.ids for c in after])

    def force(self) -> Forced | None:
        """Force the first side's continuations on both sides, on float64 and on every variation of the reference.

        Stages of one engine at a time are held beside those of float64 and of the first side. None when the inputs
        differ: numbers from different inputs say nothing, so none are made.
        """
        if self.mismatches:
            return None
        ids = self.ids["reference"]
        forced = [c.ids for c in self.stability.continuations["reference"]]
        exact = forced_pass(exact_engine(self.checkpoint, self.dtype), ids, forced)
        arbiter = study.by_part(exact.stages)
        exact_logits = exact.rows

        passes = {name: forced_pass(s.engine, ids, forced) for name, s in self.sides.items()}
        taps = {name: study.by_part(p.stages) for name, p in passes.items()}
        logits: dict[str, Array] = {name: p.rows for name, p in passes.items()}
        logits["exact"] = exact_logits
        pairs = self._pairs(logits)
        drifts = {str(name): study.drift_of(taps[name], arbiter) for name in self.sides}
        apart = study.drift_of(taps["backend"], taps["reference"])
        del passes, taps

        margins, floor_drifts = [], {}
        for variation in track(variations(self.checkpoint.config), "variations of the reference"):
            varied = forced_pass(variation_engine(self.checkpoint, variation, self.dtype), ids, forced)
            floor_drifts[variation.name] = study.drift_of(study.by_part(varied.stages), arbiter)
            margins.append(study.pair_margins(varied.rows, pairs))
            del varied  # or it would stay until the next one is complete
        floor = study.noise_floor(floor_drifts)
        exact_margins = study.pair_margins(exact_logits, pairs)
        both = np.take_along_axis(exact_logits, pairs, axis=1)
        stored_as = "float32" if logits["backend"].dtype == FLOAT32 else self.dtype
        resolution = study.margin_resolution(both[:, 0], both[:, 1], stored_as)
        self.forced = Forced(
            drifts={**drifts, **floor_drifts},
            apart=apart,
            floor=floor,
            reference=study.judge_health(drifts["reference"], floor),
            backend=study.judge_health(drifts["backend"], floor),
            pairs=pairs,
            exact_margins=exact_margins,
            resolution=resolution,
            noise=study.pair_noise(np.stack(margins), exact_margins, resolution),
            logits=logits,
        )
        return self.forced

    def _pairs(self, logits: dict[str, Array]) -> Array:
        """The two tokens followed at every step: float64's two best, or the two that competed at a divergence."""
        pairs, _ = study.top_k(logits["exact"], 2)
        for divergence in self.divergences:
            if divergence.reference is not None and divergence.backend is not None:
                pairs[self._row(divergence)] = divergence.reference, divergence.backend
        return pairs

    def _row(self, divergence: study.Divergence) -> int:
        """Where a divergence's step is among the rows of all prompts."""
        before = self.stability.continuations["reference"][: divergence.prompt]
        return sum(len(c.ids) for c in before) + divergence.step

    def judge(self) -> tuple[study.Verdict, list[study.JudgedDivergence]]:
        """The verdict on every first divergence, and on the backend."""
        steps = sum(len(c.ids) for c in self.stability.continuations["reference"])
        self.judged = [self._judge_divergence(d, steps) for d in self.divergences]
        if self.mismatches:
            self.verdict = self._judge(steps, None, None)
        else:
            self.verdict = self._judge(steps, self.forced.reference, self.forced.backend)
        return self.verdict, self.judged

    def _judge(self, steps: int, reference: study.Health | None, backend: study.Health | None) -> study.Verdict:
        return study.judge(
            steps=steps,
            mismatches=self.mismatches,
            unstable=self.stability.unstable if self.stability.runs > 1 else {},
            reference=reference,
            backend=backend,
            divergences=self.judged,
            selection={
                name: [e for number, c in enumerate(made) for e in _selection_errors(number, c)]
                for name, made in self.stability.continuations.items()
            },
        )

    def _judge_divergence(self, divergence: study.Divergence, steps: int) -> study.JudgedDivergence:
        f = self.forced
        pair = None
        if divergence.reference is not None and divergence.backend is not None:
            row = self._row(divergence)
            first, second = f.pairs[row]
            of = {
                name: study.margin(rows[row, first], rows[row, second], self.dtype) for name, rows in f.logits.items()
            }
            pair = study.judge_pair(
                of["exact"],
                of["reference"],
                of["backend"],
                sigma=float(f.noise.sigma[row]),
                independent=f.noise.independent,
                steps=steps,
            )
        last = self.checkpoint.config.layers
        whole = f.backend.row_ratio(last, "logits", divergence.prompt, divergence.step) if pair else None
        return study.judge_divergence(divergence, pair, f.backend, whole_ratio=whole)

    def results(self) -> dict[str, Any]:
        """Everything that was found, as plain data for the record."""
        decode = self.checkpoint.tokenizer.decode
        made = self.stability.continuations
        battery = [
            {
                "prompt": prompt,
                "ids": self.ids["reference"][number],
                "tokens": {name: made[name][number].ids for name in made},
                "texts": {name: decode(made[name][number].ids) for name in made},
                "candidates_in_common": _common_candidates(made, number),
            }
            for number, prompt in enumerate(self.prompts)
        ]
        found: dict[str, Any] = {
            "inputs": {"embedding_rows": self.embedding_rows, "mismatches": study.plain(self.mismatches)},
            "stability": {"runs": self.stability.runs, "unstable": study.plain(self.stability.unstable)},
            "battery": battery,
            "divergences": study.plain(self.judged),
        }
        if not self.mismatches:
            found |= self._forced_results()
        return found

    def _forced_results(self) -> dict[str, Any]:
        f = self.forced
        margins = self.margins()
        return {
            "near_tie_density": {
                "steps": len(margins),
                "below": dict(
                    zip(map(str, DENSITY_MARGINS), study.margin_density(margins, DENSITY_MARGINS), strict=True)
                ),
                "exact_ties": int(np.count_nonzero(study.exact_ties(f.logits["reference"], self.dtype) > 1)),
            },
            "drift": self.drift_table(),
            "noise": {
                "variations": list(f.floor.variations),
                "independent": f.noise.independent,
                "pair_sigma_median": float(np.median(f.noise.sigma)),
            },
            "nearer_to_float64": self.nearer(),
            "health": study.health_summary(f.reference, f.backend),
        }

    def drift_table(self) -> list[dict[str, Any]]:
        """One row per layer and stage: the sides' distances from each other and from float64, and the noise floor."""
        f = self.forced
        return study.drift_rows(f.apart, f.drifts["reference"], f.drifts["backend"], f.backend, f.floor)

    def random_walk(self) -> list[tuple[int, float]]:
        """The bfloat16 random-walk prediction of rel_l2 between two engines after each layer's residual stream.

        Two stores of the stream per layer (after the mixer and after the MLP) and one at the embedding are counted.
        """
        return [
            (layer, study.random_walk(1 + 2 * (layer + 1), self.dtype))
            for layer in range(self.checkpoint.config.layers)
        ]

    @property
    def near_tie_limit(self) -> float:
        """The largest gap, in perturbations of the pair, that is a near-tie."""
        return PAIR_NEAR_TIE

    def label(self, side: SideName) -> str:
        """The device of a side, with its planted faults."""
        s = self.sides[side]
        return s.label + "".join(f" + {fault.name}" for fault in s.faults)

    def margins(self) -> Array:
        """Top-1 minus top-2 logit of every step of the battery in float64."""
        return study.top_margins(self.forced.logits["exact"])

    def density(self) -> dict[str, Any]:
        """How near to ties the steps of the battery are: shares of steps below a margin, and exact ties in the dtype."""
        margins = self.margins()
        shares = study.margin_density(margins, DENSITY_MARGINS)
        ties = study.exact_ties(self.forced.logits["reference"], self.dtype)
        return {
            "steps": len(margins),
            "below": dict(zip(map(str, DENSITY_MARGINS), shares, strict=True)),
            "exact_ties": int(np.count_nonzero(ties > 1)),
        }

    def nearer(self) -> dict[str, Any]:
        """Which side's logits are nearer to float64, by root mean square of rel_l2 over the steps."""
        last = self.checkpoint.config.layers
        levels: dict[str, float] = {name: self.forced.drifts[name].at(last, "logits").level for name in self.sides}
        equal = levels["reference"] == levels["backend"]
        nearer = "equal" if equal else min(levels, key=lambda name: levels[name])
        return {"reference": levels["reference"], "backend": levels["backend"], "nearer": nearer}

    def providers(self) -> dict[str, list[dict[str, Any]]]:
        """Which provider ran each op on each side, with counts of selections and declines."""
        return {name: s.engine.device.statistics.table() for name, s in self.sides.items()}


def default_prompts(model: str) -> Path:
    """The bundled models' own battery, or the 16 prompts of the public near-tie gate for any other model."""
    return bundled.PROMPTS if model in bundled.NAMES else specs.root("specs") / "near-tie" / "battery.txt"


def _selection_errors(prompt: int, continuation: Continuation) -> list[study.SelectionError]:
    ids = np.array([[c.id for c in step] for step in continuation.steps])
    logits = np.array([[c.logit for c in step] for step in continuation.steps])
    return study.selection_errors(prompt, continuation.ids, ids, logits)


def _common_candidates(made: dict[SideName, list[Continuation]], number: int) -> list[int]:
    """How many of the best candidates both sides have in common, per step of the common prefix and the one after it."""
    one, other = made["reference"][number], made["backend"][number]
    split = study.first_divergence(one.ids, other.ids)
    steps = len(one.ids) if split is None else split + 1
    return [
        len({c.id for c in a} & {c.id for c in b}) for a, b in zip(one.steps[:steps], other.steps[:steps], strict=False)
    ]
