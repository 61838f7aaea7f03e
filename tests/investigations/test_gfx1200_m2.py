"""The published investigation replayed: its figures, its three states of evidence, and captures of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit import records
from toolkit.cli import main
from toolkit.errors import ToolkitError
from toolkit.investigations import specs
from toolkit.investigations.gfx1200_m2 import Gfx1200M2, said
from toolkit.oracles import OraclePrompt, OracleRecord, Steps, write

RECORD = specs.root("specs") / "gfx1200-m2" / "records" / "published"


def replay(captures: str = "") -> Gfx1200M2:
    return Gfx1200M2(specs.read("gfx1200-m2").checked({"captures": captures}))


def test_the_decision_is_one_step_of_the_grid() -> None:
    cpu, rocm = replay().margins()
    assert [round(cpu["milli_nats"], 1), round(rocm["milli_nats"], 1)] == [73.3, -10.2]
    assert [cpu["stored_ulps"], rocm["stored_ulps"]] == [1.0, -1.0]


def test_the_norms_have_both_signs_and_bound_from_below_only() -> None:
    found = replay().layers()
    assert (found["layers"], found["positive"], found["negative"]) == (28, 14, 14)
    assert round(100 * found["mean_absolute"], 3) == 0.275
    assert round(100 * found["rms"], 3) == 0.335
    assert round(100 * found["random_walk_one_store"], 2) == 1.69
    assert round(100 * found["random_walk_two_stores"], 2) == 2.39
    assert found["last_layer_rel_l2_at_least"] < found["random_walk_one_store"] < found["last_layer_rel_l2_at_most"]


def test_three_drafts_are_three_states_of_evidence() -> None:
    assert [(s["references"], s["outcome"], s["rule"]) for s in replay().states()] == [
        (0, "undetermined", "no-reference"),
        (1, "undetermined", "one-reference"),
        (2, "reference-unstable", "references-disagree"),
    ]


def test_the_battery_and_the_speeds() -> None:
    assert replay().gemma() == {"prompts": 6, "equal": 6, "tokens": 48, "equal_tokens": 48}
    assert [round(row["ratio"], 2) for row in replay().speed()] == [2.99, 1.90, 1.46, 2.99]


@pytest.mark.parametrize(
    ("references", "backends", "ulps", "outcome"),
    [
        (["a", "b"], ["a", "b"], 2.0, "reference-unstable"),
        (["a", "b"], ["a", "b"], 2.1, "undetermined"),
        (["a", "b"], ["a", "b"], float("nan"), "undetermined"),
        (["a", "a"], ["a", "a"], 0.1, "identical"),
        (["a", "a"], ["a", "b"], 0.1, "undetermined"),
        (["a"], ["a", "a"], 0.1, "undetermined"),
    ],
)
def test_what_is_concluded_follows_the_references(
    references: list[str], backends: list[str], ulps: float, outcome: str
) -> None:
    assert said(references, backends, ulps)[0] == outcome


def capture(path: Path, prompt: str = "The capital of france is", runs: tuple[int, ...] = (7,)) -> Path:
    def steps(token: int) -> Steps:
        return Steps(np.array([token]), np.array([[token, 3]]), np.array([[-0.5, -1.5]]))

    asked = OraclePrompt(prompt, (1, 2), tuple(steps(t) for t in runs), continuation_text=" Paris. The capital")
    return write(OracleRecord("mine", "1", "bfloat16", "Qwen3-0.6B", (asked,)), path)


def test_a_capture_of_ones_own_is_a_further_reference(tmp_path: Path) -> None:
    found = replay(str(capture(tmp_path / "mine.json")))
    last = found.states()[-1]
    assert (last["references"], last["added"], last["outcome"]) == (3, "mine", "reference-unstable")
    assert found.subject() != replay().subject()


@pytest.mark.parametrize(
    ("changed", "words"), [({"prompt": "The capital of France is"}, "no greedy run"), ({"runs": (7, 8)}, "runs")]
)
def test_a_capture_that_is_no_reference_is_refused(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match=words):
        replay(str(capture(tmp_path / "mine.json", **changed)))


def test_a_capture_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="nowhere"):
        replay(str(tmp_path / "nowhere.json"))


def test_the_committed_record_is_what_comes_out_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(RECORD)]) == 0
    assert "same results" in capsys.readouterr().out
    assert records.read(RECORD).verdict == "reference-unstable"
    assert json.loads((RECORD / "record.json").read_text())["complete"] is True
