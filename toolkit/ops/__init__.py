"""Every op of the toolkit. Each is declared once, in the module of its family; see CONTRIBUTING for an op's life."""

from toolkit.ops.activation import gelu_tanh_mul, silu_mul
from toolkit.ops.declare import REGISTRY
from toolkit.ops.elementwise import add, cast, scale, softcap
from toolkit.ops.embedding import embedding, gather_rows
from toolkit.ops.linear import linear
from toolkit.ops.logits import argmax, log_softmax, top_k
from toolkit.ops.norm import add_rms_norm, rms_norm

__all__ = [
    "REGISTRY",
    "add",
    "add_rms_norm",
    "argmax",
    "cast",
    "embedding",
    "gather_rows",
    "gelu_tanh_mul",
    "linear",
    "log_softmax",
    "rms_norm",
    "scale",
    "silu_mul",
    "softcap",
    "top_k",
]
