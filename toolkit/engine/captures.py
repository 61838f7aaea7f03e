"""Continuations in the format in which captures of other implementations are kept.

One JSON object: ``oracle`` (who), ``version``, ``dtype``, ``mode``, ``model`` and ``prompts``; each prompt has its text,
its ``ids``, the greedy ``tokens``, their ``text`` and ``steps``, for every token the most probable candidates as
``[id, logit, logprob]``, best first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.engine.engine import Continuation


def capture(
    checkpoint: Checkpoint,
    prompts: Sequence[str],
    continuations: Sequence[Continuation],
    *,
    model: str,
    dtype: str,
    mode: str,
    version: str,
) -> dict[str, Any]:
    """The capture of one run, ready for ``json.dumps``."""
    decode = checkpoint.tokenizer.decode
    return {
        "oracle": "neartie-toolkit",
        "version": version,
        "dtype": dtype,
        "mode": mode,
        "model": model,
        "prompts": [
            {
                "prompt": prompt,
                "ids": c.prompt_ids,
                "tokens": c.ids,
                "text": decode(c.ids),
                "steps": [[[x.id, _number(x.logit), _number(x.logprob)] for x in step] for step in c.steps],
            }
            for prompt, c in zip(prompts, continuations, strict=True)
        ],
    }


def _number(value: float) -> float | str:
    # JSON has no infinities: a masked candidate's -inf is written as text rather than as an invalid token.
    return value if math.isfinite(value) else str(value)


def dumps(captured: dict[str, Any]) -> str:
    """The capture as JSON text, one prompt per line."""
    head = {key: value for key, value in captured.items() if key != "prompts"}
    rows = ",\n".join(json.dumps(p, ensure_ascii=False, allow_nan=False) for p in captured["prompts"])
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "prompts": [\n' + rows + "\n]}\n"
