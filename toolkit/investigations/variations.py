"""The legitimate variations of the reference: what honest engines differ in. Together they are the noise floor."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolkit.checkpoints.config import ModelConfig
from toolkit.devices.arithmetic import SUM_ORDERS, SumOrder
from toolkit.models import RoundingPoints


@dataclass(frozen=True)
class Variation:
    """The reference with float32 sums in ``sum_order`` (None: float64 sums) and other rounding points."""

    name: str
    sum_order: SumOrder | None = None
    rounding: RoundingPoints = field(default_factory=RoundingPoints)


def variations(config: ModelConfig) -> tuple[Variation, ...]:
    """Every variation that can differ from the reference on this model.

    Six orders of float32 sums, and the families of rounding points: the norms' cast order, the dtype of cos and sin,
    products of the rotation rounded before they are added, attention probabilities in the model's dtype, the embedding
    scale kept in float32, and a float32 head.
    """
    found = [Variation(f"sums {order}", sum_order=order) for order in SUM_ORDERS]
    found += [
        Variation(
            "norm cast order",
            rounding=RoundingPoints(norm_narrow_before_weight=not config.norm_narrow_before_weight),
        ),
        Variation("cos and sin in float32", rounding=RoundingPoints(rope_dtype="float32")),
        Variation("rotation products rounded", rounding=RoundingPoints(narrow_rope_products=True)),
        Variation("probabilities rounded", rounding=RoundingPoints(narrow_probabilities=True)),
        Variation("float32 head", rounding=RoundingPoints(head_dtype="float32")),
    ]
    if config.embedding_scale is not None:
        kept = config.embedding_scale_dtype == "float32"
        scale = RoundingPoints(embedding_scale_dtype="model" if kept else "float32")
        found.append(Variation("embedding scale dtype", rounding=scale))
    return tuple(found)
