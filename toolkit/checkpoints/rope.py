"""Rotary position embeddings as configurations describe them: a base and, for long contexts, a scaling."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.checkpoints.keys import Keys
from toolkit.errors import ToolkitError

MAX_POSITIONS = 1 << 30


@dataclass(frozen=True)
class LinearScaling:
    """Every rotary frequency divided by ``factor`` (position interpolation)."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's scaling: long wavelengths divided by ``factor``, short ones kept, a ramp between them.

    With n = original_max_position_embeddings, a frequency f whose wavelength 2π/f is under n / high_freq_factor is
    kept, one over n / low_freq_factor is divided, and between the two it becomes f · ((1 - s) / factor + s) with
    s = (n · f / 2π - low_freq_factor) / (high_freq_factor - low_freq_factor).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


Scaling = LinearScaling | Llama3Scaling


@dataclass(frozen=True)
class Rope:
    """Frequency i of head_dim / 2 is theta ** (-2i / head_dim), then scaled if there is a ``scaling``."""

    theta: float
    scaling: Scaling | None = None


def one_for_all(keys: Keys, *, max_positions: int) -> Rope:
    """The one rotary embedding of Llama and Qwen3.

    Old style: "rope_theta" and "rope_scaling"; new style: both in "rope_parameters". The base is 10 000 by default.
    """
    old, new = keys.mapping("rope_scaling"), keys.mapping("rope_parameters")
    theta = keys.positive("rope_theta", 10_000.0)
    if old and new and old != new:
        raise _contradiction(keys, "rope_scaling", "rope_parameters")
    parameters = Keys(old or new or {}, f"{keys.where} ({'rope_scaling' if old else 'rope_parameters'})")
    if "full_attention" in parameters.data or "sliding_attention" in parameters.data:
        raise ToolkitError(f"{parameters.where}: a rotary embedding for each layer type is known for Gemma-3 only")
    return _rope(parameters, theta, "rope_theta" in keys.data, max_positions)


def global_and_local(keys: Keys, *, max_positions: int) -> dict[str, Rope]:
    """Gemma-3's two rotary embeddings, by layer type.

    Old style: "rope_theta" and "rope_scaling" for full attention, "rope_local_base_freq" for sliding attention; new
    style: "rope_parameters" with one object for each. The bases are 1 000 000 and 10 000 by default.
    """
    old, new = keys.mapping("rope_scaling"), keys.mapping("rope_parameters")
    if old and new:
        raise _contradiction(keys, "rope_scaling", "rope_parameters")
    nested = Keys(new or {}, f"{keys.where} (rope_parameters)")
    ropes = {}
    for layer_type, key, default in (
        ("full_attention", "rope_theta", 1_000_000.0),
        ("sliding_attention", "rope_local_base_freq", 10_000.0),
    ):
        parameters = Keys(nested.mapping(layer_type) or {}, f"{nested.where[:-1]}.{layer_type})")
        if old and layer_type == "full_attention":
            parameters = Keys(old, f"{keys.where} (rope_scaling)")
        ropes[layer_type] = _rope(parameters, keys.positive(key, default), key in keys.data, max_positions)
    nested.refuse_unknown("Gemma3ForCausalLM")
    return ropes


def _rope(keys: Keys, theta: float, theta_is_given: bool, max_positions: int) -> Rope:
    """The rotary embedding of ``keys``, with ``theta``, the outer object's base, where ``keys`` names none."""
    inner = keys.positive("rope_theta", theta)
    if theta_is_given and inner != theta:
        raise ToolkitError(f"{keys.where}: rope_theta is {inner} here and {theta} outside; correct one of them")
    rope = Rope(theta=inner, scaling=_scaling(keys, max_positions))
    keys.require_neutral("partial_rotary_factor", 1.0)
    keys.refuse_unknown("this kind of rotary embedding")
    return rope


def _scaling(keys: Keys, max_positions: int) -> Scaling | None:
    kind, old_kind = keys.text("rope_type"), keys.text("type")
    if kind is not None and old_kind is not None and kind != old_kind:
        raise _contradiction(keys, "rope_type", "type")
    match kind or old_kind or "default":
        case "default":
            return None
        case "linear":
            return LinearScaling(factor=_factor(keys))
        case "llama3":
            scaling = Llama3Scaling(
                factor=_factor(keys),
                low_freq_factor=keys.positive("low_freq_factor"),
                high_freq_factor=keys.positive("high_freq_factor"),
                original_max_position_embeddings=keys.integer(
                    "original_max_position_embeddings", max_positions, high=MAX_POSITIONS
                ),
            )
            if scaling.high_freq_factor <= scaling.low_freq_factor:
                raise keys.refuse("high_freq_factor", scaling.high_freq_factor, "greater than low_freq_factor")
            return scaling
        case other:
            raise ToolkitError(
                f"{keys.where}: the rotary scaling {other!r:.80} is not supported; "
                "supported are 'default', 'linear' and 'llama3'"
            )


def _factor(keys: Keys) -> float:
    factor = keys.positive("factor")
    if factor < 1:
        raise keys.refuse("factor", factor, "at least 1")
    return factor


def _contradiction(keys: Keys, one: str, other: str) -> ToolkitError:
    return ToolkitError(f'{keys.where}: "{one}" and "{other}" contradict each other; keep one of them')
