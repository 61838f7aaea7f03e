"""Which tensors a decoder has, with which shapes, under the names that Hugging Face checkpoints use."""

from __future__ import annotations

import re

from toolkit.checkpoints.config import ModelConfig

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

# Buffers that some exports store: the rotary frequencies, which follow from the configuration.
_BUFFERS = re.compile(r"(^|\.)rotary_emb\.inv_freq$")
_VISION = re.compile(r"^(model\.)?(vision_tower|multi_modal_projector)\.")


def expected(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape by name, the head among them unless it is the embedding. Weights are [outputs, inputs]."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (queries, hidden, config.attention_bias),
        "self_attn.k_proj": (keys, hidden, config.attention_bias),
        "self_attn.v_proj": (keys, hidden, config.attention_bias),
        "self_attn.o_proj": (hidden, queries, config.attention_output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.sandwich_norms:
        norms |= {"pre_feedforward_layernorm": hidden, "post_feedforward_layernorm": hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}

    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        for name, (outputs, inputs, bias) in linears.items():
            shapes[f"{prefix}{name}.weight"] = (outputs, inputs)
            if bias:
                shapes[f"{prefix}{name}.bias"] = (outputs,)
        for name, size in norms.items():
            shapes[f"{prefix}{name}.weight"] = (size,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    return shapes


def canonical(name: str, config: ModelConfig) -> str | None:
    """The decoder's name for the file's tensor ``name``; None for one that text generation does not use."""
    if _BUFFERS.search(name):
        return None
    if not config.multimodal:
        return name
    if _VISION.match(name):
        return None
    # Old exports have language_model.model.layers.0…, new ones model.language_model.layers.0….
    if name.startswith("model.language_model."):
        return "model." + name.removeprefix("model.language_model.")
    return name.removeprefix("language_model.")
