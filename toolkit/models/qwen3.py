"""Qwen3, dense: a Llama decoder whose q and k are RMS-normalised per head before the rotation (Qwen3, 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.checkpoints.config import ModelConfig
from toolkit.models.decoder import Array, Decoder, LayerCache, RoundingPoints, Step, Tap, WeightReader, no_tap
from toolkit.ops import add, embedding, linear, qkv_split, silu_mul


@dataclass(frozen=True)
class Layer:
    """Weights of one layer; matrices are [outputs, inputs], q_norm and k_norm are [head_dim]."""

    input_norm: Array
    qkv: Array
    q_norm: Array
    k_norm: Array
    output: Array
    post_attention_norm: Array
    gate_up: Array
    down: Array

    @classmethod
    def read(cls, read: WeightReader) -> Layer:
        return cls(
            input_norm=read("input_layernorm.weight"),
            qkv=read("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
            q_norm=read("self_attn.q_norm.weight"),
            k_norm=read("self_attn.k_norm.weight"),
            output=read("self_attn.o_proj.weight"),
            post_attention_norm=read("post_attention_layernorm.weight"),
            gate_up=read("mlp.gate_proj.weight", "mlp.up_proj.weight"),
            down=read("mlp.down_proj.weight"),
        )


class Qwen3(Decoder):
    """Qwen3ForCausalLM."""

    def __init__(self, config: ModelConfig, read: WeightReader, rounding: RoundingPoints) -> None:
        super().__init__(config, read, rounding)
        self.layers = [Layer.read(read.under(f"model.layers.{i}.")) for i in range(config.layers)]

    def forward(self, step: Step, cache: Sequence[LayerCache], tap: Tap = no_tap) -> Array:
        c = self.config
        angles = self.angles(step)
        residual = embedding(self.embedding, step.tokens)
        tap(-1, "embedding", residual)
        for i, w in self.walk(self.layers):
            hidden = self.norm(residual, w.input_norm)
            tap(i, "post_input_norm", hidden)
            q, k, v = qkv_split(linear(hidden, w.qkv), heads=c.heads, kv_heads=c.kv_heads, head_dim=c.head_dim)
            q = self.rotate(self.norm(q, w.q_norm), angles, i)
            k = self.rotate(self.norm(k, w.k_norm), angles, i)
            mixer = linear(self.attend(q, k, v, step, cache[i], i), w.output)
            tap(i, "mixer", mixer)
            residual = add(residual, mixer)

            hidden = self.norm(residual, w.post_attention_norm)
            tap(i, "post_attention_norm", hidden)
            mlp = linear(silu_mul(linear(hidden, w.gate_up)), w.down)
            tap(i, "mlp", mlp)
            residual = add(residual, mlp)
            tap(i, "residual", residual)

        hidden = self.norm(residual, self.final_norm)
        tap(c.layers, "final_norm", hidden)
        logits = self.logits(hidden, self.head, step)
        tap(c.layers, "logits", logits)
        return logits
