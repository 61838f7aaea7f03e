"""Trains the bundled models from the text that corpus.py writes, and records how.

    python toolkit/bundled/train.py --corpus corpus.jsonl --out toolkit/bundled --steps 2250

Needs torch, transformers and tokenizers, and nothing of the toolkit, so that it runs on a bare GPU machine. Both models
train at once, each in its own process, in float32 (TF32 products); the folders hold the weights rounded to bfloat16.
The figures in training.json are of these rounded weights. Seeds are fixed and the algorithms deterministic: the same
GPU model and versions give the same bytes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch  # type: ignore[import-not-found, unused-ignore]
import transformers  # type: ignore[import-not-found, unused-ignore]
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCABULARY = 2048
POSITIONS = 512

# The pre-tokenizer pattern of Qwen3: contractions, words, single digits, punctuation, line ends, spaces.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

Record = dict[str, str]


@dataclass(frozen=True)
class Recipe:
    steps: int
    rows: int = 64  # a step's batch, of POSITIONS tokens each
    peak_rate: float = 3e-3
    warmup: int = 200
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    gradient_norm: float = 1.0
    seed: int = 20261201


@dataclass(frozen=True)
class Bundle:
    """One model to make: how its tokenizer and its configuration are built, and what stands around a document."""

    name: str
    tokenizer: Callable[[list[str]], Any]
    model: Callable[[Any], Any]
    before_document: str
    after_document: str
    legacy_keys: bool = False


def byte_level_bpe(texts: list[str], specials_first: list[str], specials_last: list[str], split: Any) -> Any:
    """A byte-level BPE tokenizer with VOCABULARY ids, special tokens included."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(specials_last),
        special_tokens=specials_first,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(specials_last)
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    return tokenizer


def qwen3_tokenizer(texts: list[str]) -> Any:
    """As Qwen3's: special tokens behind the vocabulary, nothing added to a prompt."""
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(QWEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer = byte_level_bpe(texts, [], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], split)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def gemma3_tokenizer(texts: list[str]) -> Any:
    """As Gemma-3's: special tokens at the lowest ids, <bos> put before every prompt."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = byte_level_bpe(texts, specials, [], split)
    bos = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", bos)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<start_of_turn>", "<end_of_turn>"],
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def qwen3_model(tokenizer: Any) -> Any:
    """Grouped queries, per-head query and key norms, tied embeddings; heads wider in sum than the residual stream."""
    end = tokenizer.eos_token_id
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=7,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        bos_token_id=end,
        eos_token_id=end,
        attn_implementation="eager",
    )
    model = transformers.Qwen3ForCausalLM(config)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=end, pad_token_id=end, eos_token_id=[tokenizer.convert_tokens_to_ids("<|im_end|>"), end]
    )
    return model


def gemma3_model(tokenizer: Any) -> Any:
    """Sandwich norms, one key-value head, two local layers (window of 32, base 1e4) to each global one (base 1e6)."""
    layers, every = 6, 3
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=160,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        query_pre_attn_scalar=40,  # hidden size / heads, as Gemma-3 27B has it: not the head's dimension
        max_position_embeddings=POSITIONS,
        sliding_window=32,
        _sliding_window_pattern=every,
        layer_types=["sliding_attention" if (k + 1) % every else "full_attention" for k in range(layers)],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        attn_implementation="eager",
    )
    model = transformers.Gemma3ForCausalLM(config)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<end_of_turn>")],
    )
    return model


BUNDLES = (
    Bundle("qwen3-tiny", qwen3_tokenizer, qwen3_model, before_document="", after_document="<|endoftext|>"),
    Bundle(
        "gemma3-tiny", gemma3_tokenizer, gemma3_model, before_document="<bos>", after_document="<eos>", legacy_keys=True
    ),
)


def encode(tokenizer: Any, bundle: Bundle, records: Sequence[Record]) -> list[list[int]]:
    texts = [bundle.before_document + record["text"] + bundle.after_document for record in records]
    return [list(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def packed(documents: Sequence[list[int]]) -> Any:
    """Rows of POSITIONS ids, each beginning with a document: what overhangs a row is dropped."""
    rows: list[list[int]] = []
    row: list[int] = []
    for document in documents:
        row += document
        if len(row) >= POSITIONS:
            rows.append(row[:POSITIONS])
            row = []
    return torch.tensor(rows, dtype=torch.int64)


def batches(documents: list[list[int]], recipe: Recipe, device: str) -> Iterator[Any]:
    """Endless batches; every epoch deals the documents into rows anew."""
    rng = random.Random(recipe.seed)
    while True:
        rng.shuffle(documents)
        rows = packed(documents).to(device)
        for start in range(0, len(rows) - recipe.rows + 1, recipe.rows):
            yield rows[start : start + recipe.rows]


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then half a cosine down to zero."""
    if step < recipe.warmup:
        return recipe.peak_rate * (step + 1) / recipe.warmup
    progress = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.peak_rate * 0.5 * (1 + math.cos(math.pi * progress))


def optimize(name: str, model: Any, source: Iterator[Any], recipe: Recipe) -> list[tuple[int, float]]:
    """Train in place; return the curve of (step, mean loss over the steps since the one before), in nats per token."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        betas=recipe.betas,
    )
    every = max(1, recipe.steps // 50)
    curve: list[tuple[int, float]] = []
    losses = []
    started = time.monotonic()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe)
        rows = next(source)
        loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if (step + 1) % every == 0:
            curve.append((step + 1, round(torch.stack(losses).mean().item(), 4)))
            losses = []
            pace = 1000 * (time.monotonic() - started) / (step + 1)
            print(f"{name} step {step + 1} loss {curve[-1][1]:.4f} ({pace:.1f} ms a step)", file=sys.stderr, flush=True)
    return curve


def mean_loss(model: Any, documents: list[list[int]], rows: int, device: str) -> float:
    """Nats per token over the packed documents."""
    with torch.inference_mode():
        losses = [
            (len(chunk), model(input_ids=chunk, labels=chunk, use_cache=False).loss.item())
            for chunk in packed(documents).to(device).split(rows)
        ]
    return float(sum(count * loss for count, loss in losses) / sum(count for count, _ in losses))


def answered(model: Any, tokenizer: Any, questions: Sequence[Record], device: str) -> int:
    """How many questions the model answers with exactly the right tokens, each being the most likely."""
    right = 0
    with torch.inference_mode():
        for question in questions:
            prompt = tokenizer(question["text"])["input_ids"]
            answer = tokenizer(question["answer"], add_special_tokens=False)["input_ids"]
            logits = model(input_ids=torch.tensor([prompt + answer], device=device), use_cache=False).logits[0]
            right += logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer
    return right


def with_legacy_keys(folder: Path) -> None:
    """Rewrite a Gemma-3 folder's two config files in the keys that transformers wrote up to version 4.55."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["full_attention"]["rope_theta"]
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    config.pop("tie_word_embeddings", None)  # true, which went without saying
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["backend"]
    config["additional_special_tokens"] = config.pop("extra_special_tokens")
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": False}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(bundle: Bundle, corpus: Path, out: Path, recipe: Recipe, device: str) -> dict[str, Any]:
    """Train one model, write its folder and return its part of the record."""
    torch.manual_seed(recipe.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    records: list[Record] = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    train = [record for record in records if record["use"] == "train"]
    tokenizer = bundle.tokenizer([record["text"] for record in train])
    model = bundle.model(tokenizer).to(device)
    documents = encode(tokenizer, bundle, train)
    curve = optimize(bundle.name, model, batches(documents, recipe, device), recipe)

    folder = out / bundle.name
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if bundle.legacy_keys:
        with_legacy_keys(folder)
    rounded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    questions = [record for record in records if record["use"] == "question"]
    losses = {
        source: round(mean_loss(rounded, encode(tokenizer, bundle, held_out), recipe.rows, device), 4)
        for source in ("novels", "generated")
        if (held_out := [record for record in records if (record["use"], record["source"]) == ("held-out", source)])
    }
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_tokens_in_corpus": sum(map(len, documents)),
        "tokens_seen": recipe.steps * recipe.rows * POSITIONS,
        "training_loss_by_step": curve,
        "held_out_loss_nats_per_token": losses,
        "questions_answered": [answered(rounded, tokenizer, questions, device), len(questions)],
        "model.safetensors_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the bundled models.")
    parser.add_argument("--corpus", type=Path, required=True, help="file written by corpus.py")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets both model folders and training.json")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, default=Recipe.rows, help="rows of a batch (fewer for a trial on a CPU)")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    recipe = Recipe(steps=options.steps, rows=options.rows)
    options.out.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(len(BUNDLES), multiprocessing.get_context("spawn")) as pool:
        futures = {
            bundle.name: pool.submit(make, bundle, options.corpus, options.out, recipe, options.device)
            for bundle in BUNDLES
        }
        made = {name: future.result() for name, future in futures.items()}
    record = {
        "corpus_sha256": hashlib.sha256(options.corpus.read_bytes()).hexdigest(),
        "recipe": asdict(recipe) | {"positions": POSITIONS},
        "device": torch.cuda.get_device_name() if options.device == "cuda" else options.device,
        "versions": {
            "python": ".".join(map(str, sys.version_info[:3])),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "models": made,
    }
    (options.out / "training.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
