"""What a dense decoder is: config.json, in the old and the new key style, read into one frozen description.

A key that is absent takes the default of transformers' configuration class (``Qwen3Config``, ``LlamaConfig``,
``Gemma3TextConfig`` of 5.24). A key that is not known here may change the mathematics and is refused; so is a known one
with a value that nothing here computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolkit.checkpoints import rope, strict_json
from toolkit.checkpoints.keys import Keys
from toolkit.checkpoints.rope import Rope
from toolkit.errors import ToolkitError

LayerType = Literal["full_attention", "sliding_attention"]
Activation = Literal["silu", "gelu_tanh"]

MAX_LAYERS = 1024


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder, described fully: the model files compute from this and the weights alone."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    layer_types: tuple[LayerType, ...]
    # How many keys a row of a sliding layer sees, its own among them.
    sliding_window: int | None
    rope: Mapping[str, Rope]  # by layer type

    attention_scale: float
    attn_logit_softcapping: float | None
    final_logit_softcapping: float | None
    activation: Activation
    attention_bias: bool  # on q, k and v
    attention_output_bias: bool
    mlp_bias: bool

    qk_norm: bool  # RMS norms over each head of q and k, before the rotation
    sandwich_norms: bool  # norms after the mixer and after the MLP too, before each joins the residual stream
    norm_unit_offset: bool  # norms multiply by 1 + weight
    norm_narrow_before_weight: (
        bool  # the normed row is rounded to the model's dtype before the weight, not after it only
    )

    embedding_scale: float | None
    # What the scale is rounded to before it multiplies: transformers rounds it to the model's dtype.
    embedding_scale_dtype: Literal["model", "float32"]

    dtype: str | None  # as config.json names it; what the files hold is what counts
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    eos_is_default: bool = False  # config.json is silent: eos_token_ids is the architecture's default
    multimodal: bool = False  # the files hold a vision tower as well, and the decoder's tensors under a prefix

    def rope_of(self, layer: int) -> Rope:
        """The rotary embedding of ``layer``."""
        return self.rope[self.layer_types[layer]]

    def window_of(self, layer: int) -> int | None:
        """How many keys a row of ``layer`` sees at most, its own among them; None where it sees all before it."""
        return self.sliding_window if self.layer_types[layer] == "sliding_attention" else None


@dataclass(frozen=True)
class _Architecture:
    """What transformers' configuration class says when config.json does not."""

    model_type: str
    defaults: Mapping[str, Any]
    activation_key: str = "hidden_act"
    activation: str = "silu"
    # Keys of other families that files of this one carry, with the only value that changes nothing.
    neutral: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES: Mapping[str, _Architecture] = {
    "Qwen3ForCausalLM": _Architecture(
        model_type="qwen3",
        defaults={
            "vocab_size": 151_936,
            "hidden_size": 4096,
            "intermediate_size": 22_016,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        },
    ),
    "Gemma3ForCausalLM": _Architecture(
        model_type="gemma3_text",
        defaults={
            "vocab_size": 262_208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
            "bos_token_id": 2,
            "eos_token_id": 1,
            "pad_token_id": 0,
        },
        activation_key="hidden_activation",
        activation="gelu_pytorch_tanh",
        neutral={"use_bidirectional_attention": False},
    ),
    "LlamaForCausalLM": _Architecture(
        model_type="llama",
        defaults={
            "vocab_size": 32_000,
            "hidden_size": 4096,
            "intermediate_size": 11_008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": None,  # as many as query heads
            "head_dim": None,  # hidden_size / num_attention_heads
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": None,
        },
        neutral={"rope_interleaved": False, "sliding_window": None, "use_sliding_window": False},
    ),
}

# Gemma-3 with a vision tower: config.json holds the decoder under "text_config".
MULTIMODAL = "Gemma3ForConditionalGeneration"
_MODEL_TYPES = {name: kind.model_type for name, kind in ARCHITECTURES.items()} | {MULTIMODAL: "gemma3"}

# Names, training, generation and bookkeeping: nothing that a forward pass computes with.
_HARMLESS = frozenset(
    """
    architectures model_type transformers_version torch_dtype dtype _name_or_path name_or_path _model_name_or_path
    _commit_hash auto_map
    _attn_implementation _attn_implementation_autoset attn_implementation use_cache cache_implementation
    initializer_range attention_dropout output_attentions output_hidden_states return_dict return_dict_in_generate
    output_scores id2label label2id num_labels problem_type chunk_size_feed_forward pretraining_tp torchscript
    gradient_checkpointing tokenizer_class task_specific_params finetuning_task tie_last_hidden_states
    tf_legacy_loss use_bfloat16 is_llama_config transformers.js_config unsloth_fixed unsloth_version
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences exponential_decay_length_penalty suppress_tokens begin_suppress_tokens remove_invalid_values
    forced_bos_token_id forced_eos_token_id decoder_start_token_id sep_token_id unk_token_id prefix
    """.split()  # noqa: SIM905 - a list literal would be seventy lines
)
# Keys of every configuration, with the only value that means a decoder as described here.
_NEUTRAL: dict[str, Any] = {
    "is_encoder_decoder": False,
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_encoder_decoder": False,
    "cross_attention_hidden_size": None,
    "pruned_heads": {},
    "partial_rotary_factor": 1.0,
    "per_layer_config": None,
}
_MULTIMODAL_KEYS = frozenset(
    """
    text_config vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index boi_token_id
    eoi_token_id image_token_id quantization_config
    """.split()  # noqa: SIM905
)
# What the outer object says of the whole model holds for its decoder as well.
_SHARED_KEYS = ("tie_word_embeddings", "eos_token_id", "bos_token_id", "pad_token_id", "torch_dtype", "dtype")

_ACTIVATIONS: Mapping[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_DTYPES = ("bfloat16", "float16", "float32")


def read(path: Path) -> ModelConfig:
    """The configuration in the config.json at ``path``. Raises ToolkitError unless all of it is understood."""
    return parse(strict_json.read_object(path), where=str(path))


def parse(data: Mapping[str, Any], *, where: str) -> ModelConfig:
    """The configuration that ``data``, a config.json's object, describes; ``where`` names the file in errors."""
    architecture = _architecture(data, where)
    if architecture != MULTIMODAL:
        return _parse_decoder(Keys(data, where), architecture)
    outer = Keys(data, where)
    outer.known |= _HARMLESS | _MULTIMODAL_KEYS | set(_SHARED_KEYS)
    for key, neutral in _NEUTRAL.items():
        outer.require_neutral(key, neutral)
    outer.refuse_unknown(MULTIMODAL)
    text = dict(outer.mapping("text_config") or {})
    if text.setdefault("model_type", "gemma3_text") != "gemma3_text":
        raise ToolkitError(f"{where}: \"text_config\" is of type {text['model_type']!r:.80}, not 'gemma3_text'")
    tied = data.get("tie_word_embeddings")
    if tied is not None and text.get("tie_word_embeddings", tied) != tied:
        raise ToolkitError(f'{where}: two values of "tie_word_embeddings" contradict each other; keep one of them')
    text |= {key: data[key] for key in (*_SHARED_KEYS, "quantization_config") if data.get(key) is not None}
    return _parse_decoder(Keys(text, f"{where} (text_config)"), "Gemma3ForCausalLM", multimodal=True)


def refuse_float16(config: ModelConfig, dtype: str, *, where: str) -> None:
    """Raises ToolkitError when ``dtype`` is "float16" and the model is Gemma-3, whose activations exceed 65 504."""
    if config.architecture == "Gemma3ForCausalLM" and dtype == "float16":
        raise ToolkitError(
            f"{where}: Gemma-3's activations overflow float16 and turn into NaN; use bfloat16 or float32 weights and "
            "compute in bfloat16 or float32"
        )


def _architecture(data: Mapping[str, Any], where: str) -> str:
    listing = f"known are {', '.join(_MODEL_TYPES)}"
    model_type, names = data.get("model_type"), data.get("architectures")
    if names is None:
        names = [name for name, kind in _MODEL_TYPES.items() if kind == model_type]
        if not names:
            raise ToolkitError(f'{where}: "architectures" is missing and no "model_type" stands for it; {listing}')
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise ToolkitError(f'{where}: "architectures" must be a list of one name; {listing}')
    name: str = names[0]
    if name not in _MODEL_TYPES:
        raise ToolkitError(f"{where}: the architecture {name!r:.80} is unknown; {listing}")
    if model_type is not None and model_type != _MODEL_TYPES[name]:
        raise ToolkitError(
            f'{where}: "model_type" is {model_type!r:.80}, but {name} is of type {_MODEL_TYPES[name]!r}; correct one'
        )
    return name


def _parse_decoder(keys: Keys, architecture: str, *, multimodal: bool = False) -> ModelConfig:
    kind = ARCHITECTURES[architecture]
    default = kind.defaults
    gemma, llama = architecture == "Gemma3ForCausalLM", architecture == "LlamaForCausalLM"
    keys.known |= _HARMLESS
    if keys.take("quantization_config") is not None:
        raise ToolkitError(
            f'{keys.where}: the weights are quantised ("quantization_config"); use the model\'s bfloat16, float16 or '
            "float32 checkpoint, or a GGUF file"
        )
    for key, neutral in (_NEUTRAL | dict(kind.neutral)).items():
        keys.require_neutral(key, neutral)

    vocab_size = keys.integer("vocab_size", default["vocab_size"])
    hidden_size = keys.integer("hidden_size", default["hidden_size"])
    layers = keys.integer("num_hidden_layers", default["num_hidden_layers"], high=MAX_LAYERS)
    heads = keys.integer("num_attention_heads", default["num_attention_heads"])
    kv_heads = keys.optional_integer("num_key_value_heads", default["num_key_value_heads"]) or heads
    if heads % kv_heads:
        raise keys.refuse("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    head_dim = _head_dim(keys, default["head_dim"], hidden_size, heads)
    max_positions = keys.integer("max_position_embeddings", default["max_position_embeddings"], high=rope.MAX_POSITIONS)
    sliding_window, layer_types = _windows(keys, architecture, layers)
    if gemma:
        ropes = rope.global_and_local(keys, max_positions=max_positions)
    else:
        ropes = dict.fromkeys(sorted(set(layer_types)), rope.one_for_all(keys, max_positions=max_positions))
    attention_bias = keys.flag("attention_bias", False)

    config = ModelConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=keys.integer("intermediate_size", default["intermediate_size"]),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=keys.positive("rms_norm_eps", 1e-6),
        max_position_embeddings=max_positions,
        tie_word_embeddings=keys.flag("tie_word_embeddings", default["tie_word_embeddings"]),
        layer_types=layer_types,
        sliding_window=sliding_window,
        rope=ropes,
        attention_scale=(keys.positive("query_pre_attn_scalar", 256) if gemma else head_dim) ** -0.5,
        attn_logit_softcapping=keys.optional_positive("attn_logit_softcapping") if gemma else None,
        final_logit_softcapping=keys.optional_positive("final_logit_softcapping") if gemma else None,
        activation=_activation(keys, kind),
        attention_bias=attention_bias,
        attention_output_bias=attention_bias,
        mlp_bias=keys.flag("mlp_bias", False) if llama else False,
        qk_norm=not llama,
        sandwich_norms=gemma,
        norm_unit_offset=gemma,
        norm_narrow_before_weight=not gemma,
        embedding_scale=hidden_size**0.5 if gemma else None,
        embedding_scale_dtype="model",
        dtype=_dtype(keys),
        bos_token_id=keys.token("bos_token_id", default["bos_token_id"], vocab_size=vocab_size),
        eos_token_ids=keys.tokens("eos_token_id", default["eos_token_id"], vocab_size=vocab_size),
        pad_token_id=_pad(keys, default["pad_token_id"], vocab_size),
        eos_is_default="eos_token_id" not in keys.data,
        multimodal=multimodal,
    )
    keys.refuse_unknown(architecture)
    if config.dtype is not None:
        refuse_float16(config, config.dtype, where=keys.where)
    return config


def _head_dim(keys: Keys, default: int | None, hidden_size: int, heads: int) -> int:
    if default is None and keys.take("head_dim") is None:
        if hidden_size % heads:
            raise keys.refuse(
                "num_attention_heads", heads, f"a divisor of hidden_size ({hidden_size}) without head_dim"
            )
        head_dim = hidden_size // heads
    else:
        head_dim = keys.integer("head_dim", default)
    if head_dim % 2:
        raise keys.refuse("head_dim", head_dim, "even, since rotation works on pairs")
    return head_dim


def _windows(keys: Keys, architecture: str, layers: int) -> tuple[int | None, tuple[LayerType, ...]]:
    """The sliding window and every layer's type: as listed, else by the architecture's own rule."""
    window: int | None = None
    implied: list[LayerType] = ["full_attention"] * layers
    if architecture == "Qwen3ForCausalLM":
        given = keys.optional_integer("sliding_window", 4096, high=rope.MAX_POSITIONS)
        window = given if keys.flag("use_sliding_window", False) else None
        first_sliding = keys.integer("max_window_layers", 28, low=0)
        if window is not None:
            implied = ["full_attention" if layer < first_sliding else "sliding_attention" for layer in range(layers)]
    elif architecture == "Gemma3ForCausalLM":
        window = keys.optional_integer("sliding_window", 4096, high=rope.MAX_POSITIONS)
        period = keys.integer("sliding_window_pattern", 6, high=MAX_LAYERS)
        implied = ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)]
        # transformers saves the period under this name, beside the list that counts, and does not read it again.
        saved = keys.take("_sliding_window_pattern")
        if saved not in (None, period) and keys.take("layer_types") is None:
            raise keys.refuse("_sliding_window_pattern", saved, f"the period in use, {period}, or beside layer_types")

    listed = keys.take("layer_types")
    if listed is None:
        listed = implied
    if not isinstance(listed, list) or len(listed) != layers:
        raise keys.refuse("layer_types", listed, f"a list of {layers} names, one for each layer")
    types: list[LayerType] = []
    for layer, name in enumerate(listed):
        if name not in ("full_attention", "sliding_attention"):
            raise ToolkitError(
                f"{keys.where}: layer {layer} is of type {name!r:.80}, which is not supported; "
                "supported are 'full_attention' and 'sliding_attention'"
            )
        types.append(name)
    if "sliding_window_pattern" in keys.data and types != implied:
        raise ToolkitError(f'{keys.where}: "layer_types" and "sliding_window_pattern" contradict each other; keep one')
    if window is None and "sliding_attention" in types:
        raise ToolkitError(f"{keys.where}: a layer is sliding but no sliding_window is in use; state or enable it")
    return window, tuple(types)


def _activation(keys: Keys, kind: _Architecture) -> Activation:
    name = keys.text(kind.activation_key) or kind.activation
    if name not in _ACTIVATIONS:
        raise keys.refuse(kind.activation_key, name, f"one of {', '.join(_ACTIVATIONS)}")
    other = keys.text("hidden_act") or name
    if other != name:
        raise keys.refuse("hidden_act", other, f'what "{kind.activation_key}" says, {name!r}')
    return _ACTIVATIONS[name]


def _dtype(keys: Keys) -> str | None:
    new, old = keys.text("dtype"), keys.text("torch_dtype")
    if new is not None and old is not None and new != old:
        raise ToolkitError(f'{keys.where}: "dtype" is {new!r:.80} and "torch_dtype" {old!r:.80}; keep one of them')
    name = new or old
    if name is not None and name not in _DTYPES:
        raise keys.refuse("dtype" if new else "torch_dtype", name, f"one of {', '.join(_DTYPES)}")
    return name


def _pad(keys: Keys, default: int | None, vocab_size: int) -> int | None:
    if keys.take("pad_token_id", default) == -1:  # how early Llama conversions write "none"
        return None
    return keys.token("pad_token_id", default, vocab_size=vocab_size)
