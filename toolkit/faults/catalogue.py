"""The planted faults."""

from __future__ import annotations

from dataclasses import replace

from toolkit.checkpoints.config import ModelConfig
from toolkit.errors import ToolkitError
from toolkit.faults.fault import Bound, Fault

# Faults of "one layer" act in this one: late enough to be inside the model, early enough to be followed by others.
SUSPECT_LAYER = 3


def _two_rotary_bases(config: ModelConfig) -> bool:
    return len({rope.theta for rope in config.rope.values()}) > 1


def _swap_rotary_bases(config: ModelConfig) -> ModelConfig:
    full, sliding = config.rope["full_attention"], config.rope["sliding_attention"]
    return replace(config, rope={"full_attention": sliding, "sliding_attention": full})


def _has_layer(config: ModelConfig) -> bool:
    return config.layers > SUSPECT_LAYER


def _offset_lost(op: str, layer: int | None, bound: Bound) -> Bound:
    # Of a layer's norms over the whole hidden size, the first is the input norm.
    if op == "rms_norm" and layer == SUSPECT_LAYER and bound["unit_offset"] and bound["x"].ndim == 2:
        bound = {**bound, "unit_offset": False}
    return bound


def _raised_eps(op: str, layer: int | None, bound: Bound) -> Bound:
    if op == "rms_norm" and layer == SUSPECT_LAYER:
        bound = {**bound, "eps": bound["eps"] * 1000}
    return bound


def _head_size_derived(config: ModelConfig) -> bool:
    return _has_layer(config) and config.head_dim * config.heads != config.hidden_size


def _scale_of_derived_head_size(op: str, layer: int | None, bound: Bound) -> Bound:
    # Both models that have a head_dim of their own have a larger one than hidden_size / heads; half is common.
    if op == "paged_attention" and layer == SUSPECT_LAYER:
        bound = {**bound, "scale": bound["scale"] * 2**0.5}
    return bound


def _window_minus_one(config: ModelConfig) -> ModelConfig:
    assert config.sliding_window is not None
    return replace(config, sliding_window=config.sliding_window - 1)


CATALOGUE: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "rope-base-swapped",
            "local and global layers use each other's rotary base",
            "Gemma-3 ports that give every layer, or the wrong kind, one base",
            layer=0,
            op="rope_table",
            applies=_two_rotary_bases,
            config=_swap_rotary_bases,
        ),
        Fault(
            "norm-offset-lost",
            f"the norms of layer {SUSPECT_LAYER} multiply by w where the model says 1 + w",
            "Gemma weights run through a Llama norm",
            layer=SUSPECT_LAYER,
            op="rms_norm",
            applies=lambda config: config.norm_unit_offset and _has_layer(config),
            arguments=_offset_lost,
        ),
        Fault(
            "norm-eps",
            f"the norms of layer {SUSPECT_LAYER} use 1000 times the declared eps",
            "eps 1e-5 for 1e-6, and of the wrong configuration key",
            layer=SUSPECT_LAYER,
            op="rms_norm",
            applies=_has_layer,
            arguments=_raised_eps,
        ),
        Fault(
            "attention-scale",
            f"the attention of layer {SUSPECT_LAYER} scales by half the head size, as hidden_size / heads would give it",
            "engines that derive the head size of models which state their own",
            layer=SUSPECT_LAYER,
            op="paged_attention",
            applies=_head_size_derived,
            arguments=_scale_of_derived_head_size,
        ),
        Fault(
            "window-short-by-one",
            "sliding layers see one key fewer than the window",
            "windows that exclude the row itself",
            op="paged_attention",
            applies=lambda config: config.sliding_window is not None and "sliding_attention" in config.layer_types,
            config=_window_minus_one,
        ),
        Fault(
            "double-bos",
            "the prompt begins with its first token twice",
            "template and tokenizer each add a BOS",
            expected="not-comparable",
            prompt=lambda ids: [ids[0], *ids],
        ),
    )
}


def fault(name: str) -> Fault:
    """The fault called ``name``. Raises ToolkitError, listing the known ones, for any other name."""
    try:
        return CATALOGUE[name]
    except KeyError:
        raise ToolkitError(f"unknown fault {name!r}; `toolkit faults` lists them: {', '.join(CATALOGUE)}") from None
