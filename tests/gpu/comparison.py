"""A model without a tokenizer on one device against the reference, in less time than the near-tie investigation takes:
tokens, gaps where they part, and every stage against the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.devices.arithmetic import SumOrder
from toolkit.devices.base import Device
from toolkit.devices.numpy_devices import reference
from toolkit.engine import Engine
from toolkit.investigations.measure import Array, Pass, forced_pass
from toolkit.investigations.sides import variation_engine
from toolkit.investigations.variations import variations
from toolkit.ops.tolerance import spacing

# For models of full size and random weights, whose reference takes a second per token.
SHORT_PROMPTS = {
    "Qwen3-0.6B": [[785, 6722, 315, 9625, 374], [12, 7, 99999]],
    "Gemma-3-1B": [[2, 651, 6037], [2, 17, 260000]],
}

# Which orders of float32 sums are among the variations: each costs as much as all rounding points together.
ORDERS: tuple[SumOrder, ...] = ("sequential", "pairwise", "blocked-32")


@dataclass(frozen=True)
class Parting:
    """Where a prompt's tokens part, in logits. ``gap``: by how much the reference prefers its own token to the device's;
    ``perturbation``: by how much legitimate variations move that difference at most; ``ulp``: the spacing of logits
    there. Rounding the four logits that are compared moves the difference by up to two of it."""

    prompt: int
    step: int
    ours: int
    theirs: int
    gap: float
    perturbation: float
    ulp: float

    @property
    def near_tie(self) -> bool:
        return self.gap <= max(self.perturbation, 2 * self.ulp)


@dataclass(frozen=True)
class Drift:
    """The distance of a stage from the reference's, as rel_l2, of the device and of the farthest variation."""

    layer: int
    stage: str
    device: float
    floor: float

    @property
    def within(self) -> bool:
        return self.device <= self.floor


@dataclass(frozen=True)
class Comparison:
    """What a model gave on a device. ``stable``: whether repeated runs had the same tokens and candidates' bits."""

    tokens: int
    equal_prompts: int
    prompts: int
    stable: bool
    partings: tuple[Parting, ...]
    drift: tuple[Drift, ...]
    logits_rel_l2: float
    refusals: int

    @property
    def verdict(self) -> str:
        if not self.stable:
            return "nondeterministic"
        if self.refusals or not self.drift or not all(drift.within for drift in self.drift):
            return "defect"
        if not all(parting.near_tie for parting in self.partings):
            return "undetermined"
        return "near-tie" if self.partings else "identical"

    def summary(self) -> dict[str, Any]:
        """What a record keeps: the stage that is nearest to its floor stands for all."""
        worst = max(self.drift, key=lambda drift: drift.device / drift.floor if drift.floor else 0.0)
        return {
            "verdict": self.verdict,
            "prompts": self.prompts,
            "tokens per prompt": self.tokens,
            "prompts with equal tokens": self.equal_prompts,
            "repeated runs equal": self.stable,
            "partings": [asdict(parting) for parting in self.partings],
            "stages": len(self.drift),
            "stages within the noise floor": sum(drift.within for drift in self.drift),
            "stage nearest to its floor": asdict(worst),
            "rel_l2 of the logits": self.logits_rel_l2,
            "refused ops": self.refusals,
        }


def compare(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    device: Device,
    *,
    tokens: int = 16,
    repeats: int = 5,
    orders: Sequence[SumOrder] = ORDERS,
    dtype: str = "bfloat16",
) -> Comparison:
    """Decode greedily on ``device`` and on the reference, then force the reference's tokens on both and on variations
    of the reference: other rounding points, and float32 sums in ``orders``."""
    engine, oracle = Engine(checkpoint, device, dtype), Engine(checkpoint, reference(), dtype)
    runs = [engine.generate(prompts, tokens, stop=False) for _ in range(repeats)]
    want = oracle.generate(prompts, tokens, stop=False, top=0)
    forced = [made.ids for made in want]
    base, ours = forced_pass(oracle, prompts, forced), forced_pass(engine, prompts, forced)
    legitimate = [v for v in variations(checkpoint.config) if v.sum_order is None or v.sum_order in orders]
    varied = [forced_pass(variation_engine(checkpoint, v, dtype), prompts, forced) for v in legitimate]
    partings = [
        _parting(number, made.ids, theirs.ids, base, varied)
        for number, (made, theirs) in enumerate(zip(runs[0], want, strict=True))
        if made.ids != theirs.ids
    ]
    drift = [
        Drift(
            layer,
            stage,
            _rel_l2(ours.stages[layer, stage], values),
            max(_rel_l2(variation.stages[layer, stage], values) for variation in varied),
        )
        for (layer, stage), values in base.stages.items()
    ]
    return Comparison(
        tokens=tokens,
        equal_prompts=len(prompts) - len(partings),
        prompts=len(prompts),
        stable=all(run == runs[0] for run in runs),
        partings=tuple(partings),
        drift=tuple(drift),
        logits_rel_l2=_rel_l2(ours.logits, base.logits),
        refusals=sum(device.statistics.refusals.values()),
    )


def _parting(number: int, ours: list[int], theirs: list[int], base: Pass, varied: Sequence[Pass]) -> Parting:
    step = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    a, b = theirs[step], ours[step]

    def lead(made: Pass) -> float:
        row = made.logits[number][step].astype(np.float64)
        return float(row[a] - row[b])

    gap = lead(base)
    perturbation = max(abs(lead(variation) - gap) for variation in varied)
    return Parting(number, step, b, a, gap, perturbation, float(spacing(base.logits[number][step][a])))


def _rel_l2(values: Sequence[Array], base: Sequence[Array]) -> float:
    """|values - base| / |base| over all elements; NaN when either holds one."""
    difference = sum(
        float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2)) for a, b in zip(values, base, strict=True)
    )
    norm = sum(float(np.sum(b.astype(np.float64) ** 2)) for b in base)
    return float(np.sqrt(difference / norm))
