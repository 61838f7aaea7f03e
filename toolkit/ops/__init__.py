"""Every op of the toolkit. Each is declared once, in the module of its family; see CONTRIBUTING for an op's life."""

from toolkit.ops.activation import gelu_erf, gelu_tanh, gelu_tanh_mul, relu, silu_mul
from toolkit.ops.attention import paged_attention
from toolkit.ops.cache import qkv_split, write_cache
from toolkit.ops.conv import causal_conv, causal_conv_update
from toolkit.ops.declare import REGISTRY
from toolkit.ops.delta import delta_inputs, gated_delta_decode, gated_delta_prefill
from toolkit.ops.elementwise import add, add_bias, cast, scale, softcap
from toolkit.ops.embedding import embedding, gather_rows
from toolkit.ops.gating import sigmoid_gate
from toolkit.ops.linear import linear, matmul
from toolkit.ops.logits import argmax, log_softmax, top_k
from toolkit.ops.moe import moe_combine, moe_linear, moe_router, moe_silu_mul, moe_sort, shared_expert_gate
from toolkit.ops.norm import add_rms_norm, layer_norm, rms_norm, rms_norm_gated
from toolkit.ops.preamble import qk_norm_rope_gate
from toolkit.ops.rope import mrope_table, rope, rope_table
from toolkit.ops.state import state_gather, state_scatter

__all__ = [
    "REGISTRY",
    "add",
    "add_bias",
    "add_rms_norm",
    "argmax",
    "cast",
    "causal_conv",
    "causal_conv_update",
    "delta_inputs",
    "embedding",
    "gated_delta_decode",
    "gated_delta_prefill",
    "gather_rows",
    "gelu_erf",
    "gelu_tanh",
    "gelu_tanh_mul",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "moe_combine",
    "moe_linear",
    "moe_router",
    "moe_silu_mul",
    "moe_sort",
    "mrope_table",
    "paged_attention",
    "qk_norm_rope_gate",
    "qkv_split",
    "relu",
    "rms_norm",
    "rms_norm_gated",
    "rope",
    "rope_table",
    "scale",
    "shared_expert_gate",
    "sigmoid_gate",
    "silu_mul",
    "softcap",
    "state_gather",
    "state_scatter",
    "top_k",
    "write_cache",
]
