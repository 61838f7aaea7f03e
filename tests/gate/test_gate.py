"""The gate on the bundled models: what passes, what fails, and what the classical rule cannot see."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from toolkit.cli import main
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.gate import Accounting, accounting, battery, check_gate, new_anchor, read_goldens
from toolkit.investigations import specs
from toolkit.oracles import OracleRecord, read, write

GOLDENS = specs.root("specs") / "gate" / "goldens"
RAN = Accounting({("linear", "tiled"): 5}, {})


def check(model: str, folder: Path, *more: str) -> int:
    return main(["gate", "check", "--model", model, "--device", "cpu", "--goldens", str(folder), *more])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDENS / "gemma3-tiny", tmp_path / "goldens"))


@pytest.mark.parametrize(
    ("model", "prompts", "tokens"), [("qwen3-tiny", 16, 16), ("gemma3-tiny", 6, 8)], ids=["sixteen", "gemma"]
)
def test_a_healthy_engine_passes_both_rules(
    model: str, prompts: int, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(model, GOLDENS / model, "--require", "linear=tiled", "--require", "paged_attention") == 0
    said = capsys.readouterr().out
    assert f"{prompts} prompts x {tokens} tokens" in said
    assert "classical: passes" in said
    assert "ours:      passes" in said


def test_the_blind_spot_a_planted_defect_passes_the_classical_rule_and_not_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The anchor is the defective engine's own, as it is when a defect was there from the beginning.
    assert check("gemma3-tiny", GOLDENS / "blind-spot", "--faults", "attention-scale") == 1
    said = capsys.readouterr().out
    assert "classical: passes" in said
    assert "ours:      refuses" in said
    assert "times the worst honest engine's" in said


@pytest.mark.parametrize(
    ("faults", "words", "code"),
    [("attention-scale", "drifted from its anchor", 1), ("double-bos", "doubled begin-of-sequence", 2)],
)
def test_a_fault_that_moves_tokens_or_prompts_is_stopped_at_the_anchor(
    faults: str, words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("gemma3-tiny", GOLDENS / "gemma3-tiny", "--faults", faults) == code
    assert words in capsys.readouterr().err


def test_other_prompt_ids_are_not_comparable() -> None:
    ours = own_run()
    other = dataclasses.replace(ours.prompts[0], ids=(*ours.prompts[0].ids, 5))
    with pytest.raises(CheckFailed, match="not comparable"):
        check_gate(
            dataclasses.replace(ours, prompts=(other, *ours.prompts[1:])), read_goldens(GOLDENS / "gemma3-tiny"), RAN
        )


@pytest.mark.parametrize("name", ["anchor.json", "reference.json", "exact.json", "noise-sdpa.json"])
def test_a_missing_golden_is_a_failure(name: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / name).unlink()
    assert check("gemma3-tiny", copy) == 1
    assert "is missing" in (said := capsys.readouterr().err) or "has no noise" in said


def test_a_missing_folder_and_missing_arrays_are_failures(copy: Path, tmp_path: Path) -> None:
    assert check("gemma3-tiny", tmp_path / "nowhere") == 1
    (copy / "exact.safetensors").unlink()
    assert check("gemma3-tiny", copy) == 2


def test_a_device_without_kernels_selects_none_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["gate", "check", "--model", "gemma3-tiny", "--device", "reference"]
    assert main([*model, "--goldens", str(GOLDENS / "gemma3-tiny")]) == 1
    assert "zero selections" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("required", "words"),
    [
        ("matmul", "op matmul: zero selections"),
        ("linear=matrix-unit", "0 selections and"),
        ("linear=x", "0 selections"),
    ],
)
def test_a_required_kernel_that_did_not_run_or_declined_fails(
    required: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("gemma3-tiny", GOLDENS / "gemma3-tiny", "--require", required) == 1
    assert words in capsys.readouterr().out


def test_selections_refusals_and_declines_are_counted() -> None:
    assert accounting(RAN, ["linear=tiled"]) == []
    assert accounting(Accounting({}, {}), []) != []
    assert accounting(Accounting({("linear", "tiled"): 0}, {}), []) != []
    assert accounting(dataclasses.replace(RAN, refusals={"rope": 1}), []) != []
    assert accounting(dataclasses.replace(RAN, declines={("linear", "tiled"): 1}), ["linear=tiled"]) != []


# --------------------------------------------------------------------- records in which something is not as it should be


def own_run(folder: Path = GOLDENS / "gemma3-tiny") -> OracleRecord:
    return read(folder / "anchor.json")


def test_an_empty_battery_fails() -> None:
    with pytest.raises(CheckFailed, match="empty"):
        check_gate(dataclasses.replace(own_run(), prompts=()), read_goldens(GOLDENS / "gemma3-tiny"), RAN)


def test_an_empty_file_of_prompts_and_no_tokens_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(ToolkitError, match="is empty"):
        battery(str(tmp_path / "none.txt"), 4)
    with pytest.raises(ToolkitError, match="at least one token"):
        battery("gemma", 0)
    with pytest.raises(ToolkitError, match="no battery"):
        battery("gemini")


Change = Callable[[OracleRecord], OracleRecord]


def moved(amount: float, steps: slice, *, ours: bool) -> Change:
    """Every best candidate's log-probability of some steps lowered."""

    def change(record: OracleRecord) -> OracleRecord:
        prompt = record.prompts[0]
        of = prompt.runs[0] if ours else prompt.forced.steps  # type: ignore[union-attr]
        logprobs = of.logprobs.copy()
        logprobs[steps, 0] -= amount
        of = dataclasses.replace(of, logprobs=logprobs)
        other = (
            dataclasses.replace(prompt, runs=(of,))
            if ours
            else dataclasses.replace(prompt, forced=dataclasses.replace(prompt.forced, steps=of))  # type: ignore[type-var]
        )
        return dataclasses.replace(record, prompts=(other, *record.prompts[1:]))

    return change


@pytest.mark.parametrize(
    ("amount", "steps", "words"),
    [(0.0, slice(0, 8), None), (0.6, slice(0, 8), "worst honest engine"), (2.0, slice(3, 4), "one margin is off")],
)
def test_margins_that_move_beyond_the_noise_are_refused_though_no_token_changes(
    amount: float, steps: slice, words: str | None
) -> None:
    goldens = read_goldens(GOLDENS / "gemma3-tiny")
    found = check_gate(moved(amount, steps, ours=True)(own_run()), goldens, RAN)
    assert found.classical.passed
    assert found.passed is (words is None)
    assert words is None or any(words in failure for failure in found.failures)


def test_a_margin_that_is_not_finite_fails() -> None:
    with pytest.raises(CheckFailed, match="not finite"):
        check_gate(moved(np.inf, slice(2, 3), ours=True)(own_run()), read_goldens(GOLDENS / "gemma3-tiny"), RAN)


def test_honest_engines_without_noise_measure_none() -> None:
    goldens = read_goldens(GOLDENS / "gemma3-tiny")
    silent = dataclasses.replace(goldens, reference=goldens.exact, noise=())
    silent = dataclasses.replace(
        silent,
        reference=dataclasses.replace(
            goldens.exact,
            prompts=tuple(
                dataclasses.replace(p, runs=q.runs)
                for p, q in zip(goldens.exact.prompts, goldens.reference.prompts, strict=True)
            ),
        ),
    )
    found = check_gate(own_run(), silent, RAN)
    assert not found.passed
    assert any("noise is not measured" in failure for failure in found.failures)


def with_run(record: OracleRecord, number: int, prompts: dict[int, int]) -> OracleRecord:
    """The record with another token at step 0 of some prompts, in one of its runs."""
    made = list(record.prompts)
    for prompt, token in prompts.items():
        runs = list(made[prompt].runs)
        tokens = runs[number].tokens.copy()
        tokens[0] = token
        runs[number] = dataclasses.replace(runs[number], tokens=tokens)
        made[prompt] = dataclasses.replace(made[prompt], runs=tuple(runs))
    return dataclasses.replace(record, prompts=tuple(made))


def test_a_reference_that_differs_from_itself_fails() -> None:
    goldens = read_goldens(GOLDENS / "gemma3-tiny")
    unsteady = dataclasses.replace(goldens, reference=with_run(goldens.reference, 1, {2: 7}))
    found = check_gate(own_run(), unsteady, RAN)
    assert found.classical.passed
    assert any("differs from itself at prompt 2" in failure for failure in found.failures)


def test_more_first_divergences_than_rounding_makes_are_refused() -> None:
    goldens = read_goldens(GOLDENS / "gemma3-tiny")
    second = {n: int(goldens.reference.prompts[n].runs[0].top_ids[0, 1]) for n in range(6)}
    reference = with_run(with_run(goldens.reference, 0, second), 1, second)
    found = check_gate(own_run(), dataclasses.replace(goldens, reference=reference), RAN)
    assert found.classical.passed
    assert len(found.partings) == 6
    assert any("6 of 6 prompts part" in failure for failure in found.failures)


def test_goldens_forced_on_other_tokens_are_refused(copy: Path) -> None:
    anchor = with_run(own_run(copy), 0, {1: int(own_run(copy).prompts[1].runs[0].top_ids[0, 1])})
    write(anchor, copy / "anchor.json")
    with pytest.raises(CheckFailed, match="not forced on the anchor's tokens of prompt 1"):
        read_goldens(copy)


def test_the_arbiter_is_not_in_half_precision_and_the_reference_repeats_itself(copy: Path) -> None:
    for end in ("json", "safetensors"):
        shutil.copy(copy / f"reference.{end}", copy / f"kept.{end}")
    write(dataclasses.replace(read(copy / "exact.json"), dtype="bfloat16"), copy / "exact.json")
    with pytest.raises(ToolkitError, match="the arbiter is float32"):
        read_goldens(copy)
    write(dataclasses.replace(read(copy / "exact.json"), dtype="float32"), copy / "exact.json")
    kept = read(copy / "kept.json")
    once = tuple(dataclasses.replace(p, runs=p.runs[:1]) for p in kept.prompts)
    write(dataclasses.replace(kept, prompts=once), copy / "reference.json")
    with pytest.raises(ToolkitError, match="1 greedy runs"):
        read_goldens(copy)


def test_goldens_of_other_weights_are_refused(copy: Path) -> None:
    write(dataclasses.replace(read(copy / "exact.json"), weights="0" * 64), copy / "exact.json")
    with pytest.raises(ToolkitError, match="different weights"):
        read_goldens(copy)


# ---------------------------------------------------------------------------------------------------------- anchors


def test_an_anchor_is_refreshed_with_a_reason_only_and_keeps_those_before(copy: Path) -> None:
    before = read(copy / "anchor.json")
    drifted = with_run(before, 0, {0: int(before.prompts[0].runs[0].top_ids[0, 1])})
    with pytest.raises(ToolkitError, match="takes a reason"):
        new_anchor(copy, drifted, "  ")
    assert read(copy / "anchor.json").prompts[0].tokens == before.prompts[0].tokens
    assert "1 of 6 prompts changed" in new_anchor(copy, drifted, "the head is summed in another order")
    reasons = str(read(copy / "anchor.json").settings["reasons"]).split("\n")
    assert reasons == [
        before.settings["reasons"],
        "the head is summed in another order, 1 of 6 prompts changed",
    ]


def test_an_anchor_that_holds_is_not_written_again(copy: Path) -> None:
    with pytest.raises(ToolkitError, match="already"):
        new_anchor(copy, own_run(copy), "for tidiness")


def test_a_refreshed_anchor_passes_nothing_until_the_goldens_are_forced_on_it(copy: Path) -> None:
    anchor = ["gate", "anchor", "--model", "gemma3-tiny", "--device", "cpu", "--battery", "gemma"]
    faulty = ["--faults", "attention-scale", "--because", "it says so now", "--goldens", str(copy)]
    assert main([*anchor, *faulty]) == 0
    assert check("gemma3-tiny", copy, "--faults", "attention-scale") == 1
