"""The engine on the bundled models: what must not change tokens does not, and what must be refused is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import toolkit
from toolkit.devices import device
from toolkit.engine import Engine, NonFiniteLogits, TapRecorder
from toolkit.errors import ToolkitError
from toolkit.faults import Fault

PROMPTS = ["The capital of France is", "7 + 5 =", "Once upon a time, there was a", "What is"]
DEVICES = ("reference", "cpu")
MODELS = ("qwen3-tiny", "gemma3-tiny")
TOKENS = 6


def engine(model: str, on: str, **options: Any) -> Engine:
    return Engine(toolkit.load(model).checkpoint, device(on), **options)


def ids(model: str) -> list[list[int]]:
    checkpoint = toolkit.load(model).checkpoint
    return [checkpoint.tokenizer.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module", params=[(m, d) for m in MODELS for d in DEVICES], ids=lambda p: "-".join(p))
def plain(request: pytest.FixtureRequest) -> tuple[str, str, list[Any]]:
    model, on = request.param
    return model, on, engine(model, on).generate(ids(model), TOKENS)


def logits(made: list[Any]) -> np.ndarray[Any, Any]:
    return np.array([[step[0].logit for step in c.steps] for c in made])


@pytest.mark.parametrize(
    "options", [{"padding": "left"}, {"padding": "right"}, {"chunk": 3}, {"block_size": 4}], ids=str
)
def test_layout_changes_nothing(plain: tuple[str, str, list[Any]], options: dict[str, Any]) -> None:
    model, on, want = plain
    made = engine(model, on, **options).generate(ids(model), TOKENS)
    assert [c.ids for c in made] == [c.ids for c in want]
    # Another batch width may select another provider, whose sums have another order: one bfloat16 step at most.
    assert np.abs(logits(made) - logits(want)).max() <= 0.125


def test_taps_change_nothing(plain: tuple[str, str, list[Any]]) -> None:
    model, on, want = plain
    running = engine(model, on)
    recorder = TapRecorder(running.device)
    made = running.generate(ids(model), TOKENS, tap=recorder)
    assert [c.ids for c in made] == [c.ids for c in want]
    assert [c.steps for c in made] == [c.steps for c in want]
    assert recorder.values


def test_batch_is_each_alone(plain: tuple[str, str, list[Any]]) -> None:
    model, on, want = plain
    running = engine(model, on)
    for prompt, together in zip(ids(model), want, strict=True):
        assert running.generate([prompt], TOKENS)[0].ids == together.ids


def test_used_cache_leaks_nothing(plain: tuple[str, str, list[Any]]) -> None:
    model, on, want = plain
    running = engine(model, on)
    first = running.generate(ids(model)[:1], TOKENS)
    running.generate(ids(model)[1:], TOKENS)
    again = running.generate(ids(model)[:1], TOKENS)
    assert again[0].steps == first[0].steps
    assert again[0].ids == want[0].ids


def test_forced_rows_are_those_of_decoding() -> None:
    running = engine("gemma3-tiny", "reference")
    (made,) = running.generate(ids("gemma3-tiny")[:1], TOKENS)
    (rows,) = running.score([made.prompt_ids], [made.ids])
    assert rows.shape == (TOKENS, 2048)
    assert [int(i) for i in rows.astype(np.float64).argmax(1)] == made.ids


def test_stops_at_a_stop_token() -> None:
    model = toolkit.load("qwen3-tiny", device="cpu")
    (free,) = toolkit.generate(model, ["7 + 5 ="], 40, stop=False)
    (stopped,) = toolkit.generate(model, ["7 + 5 ="], 40)
    stops = [i for i, token in enumerate(free.ids) if token in model.checkpoint.stop_ids]
    if stops:
        assert stopped.ids == free.ids[: stops[0] + 1]
        assert stopped.stopped_by == free.ids[stops[0]]
    else:
        assert stopped.ids == free.ids


@pytest.mark.parametrize(
    ("prompt", "tokens", "words"),
    [
        ([], 1, "no tokens"),
        ([4096], 1, "outside the vocabulary"),
        ([-1], 1, "outside the vocabulary"),
        ([1] * 510, 16, "positions"),
        ([1], -1, "negative"),
    ],
)
def test_impossible_requests_are_refused(prompt: list[int], tokens: int, words: str) -> None:
    with pytest.raises(ToolkitError, match=words):
        engine("qwen3-tiny", "reference").generate([prompt], tokens)


@pytest.mark.parametrize("on", DEVICES)
def test_nan_is_never_a_token(on: str) -> None:
    def poisoned(op: str, layer: int | None, bound: dict[str, Any], result: Any) -> Any:
        if op == "silu_mul" and layer == 4:
            result = result.copy()
            result[-1, 0] = np.nan
        return result

    fault = Fault("nan", "a NaN in the MLP of layer 4", "a kernel that divides by zero", result=poisoned)
    model = toolkit.load("qwen3-tiny", device=on, faults=[fault])
    with pytest.raises(NonFiniteLogits, match=r"step 0 .*layer 4, stage mlp"):
        toolkit.generate(model, ["What is"], 2)


def test_prompts_without_the_bos_that_gemma_needs_are_refused() -> None:
    model = toolkit.load("gemma3-tiny", device="cpu")
    bos = model.checkpoint.config.bos_token_id
    assert all(row.count(bos) == 1 and row[0] == bos for row in ids("gemma3-tiny"))
