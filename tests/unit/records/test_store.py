from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import records
from toolkit.errors import ToolkitError
from toolkit.records import Difference, Record, differences
from toolkit.records import record as make


def digested(**changed: Any) -> dict[str, Any]:
    return {
        "investigation": "near-tie",
        "question": "rounding or defect?",
        "rule": "the rule",
        "parameters": {"model": "qwen3-tiny", "tokens": 16, "share": 0.123456789},
        "weights": "ab" * 32,
        "results": {"gap": 0.123456789, "missing": math.nan, "prompt": "« Où ? »"},
        "verdict": {"verdict": "near-tie", "numbers": {"ratio": 1.23456789}},
        **changed,
    }


@pytest.fixture
def made() -> Record:
    return make(digested(), {"numpy": "2.4.0"})


def test_what_was_asked_is_kept_and_what_was_found_is_rounded(made: Record) -> None:
    assert made.digested["parameters"]["share"] == 0.123456789
    assert made.digested["results"] == {"gap": 0.1235, "missing": "nan", "prompt": "« Où ? »"}
    assert made.digested["verdict"]["numbers"]["ratio"] == 1.235
    assert made.verdict == "near-tie"


def test_provenance_is_not_digested(made: Record) -> None:
    assert make(digested(), {"numpy": "1.0"}).digest == made.digest


@pytest.mark.parametrize("part", ["investigation", "question", "rule", "parameters", "weights", "results", "verdict"])
def test_everything_else_is(part: str, made: Record) -> None:
    value = digested()[part]
    changed = value + "x" if isinstance(value, str) else {**value, "another": 1}
    assert make(digested(**{part: changed}), {}).digest != made.digest
    missing = digested()
    del missing[part]
    with pytest.raises(ToolkitError, match=f"'{part}' is missing"):
        make(missing, {})
    with pytest.raises(ToolkitError, match=f"'{part}' is missing"):
        make(digested(**{part: 5}), {})


def test_noise_of_sums_is_not_digested(made: Record) -> None:
    results = {**digested()["results"], "gap": 0.123456789 * (1 + 1e-13)}
    assert make(digested(results=results), {}).digest == made.digest


def test_a_verdict_says_something() -> None:
    with pytest.raises(ToolkitError, match="verdict says nothing"):
        make(digested(verdict={"rule": "x"}), {})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_parameter_is_a_number(value: float) -> None:
    with pytest.raises(ToolkitError, match="parameter limit is"):
        make(digested(parameters={"limit": value}), {})


@pytest.mark.parametrize("value", ["/data/models/Qwen3-0.6B", "/models", "~/models/x", "a,/srv/b"])
def test_a_parameter_is_no_place_on_this_machine(value: str) -> None:
    with pytest.raises(ToolkitError, match="a place on this machine"):
        make(digested(parameters={"model": value}), {})


@pytest.mark.parametrize("value", ["qwen3-tiny", "reference", "1/2", "float32/bfloat16", "org/name", "", "a~b"])
def test_a_parameter_may_hold_a_slash(value: str) -> None:
    assert make(digested(parameters={"model": value}), {}).digested["parameters"] == {"model": value}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/usr/bin/c++ 14.2", "c++ 14.2"),
        ("-I/opt/rocm/include -O2", "-Iinclude -O2"),
        ("--sysroot=/opt/x/", "--sysroot=x"),
        ("gcc (Debian 14.2.0-19) 14.2.0", "gcc (Debian 14.2.0-19) 14.2.0"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("and/or", "and/or"),
        ("~/tools/clang", "clang"),
    ],
)
def test_provenance_does_not_say_whose_machine_it_was(text: str, kept: str) -> None:
    assert make(digested(), {"compiler": {"flags": [text, 1]}}).provenance == {"compiler": {"flags": [kept, 1]}}


def test_only_plain_data_is_recorded() -> None:
    with pytest.raises(TypeError, match="not plain"):
        make(digested(results={"x": {1}}), {})
    with pytest.raises(TypeError, match="not plain"):
        make(digested(), {"x": object()})


# Writing and reading.


def test_a_record_is_read_as_it_was_written(made: Record, tmp_path: Path) -> None:
    path = records.write(made, tmp_path / "new", {"seconds": 1.5, "lost": math.nan})
    assert path == tmp_path / "new" / "record.json"
    assert sorted(p.name for p in path.parent.iterdir()) == ["record.json", "run.json"]
    assert records.read(path) == made
    assert records.read(str(path.parent)) == made
    assert json.loads((path.parent / "run.json").read_text(encoding="utf-8")) == {"seconds": 1.5, "lost": "nan"}


def test_a_record_is_written_byte_for_byte_alike(made: Record, tmp_path: Path) -> None:
    again = make(dict(reversed(digested().items())), {"numpy": "2.4.0"})
    texts = [records.write(r, tmp_path / n, {}).read_bytes() for r, n in ((made, "a"), (again, "b"))]
    assert texts[0] == texts[1]
    assert "« Où ? »" in texts[0].decode("utf-8")


def test_half_a_character_is_recorded_too(tmp_path: Path) -> None:
    odd = make(digested(results={"text": "\ud83d", "\udc00": "€"}), {})
    assert records.read(records.write(odd, tmp_path, {})) == odd


def test_a_folder_that_cannot_be_written_is_one_sentence(made: Record, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolkitError, match="cannot be written"):
        records.write(made, tmp_path / "file", {})


def test_an_investigation_that_did_not_finish_has_no_record(made: Record, tmp_path: Path) -> None:
    records.write_incomplete(tmp_path, "near-tie")
    with pytest.raises(ToolkitError, match="incomplete: its investigation did not finish"):
        records.read(tmp_path)
    records.write(made, tmp_path, {})
    assert records.read(tmp_path) == made


def content(made: Record, **changed: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "complete": True,
        "digest": made.digest,
        "digested": made.digested,
        "provenance": made.provenance,
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"digest": "0" * 64}, "does not match its own digest"),
        ({"digested": make(digested(question="another"), {}).digested}, "does not match its own digest"),
        ({"schema": 2}, "has schema 2, this toolkit reads 1"),
        ({"schema": 2, "new field": 1}, "has schema 2"),
        ({"schema": True}, "does not have the fields"),
        ({"schema": None}, "does not have the fields"),
        ({"complete": False}, "incomplete"),
        ({"complete": 1}, "does not have the fields"),
        ({"complete": "yes"}, "does not have the fields"),
        ({"extra": 1}, "does not have the fields"),
        ({"digested": []}, "digested or provenance is no object"),
        ({"provenance": None}, "digested or provenance is no object"),
    ],
)
def test_records_that_are_none_are_refused(made: Record, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content(made, **changed)), encoding="utf-8")
    with pytest.raises(ToolkitError, match=message) as caught:
        records.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_is_missed_even_if_the_digest_fits(tmp_path: Path) -> None:
    partial = digested()
    del partial["results"]
    forged = Record(records.unrounded(partial), {})
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content(forged)), encoding="utf-8")
    with pytest.raises(ToolkitError, match="'results' is missing"):
        records.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is not a record"),
        (b"\xff\xfe", "is not a record"),
        (b"[1, 2]", "it holds no object"),
        (b"null", "nested deeper|holds no object"),
        (b'{"schema": 1', "is not a record"),
        (b'{"a": 1, "a": 2}', "a name stands twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": Infinity}', "Infinity is no number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": -1e999}', "-1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not a record"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested deeper"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper"),
    ],
)
def test_texts_that_are_no_record_are_refused(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(text)
    with pytest.raises(ToolkitError, match=message) as caught:
        records.read(path)
    assert "\n" not in str(caught.value)


def test_a_record_as_deep_as_allowed_is_read(tmp_path: Path) -> None:
    def nested(depth: int) -> Record:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return make(digested(results={"x": value}), {})

    # The file, digested, results and then the lists.
    inside = nested(29)
    assert records.read(records.write(inside, tmp_path, {})) == inside
    with pytest.raises(ToolkitError, match="nested deeper"):
        records.read(records.write(nested(30), tmp_path, {}))


def test_files_that_are_not_there_or_too_large_are_refused(
    made: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ToolkitError, match=r"cannot be read: No such file"):
        records.read(tmp_path / "record.json")
    path = records.write(made, tmp_path, {})
    size = path.stat().st_size
    monkeypatch.setattr("toolkit.records.store.MAX_BYTES", size)
    assert records.read(path) == made
    monkeypatch.setattr("toolkit.records.store.MAX_BYTES", size - 1)
    with pytest.raises(ToolkitError, match="larger than any record"):
        records.read(path)


# Differences.


def test_differences_are_named_by_their_path() -> None:
    ours = {"a": {"b": [1, {"c": 2.0}]}, "only ours": 1, "same": [None, "x"]}
    theirs = {"a": {"b": [1, {"c": 2.5}, 3]}, "only theirs": {"d": 1}, "same": [None, "x"]}
    assert list(differences(ours, theirs)) == [
        Difference("a.b (length)", 2, 3),
        Difference("a.b[1].c", 2.0, 2.5),
        Difference("only ours", 1, "absent"),
        Difference("only theirs", "absent", {"d": 1}),
    ]


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (True, 1), (0.0, False), ("1", 1), (None, 0), ([], {}), ("nan", 1)]
)
def test_values_of_different_kinds_differ(one: Any, other: Any) -> None:
    assert list(differences({"x": one}, {"x": other})) == [Difference("x", one, other)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_there_is_no_difference_exactly_where_the_digest_is_the_same(one: Any, other: Any) -> None:
    assert list(differences(one, one)) == []
    assert bool(list(differences(one, other))) == (records.digest(one) != records.digest(other))
    there = [(d.where, d.ours, d.theirs) for d in differences(one, other)]
    back = [(d.where, d.theirs, d.ours) for d in differences(other, one)]
    assert there == back


def test_a_difference_is_one_short_line() -> None:
    assert str(Difference("results.gap", 0.1, "nan")) == 'results.gap: 0.1 and "nan"'
    long = str(Difference("x", "y" * 100, 1))
    assert long == 'x: "' + "y" * 56 + "... and 1"
