"""The classical gate on published arrays and on cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from toolkit.errors import ToolkitError
from toolkit.study.classical import OUTSIDE, classical, gap_mnats
from toolkit.study.flips import parting_chances, tail

PEERS = Path(__file__).resolve().parents[2] / "data" / "peers" / "goldens.npz"

# prompts, K, multi-member cells, strict prompts, divergent cells, of those at gap 0, largest gap: the published summary.
PUBLISHED = {
    "qwen3_greedy_0_6b": (16, 10, 0, 10, 60, 60, 0),
    "qwen3_greedy_0_6b_metal": (16, 10, 0, 10, 60, 58, 125),
    "qwen3_greedy_4b": (16, 5, 0, 11, 43, 41, 250),
    "llama_greedy_1b": (16, 6, 0, 12, 13, 13, 0),
    "mistral_greedy_7b": (16, 5, 0, 15, 6, 6, 0),
    "olmo2_greedy_1b": (16, 5, 0, 13, 15, 14, 94),
    "deepseek_v2_greedy": (8, 5, 0, 5, 36, 35, 250),
    # Not in the summary. Seven of eight prompts part, all at a gap of 0: a count alone condemns nobody.
    "glm4_moe_lite_greedy": (8, 5, 0, 1, 59, 59, 0),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_summary_is_reproduced_from_the_published_arrays(model: str) -> None:
    with np.load(PEERS) as arrays:
        greedy, runs, ours, gaps = (arrays[f"{model}.{part}"] for part in ("greedy", "runs", "ours", "gaps"))
    found = classical(greedy, runs, ours, gaps)
    assert (
        found.prompts,
        runs.shape[2],
        found.multi_cells,
        found.strict,
        found.divergent,
        found.exact_ties,
        found.largest_gap,
    ) == PUBLISHED[model]
    assert found.passed
    assert len(found.first_gaps) == found.prompts - found.strict


def candidates(gap: float) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(20)[None], np.array([[-0.1, -0.1 - gap, *(-9.0 - np.arange(18))]])


@pytest.mark.parametrize(
    ("token", "gap", "mnats"),
    [(0, 0.5, 0), (1, 0.0, 0), (1, 0.5, 500), (1, 0.5004, 500), (1, 0.5006, 501), (20, 0.5, OUTSIDE)],
)
def test_a_gap_is_in_milli_nats_and_outside_the_top_20_is_the_sentinel(token: int, gap: float, mnats: int) -> None:
    assert gap_mnats([token], *candidates(gap)).tolist() == [mnats]


@pytest.mark.parametrize(("mnats", "passed"), [(0, True), (500, True), (501, False), (OUTSIDE, False)])
def test_the_band_ends_at_500(mnats: int, passed: bool) -> None:
    tokens = np.array([[1, 2]])
    assert classical(tokens, tokens[:, :, None], np.array([[1, 3]]), np.array([[0, mnats]])).passed is passed


def test_fewer_than_20_candidates_and_a_nan_are_refused() -> None:
    ids, logprobs = candidates(0.5)
    with pytest.raises(ToolkitError, match="20 candidates"):
        gap_mnats([0], ids[:, :8], logprobs[:, :8])
    logprobs[0, 3] = np.nan
    with pytest.raises(ToolkitError, match="NaN"):
        gap_mnats([0], ids, logprobs)


@pytest.mark.parametrize("shape", [(0, 16), (16, 0), (16,)])
def test_an_empty_battery_is_no_pass(shape: tuple[int, ...]) -> None:
    nothing = np.zeros(shape, int)
    with pytest.raises(ToolkitError, match="no battery"):
        classical(nothing, nothing[..., None], nothing, nothing)


def test_arrays_of_different_batteries_and_negative_gaps_are_refused() -> None:
    tokens = np.ones((2, 3), int)
    with pytest.raises(ToolkitError, match="one battery"):
        classical(tokens, tokens[:, :, None], tokens[:1], tokens)
    with pytest.raises(ToolkitError, match="negative"):
        classical(tokens, tokens[:, :, None], tokens, -tokens)


def test_an_exact_tie_parts_half_of_the_time_and_a_wide_gap_never() -> None:
    found = parting_chances([np.array([0.0]), np.array([50.0])], [np.array([1.0]), np.array([1.0])])
    assert found.tolist() == [0.5, 0.0]


def test_the_tail_of_equal_chances_is_the_binomial_one() -> None:
    assert tail(np.full(4, 0.5), 3) == pytest.approx(5 / 16)
    assert tail(np.full(4, 0.5), 0) == 1.0
    assert tail(np.full(4, 0.5), 5) == 0.0


@pytest.mark.parametrize(("gap", "sigma"), [(-1.0, 1.0), (1.0, 0.0), (np.nan, 1.0), (1.0, np.inf)])
def test_numbers_that_say_nothing_give_no_chance(gap: float, sigma: float) -> None:
    with pytest.raises(ToolkitError, match="not finite"):
        parting_chances([np.array([gap])], [np.array([sigma])])
