"""Our engine against captures of Hugging Face transformers on the bundled models (tests/data/transformers)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toolkit

DATA = Path(__file__).parents[1] / "data" / "transformers"
MODELS = ("qwen3-tiny", "gemma3-tiny")


def scored(name: str, device: str) -> tuple[np.ndarray[Any, Any], Any]:
    captured = np.load(DATA / f"{name}.npz")
    model = toolkit.load(name, device=device, dtype="float32")
    prompts = [[int(i) for i in row if i >= 0] for row in captured["ids"]]
    rows = model.engine.score(prompts, captured["continuations"].tolist())
    return np.take_along_axis(np.concatenate(rows), captured["columns"], 1).astype(np.float64), captured


@pytest.mark.parametrize("name", MODELS)
def test_prompt_ids_are_those_of_transformers(name: str) -> None:
    captured = np.load(DATA / f"{name}.npz")
    checkpoint = toolkit.load(name).checkpoint
    for prompt, row in zip(captured["prompts"], captured["ids"], strict=True):
        assert checkpoint.tokenizer.encode(str(prompt)) == [i for i in row if i >= 0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_float32_is_within_1e_4_of_the_largest_logit(name: str, device: str) -> None:
    ours, captured = scored(name, device)
    error = np.abs(ours - captured["float32"]).max(1) / captured["largest"]
    assert error.max() < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_exact_is_within_1e_5_of_a_float64_run(name: str) -> None:
    ours, captured = scored(name, "exact")
    error = np.abs(ours - captured["float64"]).max(1) / captured["largest"]
    assert error.max() < 1e-5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_greedy_tokens_in_float32_are_those_of_transformers(name: str, device: str) -> None:
    captured = np.load(DATA / f"{name}.npz")
    model = toolkit.load(name, device=device, dtype="float32")
    prompts = [[int(i) for i in row if i >= 0] for row in captured["ids"]]
    made = toolkit.generate(model, prompts, captured["continuations"].shape[1], stop=False)
    gaps = captured["float32"].reshape(len(prompts), -1, 64)
    for number, (continuation, want) in enumerate(zip(made, captured["continuations"], strict=True)):
        for step, (a, b) in enumerate(zip(continuation.ids, want, strict=True)):
            if a != b:
                # Only a tie closer than float32 engines differ by may go the other way.
                assert gaps[number, step, 0] - gaps[number, step, 1] < 2e-4
                break
