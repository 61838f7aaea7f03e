"""A GGUF file of a Llama, Gemma-3 or Qwen3 as a checkpoint: the same configuration, names and values as the folder's.

Weights are dequantised to float32 when they are read, and rounded to one dtype. Two of llama.cpp's rearrangements are
undone: the rows of Llama's q and k, permuted for another rotation, and the norms of Gemma-3, stored as 1 + weight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import dtypes
from toolkit.checkpoints import config as configs
from toolkit.checkpoints import gguf_file, gguf_tokenizer, layout
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.gguf_file import GgufFile, StoredTensor
from toolkit.checkpoints.keys import Keys
from toolkit.checkpoints.tensors import Tensors
from toolkit.errors import ToolkitError

WEIGHTS_DTYPES = ("bfloat16", "float16", "float32")
# How many float32 elements are dequantised at a time.
CHUNK_ELEMENTS = 1 << 22

_ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_NAMES: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_NAMES: Mapping[str, str] = {
    **_NAMES,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_TENSOR_NAME = re.compile(r"(?:blk\.(\d{1,4})\.)?([a-z_]+)\.(weight|bias)")

# The factors by which Llama 3's scaling divides each rotary frequency; no metadata says how they were made.
ROPE_FACTORS = "rope_freqs.weight"
_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_ORIGINAL_LENGTH = 8192


@dataclass(frozen=True)
class QuantisedTensor:
    """A stored tensor with what has to be undone, read as ``dtype``."""

    stored: StoredTensor
    dtype: np.dtype[Any]
    where: str
    minus_one: bool
    permuted_heads: int | None

    def read(self) -> NDArray[Any]:
        """The weights, dequantised and rounded, a bounded piece at a time. Raises ToolkitError if one is not finite."""
        shape = self.stored.shape
        rows = shape[0] if len(shape) > 1 else 1
        blocks = self.stored.blocks.reshape(rows, -1, self.stored.format.block_bytes)
        columns = math.prod(shape) // rows
        order = np.arange(rows) if self.permuted_heads is None else _unpermuted(rows, self.permuted_heads)
        weights = np.empty((rows, columns), self.dtype)
        step = max(CHUNK_ELEMENTS // columns, 1)
        for start in range(0, rows, step):
            piece = blocks[order[start : start + step]].reshape(-1, self.stored.format.block_bytes)
            with np.errstate(all="ignore"):  # what overflows or is no number is refused below
                values = self.stored.format.dequantise(piece)
                if self.minus_one:
                    values -= np.float32(1)
                narrow = values.astype(self.dtype)
            if not np.isfinite(narrow).all():
                raise ToolkitError(
                    f"{self.where} holds a value that is not finite in {self.dtype.name}; download the file again, "
                    "or choose another dtype for the weights"
                )
            weights[start : start + step] = narrow.reshape(-1, columns)
        return weights.reshape(shape)


def load_gguf(path: Path, *, dtype: str | None = None, weights_dtype: str = "bfloat16") -> Checkpoint:
    """The checkpoint in the GGUF file at ``path``, its weights rounded to ``weights_dtype``.

    ``dtype`` is the one that will be computed in, so that an impossible one is refused before anything is read.
    """
    if weights_dtype not in WEIGHTS_DTYPES:
        raise ToolkitError(
            f"{path}: weights cannot be rounded to {weights_dtype!r:.40}; choose {', '.join(WEIGHTS_DTYPES)}"
        )
    file = gguf_file.open_file(path)
    architecture = _architecture(file)
    config = _config(file, architecture, weights_dtype)
    if dtype is not None:
        configs.refuse_float16(config, dtype, where=str(path))
    return Checkpoint(
        path=path,
        config=config,
        tensors=_tensors(file, config, dtypes.dtype(weights_dtype)),
        stop_sources=gguf_tokenizer.stop_sources(file.metadata, config, where=str(path)),
        _tokenizer=gguf_tokenizer.read(file.metadata, config, where=str(path)),
        weights_dtype=weights_dtype,
    )


def _architecture(file: GgufFile) -> str:
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise ToolkitError(
            f"{file.path}: the architecture {name!r:.80} is unknown; known are {', '.join(_ARCHITECTURES)}"
        )
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise ToolkitError(f"{file.path} is one part of several; merge them with llama.cpp's gguf-split --merge")
    return name


def _config(file: GgufFile, architecture: str, weights_dtype: str) -> ModelConfig:
    """The configuration, by way of the config.json that the original checkpoint would have, checked the same way."""
    prefix = f"{architecture}."
    keys = Keys(
        {name.removeprefix(prefix): value for name, value in file.metadata.items() if name.startswith(prefix)},
        f"{file.path} ({architecture}.*)",
    )
    hidden = keys.integer("embedding_length", None)
    layers = keys.integer("block_count", None, high=configs.MAX_LAYERS)
    heads = keys.integer("attention.head_count", None)
    head_dim = keys.integer("attention.key_length", hidden // heads or 1)
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(name, head_dim) != head_dim:
            raise keys.refuse(name, keys.data[name], f"the size of a head, {head_dim}")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ToolkitError(f"{file.path} has no tensor 'token_embd.weight'; download it again")
    data: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[architecture]],
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": keys.integer("feed_forward_length", None),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.integer("context_length", None, high=1 << 30),
        "rms_norm_eps": _as_written(keys.positive("attention.layer_norm_rms_epsilon")),
        "rope_theta": _as_written(keys.positive("rope.freq_base", 10_000.0)),
        "rope_scaling": _rope_scaling(keys, file, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "dtype": weights_dtype,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.metadata.get("tokenizer.ggml.padding_token_id"),
    }
    if keys.integer("vocab_size", embedding.shape[0]) != embedding.shape[0]:
        raise keys.refuse("vocab_size", keys.data["vocab_size"], f"the embedding's {embedding.shape[0]} rows")
    if architecture == "gemma3":
        data |= {
            "sliding_window": keys.integer("attention.sliding_window", None, high=1 << 30),
            "rope_local_base_freq": _as_written(keys.positive("rope.freq_base_swa", 10_000.0)),
            "attn_logit_softcapping": keys.optional_positive("attn_logit_softcapping"),
            "final_logit_softcapping": keys.optional_positive("final_logit_softcapping"),
            # No metadata has it. llama.cpp too knows the 27B by its layers, the one Gemma-3 that differs.
            "query_pre_attn_scalar": hidden // heads if layers == 62 else head_dim,
        }
    keys.refuse_unknown(f"the architecture {architecture}")
    return configs.parse(data, where=str(file.path))


def _as_written(value: float) -> float:
    """The decimal that the author wrote, of a number stored as float32: 1e-06, not 9.999999974752427e-07."""
    return float(str(np.float32(value)))


def _rope_scaling(keys: Keys, file: GgufFile, head_dim: int) -> dict[str, Any] | None:
    kind = keys.text("rope.scaling.type") or "none"
    keys.known |= {"rope.scaling.finetuned", "rope.scaling.original_context_length"}
    factors = file.tensors.get(ROPE_FACTORS)
    if kind == "linear" and factors is None:
        return {"rope_type": "linear", "factor": _as_written(keys.positive("rope.scaling.factor"))}
    if kind != "none":
        raise keys.refuse("rope.scaling.type", kind, "'none' or 'linear'")
    return None if factors is None else _llama3_scaling(keys, file, head_dim, factors)


def _llama3_scaling(keys: Keys, file: GgufFile, head_dim: int, factors: StoredTensor) -> dict[str, Any]:
    """Llama 3's scaling, recognised by its factors: those of the only parameters that Llama 3 was published with."""
    found = factors.format.dequantise(factors.blocks).ravel()
    scale = float(found.max(initial=1.0))
    frequencies = keys.positive("rope.freq_base", 10_000.0) ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = _LLAMA3_ORIGINAL_LENGTH * frequencies / (2 * math.pi)
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    if found.shape != frequencies.shape or not np.allclose(found, 1 / ((1 - smooth) / scale + smooth), rtol=1e-5):
        raise ToolkitError(
            f"{file.path}: the rotary factors in {ROPE_FACTORS} are not those of Llama 3, the only ones supported; "
            "use the model's Hugging Face folder"
        )
    return _LLAMA3 | {"factor": scale, "original_max_position_embeddings": _LLAMA3_ORIGINAL_LENGTH}


def _tensors(file: GgufFile, config: ModelConfig, dtype: np.dtype[Any]) -> Tensors:
    """The file's tensors under the checkpoint's names, every name and shape checked against ``config``."""
    expected = layout.expected(config)
    gemma = config.architecture == "Gemma3ForCausalLM"
    configs.refuse_float16(config, dtype.name, where=str(file.path))
    found: dict[str, QuantisedTensor] = {}
    for stored_name, stored in file.tensors.items():
        if stored_name == ROPE_FACTORS:
            continue
        where = f"{file.path}: tensor {stored_name!r:.80}"
        name = _name(stored_name, _GEMMA3_NAMES if gemma else _NAMES)
        if name is None or name not in expected:
            raise ToolkitError(
                f"{where} is not one that {config.architecture} with this metadata has; use another file"
            )
        if stored.shape != expected[name]:
            raise ToolkitError(
                f"{where} has the shape {list(stored.shape)}, but the metadata asks for {list(expected[name])}; "
                "the file is damaged, download it again"
            )
        heads = {"self_attn.q_proj": config.heads, "self_attn.k_proj": config.kv_heads}
        permuted = [
            count for part, count in heads.items() if part in name and config.architecture == "LlamaForCausalLM"
        ]
        found[name] = QuantisedTensor(
            stored,
            dtype,
            where,
            minus_one=config.norm_unit_offset and name.endswith("norm.weight"),
            permuted_heads=permuted[0] if permuted else None,
        )
    missing = [name for name in expected if name not in found]
    if missing:
        raise ToolkitError(
            f"{file.path} lacks the tensor {missing[0]!r}, which its metadata asks for, and {len(missing) - 1} more; "
            "download it again"
        )
    return Tensors({name: found[name].read for name in expected})


def _name(stored: str, names: Mapping[str, str]) -> str | None:
    """The checkpoint's name for a tensor called ``stored``, if it has one."""
    match = _TENSOR_NAME.fullmatch(stored)
    if match is None or match[2] not in names:
        return None
    layer = "" if match[1] is None else f"model.layers.{int(match[1])}."
    return f"{layer}{names[match[2]]}.{match[3]}"


def _unpermuted(rows: int, heads: int) -> NDArray[np.int64]:
    """Where each row of a projection lies in the file.

    llama.cpp rotates pairs of neighbouring rows, so its converter moved the first half of each head's rows to the even
    places and the second half to the odd ones.
    """
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).ravel()
