"""The engine: greedy decoding and teacher forcing over a paged cache, on any device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from toolkit import dtypes
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.checkpoints.config import refuse_float16
from toolkit.devices.base import Device
from toolkit.devices.launching import KernelDevice
from toolkit.engine.cache import DEFAULT_BLOCK_SIZE, PagedCache
from toolkit.engine.decode import RecordedStep
from toolkit.errors import ToolkitError
from toolkit.models import ARCHITECTURES, LayerCache, RoundingPoints, Stage, Step, Tap, WeightReader, no_tap
from toolkit.ops import argmax, log_softmax, top_k

Padding = Literal["none", "left", "right"]
TOP = 8


class NonFiniteLogits(ToolkitError):
    """A row of logits holds a NaN: no token can be chosen from it."""


@dataclass(frozen=True)
class Candidate:
    """A token that a step could have chosen: its id, logit and log-probability (nats)."""

    id: int
    logit: float
    logprob: float


@dataclass
class Continuation:
    """What a prompt was continued with: ids, and for each step its most probable candidates, best first."""

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    steps: list[list[Candidate]] = field(default_factory=list)
    stopped_by: int | None = None


@dataclass
class _Sequence:
    prompt: list[int]
    blocks: list[int]
    continuation: Continuation
    cached: int = 0

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.continuation.ids


@dataclass(frozen=True)
class _Chosen:
    """What is read off the logits of a step, on the device: one row per sequence. Candidates only where asked for."""

    tokens: Any
    top_ids: Any = None
    top_values: Any = None
    logprobs: Any = None


@dataclass(frozen=True)
class _Recorded:
    """The decode step that is kept, and what it is good for."""

    shape: object
    layers: Sequence[LayerCache]
    run: RecordedStep[_Chosen]


class Engine:
    """A checkpoint on a device, in one dtype for weights, activations and cache.

    ``dtype``        "bfloat16", "float16" or "float32"; weights are rounded to it when they are put on the device
    ``rounding``     the rounding points in which honest engines differ
    ``chunk``        longest run of a prompt's tokens in one forward pass; None for whole prompts
    ``padding``      prompts of a batch are padded to one length, on either side, with tokens that belong to no sequence

    Raises ToolkitError for an architecture that no model file describes and for a dtype that the checkpoint refuses.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: Device,
        dtype: str = "bfloat16",
        *,
        rounding: RoundingPoints | None = None,
        chunk: int | None = None,
        padding: Padding = "none",
        block_size: int = DEFAULT_BLOCK_SIZE,
    ) -> None:
        refuse_float16(checkpoint.config, dtype, where=str(checkpoint.path))
        architecture = ARCHITECTURES.get(checkpoint.config.architecture)
        if architecture is None:
            known = ", ".join(ARCHITECTURES)
            raise ToolkitError(f"no model file for architecture {checkpoint.config.architecture}; known are {known}")
        if chunk is not None and chunk < 1:
            raise ToolkitError(f"chunk is {chunk}; a chunk holds at least one token")
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtypes.dtype(dtype)
        self.chunk = chunk
        self.padding = padding
        with device:
            reader = WeightReader(checkpoint.shared, device, self.dtype)
            self.model = architecture(checkpoint.config, reader, rounding or RoundingPoints())
        self.cache = PagedCache(checkpoint.config, device, self.dtype, block_size)
        self._recorded: _Recorded | None = None

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        stop: bool = True,
        tap: Tap = no_tap,
        top: int = TOP,
    ) -> list[Continuation]:
        """Continue every prompt greedily, all in one batch. ``stop`` ends a sequence at its checkpoint's stop tokens.

        Raises ToolkitError for an empty prompt, an id outside the vocabulary or more positions than the model has, and
        NonFiniteLogits (naming step, layer and stage) when logits hold a NaN.
        """
        stops = self.checkpoint.stop_ids if stop else frozenset()
        with self._sequences(prompts, max_new_tokens) as sequences:
            running = list(sequences)
            for number in range(max_new_tokens):
                for sequence, (token, candidates) in zip(
                    running, self._advance(running, tap, number, top), strict=True
                ):
                    sequence.continuation.ids.append(token)
                    sequence.continuation.steps.append(candidates)
                    if token in stops:
                        sequence.continuation.stopped_by = token
                running = [s for s in running if s.continuation.stopped_by is None]
                if not running:
                    break
            return [sequence.continuation for sequence in sequences]

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        tap: Tap = no_tap,
    ) -> list[np.ndarray[Any, Any]]:
        """Teacher forcing: for each prompt the logits [len(continuation), vocab_size] that precede each forced token.

        Row j is what the engine thinks after the prompt and the first j tokens of the continuation, computed in one
        forward pass (in chunks when the engine has a chunk length).
        """
        if len(prompts) != len(continuations):
            raise ToolkitError(f"{len(prompts)} prompts but {len(continuations)} continuations")
        forced = [[*p, *c[:-1]] for p, c in zip(prompts, continuations, strict=True)]
        with self._sequences(forced, 0) as sequences, self.device:
            wanted = [range(len(p) - 1, len(p) - 1 + len(c)) for p, c in zip(prompts, continuations, strict=True)]
            rows: list[list[np.ndarray[Any, Any]]] = [[] for _ in sequences]
            for span in self._chunks(sequences):
                step, owners = self._step(sequences, span, wanted)
                logits = self.device.get(self.model.forward(self._put(step), self.cache.layers, tap))
                # The rows of a sequence lie side by side: views, since the logits of a large vocabulary are large.
                edges = np.searchsorted(owners, np.arange(len(sequences) + 1))
                for owner, (start, stop) in enumerate(pairwise(edges)):
                    if start < stop:
                        rows[owner].append(logits[start:stop])
            none = np.empty((0, self.checkpoint.config.vocab_size))
            return [r[0] if len(r) == 1 else np.concatenate(r) if r else none for r in rows]

    @contextmanager
    def _sequences(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Iterator[list[_Sequence]]:
        """The prompts with cache blocks of their own, given back whatever happens."""
        config = self.checkpoint.config
        if new_tokens < 0:
            raise ToolkitError(f"max_new_tokens is {new_tokens}; it cannot be negative")
        for number, prompt in enumerate(prompts):
            if not len(prompt):
                raise ToolkitError(f"prompt {number} has no tokens; give at least one")
            outside = [token for token in prompt if not 0 <= token < config.vocab_size]
            if outside:
                raise ToolkitError(
                    f"prompt {number} has token id {outside[0]}, outside the vocabulary of {config.vocab_size}; "
                    "was it encoded with another model's tokenizer?"
                )
            length = len(prompt) + new_tokens
            if length > config.max_position_embeddings:
                raise ToolkitError(
                    f"prompt {number} needs {length} positions, the model has {config.max_position_embeddings}; "
                    "shorten the prompt or generate fewer tokens"
                )
        lengths = [len(prompt) + new_tokens for prompt in prompts]
        self.cache.reserve(lengths)
        sequences = [
            _Sequence(list(prompt), self.cache.allocate(length), Continuation(list(prompt)))
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        try:
            yield sequences
        finally:
            for sequence in reversed(sequences):
                self.cache.free(sequence.blocks)

    def _advance(
        self, sequences: list[_Sequence], tap: Tap, number: int, top: int
    ) -> list[tuple[int, list[Candidate]]]:
        """Feed what is not cached yet; per sequence the greedy token after it and its candidates."""
        wanted = [range(len(s.tokens) - 1, len(s.tokens)) for s in sequences]
        chosen: dict[int, tuple[int, list[Candidate]]] = {}
        with self.device:
            for span in self._chunks(sequences):
                step, owners = self._step(sequences, span, wanted)
                if not owners:
                    self.model.forward(self._put(step), self.cache.layers, tap)
                    continue
                if tap is no_tap and all(len(positions) == 1 for positions in span):
                    made = self._decode(step, top)
                else:
                    made = self._choose(self._put(step), tap, top)
                tokens = self.device.get(made.tokens)
                for owner, token in zip(owners, tokens, strict=True):
                    if token < 0:
                        raise self._not_finite(step, sequences[owner], number)
                candidates = self._candidates(made) if top else [[] for _ in owners]
                chosen |= {o: (int(t), c) for o, t, c in zip(owners, tokens, candidates, strict=True)}
        return [chosen[owner] for owner in range(len(sequences))]

    def _choose(self, step: Step, tap: Tap, top: int) -> _Chosen:
        """One forward pass and what is read off its logits, all on the device."""
        logits = self.model.forward(step, self.cache.layers, tap)
        tokens = argmax(logits)
        if not top:
            return _Chosen(tokens)
        values, ids = top_k(logits, k=min(top, self.checkpoint.config.vocab_size))
        return _Chosen(tokens, ids, values, log_softmax(logits))

    def _decode(self, step: Step, top: int) -> _Chosen:
        """``_choose`` for one token of each sequence: replayed while the batch keeps its shape and cache."""
        if not isinstance(self.device, KernelDevice):
            return self._choose(self._put(step), no_tap, top)
        shape, layers = (step.tokens.shape, step.block_table.shape, top), self.cache.layers
        known = self._recorded
        if known is None or known.shape != shape or known.layers is not layers:
            self._recorded = known = None  # give its arrays back before the next are made
            made = RecordedStep(self.device, step, lambda on_device: self._choose(on_device, no_tap, top))
            self._recorded = known = _Recorded(shape, layers, made)
        return known.run(step)

    def _candidates(self, made: _Chosen) -> list[list[Candidate]]:
        get = self.device.get
        values, ids = get(made.top_values), get(made.top_ids)
        logprobs = np.take_along_axis(get(made.logprobs), ids, axis=-1)
        return [
            [Candidate(int(i), float(v), float(p)) for i, v, p in zip(*row, strict=True)]
            for row in zip(ids, values, logprobs, strict=True)
        ]

    def _not_finite(self, step: Step, sequence: _Sequence, number: int) -> NonFiniteLogits:
        """The error for a NaN among the logits. The step is run again with a tap that finds where it began."""
        first: list[tuple[int, Stage]] = []

        def look(layer: int, stage: Stage, value: Any) -> None:
            if not first and np.isnan(self.device.get(value).astype(np.float32)).any():
                first.append((layer, stage))

        self.model.forward(self._put(step), self.cache.layers, look)
        where = f"it begins at layer {first[0][0]}, stage {first[0][1]}" if first else "it is gone when run again"
        return NonFiniteLogits(
            f"the logits of step {number} on device {self.device.name} hold a NaN ({where}; prompt of "
            f"{len(sequence.prompt)} tokens); no token is chosen from it: check that layer's weights and kernels"
        )

    def _chunks(self, sequences: list[_Sequence]) -> Iterator[list[range]]:
        """Which positions of each sequence go into the next forward pass, until all are cached."""
        longest = self.chunk or max((len(s.tokens) - s.cached for s in sequences), default=0)
        while any(s.cached < len(s.tokens) for s in sequences):
            span = [range(s.cached, min(s.cached + longest, len(s.tokens))) for s in sequences]
            yield span
            for sequence, positions in zip(sequences, span, strict=True):
                sequence.cached = positions.stop

    def _step(self, sequences: list[_Sequence], span: list[range], wanted: list[range]) -> tuple[Step, list[int]]:
        """The forward pass over ``span`` as host arrays, and which sequence each row of its logits belongs to."""
        tokens: list[int] = []
        owners_of: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        owners: list[int] = []
        widest = max(len(s) for s in span)
        size = self.cache.block_size

        def pad(count: int) -> None:
            # A padding token belongs to no sequence: it is written to no slot and attends to nothing.
            tokens.extend([0] * count)
            owners_of.extend([-1] * count)
            positions.extend([0] * count)
            slots.extend([-1] * count)

        for number, (sequence, now) in enumerate(zip(sequences, span, strict=True)):
            if self.padding == "left":
                pad(widest - len(now))
            for position in now:
                if position in wanted[number]:
                    rows.append(len(tokens))
                    owners.append(number)
                tokens.append(sequence.tokens[position])
                owners_of.append(number)
                positions.append(position)
                slots.append(sequence.blocks[position // size] * size + position % size)
            if self.padding == "right":
                pad(widest - len(now))
        blocks = max(len(s.blocks) for s in sequences)
        table = [s.blocks + [0] * (blocks - len(s.blocks)) for s in sequences]
        step = Step(
            tokens=np.array(tokens, np.int32),
            sequences=np.array(owners_of, np.int32),
            positions=np.array(positions, np.int32),
            slots=np.array(slots, np.int32),
            block_table=np.array(table, np.int32),
            logit_rows=np.array(rows, np.int32),
        )
        return step, owners

    def _put(self, step: Step) -> Step:
        return Step(**{name: self.device.put(array) for name, array in vars(step).items()})
