"""Small GGUF files to read and break, written without the code under test: the models of folders.py, in llama.cpp's way."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.unit.checkpoints.folders import Tensor, weights

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32, F16, BF16, Q8_0 = 0, 1, 30, 8

Value = tuple[Any, ...]  # (type, value) or (ARRAY, item type, list)
Stored = tuple[int, list[int], bytes]  # type, NumPy shape, data

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA3_NAMES = NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

# Pieces by descending score, after <unk>, <s>, </s> and, user-defined and spelled with real spaces, a run of two.
PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    "  ",
    "<0x41>",
    "\u2581t",
    "he",
    "\u2581the",
    "\u2581",
    *"theaxy",
    "\u2581\u2581\u2581",
]
PIECE_KINDS = [2, 3, 3, 4, 6, *[1] * (len(PIECES) - 5)]


def _packed(kind: int, value: Any) -> bytes:
    if kind == STRING:
        raw = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(raw)) + raw
    code = {UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?", 0: "B", 10: "Q", 12: "d"}[kind]
    return struct.pack(f"<{code}", value)


def packed_value(value: Value) -> bytes:
    if value[0] == ARRAY:
        _, kind, items = value
        return struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(_packed(kind, item) for item in items)
    kind, single = value
    return struct.pack("<I", kind) + _packed(kind, single)


def gguf_bytes(
    metadata: Mapping[str, Value],
    tensors: Mapping[str, Stored],
    *,
    version: int = 3,
    alignment: int = 32,
    offsets: Mapping[str, int] | None = None,
) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for name, value in metadata.items():
        header += _packed(STRING, name) + packed_value(value)
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        data += bytes(-len(data) % alignment)
        offset = (offsets or {}).get(name, len(data))
        header += _packed(STRING, name) + struct.pack("<I", len(shape))
        header += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", kind, offset)
        data += raw
    return header + bytes(-len(header) % alignment) + data


def sentencepiece_tokenizer() -> dict[str, Value]:
    prefix = "tokenizer.ggml."
    return {
        f"{prefix}model": (STRING, "llama"),
        f"{prefix}tokens": (ARRAY, STRING, PIECES),
        f"{prefix}scores": (
            ARRAY,
            FLOAT32,
            [-1000.0 if kind != 1 else 5.0 - at for at, kind in enumerate(PIECE_KINDS)],
        ),
        f"{prefix}token_type": (ARRAY, INT32, PIECE_KINDS),
        f"{prefix}bos_token_id": (UINT32, 1),
        f"{prefix}eos_token_id": (UINT32, 2),
        f"{prefix}unknown_token_id": (UINT32, 0),
        f"{prefix}add_bos_token": (BOOL, True),
        f"{prefix}add_space_prefix": (BOOL, False),
    }


BYTE_LEVEL = ["<|end|>", *"abcdefgh123'", "\u0120", "\u0120a", "bc", "12", "\u0120abc", "\u0120abc'"]


def byte_level_tokenizer(pre: str = "smollm") -> dict[str, Value]:
    prefix = "tokenizer.ggml."
    return {
        f"{prefix}model": (STRING, "gpt2"),
        f"{prefix}pre": (STRING, pre),
        f"{prefix}tokens": (ARRAY, STRING, BYTE_LEVEL),
        f"{prefix}token_type": (ARRAY, INT32, [3, *[1] * (len(BYTE_LEVEL) - 1)]),
        f"{prefix}merges": (ARRAY, STRING, ["\u0120 a", "b c", "1 2", "\u0120a bc"]),
        f"{prefix}bos_token_id": (UINT32, 0),
        f"{prefix}eos_token_id": (UINT32, 0),
        f"{prefix}eot_token_id": (UINT32, 0),
        f"{prefix}add_bos_token": (BOOL, False),
    }


def metadata(config: Mapping[str, Any]) -> dict[str, Value]:
    """What llama.cpp's converter writes for a model of folders.py."""
    arch = {"llama": "llama", "qwen3": "qwen3", "gemma3_text": "gemma3"}[config["model_type"]]
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    found: dict[str, Value] = {
        "general.architecture": (STRING, arch),
        f"{arch}.context_length": (UINT32, 2048),
        f"{arch}.embedding_length": (UINT32, config["hidden_size"]),
        f"{arch}.block_count": (UINT32, config["num_hidden_layers"]),
        f"{arch}.feed_forward_length": (UINT32, config["intermediate_size"]),
        f"{arch}.attention.head_count": (UINT32, config["num_attention_heads"]),
        f"{arch}.attention.head_count_kv": (UINT32, config["num_key_value_heads"]),
        f"{arch}.attention.key_length": (UINT32, head_dim),
        f"{arch}.attention.value_length": (UINT32, head_dim),
        f"{arch}.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-6),
        f"{arch}.rope.freq_base": (FLOAT32, 1e6 if arch == "gemma3" else 1e4),
    }
    if arch == "gemma3":
        found[f"{arch}.attention.sliding_window"] = (UINT32, config["sliding_window"])
    return found | (sentencepiece_tokenizer() if arch == "gemma3" else byte_level_tokenizer())


def stored(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None, kind: int = F32
) -> dict[str, Stored]:
    """The weights of a folder, bfloat16, as llama.cpp's converter stores them: renamed, permuted, norms plus one."""
    found: dict[str, Stored] = {}
    gemma, llama = config["model_type"] == "gemma3_text", config["model_type"] == "llama"
    for name, (_, shape, raw) in (tensors or weights(config)).items():
        values = np.frombuffer(raw, ml_dtypes.bfloat16).reshape(shape).astype(np.float32)
        if gemma and "norm" in name:
            values = values + np.float32(1)
        for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
            if llama and part in name:
                halves = values.reshape(heads, 2, shape[0] // heads // 2, shape[1])
                values = halves.swapaxes(1, 2).reshape(shape)
        stem = name.removesuffix(".weight")
        layer = ""
        if stem.startswith("model.layers."):
            _, _, number, stem = stem.split(".", 3)
            layer = f"blk.{number}."
        # As in real files, norms stay in float32.
        chosen = F32 if len(shape) == 1 else kind
        dtype = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}[chosen]
        found[f"{layer}{(GEMMA3_NAMES if gemma else NAMES)[stem]}.weight"] = (
            chosen,
            shape,
            values.astype(dtype).tobytes(),
        )
    return found


def write_gguf(path: Path, config: Mapping[str, Any], kind: int = F32, **changes: Value | None) -> Path:
    """A complete file; ``changes`` replace metadata (double underscores for dots) or, when None, drop it."""
    pairs = metadata(config)
    for name, value in changes.items():
        pairs.pop(name.replace("__", "."), None)
        if value is not None:
            pairs[name.replace("__", ".")] = value
    path.write_bytes(gguf_bytes(pairs, stored(config, kind=kind)))
    return path
