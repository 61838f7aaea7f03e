"""Recording what the stages of a model computed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from toolkit.devices.base import Device
from toolkit.models import Stage


class TapRecorder:
    """A tap that keeps every stage as float64 NumPy copies: ``values[layer, stage]`` is a list, one per forward pass.

    ``stages`` limits what is kept. Copies are taken at once, so that nothing the engine does later can change them.
    """

    def __init__(self, device: Device, stages: Collection[Stage] | None = None) -> None:
        self.device = device
        self.stages = stages
        self.values: dict[tuple[int, Stage], list[np.ndarray[Any, Any]]] = {}

    def __call__(self, layer: int, stage: Stage, value: Any) -> None:
        if self.stages is None or stage in self.stages:
            copy = np.array(self.device.get(value), np.float64)
            self.values.setdefault((layer, stage), []).append(copy)

    def joined(self) -> dict[tuple[int, Stage], np.ndarray[Any, Any]]:
        """The passes of each stage joined along their tokens, [tokens, features]."""
        return {key: np.concatenate(parts) for key, parts in self.values.items()}
