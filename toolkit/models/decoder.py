"""What every dense decoder shares: a step's inputs, its weights on a device, its rounding choices and its taps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.layout import EMBEDDING
from toolkit.checkpoints.rope import LinearScaling, Llama3Scaling, Rope
from toolkit.checkpoints.tensors import SharedWeights
from toolkit.devices.base import Device
from toolkit.dtypes import FLOAT32
from toolkit.ops import gather_rows, linear, paged_attention, rms_norm, rope, rope_table, softcap, write_cache

Array: TypeAlias = Any
Layer = TypeVar("Layer")

Stage = Literal[
    "embedding",
    "post_input_norm",
    "mixer",
    "mixer_norm",
    "post_attention_norm",
    "mlp",
    "mlp_norm",
    "residual",
    "final_norm",
    "logits",
]


class Tap(Protocol):
    """Receives what a stage of a layer computed. It may read the array, never write it.

    The embedding is layer -1; the final norm and the logits follow the last layer.
    """

    def __call__(self, layer: int, stage: Stage, value: Array) -> None: ...


def no_tap(layer: int, stage: Stage, value: Array) -> None:
    """The tap that looks at nothing."""


@dataclass(frozen=True)
class RoundingPoints:
    """Where a model rounds, as far as honest engines differ in it. None leaves the choice to the model's declaration.

    ``norm_narrow_before_weight``  round the normed row to the model's dtype before the norm's weight, or after it only
    ``rope_dtype``                 dtype of cos and sin
    ``narrow_rope_products``       round x·cos and x·sin before they are added
    ``narrow_probabilities``       round attention probabilities to the model's dtype before the product with V
    ``embedding_scale_dtype``      what the embedding scale is rounded to before it multiplies
    ``head_dtype``                 dtype of the logits: the model's (transformers, vLLM) or float32 (llama.cpp)
    """

    norm_narrow_before_weight: bool | None = None
    rope_dtype: Literal["model", "float32"] = "model"
    narrow_rope_products: bool = False
    narrow_probabilities: bool = False
    embedding_scale_dtype: Literal["model", "float32"] | None = None
    head_dtype: Literal["model", "float32"] = "model"

    def applied_to(self, config: ModelConfig) -> ModelConfig:
        """``config`` with the choices that override its own declarations."""
        if self.norm_narrow_before_weight is not None:
            config = replace(config, norm_narrow_before_weight=self.norm_narrow_before_weight)
        if self.embedding_scale_dtype is not None:
            config = replace(config, embedding_scale_dtype=self.embedding_scale_dtype)
        return config


@dataclass(frozen=True)
class Step:
    """One forward pass over a flat list of tokens of any sequences, all on the device.

    tokens, sequences, positions and slots are int32 [tokens]; a padding token has sequence and slot -1. block_table is
    int32 [sequences, blocks]; logit_rows int32 [rows] names the tokens whose logits are wanted.
    """

    tokens: Array
    sequences: Array
    positions: Array
    slots: Array
    block_table: Array
    logit_rows: Array


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer, each [blocks, block_size, kv_heads, head_dim]."""

    keys: Array
    values: Array


class WeightReader:
    """Puts a checkpoint's weights on a device in the engine's dtype; several names are stacked along their rows."""

    def __init__(self, weights: SharedWeights, device: Device, dtype: np.dtype[Any], prefix: str = "") -> None:
        self.weights = weights
        self.device = device
        self.dtype = dtype
        self.prefix = prefix

    def __call__(self, *names: str) -> Array:
        return self.device.put_weight(self.weights.read([self.prefix + name for name in names], self.dtype))

    def under(self, prefix: str) -> WeightReader:
        """A reader of the names that begin with ``prefix``."""
        return WeightReader(self.weights, self.device, self.dtype, self.prefix + prefix)


def inverse_frequencies(rope: Rope, head_dim: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Radians per position of each of the head_dim / 2 pairs, float64: theta ** (-2 i / head_dim), then scaled."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    frequencies: np.ndarray[Any, np.dtype[np.float64]] = float(rope.theta) ** -exponents
    match rope.scaling:
        case None:
            return frequencies
        case LinearScaling(factor):
            return frequencies / factor
        case Llama3Scaling(factor, low, high, original):
            turns = original * frequencies / (2 * np.pi)
            kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
            return frequencies * ((1 - kept) / factor + kept)


class Decoder(ABC):
    """A model on a device. Subclasses read their layers in ``__init__`` and are a list of op calls in ``forward``."""

    def __init__(self, config: ModelConfig, read: WeightReader, rounding: RoundingPoints) -> None:
        self.config = rounding.applied_to(config)
        self.rounding = rounding
        self.device = read.device
        self.dtype = read.dtype
        self.frequencies = {
            kind: self.device.put(inverse_frequencies(rope, config.head_dim)) for kind, rope in config.rope.items()
        }
        self.embedding = read(EMBEDDING)
        self.final_norm = read("model.norm.weight")
        self.head = self.embedding if config.tie_word_embeddings else read("lm_head.weight")

    @abstractmethod
    def forward(self, step: Step, cache: Sequence[LayerCache], tap: Tap = no_tap) -> Array:
        """Logits [logit_rows, vocab_size] of a step; its keys and values are written into ``cache``."""

    def walk(self, layers: Sequence[Layer]) -> Iterator[tuple[int, Layer]]:
        """The layers with their numbers; the device is told which one is running."""
        for i, layer in enumerate(layers):
            self.device.layer = i
            yield i, layer
        self.device.layer = None

    def angles(self, step: Step) -> dict[str, tuple[Array, Array]]:
        """cos and sin of the step's positions, each [tokens, head_dim / 2], per kind of layer."""
        dtype = self.dtype if self.rounding.rope_dtype == "model" else FLOAT32
        return {
            kind: rope_table(step.positions, frequencies, dtype=dtype) for kind, frequencies in self.frequencies.items()
        }

    def rotate(self, x: Array, angles: dict[str, tuple[Array, Array]], layer: int) -> Array:
        """Rotary position embedding of x [tokens, heads, head_dim] with the angles of ``layer``'s kind."""
        cos, sin = angles[self.config.layer_types[layer]]
        return rope(x, cos, sin, narrow_products=self.rounding.narrow_rope_products)

    def attend(self, q: Array, k: Array, v: Array, step: Step, cache: LayerCache, layer: int) -> Array:
        """Write the step's keys and values, attend over all that is cached: [tokens, heads * head_dim]."""
        c = self.config
        write_cache(k, v, cache.keys, cache.values, step.slots)
        attended = paged_attention(
            q,
            cache.keys,
            cache.values,
            step.block_table,
            step.sequences,
            step.positions,
            scale=c.attention_scale,
            window=c.window_of(layer),
            softcap=c.attn_logit_softcapping,
            narrow_probabilities=self.rounding.narrow_probabilities,
        )
        return attended.reshape(-1, c.heads * c.head_dim)

    def norm(self, x: Array, weight: Array) -> Array:
        """RMS norm of the last axis as the configuration declares it."""
        c = self.config
        return rms_norm(
            x,
            weight,
            eps=c.rms_norm_eps,
            unit_offset=c.norm_unit_offset,
            narrow_before_weight=c.norm_narrow_before_weight,
        )

    def logits(self, hidden: Array, head: Array, step: Step) -> Array:
        """The head on the rows whose logits are wanted, in the declared dtype, capped where the model caps."""
        logits = linear(gather_rows(hidden, step.logit_rows), head, float32_out=self.rounding.head_dtype == "float32")
        cap = self.config.final_logit_softcapping
        return logits if cap is None else softcap(logits, cap=cap)
