"""The two real models that are known by name, fetched: the very weights and token ids that transformers gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit import checkpoints

pytestmark = pytest.mark.slow

TEXTS = json.loads((Path(__file__).parent / "data" / "real_tokens.json").read_text(encoding="utf-8"))
# Hashes of the same GGUF files read by transformers 5.24.0 (from_pretrained(gguf_file=...), float32) and rounded to
# bfloat16 there: no tensor of either model differs.
WEIGHTS = {
    "smollm2-135m": "7a442d45f88f43ff1d9395181699992cfa57f0a25c09ff1538bb43fe42dc007a",
    "gemma3-270m": "849b79e896ab8d7e53a622724ea8cf88a3c587c62c253ae4649747e5ee2e84f1",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_and_tokens(name: str) -> None:
    checkpoint = checkpoints.load(name)
    assert checkpoint.weights_hash == WEIGHTS[name]
    assert len(TEXTS[name]) > 30
    for text, ids in TEXTS[name]:
        assert checkpoint.tokenizer.encode(text) == ids, text
