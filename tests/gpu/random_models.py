"""Checkpoints of full size with random weights, in memory: what speed and full-size comparisons need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.checkpoints import config, layout
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.dtypes import BFLOAT16

QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
GEMMA3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
}
SHAPES = {"Qwen3-0.6B": QWEN3_06B, "Gemma-3-1B": GEMMA3_1B}

# Random numbers are drawn for so many elements and then repeated from a random place: drawing 10^9 takes longer than
# everything that is done with them.
DRAWN = 1 << 22


class RandomTensors(Mapping[str, np.ndarray[Any, Any]]):
    """Tensors of a configuration, drawn when read and the same at every read: as training would begin, norms aside."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], unit_offset: bool) -> None:
        self._shapes = shapes
        self._norm = 0.0 if unit_offset else 1.0
        drawn = np.random.default_rng(0).standard_normal(DRAWN + 1, np.float32) * np.float32(0.02)
        self._drawn = drawn.astype(BFLOAT16)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        shape = self._shapes[name]
        size = int(np.prod(shape))
        start = sum(name.encode()) * 7919 % DRAWN
        # An odd period: rows of a power of two of columns then differ.
        values = np.resize(np.roll(self._drawn, start), size).reshape(shape)
        if "norm" in name:
            values = (values.astype(np.float32) + self._norm).astype(BFLOAT16)
        values.flags.writeable = False
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def checkpoint(name: str, **changes: Any) -> Checkpoint:
    """A checkpoint of the shape called ``name``, without a tokenizer; ``changes`` to its config.json."""
    parsed = config.parse(SHAPES[name] | changes, where=name)
    tensors = RandomTensors(layout.expected(parsed), parsed.norm_unit_offset)
    return Checkpoint(Path(name), parsed, tensors, stop_sources={}, _tokenizer=None)


def parameters(made: Checkpoint) -> int:
    """How many weights a token's forward pass reads: all of them, a tied embedding once."""
    return sum(int(np.prod(shape)) for shape in layout.expected(made.config).values())
