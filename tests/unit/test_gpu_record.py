"""How the GPU record reads what its sections print."""

from __future__ import annotations

import json

import pytest

from tests.gpu import record


def test_a_record_is_the_json_of_what_was_found_with_a_row_a_line() -> None:
    found = {"ops": {"table": [{"op": "add"}, {"op": "rope"}], "passed": 2}, "device": {"wave": 32, "options": ["-x"]}}
    text = record.dumps(found)
    assert json.loads(text) == found
    assert '   {"op": "rope"}\n' in text


def test_pytests_closing_line_is_counted_and_nothing_else() -> None:
    printed = "12 passed in the past\n======= 3 passed, 2 skipped, 1 warning in 4.55s (0:00:04) =======\n"
    assert record.counts(printed) == {"passed": 3, "skipped": 2}
    assert record.counts("1 failed, 3 passed in 4.55s\n") == {"failed": 1, "passed": 3}
    with pytest.raises(ValueError, match="no test passed"):
        record.counts("no tests ran in 0.01s\n")


def test_a_checkers_summary_is_kept_and_its_absence_is_a_failure() -> None:
    printed = "3 passed in 4.55s\n========= ERROR SUMMARY: 2 errors\n"
    assert record.checked(printed) == {"summary": "ERROR SUMMARY: 2 errors", "passed": 3}
    with pytest.raises(ValueError, match="no summary"):
        record.checked("3 passed in 4.55s\n")


def test_the_json_at_the_end_is_read_whatever_was_printed_before() -> None:
    assert record.last_json('runs 5/5 (3 s)\n{\n "a": 1\n}\n') == {"a": 1}
    assert record.last_json('{"a": 1}\n') == {"a": 1}
