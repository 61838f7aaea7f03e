"""Small checkpoint folders to read, break and read again. Written without the code under test."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, processors

Tensor = tuple[str, list[int], bytes]  # the format's dtype name, shape, little-endian data

BOS, EOS = "<bos>", "<eos>"
WORDS = [BOS, EOS, "<unk>", *"abcdefghijklmnopqrstuvwxyz", "the", "capital", "of", "France", "is"]
VOCAB_SIZE = 40

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "sliding_window": 4,
    "sliding_window_pattern": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}


def tensor(shape: list[int], kind: str = "BF16", *, seed: int = 0) -> Tensor:
    """Random weights of the given shape."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    dtype = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "I8": np.int8}[kind]
    return kind, shape, values.astype(dtype).tobytes()


def weights(config: Mapping[str, Any], kind: str = "BF16") -> dict[str, Tensor]:
    """The tensors of a model, named and shaped by hand rather than by the code under test; no head."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        parts = {
            "input_layernorm": [hidden],
            "self_attn.q_proj": [queries, hidden],
            "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden],
            "self_attn.o_proj": [hidden, queries],
            "post_attention_layernorm": [hidden],
            "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden],
            "mlp.down_proj": [hidden, inner],
        }
        if config["model_type"] != "llama":
            parts |= {"self_attn.q_norm": [dim], "self_attn.k_norm": [dim]}
        if config["model_type"] == "gemma3_text":
            parts |= {"pre_feedforward_layernorm": [hidden], "post_feedforward_layernorm": [hidden]}
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
    shapes["model.norm.weight"] = [hidden]
    return {name: tensor(shape, kind, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}


def header_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    end = 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    return header


def pack(header: Any, data: bytes) -> bytes:
    """A safetensors file with this header, given as an object or as the very text."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return pack(header_of(tensors), b"".join(data for _, _, data in tensors.values()))


def backend(*, bos_in_template: bool = False) -> tokenizers.Tokenizer:
    """A word-level tokenizer of WORDS, split at spaces; BOS and EOS are special tokens, recognised in a text."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([BOS, EOS])
    if bos_in_template:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_folder(
    folder: Path,
    config: Mapping[str, Any] = QWEN3,
    tensors: Mapping[str, Tensor] | None = None,
    *,
    kind: str = "BF16",
    bos_in_template: bool | None = None,
    tokenizer_config: Mapping[str, Any] | None = None,
) -> Path:
    """A complete folder in one safetensors file; an untied model gets a head."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    if tensors is None:
        tensors = weights(config, kind)
        if config.get("tie_word_embeddings", config["model_type"] == "gemma3_text") is False:
            tensors["lm_head.weight"] = tensor([config["vocab_size"], config["hidden_size"]], kind, seed=99)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    gemma = config["model_type"] == "gemma3_text"
    backend(bos_in_template=gemma if bos_in_template is None else bos_in_template).save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", tokenizer_config or {"bos_token": BOS, "eos_token": EOS})
    return folder


def write_shards(folder: Path, config: Mapping[str, Any] = QWEN3, count: int = 2) -> dict[str, str]:
    """Spread the weights of a complete folder over shards with an index; returns the index's weight_map."""
    write_folder(folder, config)
    (folder / "model.safetensors").unlink()
    tensors = weights(config)
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    weight_map = {name: names[position % count] for position, name in enumerate(tensors)}
    for shard in names:
        held = {name: tensors[name] for name, home in weight_map.items() if home == shard}
        (folder / shard).write_bytes(safetensors_bytes(held))
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 0}, "weight_map": weight_map})
    return weight_map
