"""Teacher-forced passes of several engines over the same tokens, reduced to what the study needs.

Whole stages of whole models do not fit in memory for every variation at once, so each pass is compared with the
reference's as soon as it is made, and only the distances are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from toolkit.engine import Engine, TapRecorder
from toolkit.models import Stage

Place: TypeAlias = tuple[int, str]
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Pass:
    """One engine's forced pass over prompts.

    ``rows`` are the logits of all prompts [steps, vocabulary] and ``logits`` those of each prompt, views of them;
    ``stages`` has, per place of the model and prompt, the stage's values [tokens, features].
    """

    rows: Array
    logits: list[Array]
    stages: dict[Place, list[Array]]


def forced_pass(engine: Engine, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]) -> Pass:
    """Run ``continuations`` after ``prompts`` in one batch and keep every stage.

    Nothing is padded or chunked, so that the tokens of a stage are those of the prompts, one after the other.
    """
    recorder, made = TapRecorder(engine.device), list[Array]()

    def tap(layer: int, stage: Stage, value: Any) -> None:
        # Logits are what the model returns, which nothing overwrites, and too large to be copied with a real vocabulary.
        if stage == "logits":
            made.append(engine.device.get(value))
        else:
            recorder(layer, stage, value)

    engine.score(prompts, continuations, tap=tap)
    (rows,) = made
    logits = np.split(rows, np.cumsum([len(c) for c in continuations])[:-1])
    lengths = [len(p) + len(c) - 1 for p, c in zip(prompts, continuations, strict=True)]
    edges = np.cumsum(lengths)[:-1]
    stages: dict[Place, list[Array]] = {key: np.split(values, edges) for key, values in recorder.joined().items()}
    stages[engine.checkpoint.config.layers, "logits"] = logits
    return Pass(rows, logits, stages)
