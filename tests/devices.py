"""The kernel devices of this machine, as test parameters, their memory watched."""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Any

import numpy as np
import pytest

from toolkit.devices.gpu import GpuDevice
from toolkit.devices.gpu_runtime import NoGpu
from toolkit.devices.host import HostDevice

# Under a memory checker there are no bands, and an allocation for every array: it sees the first byte beside one.
BAND = 0 if os.environ.get("TOOLKIT_TEST_BANDS") == "0" else 256
POISON = 0xFF  # as float, NaN in every dtype; as an index, -1


class Guarded:
    """A device whose arrays lie between two bands that must stay as they are, in memory filled with NaN patterns.

    A kernel that leaves an element unwritten, or reads past an array, computes with NaN; one that writes past an array
    is caught by ``check_bands``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._guarded: list[tuple[Any, int]] = []

    def _block(self, size: int) -> Any:
        """Poisoned bytes on the device."""
        raise NotImplementedError

    def _within(self, block: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """The array that begins after the first band of ``block``."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        block = self._block(size + 2 * BAND)
        self._guarded.append((block, size))
        return self._within(block, shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.put(np.zeros(shape, dtype))

    def check_bands(self) -> None:
        """Fail when anything was written beside an array since the last check."""
        for block, size in self._guarded:
            held = self.get(block)  # type: ignore[attr-defined]
            beside = np.concatenate([held[:BAND], held[BAND + size :]])
            touched = np.flatnonzero(beside != POISON)
            assert not touched.size, f"{touched.size} bytes beside an array of {size} bytes were written"
        self._guarded.clear()


class GuardedHost(Guarded, HostDevice):
    """Device cpu; shared memory is poisoned too."""

    def _block(self, size: int) -> Any:
        return np.full(size, POISON, np.uint8)

    def _within(self, block: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.ndarray(shape, dtype, buffer=block, offset=BAND)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        held = self.empty(array.shape, array.dtype)
        held[...] = array
        return held


class GuardedGpu(Guarded, GpuDevice):
    """Device gpu."""

    def __init__(self) -> None:
        super().__init__()
        if not BAND:
            self._cupy.cuda.set_allocator(None)

    def _block(self, size: int) -> Any:
        block = self._cupy.empty(size, np.uint8)
        block.data.memset_async(POISON, size)
        return block

    def _within(self, block: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self._cupy.ndarray(shape, dtype, memptr=block.data + BAND)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        held = self.empty(array.shape, array.dtype)
        held.set(np.ascontiguousarray(array))
        return held


@cache
def guarded_host(wave: int) -> GuardedHost:
    return GuardedHost(wave=wave, poison=True)


@cache
def guarded_gpu() -> GuardedGpu | None:
    """The GPU of this machine, real or emulated, if CuPy sees one."""
    try:
        return GuardedGpu()
    except NoGpu:
        return None


def kernel_devices() -> list[Any]:
    devices = [pytest.param(guarded_host(32), id="cpu"), pytest.param(guarded_host(64), id="cpu-wave64")]
    if guarded_gpu() is not None:
        devices.append(pytest.param(guarded_gpu(), id="gpu", marks=pytest.mark.gpu))
    return devices
