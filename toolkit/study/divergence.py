"""Where token sequences part: two sides on one battery, one side with itself, one side before and after other work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study.distances import Array
from toolkit.study.plain import Plain


@dataclass(frozen=True)
class Divergence(Plain):
    """The first step at which two continuations of a prompt differ; a side that had ended there has no token.

    Only the first counts: what follows is a consequence, on other prefixes.
    """

    prompt: int
    step: int
    reference: int | None
    backend: int | None


def first_divergence(reference: Sequence[int], backend: Sequence[int]) -> int | None:
    """The first step at which two sequences differ, the end of the shorter one included; None when they are equal."""
    for step, (one, other) in enumerate(zip(reference, backend, strict=False)):
        if one != other:
            return step
    return None if len(reference) == len(backend) else min(len(reference), len(backend))


def first_divergences(reference: Sequence[Sequence[int]], backend: Sequence[Sequence[int]]) -> list[Divergence]:
    """The first divergence of every prompt that has one.

    Raises ToolkitError when a battery is empty, the numbers of prompts differ, or a prompt has no token on either side:
    nothing would have been compared.
    """
    if not reference or len(reference) != len(backend):
        raise ToolkitError(
            f"{len(reference)} and {len(backend)} continuations are not a battery; run both sides on the same prompts"
        )
    found = []
    for prompt, (one, other) in enumerate(zip(reference, backend, strict=True)):
        if not one and not other:
            raise ToolkitError(f"prompt {prompt} has no continuation on either side; generate at least one token")
        step = first_divergence(one, other)
        if step is not None:
            found.append(Divergence(prompt, step, _token(one, step), _token(other, step)))
    return found


def _token(sequence: Sequence[int], step: int) -> int | None:
    return int(sequence[step]) if step < len(sequence) else None


@dataclass(frozen=True)
class Instability(Plain):
    """A prompt on which one side does not agree with itself.

    ``kind``    "repeat": runs of the same battery differ; "state": a prompt differs after other prompts have run
    ``step``    the first step at which two of the runs differ
    ``tokens``  what each run has there
    """

    kind: Literal["repeat", "state"]
    prompt: int
    step: int
    tokens: tuple[int | None, ...]


def repeats(runs: Sequence[Sequence[Sequence[int]]]) -> list[Instability]:
    """The prompts on which ``runs`` (run, prompt, token) of one side disagree.

    Raises ToolkitError for fewer than two runs, which can show nothing, and as ``first_divergences`` does.
    """
    return _disagreements("repeat", runs)


def state_leak(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[Instability]:
    """The prompts whose continuation ``after`` other prompts have run differs from that ``before``: A, B, A.

    Raises ToolkitError as ``first_divergences`` does.
    """
    return _disagreements("state", [before, after])


def _disagreements(kind: Literal["repeat", "state"], runs: Sequence[Sequence[Sequence[int]]]) -> list[Instability]:
    if len(runs) < 2:
        raise ToolkitError(f"{len(runs)} run cannot disagree with itself; run the battery at least twice")
    first_of: dict[int, int] = {}
    for run in runs[1:]:
        for divergence in first_divergences(runs[0], run):
            first_of[divergence.prompt] = min(divergence.step, first_of.get(divergence.prompt, divergence.step))
    return [
        Instability(kind, prompt, step, tuple(_token(run[prompt], step) for run in runs))
        for prompt, step in sorted(first_of.items())
    ]


@dataclass(frozen=True)
class SelectionError(Plain):
    """A step at which a side did not choose the lowest id among its own largest logits (None: they hold a NaN)."""

    prompt: int
    step: int
    chosen: int
    expected: int | None


def selection_errors(prompt: int, tokens: Sequence[int], ids: Array, logits: Array) -> list[SelectionError]:
    """Check greedy choices against the logits from which they were made.

    ``ids`` and ``logits`` [steps, candidates] are what the engine saw when it chose: the candidates that it recorded, or
    whole rows. A forced pass may round differently and proves nothing here. Raises ToolkitError unless there is one row
    of candidates for each token.
    """
    if ids.shape != logits.shape or ids.ndim != 2 or len(ids) != len(tokens) or not ids.size:
        raise ToolkitError(
            f"prompt {prompt}: candidates {list(ids.shape)} with logits {list(logits.shape)} are not one row for each "
            f"of {len(tokens)} tokens"
        )
    values = logits.astype(np.float64)
    found = []
    for step, chosen in enumerate(tokens):
        row = values[step]
        # The largest of a row with a NaN is NaN, and equal to none.
        best = ids[step][row == row.max()]
        expected = int(best.min()) if best.size else None
        if chosen != expected:
            found.append(SelectionError(prompt, step, int(chosen), expected))
    return found
