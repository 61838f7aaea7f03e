"""Recording what the stages of a model computed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from toolkit.devices.base import Device
from toolkit.models import Stage


class TapRecorder:
    """A tap that keeps a NumPy copy of every stage: ``values[layer, stage]`` is a list, one entry per forward pass.

    Values narrower than float32 are kept as float32, which holds them exactly. ``stages`` limits what is kept. Copies
    are taken at once, so that nothing the engine does later can change them.
    """

    def __init__(self, device: Device, stages: Collection[Stage] | None = None) -> None:
        self.device = device
        self.stages = stages
        self.values: dict[tuple[int, Stage], list[np.ndarray[Any, Any]]] = {}

    def __call__(self, layer: int, stage: Stage, value: Any) -> None:
        if self.stages is None or stage in self.stages:
            held = self.device.get(value)
            copy = np.array(held, held.dtype if held.dtype == np.float64 else np.float32)
            self.values.setdefault((layer, stage), []).append(copy)

    def joined(self) -> dict[tuple[int, Stage], np.ndarray[Any, Any]]:
        """The passes of each stage joined along their tokens, [tokens, features]."""
        return {key: parts[0] if len(parts) == 1 else np.concatenate(parts) for key, parts in self.values.items()}
