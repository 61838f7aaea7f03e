"""The kernel devices of this machine, as test parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from toolkit.devices.host import HostDevice


@cache
def _host(wave: int) -> HostDevice:
    # Poisoned shared memory: a read before the first write shows as NaN.
    return HostDevice(wave=wave, poison=True)


def kernel_devices() -> list[Any]:
    return [pytest.param(_host(32), id="cpu"), pytest.param(_host(64), id="cpu-wave64")]
