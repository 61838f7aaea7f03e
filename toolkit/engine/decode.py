"""Decode steps at the cost of their launches: recorded once for a batch's shape, then replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar

import numpy as np

from toolkit.devices.launching import KernelDevice
from toolkit.dtypes import INT32
from toolkit.models import Step

Made = TypeVar("Made")


class RecordedStep(Generic[Made]):
    """A forward pass over one token of each sequence, made once as usual and then any number of times as a replay.

    The step's arrays lie in one buffer on the device that never moves: each run copies the new step into it, all at
    once, and launches the same kernels again. What a run made is overwritten by the next.
    """

    def __init__(self, device: KernelDevice, step: Step, run: Callable[[Step], Made]) -> None:
        """``step`` holds host arrays; ``run`` takes a step on the device and returns arrays on the device."""
        self._device = device
        packed = _packed(step)
        self._inputs = device.zeros(packed.shape, INT32)
        device.write(self._inputs, packed)
        on_device = _unpacked(self._inputs, step)
        with device.recording() as self._recording:
            self._made = run(on_device)
        self._fresh = True

    def __call__(self, step: Step) -> Made:
        """What ``run`` makes of ``step``, whose arrays have the shapes of the first one's."""
        if self._fresh:  # the first run was the recording itself
            self._fresh = False
            return self._made
        self._device.write(self._inputs, _packed(step))
        self._recording.replay()
        return self._made


def _packed(step: Step) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.concatenate([getattr(step, field.name).reshape(-1) for field in fields(Step)])


def _unpacked(packed: Any, like: Step) -> Step:
    """The arrays of a step as views of ``packed``, in the shapes of ``like``."""
    views, start = {}, 0
    for field in fields(Step):
        shape, size = getattr(like, field.name).shape, getattr(like, field.name).size
        views[field.name] = packed[start : start + size].reshape(shape)
        start += size
    return Step(**views)
