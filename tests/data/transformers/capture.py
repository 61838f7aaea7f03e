"""Teacher-forced logits of Hugging Face transformers on a folder, as test data.

Run in an environment with torch and transformers (the toolkit need not be there):

    python capture.py MODEL_FOLDER PROMPTS_FILE OUT.npz

Greedy continuations of 16 tokens in float32 are forced in float32 and in float64. Of every row of logits the 32 largest
of the float32 run and 32 columns drawn once (seed 0) are kept. For float64, transformers computes angles, norms and
softmax in float32 wherever its code says so; ``patched`` replaces those by float64.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

NEW_TOKENS = 16
KEPT = 32


def patched(model: Any) -> Any:
    """``model`` in float64 with no float32 left inside: norms, rotary angles and softmax."""
    model = model.double()
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            eps = getattr(module, "variance_epsilon", None) or module.eps
            offset = 1.0 if "Gemma3" in kind else 0.0

            def norm(x: Any, module: Any = module, eps: float = eps, offset: float = offset) -> Any:
                return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * (module.weight + offset)

            module.forward = norm
        if kind.endswith("RotaryEmbedding"):
            module.forward = rotary(module, model.config)
    return model


def rotary(module: Any, config: Any) -> Any:
    def angles(base: float, x: Any, position_ids: Any) -> tuple[Any, Any]:
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        frequencies = base**-exponents
        turned = position_ids[..., None].double() * frequencies
        both = torch.cat([turned, turned], -1)
        return both.cos(), both.sin()

    def forward(x: Any, position_ids: Any, layer_type: str | None = None) -> tuple[Any, Any]:
        parameters = config.rope_parameters
        chosen = parameters[layer_type] if layer_type else parameters
        return angles(chosen["rope_theta"], x, position_ids)

    return forward


def logits_of(model: Any, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].double().numpy()


def main(folder: str, prompts_file: str, out: str) -> None:
    torch.set_num_threads(1)
    softmax = torch.nn.functional.softmax
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = Path(prompts_file).read_text(encoding="utf-8").splitlines()
    single = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    forced = []
    for prompt in ids:
        tokens = list(prompt)
        for _ in range(NEW_TOKENS):
            tokens.append(int(logits_of(single, tokens)[-1].argmax()))
        forced.append(tokens[len(prompt) :])
    in_single = [logits_of(single, p + c[:-1])[len(p) - 1 :] for p, c in zip(ids, forced, strict=True)]
    double = patched(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager"))
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None, **_: softmax(x, dim=dim)
    in_double = [logits_of(double, p + c[:-1])[len(p) - 1 :] for p, c in zip(ids, forced, strict=True)]
    single_logits, double_logits = np.concatenate(in_single), np.concatenate(in_double)
    drawn = np.random.default_rng(0).choice(single_logits.shape[1], KEPT, replace=False)
    largest = np.argsort(-single_logits, axis=1, kind="stable")[:, :KEPT]
    columns = np.concatenate([largest, np.broadcast_to(drawn, largest.shape)], axis=1).astype(np.int32)
    longest = max(map(len, ids))
    np.savez_compressed(
        out,
        prompts=np.array(prompts),
        ids=np.array([p + [-1] * (longest - len(p)) for p in ids], np.int32),
        continuations=np.array(forced, np.int32),
        columns=columns,
        float32=np.take_along_axis(single_logits, columns, 1).astype(np.float32),
        float64=np.take_along_axis(double_logits, columns, 1),
        largest=np.abs(single_logits).max(1),
        versions=np.array([f"transformers {transformers.__version__}", f"torch {torch.__version__}"]),
    )
    print(f"{out}: {len(prompts)} prompts, float32 against float64: {np.abs(single_logits - double_logits).max():.3g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
