"""Checkpoints as they are found: configuration, tensors, tokenizer and prompts, read and checked, never guessed."""

from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.checkpoints.config import LayerType, ModelConfig
from toolkit.checkpoints.opening import load
from toolkit.checkpoints.prompts import read_prompts
from toolkit.checkpoints.rope import LinearScaling, Llama3Scaling, Rope
from toolkit.checkpoints.tensors import Tensors
from toolkit.checkpoints.tokenizer import Tokenizer

__all__ = [
    "Checkpoint",
    "LayerType",
    "LinearScaling",
    "Llama3Scaling",
    "ModelConfig",
    "Rope",
    "Tensors",
    "Tokenizer",
    "load",
    "read_prompts",
]
