"""What no implementation can have said is refused, each with a sentence that names the file, the prompt and the step."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit.errors import ToolkitError
from toolkit.oracles import OracleRecord, common, from_capture, mismatches, read, read_capture, write
from toolkit.oracles.asking import questions
from toolkit.oracles.captures import parse

Capture = dict[str, Any]


def row(*best: int) -> list[list[Any]]:
    """Candidates with probabilities 1/2, 1/4, … and logits that are those of a softmax."""
    return [[token, 8.0 - n * math.log(2), -(n + 1) * math.log(2)] for n, token in enumerate(best)]


@pytest.fixture
def capture() -> Capture:
    """Two prompts, a greedy run of two tokens, one repeat and a forced continuation."""
    prompts: list[Capture] = []
    for text, ids in (("Blue is", [2, 10, 11]), ("Water is", [2, 12, 11])):
        run = {"tokens": [20, 21], "steps": [row(20, 30, 31), row(21, 20, 33)]}
        forced = {"continuation": [20, 33], "logprobs": [-math.log(2), -3 * math.log(2)], **copy.deepcopy(run)}
        prompts.append({"prompt": text, "ids": ids, **run, "repeats": [copy.deepcopy(run)], "forced": forced})
    head = {"oracle": "engine", "version": "1.0", "dtype": "float32", "model": "m", "vocabulary": 100, "bos": 2}
    return copy.deepcopy({**head, "prompts": prompts})


def refused(capture: Capture, *words: str) -> None:
    """One sentence with all ``words``, and the name of the file first."""
    with pytest.raises(ToolkitError) as caught:
        from_capture(capture, "some.json")
    said = str(caught.value)
    assert said.startswith("some.json"), said
    assert "\n" not in said
    for word in words:
        assert word in said, said


def test_the_capture_that_the_others_spoil_is_accepted(capture: Capture) -> None:
    record = from_capture(capture, "some.json")
    assert (record.runs, record.top, len(record.prompts)) == (2, 3, 2)
    assert record.unexplained() == []


def test_a_probability_above_one_written_as_such(capture: Capture) -> None:
    capture["prompts"][0]["steps"][1][0][2] = 1.2
    refused(capture, "prompt 0", "run 0, step 1", "1.2", "above 0, a probability above 1")


def test_probabilities_that_add_up_to_more_than_one(capture: Capture) -> None:
    for candidate in capture["prompts"][1]["steps"][0]:
        candidate[1:] = [7.0, -0.5]
    refused(capture, "prompt 1", "step 0", "add up to 1.8", "above 1")


def test_a_log_probability_above_zero(capture: Capture) -> None:
    capture["prompts"][0]["repeats"][0]["steps"][0][0][2] = 0.01
    refused(capture, "prompt 0", "run 1, step 0", "0.01 is above 0")


def test_a_log_probability_of_a_forced_token_above_zero(capture: Capture) -> None:
    capture["prompts"][1]["forced"]["logprobs"][1] = 0.5
    refused(capture, "prompt 1", "forced, step 1", "0.5 is above 0")


@pytest.mark.parametrize("filler", [-9999.0, -9999, -1e9])
def test_fillers_for_missing_log_probabilities(capture: Capture, filler: float) -> None:
    capture["prompts"][0]["steps"][0][2][2] = filler
    refused(capture, "prompt 0", "step 0", "stands for a missing one")


def test_a_filler_for_a_forced_token(capture: Capture) -> None:
    capture["prompts"][0]["forced"]["logprobs"][1] = -9999.0
    refused(capture, "prompt 0", "forced, step 1", "-9999.0 stands for a missing one")


def test_a_sampled_token_that_its_own_record_does_not_have(capture: Capture) -> None:
    capture["prompts"][1]["tokens"][1] = 40
    refused(capture, "prompt 1", "run 0, step 1", "token 40 is not among the step's own candidates [21, 20, 33]")


def test_a_forced_token_said_to_be_likelier_than_the_last_candidate(capture: Capture) -> None:
    forced = capture["prompts"][0]["forced"]
    forced["continuation"][1], forced["logprobs"][1] = 50, -1.0
    refused(capture, "forced, step 1", "token 50", "above the last candidate's", "not among the candidates")


def test_a_forced_token_with_two_log_probabilities(capture: Capture) -> None:
    capture["prompts"][0]["forced"]["logprobs"][0] = -0.6
    refused(capture, "forced, step 0", "token 20", "-0.6 and, among the candidates, -0.693147")


def test_a_repeat_of_other_prompt_ids(capture: Capture) -> None:
    capture["prompts"][0]["repeats"][0]["ids"] = [2, 10, 12]
    refused(capture, "prompt 0", "run 1", "[2, 10, 12] and the first run [2, 10, 11]")


def test_forcing_of_other_prompt_ids(capture: Capture) -> None:
    capture["prompts"][1]["forced"]["ids"] = [12, 11]
    refused(capture, "prompt 1", "forced", "[12, 11] and the first run [2, 12, 11]")


def test_one_text_with_two_lists_of_ids_in_a_record(capture: Capture) -> None:
    capture["prompts"][1]["prompt"] = "Blue is"
    refused(capture, "prompt 1", "given twice", "[2, 10, 11] and [2, 12, 11]")


def test_one_text_with_two_lists_of_ids_in_two_records(capture: Capture) -> None:
    one = from_capture(capture, "one.json")
    capture["prompts"][1]["ids"] = [2, 13, 11]
    other = from_capture(capture, "other.json")
    (found,) = mismatches(one, other)
    assert "[2, 12, 11] and [2, 13, 11]" in found.detail
    with pytest.raises(ToolkitError, match=r"prompt 1 \('Water is'\) has other token ids .* with one tokenizer"):
        common([one, other])


def test_prompts_given_twice(capture: Capture) -> None:
    capture["prompts"][1]["ids"] = [2, 10, 11]
    refused(capture, "prompt 1", "has the token ids of prompt 0 already")


def test_a_double_begin_of_sequence_token(capture: Capture) -> None:
    for prompt in capture["prompts"]:
        prompt["ids"] = [2, *prompt["ids"]]
    refused(capture, "prompt 0", "token 2 twice, a doubled begin-of-sequence")


def test_a_double_begin_of_sequence_token_of_one_prompt(capture: Capture) -> None:
    capture["prompts"][1]["ids"] = [2, 2, 12, 11]
    refused(capture, "prompt 1", "token 2 twice, a doubled begin-of-sequence")


def test_a_double_begin_of_sequence_token_that_nobody_has_named(capture: Capture) -> None:
    del capture["bos"]
    capture["prompts"][1]["ids"] = [2, 2, 12, 11]
    refused(capture, "prompt 1", "token 2 twice, a doubled begin-of-sequence")


def test_a_prompt_that_repeats_its_first_word_is_no_double_begin(capture: Capture) -> None:
    del capture["bos"]
    capture["prompts"][0].update(prompt="no no", ids=[5, 5])
    assert from_capture(capture, "some.json").prompts[0].ids == (5, 5)


@pytest.mark.parametrize("place", [1, 2])
def test_nan_among_the_candidates(capture: Capture, place: int) -> None:
    capture["prompts"][0]["steps"][1][1][place] = math.nan
    refused(capture, "prompt 0", "run 0, step 1", "nan")


@pytest.mark.parametrize("place", [1, 2])
def test_nan_written_as_text(capture: Capture, place: int) -> None:
    capture["prompts"][0]["steps"][1][1][place] = "nan"
    refused(capture, "prompt 0", "run 0, step 1", "nan")


def test_nan_for_a_forced_token(capture: Capture) -> None:
    capture["prompts"][0]["forced"]["logprobs"][0] = math.nan
    refused(capture, "prompt 0", "forced, step 0", "nan")


def test_a_logit_of_infinity(capture: Capture) -> None:
    capture["prompts"][0]["steps"][0][0][1] = "inf"
    refused(capture, "prompt 0", "run 0, step 0", "inf")


def test_a_step_that_is_masked_throughout(capture: Capture) -> None:
    for candidate in capture["prompts"][0]["steps"][0]:
        candidate[1:] = [None, "-inf"]
    for candidate in capture["prompts"][0]["steps"][1]:
        candidate[1] = None
    refused(capture, "run 0, step 0", "masked throughout")


def test_logits_of_another_distribution(capture: Capture) -> None:
    capture["prompts"][0]["steps"][0][0][1] += 2.0
    refused(capture, "run 0, step 0", "not of one distribution")


def test_candidates_out_of_order(capture: Capture) -> None:
    capture["prompts"][0]["steps"][0].reverse()
    refused(capture, "run 0, step 0", "not in the order of their log-probabilities")


def test_a_candidate_given_twice(capture: Capture) -> None:
    capture["prompts"][0]["steps"][0][2][0] = 30
    refused(capture, "run 0, step 0", "candidate 30 is given twice")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p["ids"].append(100), ("prompt 0", "id 100", "beyond the vocabulary of 100")),
        (lambda p: p["steps"][0][2].__setitem__(0, 100), ("step 0", "candidate 100", "beyond the vocabulary of 100")),
        (lambda p: p["ids"].append(-1), ("prompt 0", "ids[3] is -1")),
        (lambda p: p["steps"][0][2].__setitem__(0, 3.0), ("step 0", "candidate 3.0 is not a token id")),
        (lambda p: p["steps"][0][2].__setitem__(0, True), ("step 0", "candidate True is not a token id")),
        (lambda p: p["ids"].append("7"), ("prompt 0", "ids[3] is '7'")),
        (lambda p: p.update(ids=[]), ("prompt 0", "no token ids")),
        (lambda p: p.update(tokens=[20]), ("1 tokens and 2 steps",)),
        (lambda p: p.update(tokens=[], steps=[]), ("no token",)),
        (lambda p: p["steps"][1].pop(), ("step 1 has 2 candidates where step 0 has 3",)),
        (lambda p: p["steps"][1].clear(), ("step 1 is not a list of candidates",)),
        (lambda p: p["steps"].__setitem__(1, {"21": -0.5}), ("step 1 is not a list of candidates",)),
        (lambda p: p["steps"][0].__setitem__(0, [20, -0.5]), ("step 0 is not a list of candidates",)),
        (lambda p: p["steps"][0][0].__setitem__(1, None), ("logits for some candidates only",)),
        (lambda p: p["steps"][0][0].__setitem__(2, None), ("step 0", "None is not a number")),
        (lambda p: p["steps"][0][0].__setitem__(2, True), ("step 0", "True is not a number")),
        (lambda p: p["steps"][0][0].__setitem__(2, [-0.5]), ("step 0", "[-0.5] is not a number")),
        (lambda p: p["steps"][0][0].__setitem__(2, -(10**400)), ("step 0", "is not a number")),
        (lambda p: p["forced"].update(logprobs=[10**400, -1]), ("logprobs[0]", "not a number")),
        (lambda p: p.update(repeats=[]) or p.pop("forced"), ("prompt 1", "capture all prompts alike")),
        (lambda p: p.pop("ids"), ("has no 'ids'",)),
        (lambda p: p.update(prompt=5), ("'prompt' is 5",)),
        (lambda p: p["forced"].pop("logprobs"), ("has no 'logprobs'",)),
        (lambda p: p["forced"]["logprobs"].pop(), ("2 tokens were given, with 1 log-probabilities",)),
        (lambda p: p["repeats"][0]["tokens"].pop(), ("run 1", "1 tokens and 2 steps")),
    ],
)
def test_malformed_prompts(capture: Capture, spoil: Callable[[Capture], Any], words: tuple[str, ...]) -> None:
    spoil(capture["prompts"][0])
    refused(capture, *words)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("prompts", [], ("'prompts' is []", "at least one object")),
        ("prompts", {"0": {}}, ("'prompts'", "not a list")),
        ("prompts", [3], ("'prompts'", "at least one object")),
        ("oracle", "", ("'oracle' is ''",)),
        ("version", 3, ("'version' is 3",)),
        ("dtype", None, ("'dtype' is None",)),
        ("model", "\ud800", ("'model'", "surrogate")),
        ("batch", -1, ("'batch' is -1",)),
        ("vocabulary", 2.5, ("'vocabulary' is 2.5",)),
        ("libraries", ["torch"], ("'libraries' is ['torch']", "an object")),
        ("mode", "teacher", ("forced continuations that stand in another capture", "--forced-on")),
    ],
)
def test_malformed_heads(capture: Capture, key: str, value: Any, words: tuple[str, ...]) -> None:
    capture[key] = value
    refused(capture, *words)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"oracle": "a", "oracle": "b"}',
        b"\xff\xfe{}",
        b'{"oracle": 1e999}',
        b"[" * 100_000,
        b'{"oracle": "a"} {}',
    ],
)
def test_what_is_no_json_object(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_bytes(text)
    with pytest.raises(ToolkitError, match=r"capture\.json[^\n]*$"):
        read(path)


def test_a_nan_in_json_is_named_by_prompt_and_step(capture: Capture, tmp_path: Path) -> None:
    capture["prompts"][1]["steps"][0][0][2] = math.nan
    text = json.dumps(capture).encode()
    assert b"NaN" in text
    path = tmp_path / "capture.json"
    path.write_bytes(text)
    with pytest.raises(ToolkitError, match=r"prompt 1 \('Water is'\), run 0, step 0"):
        read(path)
    assert parse(text, "x")["oracle"] == "engine"


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-9], lambda raw: raw + b"x", lambda raw: raw[:40] + b"\0" * 20])
def test_damaged_gzip(capture: Capture, tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "capture.json.gz"
    path.write_bytes(gzip.compress(json.dumps(capture).encode()))
    assert read_capture(path).prompts[0].tokens == (20, 21)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ToolkitError, match="gzip"):
        read_capture(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match=r"absent\.json"):
        read(tmp_path / "absent.json")


# ------------------------------------------------------------------------------------------------ records with arrays


@pytest.fixture
def written(capture: Capture, tmp_path: Path) -> Path:
    return write(from_capture(capture, "some.json"), tmp_path / "record.json")


def same(one: OracleRecord, other: OracleRecord) -> bool:
    """Whether two records hold the same numbers."""
    pairs = zip(one.prompts, other.prompts, strict=True)
    return all(
        a.ids == b.ids
        and all(np.array_equal(x.logprobs, y.logprobs) for x, y in zip(a.runs, b.runs, strict=True))
        and a.forced is not None
        and b.forced is not None
        and np.array_equal(a.forced.logprobs, b.forced.logprobs)
        for a, b in pairs
    )


def test_a_record_is_read_as_it_was_written(capture: Capture, written: Path) -> None:
    assert same(read(written), from_capture(capture, "some.json"))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", "other", "neither an oracle record nor a capture"),
        ("schema", 2, "has schema 2, this toolkit reads 1"),
        ("schema", "1", "'schema' is '1'"),
        ("surplus", 1, "look at surplus"),
        ("runs", 3, "has 2 runs and the record states 3"),
        ("top", 4, "where its tokens need"),
        ("arrays", "../record.safetensors", "in the record's own folder"),
        ("arrays_sha256", "0" * 64, "not the file that record.json was written with"),
        ("settings", {"a": [1]}, "neither text nor a number"),
        ("libraries", {"torch": 2}, "'torch' is 2"),
    ],
)
def test_malformed_records(written: Path, key: str, value: Any, words: str) -> None:
    content = json.loads(written.read_text(encoding="utf-8"))
    content[key] = value
    written.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ToolkitError) as caught:
        read(written)
    assert words in str(caught.value).replace("'look", "look").replace("at 'surplus'", "at surplus")


def test_truncated_arrays(written: Path) -> None:
    beside = written.with_suffix(".safetensors")
    beside.write_bytes(beside.read_bytes()[:-4])
    with pytest.raises(ToolkitError, match=r"record\.safetensors is not the file"):
        read(written)


def test_missing_arrays(written: Path) -> None:
    written.with_suffix(".safetensors").unlink()
    with pytest.raises(ToolkitError, match=r"record\.safetensors"):
        read(written)


def test_the_arrays_named_in_place_of_the_record(written: Path) -> None:
    with pytest.raises(ToolkitError, match=r"name the \.json file beside it"):
        read(written.with_suffix(".safetensors"))


def test_nothing_is_written_of_what_would_be_refused(capture: Capture, tmp_path: Path) -> None:
    record = from_capture(capture, "some.json")
    first = record.prompts[0]
    wrong = dataclasses.replace(first.runs[0], logprobs=first.runs[0].logprobs * np.nan)
    spoilt = dataclasses.replace(
        record, prompts=(dataclasses.replace(first, runs=(wrong, first.runs[1])), record.prompts[1])
    )
    with pytest.raises(ToolkitError, match="nan"):
        write(spoilt, tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []


def test_forcing_what_a_record_does_not_have(capture: Capture) -> None:
    record = from_capture(capture, "some.json")
    with pytest.raises(ToolkitError, match="no prompt 'Iron is'"):
        questions(["Iron is"], record)
