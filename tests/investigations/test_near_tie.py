"""The near-tie investigation on the bundled models: what must be healthy is, and planted faults are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolkit import study
from toolkit.faults import CATALOGUE
from toolkit.investigations import specs
from toolkit.investigations.near_tie import NearTie

# Enough to cross Gemma's window of 32 once and to hold a near-tie; the whole battery is run by the notebook tests.
PROMPTS = (
    "The capital of France is",
    "My favourite colour is",
    "The winner of the race was the",
    "Once upon a time, there was a little girl named Lily. She had a cat and a red ball. One day, Lily put her ball in "
    "the garden. The cat was very hungry. They played in the forest all day long. The ball was in the",
)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.json"
    path.write_text(json.dumps(PROMPTS))
    return path


def investigate(model: str, prompts: Path, **parameters: Any) -> NearTie:
    defaults = {"model": model, "prompts": str(prompts), "repeats": 2, "tokens": 8}
    found = NearTie(specs.read("near-tie").checked({**defaults, **parameters}))
    found.run()
    return found


@pytest.mark.parametrize("model", ["qwen3-tiny", "gemma3-tiny"])
def test_cpu_is_healthy_and_so_is_every_variation(model: str, prompts: Path) -> None:
    found = investigate(model, prompts)
    assert found.verdict.verdict in ("identical", "near-tie")
    assert all(judged.verdict == "near-tie" for judged in found.judged)
    variations = {name: found.forced.drifts[name] for name in found.forced.floor.variations}
    for name, health in study.leave_one_out(variations).items():
        assert health.state != "defect", f"{name} would be condemned"


@pytest.mark.parametrize(
    ("fault", "layer", "stage"),
    [("rope-base-swapped", 0, "mixer"), ("norm-offset-lost", 3, "post_input_norm")],
)
def test_planted_faults_end_in_defect_at_their_layer(fault: str, layer: int, stage: str, prompts: Path) -> None:
    found = investigate("gemma3-tiny", prompts, faults=fault)
    assert (found.verdict.verdict, found.verdict.layer, found.verdict.stage) == ("defect", layer, stage)
    assert CATALOGUE[fault].layer == layer


def test_other_prompt_ids_are_not_comparable(prompts: Path) -> None:
    found = investigate("gemma3-tiny", prompts, faults="double-bos")
    assert found.verdict.verdict == "not-comparable"
    assert "drift" not in found.results()


def test_a_healthy_verdict_takes_repeated_runs(prompts: Path) -> None:
    assert investigate("qwen3-tiny", prompts, repeats=1).verdict.verdict == "undetermined"


def test_a_side_that_disagrees_with_itself_is_nondeterministic(prompts: Path) -> None:
    defaults = {"model": "qwen3-tiny", "prompts": str(prompts), "repeats": 2, "tokens": 4}
    found = NearTie(specs.read("near-tie").checked(defaults))
    backend = found.sides["backend"].engine
    generate, calls = backend.generate, []

    def unsteady(*args: Any, **kwargs: Any) -> Any:
        made = generate(*args, **kwargs)
        calls.append(None)
        if len(calls) == 2:
            made[1].ids[2] += 1
        return made

    backend.generate = unsteady  # type: ignore[method-assign]
    assert found.run().verdict == "nondeterministic"
