"""config.json: defaults equal to transformers', old and new key style alike, everything else refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.folders import GEMMA3, LLAMA, QWEN3
from toolkit.checkpoints import LinearScaling, Llama3Scaling, ModelConfig, Rope, config
from toolkit.errors import ToolkitError


def parse(base: dict[str, Any], **changes: Any) -> ModelConfig:
    return config.parse(base | changes, where="config.json")


def refused(base: dict[str, Any], *words: str, **changes: Any) -> None:
    with pytest.raises(ToolkitError) as caught:
        parse(base, **changes)
    message = str(caught.value)
    assert message.startswith("config.json")
    assert "\n" not in message
    for word in words:
        assert word in message


# Published configurations (licence-free facts), as their authors wrote them.
QWEN3_0_6B = {
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
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GEMMA3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
}
LLAMA_3_2_1B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def test_qwen3() -> None:
    found = parse(QWEN3_0_6B)
    assert (found.layers, found.heads, found.kv_heads, found.head_dim) == (28, 16, 8, 128)
    assert set(found.layer_types) == {"full_attention"}
    assert [found.window_of(layer) for layer in range(28)] == [None] * 28
    assert found.rope_of(0) == Rope(1e6)
    assert found.attention_scale == 128**-0.5
    assert found.qk_norm
    assert found.norm_narrow_before_weight
    assert not found.sandwich_norms
    assert not found.norm_unit_offset
    assert found.embedding_scale is None
    assert found.eos_token_ids == (151645,)
    assert found.dtype == "bfloat16"


def test_gemma3() -> None:
    found = parse(GEMMA3_1B)
    assert [layer for layer in range(26) if found.layer_types[layer] == "full_attention"] == [5, 11, 17, 23]
    assert found.window_of(4) == 512
    assert found.window_of(5) is None
    assert found.rope_of(4) == Rope(1e4)
    assert found.rope_of(5) == Rope(1e6)
    assert found.attention_scale == 0.0625
    assert found.embedding_scale == 1152**0.5
    assert found.embedding_scale_dtype == "model"
    assert found.activation == "gelu_tanh"
    assert found.tie_word_embeddings
    assert found.sandwich_norms
    assert found.norm_unit_offset
    assert not found.norm_narrow_before_weight
    assert found.eos_token_ids == (1, 106)


def test_llama() -> None:
    found = parse(LLAMA_3_2_1B)
    assert found.rope_of(0) == Rope(5e5, Llama3Scaling(32.0, 1.0, 4.0, 8192))
    assert not found.qk_norm
    assert found.activation == "silu"
    assert found.head_dim == 64


# What transformers 5.24 has where config.json names the architecture and nothing else.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3ForCausalLM", (151936, 4096, 22016, 32, 32, 32, 128, 1e-6, 32768, False, None, (), None)),
        ("LlamaForCausalLM", (32000, 4096, 11008, 32, 32, 32, 128, 1e-6, 2048, False, 1, (2,), None)),
        ("Gemma3ForCausalLM", (262208, 2304, 9216, 26, 8, 4, 256, 1e-6, 131072, True, 2, (1,), 0)),
    ],
)
def test_defaults_are_those_of_transformers(name: str, expected: tuple[Any, ...]) -> None:
    found = parse({"architectures": [name]})
    assert expected == (
        found.vocab_size,
        found.hidden_size,
        found.intermediate_size,
        found.layers,
        found.heads,
        found.kv_heads,
        found.head_dim,
        found.rms_norm_eps,
        found.max_position_embeddings,
        found.tie_word_embeddings,
        found.bos_token_id,
        found.eos_token_ids,
        found.pad_token_id,
    )
    assert found.dtype is None
    assert found.eos_is_default
    if name == "Gemma3ForCausalLM":
        assert found.sliding_window == 4096
        assert found.rope == {"full_attention": Rope(1e6), "sliding_attention": Rope(1e4)}
        assert found.layer_types == tuple(
            "full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(26)
        )
    else:
        assert found.rope == {"full_attention": Rope(1e4)}


def test_old_and_new_key_style_mean_the_same() -> None:
    new_qwen3 = {key: value for key, value in QWEN3_0_6B.items() if key not in ("rope_theta", "rope_scaling")}
    new_qwen3 |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000}, "layer_types": None}
    new_qwen3["dtype"] = new_qwen3.pop("torch_dtype")
    new_qwen3["layer_types"] = ["full_attention"] * 28
    assert parse(new_qwen3) == parse(QWEN3_0_6B)

    drop = ("rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern", "torch_dtype")
    new_gemma = {key: value for key, value in GEMMA3_1B.items() if key not in drop}
    new_gemma |= {
        "dtype": "bfloat16",
        "_sliding_window_pattern": 6,
        "layer_types": ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(26)],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000000},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
        },
    }
    assert parse(new_gemma) == parse(GEMMA3_1B)

    new_llama = {key: value for key, value in LLAMA_3_2_1B.items() if key not in ("rope_theta", "rope_scaling")}
    new_llama["rope_parameters"] = {"rope_theta": 500000.0, **LLAMA_3_2_1B["rope_scaling"]}  # type: ignore[dict-item]
    assert parse(new_llama) == parse(LLAMA_3_2_1B)


def test_gemma3_scales_only_the_global_rope() -> None:
    found = parse(GEMMA3, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert found.rope["full_attention"] == Rope(1e6, LinearScaling(8.0))
    assert found.rope["sliding_attention"] == Rope(1e4)


def test_multimodal_gemma3_is_its_decoder() -> None:
    outer = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "eos_token_id": [1, 106],
        "mm_tokens_per_image": 256,
        "boi_token_index": 255999,
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1152},
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    }
    found = parse(outer)
    assert found.architecture == "Gemma3ForCausalLM"
    assert found.multimodal
    assert found.eos_token_ids == (1, 106)
    assert found.dtype == "bfloat16"
    assert found.rope["full_attention"] == Rope(1e6, LinearScaling(8.0))
    refused(outer, "surprise", "Gemma3ForConditionalGeneration", surprise=1)
    refused(outer, "text_config", "object", text_config=[])
    refused(outer, "text_config", "'gemma2'", text_config={"model_type": "gemma2"})
    refused(outer, "tie_word_embeddings", tie_word_embeddings=False, text_config={"tie_word_embeddings": True})
    refused(outer, "quantised", quantization_config={"bits": 4})


def test_qwen3_windows_are_those_of_transformers() -> None:
    found = parse(QWEN3, use_sliding_window=True, sliding_window=128, max_window_layers=1)
    assert found.layer_types == ("full_attention", "sliding_attention")
    assert (found.window_of(0), found.window_of(1)) == (None, 128)
    assert parse(QWEN3, use_sliding_window=False, sliding_window=128, max_window_layers=0).sliding_window is None
    assert parse(QWEN3, use_sliding_window=True).layer_types == ("full_attention",) * 2  # 28 full ones by default


def test_llama3_scaling_takes_its_original_length_from_the_model_by_default() -> None:
    scaling = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
    found = parse(LLAMA, rope_scaling=scaling, max_position_embeddings=9000)
    assert found.rope_of(0).scaling == Llama3Scaling(8.0, 1.0, 4.0, 9000)


def test_biases() -> None:
    found = parse(LLAMA, attention_bias=True, mlp_bias=True)
    assert (found.attention_bias, found.attention_output_bias, found.mlp_bias) == (True, True, True)
    assert not parse(QWEN3).attention_bias
    refused(QWEN3, "mlp_bias", "not known", mlp_bias=True)


def test_early_llama_conversions_write_no_padding_as_minus_one() -> None:
    assert parse(LLAMA, pad_token_id=-1).pad_token_id is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MambaForCausalLM"]}, ["MambaForCausalLM", "unknown", "Qwen3ForCausalLM"]),
        ({"architectures": []}, ["architectures", "one name"]),
        ({"architectures": "Qwen3ForCausalLM"}, ["architectures", "list"]),
        ({"architectures": None, "model_type": "bert"}, ["architectures", "model_type"]),
        ({"model_type": "llama"}, ["'llama'", "Qwen3ForCausalLM"]),
        ({"hidden_size": 0}, ["hidden_size", "0"]),
        ({"hidden_size": 1 << 40}, ["hidden_size", str(1 << 40)]),
        ({"hidden_size": "16"}, ["hidden_size", "'16'"]),
        ({"hidden_size": 16.0}, ["hidden_size"]),
        ({"hidden_size": True}, ["hidden_size", "True"]),
        ({"vocab_size": -1}, ["vocab_size"]),
        ({"num_hidden_layers": 10**6}, ["num_hidden_layers", "1024"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads", "divisor"]),
        ({"head_dim": 7}, ["head_dim", "even"]),
        ({"head_dim": None}, ["head_dim"]),
        ({"rms_norm_eps": 0}, ["rms_norm_eps", "above zero"]),
        ({"rms_norm_eps": -1e-6}, ["rms_norm_eps"]),
        ({"rms_norm_eps": 1e300}, ["rms_norm_eps"]),
        ({"rms_norm_eps": None}, ["rms_norm_eps"]),
        ({"rope_theta": 0}, ["rope_theta"]),
        ({"rope_theta": [1]}, ["rope_theta"]),
        ({"tie_word_embeddings": 1}, ["tie_word_embeddings", "true or false"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "'gelu'", "silu"]),
        ({"torch_dtype": "float8"}, ["torch_dtype", "float8", "bfloat16"]),
        ({"torch_dtype": "bfloat16", "dtype": "float32"}, ["dtype", "torch_dtype"]),
        ({"quantization_config": {"quant_method": "fp8"}}, ["quantised", "quantization_config"]),
        ({"residual_multiplier": 0.22}, ["residual_multiplier", "not known", "mathematics"]),
        ({"final_logit_softcapping": 30.0}, ["final_logit_softcapping", "not known"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5", "1.0"]),
        ({"is_encoder_decoder": True}, ["is_encoder_decoder"]),
        ({"layer_types": ["full_attention"]}, ["layer_types", "2 names"]),
        ({"layer_types": "full_attention"}, ["layer_types"]),
        ({"layer_types": ["full_attention", "linear_attention"]}, ["layer 1", "'linear_attention'"]),
        ({"layer_types": ["full_attention", ["full_attention"]]}, ["layer 1"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, ["sliding_window"]),
        ({"use_sliding_window": True, "sliding_window": 0}, ["sliding_window"]),
        ({"max_window_layers": None}, ["max_window_layers"]),
        ({"eos_token_id": 40}, ["eos_token_id", "40"]),
        ({"eos_token_id": [1, -2]}, ["eos_token_id"]),
        ({"eos_token_id": "1"}, ["eos_token_id"]),
        ({"bos_token_id": 40}, ["bos_token_id"]),
        ({"pad_token_id": -2}, ["pad_token_id"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ["rope_scaling", "'yarn'", "llama3"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, ["'dynamic'"]),
        ({"rope_scaling": {"rope_type": "longrope"}}, ["'longrope'"]),
        ({"rope_scaling": {"rope_type": "linear", "type": "llama3", "factor": 2.0}}, ["rope_type", "type"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["factor"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, ["factor", "at least 1"]),
        ({"rope_scaling": {"rope_type": "default", "factor": 2.0}}, ["factor", "not known"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2, "attention_factor": 1.5}}, ["attention_factor"]),
        ({"rope_scaling": [2.0]}, ["rope_scaling", "object"]),
        ({"rope_scaling": {"rope_type": 3}}, ["rope_type", "string"]),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
            ["high_freq_factor", "low_freq_factor"],
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"}},
            ["rope_scaling", "rope_parameters"],
        ),
        ({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}, ["rope_theta", "1000000.0", "10000.0"]),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, ["Gemma-3 only"]),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, ["partial_rotary_factor"]),
    ],
)
def test_refusals(changes: dict[str, Any], words: list[str]) -> None:
    refused(QWEN3, *words, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch_dtype": "float16"}, ["float16", "overflow", "bfloat16"]),
        ({"use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
        ({"sliding_window": None}, ["sliding_window"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, ["layer_types", "sliding_window_pattern"]),
        ({"sliding_window_pattern": None, "_sliding_window_pattern": 3}, ["sliding_window_pattern"]),
        ({"sliding_window_pattern": 0}, ["sliding_window_pattern"]),
        ({"query_pre_attn_scalar": 0}, ["query_pre_attn_scalar"]),
        ({"final_logit_softcapping": -1.0}, ["final_logit_softcapping"]),
        ({"hidden_activation": "gelu"}, ["hidden_activation", "gelu_pytorch_tanh"]),
        ({"hidden_act": "silu"}, ["hidden_act", "hidden_activation"]),
        ({"rope_parameters": {"rope_type": "default"}}, ["rope_parameters", "rope_type"]),
        ({"rope_parameters": {"full_attention": 3}}, ["full_attention", "object"]),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}, "rope_scaling": {"rope_type": "default"}},
            ["rope_scaling", "rope_parameters"],
        ),
        ({"rope_local_base_freq": 1e4, "rope_parameters": {"sliding_attention": {"rope_theta": 2e4}}}, ["20000.0"]),
    ],
)
def test_gemma3_refusals(changes: dict[str, Any], words: list[str]) -> None:
    refused(GEMMA3, *words, **changes)


def test_gemma3_period_saved_beside_the_list_is_not_read_again() -> None:
    listed = GEMMA3 | {"layer_types": ["full_attention", "sliding_attention"], "_sliding_window_pattern": 6}
    del listed["sliding_window_pattern"]
    assert parse(listed).layer_types == ("full_attention", "sliding_attention")
    del listed["layer_types"]
    assert parse(listed).layer_types == ("sliding_attention",) * 2
    refused(listed, "_sliding_window_pattern", _sliding_window_pattern=2)


def test_llama_needs_a_head_dim_where_the_heads_do_not_divide_the_width() -> None:
    assert parse(LLAMA, num_attention_heads=6, num_key_value_heads=3, head_dim=8).head_dim == 8
    refused(LLAMA, "num_attention_heads", "head_dim", num_attention_heads=6, num_key_value_heads=3)


def test_llama_refuses_a_window_it_would_not_use() -> None:
    refused(LLAMA, "sliding_window", sliding_window=4096)
    refused(LLAMA, "rope_interleaved", rope_interleaved=True)
    assert parse(LLAMA, sliding_window=None, rope_interleaved=False) == parse(LLAMA)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["not valid JSON"]),
        (b"{", ["not valid JSON"]),
        (b"[]", ["list", "object"]),
        (b'{"vocab_size": NaN}', ["NaN"]),
        (b'{"rope_theta": -Infinity}', ["-Infinity"]),
        (b'{"rope_theta": 1e999}', ["1e999", "too large"]),
        (b'{"vocab_size": 1, "vocab_size": 2}', ["vocab_size", "twice"]),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", ["not valid JSON"]),
        (b'{"a": "\xff"}', ["UTF-8", "byte 7"]),
        (b"[" * 100_000, ["nested"]),
        (b" " * (9 << 20), ["longer than"]),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ToolkitError) as caught:
        config.read(path)
    for word in ["config.json", *words]:
        assert word in str(caught.value)


def test_missing_file_folder_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="does not exist"):
        config.read(tmp_path / "config.json")
    with pytest.raises(ToolkitError, match="is not a file"):
        config.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolkitError, match="not a file"):
        config.read(tmp_path / "pipe")


def test_surrogates_in_names_do_not_break_the_message(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3 | {"\ud800": 1}))
    with pytest.raises(ToolkitError) as caught:
        config.read(path)
    assert "\\ud800" in str(caught.value)
    str(caught.value).encode()
