"""A folder as a whole: the weights that config.json asks for and no others, the head, the dtypes, the hash, the stops."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.checkpoints.folders import (
    BOS,
    EOS,
    GEMMA3,
    LLAMA,
    QWEN3,
    safetensors_bytes,
    tensor,
    weights,
    write_folder,
    write_json,
    write_shards,
)
from toolkit import checkpoints
from toolkit.errors import ToolkitError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def refused(folder: Path, *words: str, **options: Any) -> None:
    with pytest.raises(ToolkitError) as caught:
        checkpoints.load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in [str(folder), *words]:
        assert word in message


@pytest.mark.parametrize("config", [QWEN3, LLAMA, LLAMA | {"tie_word_embeddings": True}, GEMMA3])
@pytest.mark.parametrize("kind", ["BF16", "F32"])
def test_loads_every_tensor_as_it_was_written(tmp_path: Path, config: dict[str, Any], kind: str) -> None:
    write_folder(tmp_path, config, kind=kind)
    found = checkpoints.load(str(tmp_path))
    written = weights(config, kind)
    if not found.config.tie_word_embeddings:
        written[HEAD] = tensor([config["vocab_size"], config["hidden_size"]], kind, seed=99)
    assert found.tensors.keys() == written.keys()
    for name, (_, shape, data) in written.items():
        array = found.tensors[name]
        assert array.dtype == {"BF16": ml_dtypes.bfloat16, "F32": np.float32}[kind]
        assert list(array.shape) == shape
        assert array.tobytes() == data


def test_float16_weights(tmp_path: Path) -> None:
    write_folder(tmp_path / "llama", LLAMA, kind="F16")
    assert checkpoints.load(tmp_path / "llama", dtype="float16").tensors[HEAD].dtype == np.float16
    write_folder(tmp_path / "gemma", GEMMA3, kind="F16")
    refused(tmp_path / "gemma", "float16", "overflow", "bfloat16")


def test_float16_computation_is_refused_for_gemma3_before_the_weights_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path, GEMMA3)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "float16", "overflow", dtype="float16")


def test_shards_and_one_file_are_the_same_weights(tmp_path: Path) -> None:
    write_folder(tmp_path / "one")
    write_shards(tmp_path / "shards")
    one, other = checkpoints.load(tmp_path / "one"), checkpoints.load(tmp_path / "shards")
    assert one.weights_hash == other.weights_hash
    assert list(one.tensors) == list(other.tensors)


def test_the_hash_is_over_name_dtype_shape_and_bytes(tmp_path: Path) -> None:
    write_folder(tmp_path)
    digest = hashlib.sha256()
    for name, (_, shape, data) in sorted(weights(QWEN3).items()):
        digest.update(f"{name}\0bfloat16\0{'x'.join(map(str, shape))}\0".encode() + data)
    assert checkpoints.load(tmp_path).weights_hash == digest.hexdigest()


def test_one_changed_bit_changes_the_hash(tmp_path: Path) -> None:
    write_folder(tmp_path)
    before = checkpoints.load(tmp_path).weights_hash
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    assert checkpoints.load(tmp_path).weights_hash != before


def test_a_tied_head_that_repeats_the_embedding_is_the_embedding(tmp_path: Path) -> None:
    tensors = weights(QWEN3)
    write_folder(tmp_path / "without", QWEN3, tensors)
    write_folder(tmp_path / "with", QWEN3, tensors | {HEAD: tensors[EMBEDDING]})
    found = checkpoints.load(tmp_path / "with")
    assert HEAD not in found.tensors
    assert found.weights_hash == checkpoints.load(tmp_path / "without").weights_hash


@pytest.mark.parametrize("kind", ["BF16", "F32"])
def test_a_tied_head_that_differs_is_refused(tmp_path: Path, kind: str) -> None:
    shape = [QWEN3["vocab_size"], QWEN3["hidden_size"]]
    write_folder(tmp_path, QWEN3, weights(QWEN3) | {HEAD: tensor(shape, kind, seed=7)})
    refused(tmp_path, "tie_word_embeddings", HEAD, "differs")


def test_an_absent_head_is_refused_where_it_is_not_tied(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, weights(LLAMA))
    refused(tmp_path, HEAD, "tie_word_embeddings is false")


def test_wrong_shape(tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    write_folder(tmp_path, QWEN3, weights(QWEN3) | {name: tensor([8, 16])})
    refused(tmp_path, name, "[8, 16]", "[16, 16]")


def test_a_transposed_weight_is_a_wrong_shape(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    write_folder(tmp_path, QWEN3, weights(QWEN3) | {name: tensor([16, 24])})
    refused(tmp_path, name, "[16, 24]", "[24, 16]")


def test_missing_tensors(tmp_path: Path) -> None:
    tensors = weights(QWEN3)
    del tensors["model.layers.1.self_attn.q_norm.weight"], tensors["model.norm.weight"]
    write_folder(tmp_path, QWEN3, tensors)
    refused(tmp_path, "lacks", "'model.norm.weight' and 1 more")


def test_unexpected_tensors(tmp_path: Path) -> None:
    write_folder(tmp_path, QWEN3, weights(QWEN3) | {"model.layers.0.self_attn.q_proj.bias": tensor([32])})
    refused(tmp_path, "model.layers.0.self_attn.q_proj.bias", "Qwen3ForCausalLM")
    write_folder(tmp_path, QWEN3, weights(QWEN3 | {"num_hidden_layers": 3}))
    refused(tmp_path, "model.layers.2.", "is not one that")


def test_stored_rotary_frequencies_are_ignored(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": tensor([4], "F32")}
    write_folder(tmp_path / "with", LLAMA | {"tie_word_embeddings": True}, weights(LLAMA) | extra)
    found = checkpoints.load(tmp_path / "with")
    assert found.tensors.keys() == weights(LLAMA).keys()


def test_biases_are_expected_where_config_json_says_so(tmp_path: Path) -> None:
    config = LLAMA | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    write_folder(tmp_path, config, weights(config))
    refused(tmp_path, "self_attn.q_proj.bias")
    biases = {
        f"model.layers.{layer}.{name}.bias": tensor([size])
        for layer in range(2)
        for name, size in {
            "self_attn.q_proj": 16,
            "self_attn.k_proj": 8,
            "self_attn.v_proj": 8,
            "self_attn.o_proj": 16,
            "mlp.gate_proj": 24,
            "mlp.up_proj": 24,
            "mlp.down_proj": 16,
        }.items()
    }
    write_folder(tmp_path, config, weights(config) | biases)
    assert checkpoints.load(tmp_path).tensors.keys() == (weights(config) | biases).keys()


def test_quantised_weights(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    write_folder(tmp_path, QWEN3, weights(QWEN3) | {name: tensor([24, 16], "I8")})
    refused(tmp_path, name, "is I8", "BF16")
    write_json(tmp_path / "config.json", QWEN3 | {"quantization_config": {"bits": 8}})
    refused(tmp_path, "quantised")


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_multimodal_gemma3_without_its_vision_tower(tmp_path: Path, prefix: str) -> None:
    text = {key: value for key, value in GEMMA3.items() if key != "architectures"}
    outer = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}
    plain = weights(GEMMA3)
    stored = {
        prefix + (name if prefix == "language_model." else name.removeprefix("model.")): value
        for name, value in plain.items()
    }
    stored["vision_tower.vision_model.post_layernorm.weight"] = tensor([3], "F32")
    stored["model.multi_modal_projector.mm_input_projection_weight"] = tensor([3, 4], "F32")
    write_folder(tmp_path / "plain", GEMMA3, plain)
    write_folder(tmp_path / "outer", GEMMA3, stored)
    write_json(tmp_path / "outer" / "config.json", outer)
    found = checkpoints.load(tmp_path / "outer")
    assert found.weights_hash == checkpoints.load(tmp_path / "plain").weights_hash


def test_a_tensor_under_two_prefixes(tmp_path: Path) -> None:
    text = {key: value for key, value in GEMMA3.items() if key != "architectures"}
    norm = tensor([16])
    stored = {"language_model.model.norm.weight": norm, "model.language_model.norm.weight": norm}
    write_folder(tmp_path, GEMMA3, stored)
    write_json(
        tmp_path / "config.json",
        {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text},
    )
    refused(tmp_path, "norm.weight", "twice")


def test_things_that_are_not_a_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "check the path")
    refused(tmp_path, "no config.json")
    write_json(tmp_path / "config.json", QWEN3)
    refused(tmp_path, "no safetensors found")
    write_json(tmp_path / "config.json", QWEN3 | {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})
    refused(tmp_path, "'GPT2LMHeadModel'", "LlamaForCausalLM")


def test_without_a_tokenizer_only_ids_are_taken(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    found = checkpoints.load(tmp_path)
    assert found.stop_ids == {1}
    with pytest.raises(ToolkitError, match=r"no tokenizer, so it takes token ids only"):
        _ = found.tokenizer


class TestStopTokens:
    def test_all_three_sources(self, tmp_path: Path) -> None:
        write_folder(tmp_path, QWEN3 | {"eos_token_id": [3, 4]}, tokenizer_config={"eos_token": EOS, "bos_token": BOS})
        write_json(tmp_path / "generation_config.json", {"eos_token_id": [4, 5], "temperature": 0.6})
        found = checkpoints.load(tmp_path)
        assert found.stop_sources == {
            3: ("config.json",),
            4: ("config.json", "generation_config.json"),
            5: ("generation_config.json",),
            1: ("tokenizer",),
        }
        assert found.stop_ids == {1, 3, 4, 5}

    def test_the_tokenizers_eos_may_come_from_special_tokens_map(self, tmp_path: Path) -> None:
        write_folder(tmp_path, QWEN3 | {"eos_token_id": None}, tokenizer_config={"bos_token": BOS, "eos_token": None})
        write_json(tmp_path / "special_tokens_map.json", {"eos_token": {"content": EOS, "lstrip": False}})
        assert checkpoints.load(tmp_path).stop_sources == {1: ("tokenizer",)}

    def test_the_default_counts_only_where_no_file_names_one(self, tmp_path: Path) -> None:
        config = {key: value for key, value in LLAMA.items() if key != "eos_token_id"}
        write_folder(tmp_path, config, tokenizer_config={"x": 1})
        assert checkpoints.load(tmp_path).stop_sources == {2: ("LlamaForCausalLM's default",)}
        write_json(tmp_path / "generation_config.json", {"eos_token_id": 7})
        assert checkpoints.load(tmp_path).stop_sources == {7: ("generation_config.json",)}

    def test_no_stop_token_at_all(self, tmp_path: Path) -> None:
        write_folder(tmp_path, QWEN3 | {"eos_token_id": None}, tokenizer_config={"x": 1})
        assert checkpoints.load(tmp_path).stop_ids == frozenset()

    @pytest.mark.parametrize("value", [40, "1", [1, None], -1, True, 1.0])
    def test_refusals(self, tmp_path: Path, value: Any) -> None:
        write_folder(tmp_path)
        write_json(tmp_path / "generation_config.json", {"eos_token_id": value})
        refused(tmp_path, "generation_config.json", "eos_token_id")

    def test_broken_file(self, tmp_path: Path) -> None:
        write_folder(tmp_path)
        (tmp_path / "generation_config.json").write_text("[1]")
        refused(tmp_path, "generation_config.json", "object")


def test_truncation_at_every_length_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    content = safetensors_bytes(weights(QWEN3))
    for length in range(0, len(content), 97):
        (tmp_path / "model.safetensors").write_bytes(content[:length])
        with pytest.raises(ToolkitError, match=r"model\.safetensors"):
            checkpoints.load(tmp_path)
