"""The architectures: one file each, readable from top to bottom as a list of op calls."""

from toolkit.models.decoder import Decoder, LayerCache, RoundingPoints, Stage, Step, Tap, WeightReader, no_tap
from toolkit.models.gemma3 import Gemma3
from toolkit.models.llama import Llama
from toolkit.models.qwen3 import Qwen3

ARCHITECTURES: dict[str, type[Decoder]] = {
    "Gemma3ForCausalLM": Gemma3,
    "LlamaForCausalLM": Llama,
    "Qwen3ForCausalLM": Qwen3,
}

__all__ = [
    "ARCHITECTURES",
    "Decoder",
    "LayerCache",
    "RoundingPoints",
    "Stage",
    "Step",
    "Tap",
    "WeightReader",
    "no_tap",
]
