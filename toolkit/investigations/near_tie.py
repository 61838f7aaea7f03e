"""The near-tie investigation: from "my token differs" to a verdict, step by step.

``NearTie`` has one method per section of ``notebooks/near_tie.ipynb``, in order. Each returns what it found, as plain
data that the notebook shows, and keeps it for the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import bundled
from toolkit.api import open_checkpoint
from toolkit.checkpoints.prompts import read_prompts
from toolkit.engine import Continuation, Engine
from toolkit.investigations.measure import Array, Pass, forced_pass
from toolkit.investigations.sides import Side, exact_engine, parse_faults, side, variation_engine
from toolkit.investigations.variations import variations
from toolkit.ops import embedding
from toolkit.progress import track

# Prompts whose stages are held in memory at once.
BATCH = 4


class NearTie:
    """One run of the investigation: the two sides, and what has been found so far.

    ``parameters`` as in specs/near-tie/spec.toml. Raises ToolkitError for anything wrong with model, prompts or devices.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters
        self.dtype = str(parameters["dtype"])
        self.checkpoint = open_checkpoint(parameters["model"], dtype=self.dtype)
        self.a = side(self.checkpoint, parameters["device_a"], self.dtype)
        self.b = side(self.checkpoint, parameters["device_b"], self.dtype, parse_faults(parameters["faults"]))
        self.prompts = read_prompts(Path(parameters["prompts"]) if parameters["prompts"] else bundled.PROMPTS)
        self.found: dict[str, Any] = {}

    # ------------------------------------------------------------------------------------------------------- inputs

    def compare_prompts(self) -> list[dict[str, Any]]:
        """Every prompt as the token ids that each side is given."""
        self.ids = {s.label: s.prompt_ids(self.checkpoint, self.prompts) for s in (self.a, self.b)}
        a, b = (s.prompt_ids(self.checkpoint, self.prompts) for s in (self.a, self.b))
        self.ids_a, self.ids_b = a, b
        rows = [
            {"prompt": prompt, "ids_a": left, "ids_b": right, "equal": left == right}
            for prompt, left, right in zip(self.prompts, a, b, strict=True)
        ]
        self.found["prompts"] = rows
        return rows

    def compare_embeddings(self) -> dict[str, Any]:
        """The embedding rows of all prompt tokens, as each side gathers them, against the bytes of the file."""
        tokens = np.unique(np.concatenate([np.array(row, np.int32) for row in self.ids_a + self.ids_b]))
        table = self.checkpoint.tensors["model.embed_tokens.weight"]
        want = table[tokens].astype(self.a.engine.dtype)
        differing = {}
        for label, s in self._sides():
            device = s.engine.device
            with device:
                got = device.get(embedding(s.engine.model.embedding, device.put(tokens)))
            wrong = (got.astype(np.float64) != want.astype(np.float64)).any(axis=1)
            differing[label] = [int(token) for token in tokens[wrong]]
        self.found["embedding"] = {"rows": len(tokens), "differing": differing}
        return self.found["embedding"]

    # ------------------------------------------------------------------------------------------------------ stability

    def repeat(self) -> dict[str, Any]:
        """The greedy battery ``repeats`` times on each side, then again around other prompts (A, B, A)."""
        self.continuations: dict[str, list[Continuation]] = {}
        report = {}
        for label, s in self._sides():
            ids = self.ids_a if label == "a" else self.ids_b
            runs = [
                s.engine.generate(ids, self.parameters["tokens"])
                for _ in track(range(self.parameters["repeats"]), f"greedy battery on {s.label}, runs")
            ]
            self.continuations[label] = runs[0]
            report[label] = {
                "runs": len(runs),
                "equal": [_same(runs[0], run) for run in runs[1:]],
                "first prompt alone, others, first again": self._returns(s.engine, ids),
            }
        self.found["stability"] = report
        return report

    def _returns(self, engine: Engine, ids: Sequence[list[int]]) -> bool:
        """Whether the first prompt has the same continuation before and after the others have used the cache."""
        alone = engine.generate(ids[:1], self.parameters["tokens"])
        engine.generate(ids[1:] or ids, self.parameters["tokens"])
        again = engine.generate(ids[:1], self.parameters["tokens"])
        return _same(alone, again)

    # --------------------------------------------------------------------------------------------------------- passes

    def force(self) -> None:
        """Force the first side's continuations on every engine and keep how far each is from the first side."""
        raise NotImplementedError

    def _batches(self) -> Iterator[slice]:
        for start in range(0, len(self.prompts), BATCH):
            yield slice(start, start + BATCH)

    def _sides(self) -> tuple[tuple[str, Side], tuple[str, Side]]:
        return ("a", self.a), ("b", self.b)


def _same(one: Sequence[Continuation], other: Sequence[Continuation]) -> bool:
    """Equal tokens and, at every step, equal candidates to the last bit of their logits."""
    return all(x.ids == y.ids and x.steps == y.steps for x, y in zip(one, other, strict=True))
