from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import ToolkitError
from toolkit.study import (
    Divergence,
    Instability,
    SelectionError,
    first_divergence,
    first_divergences,
    repeats,
    selection_errors,
    state_leak,
)

TOKENS = st.lists(st.integers(0, 3), max_size=6)


@pytest.mark.parametrize(
    ("reference", "backend", "step"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 9, 9], 1),
        ([1, 2, 3], [9, 2, 3], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3], [1], 1),
        ([], [], None),
        ([], [4], 0),
    ],
)
def test_first_divergence(reference: list[int], backend: list[int], step: int | None) -> None:
    assert first_divergence(reference, backend) == step


@given(TOKENS, TOKENS)
def test_first_divergence_is_symmetric_and_bounds_a_common_prefix(a: list[int], b: list[int]) -> None:
    step = first_divergence(a, b)
    assert step == first_divergence(b, a)
    if step is None:
        assert a == b
    else:
        assert a[:step] == b[:step]
        assert a[step : step + 1] != b[step : step + 1]


def test_only_prompts_that_diverge_are_listed() -> None:
    found = first_divergences([[1, 2], [3], [4, 5]], [[1, 2], [7], [4]])
    assert found == [Divergence(1, 0, 3, 7), Divergence(2, 1, 5, None)]


def test_a_side_that_generated_nothing_diverges_at_once() -> None:
    assert first_divergences([[], [1]], [[5], []]) == [Divergence(0, 0, None, 5), Divergence(1, 0, 1, None)]


@pytest.mark.parametrize(
    ("reference", "backend", "message"),
    [
        ([], [], "0 and 0 continuations"),
        ([[1]], [[1], [2]], "1 and 2 continuations"),
        ([[1], []], [[1], []], "prompt 1 has no continuation"),
    ],
)
def test_comparing_nothing_is_refused(reference: Any, backend: Any, message: str) -> None:
    with pytest.raises(ToolkitError, match=message):
        first_divergences(reference, backend)


def test_runs_that_agree_have_no_instability() -> None:
    assert repeats([[[1, 2], [3]], [[1, 2], [3]], [[1, 2], [3]]]) == []


def test_the_earliest_disagreement_of_any_run_counts() -> None:
    runs = [[[1, 2, 3], [5]], [[1, 2, 4], [5]], [[1, 9, 9], [5]]]
    assert repeats(runs) == [Instability("repeat", 0, 1, (2, 2, 9))]
    assert repeats(runs[::-1]) == [Instability("repeat", 0, 1, (9, 2, 2))]


def test_a_run_that_ends_early_disagrees() -> None:
    assert repeats([[[1, 2]], [[1]]]) == [Instability("repeat", 0, 1, (2, None))]


@pytest.mark.parametrize("runs", [[], [[[1]]]])
def test_one_run_shows_nothing(runs: Any) -> None:
    with pytest.raises(ToolkitError, match="at least twice"):
        repeats(runs)


def test_state_carried_across_prompts_is_seen() -> None:
    assert state_leak([[1, 2], [3]], [[1, 2], [3]]) == []
    assert state_leak([[1, 2], [3]], [[1, 7], [3]]) == [Instability("state", 0, 1, (2, 7))]


def test_choices_are_the_lowest_id_of_the_largest_logits() -> None:
    ids = np.array([[5, 9, 2], [4, 8, 1], [0, 1, 2]])
    logits = np.array([[3.0, 3.0, 1.0], [2.0, 6.0, 0.0], [1.0, np.nan, 0.0]], np.float32)
    assert selection_errors(3, [5, 8], ids[:2], logits[:2]) == []
    assert selection_errors(3, [9, 4, 0], ids, logits) == [
        SelectionError(3, 0, 9, 5),
        SelectionError(3, 1, 4, 8),
        SelectionError(3, 2, 0, None),
    ]


def test_a_token_that_was_no_candidate_is_an_error() -> None:
    assert selection_errors(0, [7], np.array([[1, 2]]), np.array([[2.0, 1.0]])) == [SelectionError(0, 0, 7, 1)]


@pytest.mark.parametrize(
    ("tokens", "shape", "other"),
    [([1, 2], (1, 3), (1, 3)), ([1], (1, 3), (1, 2)), ([1], (3,), (3,)), ([], (0, 3), (0, 3)), ([1], (1, 0), (1, 0))],
)
def test_candidates_that_do_not_fit_are_refused(tokens: Any, shape: Any, other: Any) -> None:
    with pytest.raises(ToolkitError, match="prompt 0: candidates"):
        selection_errors(0, tokens, np.zeros(shape, int), np.zeros(other))
