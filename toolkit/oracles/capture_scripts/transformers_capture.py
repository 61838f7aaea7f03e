"""Capture of Hugging Face transformers: greedy with its own cache, and teacher forcing in one pass."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common


def script() -> None:
    """Read the command line, ask, write the capture."""
    parser = common.arguments(__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32", "float64"])
    parser.add_argument("--attention", default="eager", help="attn_implementation, such as eager or sdpa")
    parser.add_argument("--device", default="cpu", help="torch's name of the device")
    options = common.checked(parser.parse_args())
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    items = common.read_items(options)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    for item in items:
        item["ids"] = item["ids"] or [int(i) for i in tokenizer(item["prompt"])["input_ids"]]
    common.say(f"loading {Path(options.model).name} in {options.dtype}")
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype), attn_implementation=options.attention
    )
    model = model.eval().to(options.device)
    actual = str(next(model.parameters()).dtype).removeprefix("torch.")
    if actual != options.dtype:
        raise common.Wrong(f"transformers loaded the weights as {actual}, not {options.dtype}")

    def forward(rows: list[list[int]], cache: Any, keep: int) -> Any:
        inputs = torch.tensor(rows, device=options.device)
        logits = model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits
        return logits[:, -keep:]

    def greedy(group: list[int]) -> None:
        made: list[dict[str, Any]] = [{"tokens": [], "steps": []} for _ in group]
        cache = DynamicCache(config=model.config)
        rows = [items[i]["ids"] for i in group]
        for _ in range(options.tokens):
            logits = forward(rows, cache, 1)[:, 0]
            chosen = torch.argmax(logits, dim=-1).tolist()
            for one, token, row in zip(made, chosen, logits.double().cpu().numpy(), strict=True):
                one["tokens"].append(token)
                one["steps"].append(common.candidates(row, options.top)[0])
            rows = [[token] for token in chosen]
        for i, one in zip(group, made, strict=True):
            run[i] = one

    runs: list[list[dict[str, Any]]] = []
    groups = list(equal_lengths([len(item["ids"]) for item in items], options.batch))
    for number in range(options.repeats if options.tokens else 0):
        run: list[Any] = [None] * len(items)
        for group in common.track(groups, f"run {number}, batches", len(groups)):
            greedy(group)
        runs.append(run)
    forced_parts = []
    for item in common.track(items if options.forced else [], "forced, prompts", len(items)):
        continuation = item["continuation"]
        logits = forward([item["ids"] + continuation[:-1]], DynamicCache(config=model.config), len(continuation))
        forced_parts.append(common.forced(logits[0].double().cpu().numpy(), continuation, options.top))
    head = {
        "oracle": "transformers",
        "version": transformers.__version__,
        "libraries": common.versions("torch", "tokenizers", "numpy"),
        "dtype": options.dtype,
        "attn": options.attention,
        "device": options.device,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "vocabulary": model.get_output_embeddings().weight.shape[0],
        "bos": tokenizer.bos_token_id,
    }
    common.write(options, head, common.assemble(options, items, runs, forced_parts, tokenizer.decode))


def equal_lengths(lengths: list[int], batch: int) -> Iterator[list[int]]:
    """Indices in groups of at most ``batch`` of one length: nothing is padded."""
    for length in sorted(set(lengths)):
        same = [i for i, other in enumerate(lengths) if other == length]
        for start in range(0, len(same), batch):
            yield same[start : start + batch]


if __name__ == "__main__":
    common.main(script)
