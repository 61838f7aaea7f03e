"""The classical near-tie gate, exactly as a public project defines it, for comparison with ours.

An oracle is forced on the engine's own tokens. The gap of a step is the log-probability of the oracle's best token minus
that of the engine's, at least 0, in milli-nats; a token outside the oracle's top 20 has the sentinel for a gap. A battery
passes when the engine repeats its committed tokens (the anchor) and no gap is above 500. Source: vllm.cpp,
tests/parity/test_qwen3_paged_engine.cpp and scripts/qwen3-neartie-gap.py, July 2026.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Array, Floats, Ints
from toolkit.study.plain import Plain

BAND = 500
"""Milli-nats. The worst healthy gap its authors had seen was 250; a real defect of theirs began at 375."""

TOP = 20
"""How many candidates of a step are looked at."""

OUTSIDE = 99_999_000
"""The gap, in milli-nats, of a token outside the top 20."""


def gap_mnats(tokens: Sequence[int] | Ints, top_ids: Ints, logprobs: Floats) -> Ints:
    """The gaps in milli-nats [steps] of ``tokens`` [steps] under candidates [steps, candidates], best first.

    Raises ToolkitError for shapes that do not fit, fewer than 20 candidates (every one beyond the last would be the
    sentinel) and a NaN.
    """
    given = np.asarray(tokens, np.int64)
    if top_ids.shape != logprobs.shape or top_ids.ndim != 2 or len(given) != len(top_ids):
        raise ToolkitError(
            f"{len(given)} tokens, candidates {list(top_ids.shape)} and log-probabilities {list(logprobs.shape)} are not "
            "one row for each token"
        )
    if top_ids.shape[1] < TOP:
        raise ToolkitError(f"the classical gap needs {TOP} candidates a step, not {top_ids.shape[1]}; use --top {TOP}")
    if np.isnan(logprobs).any():
        raise ToolkitError("a log-probability is NaN; no gap can be taken from it")
    gaps = []
    for token, ids, values in zip(given, top_ids[:, :TOP], logprobs[:, :TOP], strict=True):
        found = np.flatnonzero(ids == token)
        gap = max(0.0, float(values[0] - values[found[0]])) if found.size else math.inf
        gaps.append(OUTSIDE if math.isinf(gap) else round(gap * 1000.0))
    return np.array(gaps, np.int64)


@dataclass(frozen=True)
class Classical(Plain):
    """A battery under the classical rule.

    ``prompts``        how many there are, and ``strict`` those whose tokens all equal the oracle's greedy ones
    ``multi_cells``    (prompt, step) cells in which the oracle's own runs differ
    ``divergent``      cells whose tokens differ from the oracle's, and ``exact_ties`` those of them with a gap of 0
    ``first_gaps``     the gap at the first divergence of each prompt that has one
    ``largest_gap``    over all cells, and ``beyond`` how many are above the band
    """

    prompts: int
    strict: int
    multi_cells: int
    divergent: int
    exact_ties: int
    first_gaps: tuple[int, ...]
    largest_gap: int
    beyond: int

    @property
    def passed(self) -> bool:
        """Whether no gap is above the band; the anchor is another condition."""
        return self.beyond == 0


def classical(greedy: Array, runs: Array, ours: Array, gaps: Array) -> Classical:
    """The rule on int arrays: greedy, ours and gaps [prompts, steps], runs [prompts, steps, K].

    Raises ToolkitError for an empty battery, arrays that do not fit each other and a negative gap.
    """
    if greedy.ndim != 2 or not greedy.size:
        raise ToolkitError(f"tokens {list(greedy.shape)} are no battery; give at least one prompt and one step")
    if ours.shape != greedy.shape or gaps.shape != greedy.shape or runs.shape[:2] != greedy.shape or runs.ndim != 3:
        raise ToolkitError(
            f"greedy {list(greedy.shape)}, ours {list(ours.shape)}, gaps {list(gaps.shape)} and runs {list(runs.shape)} "
            "are not of one battery"
        )
    if not runs.size or (gaps < 0).any():
        raise ToolkitError("a gap is negative, or the oracle has no run; make the goldens again")
    differs = ours != greedy
    parted = np.flatnonzero(differs.any(axis=1))
    return Classical(
        prompts=len(greedy),
        strict=len(greedy) - len(parted),
        multi_cells=int((runs != runs[:, :, :1]).any(axis=2).sum()),
        divergent=int(differs.sum()),
        exact_ties=int((differs & (gaps == 0)).sum()),
        first_gaps=tuple(int(gaps[row, differs[row].argmax()]) for row in parted),
        largest_gap=int(gaps.max()),
        beyond=int((gaps > BAND).sum()),
    )
