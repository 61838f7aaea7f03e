"""A small residual network with rounding points: real error propagation, without the engine.

Four layers of norm, mixing across rows, norm and a gated product, in bfloat16 with a choice of the things in which honest
engines differ, and with faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

WIDTH, HIDDEN, VOCABULARY, LAYERS = 64, 96, 128, 4
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Run:
    """How the network is computed: ``exact`` without rounding; otherwise rounded to bfloat16 at its rounding points."""

    exact: bool = False
    block: int | None = None  # float32 sums in blocks of this many
    norm_twice: bool = False  # round the normed row before the weight as well
    wide_gate: bool = False  # do not round the activation before the product
    narrow_mix: bool = False  # round the mixing coefficients
    fault: dict[str, Any] = field(default_factory=dict)


VARIATIONS = {
    "blocks of 8": Run(block=8),
    "blocks of 32": Run(block=32),
    "norm twice": Run(norm_twice=True),
    "wide gate": Run(wide_gate=True),
    "narrow mix": Run(narrow_mix=True),
    "norm twice, narrow mix": Run(norm_twice=True, narrow_mix=True),
}


class Network:
    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)

        def weight(rows: int, columns: int) -> Array:
            return stored(draw.normal(size=(rows, columns)) / np.sqrt(columns))

        self.embedding = stored(draw.normal(size=(VOCABULARY, WIDTH)))
        self.norms = stored(1 + 0.3 * draw.normal(size=(LAYERS, 2, WIDTH)))
        self.mix = [weight(WIDTH, WIDTH) for _ in range(LAYERS)]
        self.gate = [weight(HIDDEN, WIDTH) for _ in range(LAYERS)]
        self.up = [weight(HIDDEN, WIDTH) for _ in range(LAYERS)]
        self.down = [weight(WIDTH, HIDDEN) for _ in range(LAYERS)]

    def taps(self, prompts: list[list[int]], run: Run) -> dict[tuple[int, int, str], Array]:
        return {(part, *place): x for part, ids in enumerate(prompts) for place, x in self._forward(ids, run).items()}

    def _forward(self, ids: list[int], run: Run) -> dict[tuple[int, str], Array]:
        fault = run.fault
        narrow = (lambda x: x) if run.exact else stored

        def times(x: Array, weight: Array) -> Array:
            if run.exact or run.block is None:
                return x @ weight.T
            total = np.zeros((len(x), len(weight)), np.float32)
            for start in range(0, x.shape[1], run.block):
                part = slice(start, start + run.block)
                total += x[:, part].astype(np.float32) @ weight[:, part].astype(np.float32).T
            return total.astype(np.float64)

        def norm(x: Array, weight: Array, layer: int) -> Array:
            normed = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6)
            if run.norm_twice and not run.exact:
                normed = narrow(normed)
            if fault.get("norm weight lost") == layer:
                weight = weight - 1
            return narrow(normed * weight)

        found: dict[tuple[int, str], Array] = {}
        x = self.embedding[ids]
        found[-1, "embedding"] = x
        distance = np.abs(np.subtract.outer(np.arange(len(ids)), np.arange(len(ids))))
        for layer in range(LAYERS):
            hidden = norm(x, self.norms[layer, 0], layer)
            found[layer, "post_input_norm"] = hidden
            slope = 1.0 if fault.get("slope") != layer else 0.7
            coefficients = np.tril(np.exp(-slope * distance))
            coefficients /= coefficients.sum(axis=1, keepdims=True)
            mixed = narrow((narrow(coefficients) if run.narrow_mix else coefficients) @ hidden)
            mixer = narrow(times(mixed, self.mix[layer]))
            if fault.get("row") == layer:
                mixer[-1] = narrow(mixer[-1] * 1.3)
            if fault.get("scale", (None, 1.0))[0] == layer:
                mixer = narrow(mixer * fault["scale"][1])
            if fault.get("nan") == layer:
                mixer[0, 0] = np.nan
            found[layer, "mixer"] = mixer
            x = narrow(x + mixer)
            hidden = norm(x, self.norms[layer, 1], -1)
            found[layer, "post_attention_norm"] = hidden
            gate = narrow(times(hidden, self.gate[layer]))
            gate = gate / (1 + np.exp(-gate))
            up = narrow(times(hidden, self.up[layer]))
            mlp = narrow(times(narrow((gate if run.wide_gate else narrow(gate)) * up), self.down[layer]))
            found[layer, "mlp"] = mlp
            x = narrow(x + mlp)
            found[layer, "residual"] = x
        found[LAYERS, "logits"] = narrow(3 * times(x, self.embedding))
        return found


def stored(x: Array) -> Array:
    """Rounded to float32, then to bfloat16, held as float64."""
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def prompts(seed: int = 1, lengths: tuple[int, ...] = (5, 9, 3, 12, 7, 10)) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, VOCABULARY, length).tolist() for length in lengths]
