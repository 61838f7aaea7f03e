"""Planting faults: the same checkpoint and device, with the defects in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.devices.base import Device
from toolkit.errors import ToolkitError
from toolkit.faults.fault import ChangedTensors, Fault

if TYPE_CHECKING:
    from toolkit.ops.declare import Op


class FaultyDevice(Device):
    """Another device, with faults at the ops that it runs."""

    def __init__(self, inner: Device, faults: Sequence[Fault]) -> None:
        self.inner = inner
        self.name = inner.name
        self.faults = faults
        super().__init__()
        self.statistics = inner.statistics

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        return self.inner.put(array)

    def put_weight(self, array: np.ndarray[Any, Any]) -> Any:
        return self.inner.put_weight(array)

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        return self.inner.get(array)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.inner.zeros(shape, dtype)

    def describe(self) -> dict[str, Any]:
        return {**self.inner.describe(), "planted faults": [fault.name for fault in self.faults]}

    def run(self, op: Op[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = dict(op.bind(args, kwargs))
        for fault in self.faults:
            if fault.arguments is not None:
                bound = fault.arguments(op.name, self.layer, bound)
        self.inner.layer = self.layer
        result = self.inner.run(op, (), bound)
        for fault in self.faults:
            if fault.result is not None:
                result = fault.result(op.name, self.layer, bound, result)
        return result


def plant(faults: Sequence[Fault], checkpoint: Checkpoint, device: Device) -> tuple[Checkpoint, Device]:
    """The checkpoint and the device with ``faults`` planted.

    Raises ToolkitError for a fault that cannot act on this model, so that none is ever planted in vain.
    """
    for fault in faults:
        if not fault.applies(checkpoint.config):
            raise ToolkitError(
                f"fault {fault.name} cannot act on {checkpoint.config.architecture} at {checkpoint.path}: {fault.what}; "
                "choose another fault or model"
            )
        if fault.config is not None:
            checkpoint = replace(checkpoint, config=fault.config(checkpoint.config))
        if fault.tensor is not None:
            checkpoint = replace(checkpoint, tensors=ChangedTensors(checkpoint.tensors, fault.tensor))
    at_ops = [fault for fault in faults if fault.arguments is not None or fault.result is not None]
    return checkpoint, FaultyDevice(device, at_ops) if at_ops else device
