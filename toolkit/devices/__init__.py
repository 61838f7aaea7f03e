"""Where arrays live and ops run: ``exact``, ``reference`` and its variations, ``cpu``, ``gpu``."""

from __future__ import annotations

from toolkit.devices.arithmetic import SUM_ORDERS
from toolkit.devices.base import Device
from toolkit.errors import ToolkitError

NAMES = ("exact", "reference", "cpu", "gpu")


def device(name: str) -> Device:
    """A new device: "exact", "reference", "reference[ORDER]" with an order of float32 sums, "cpu" or "gpu".

    Raises ToolkitError for any other name, and when the device's compiler, driver or hardware is missing.
    """
    from toolkit.devices import numpy_devices

    if name == "exact":
        return numpy_devices.exact()
    if name == "reference":
        return numpy_devices.reference()
    for order in SUM_ORDERS:
        if name == f"reference[{order}]":
            return numpy_devices.reference(order)
    if name == "cpu":
        from toolkit.devices.host import HostDevice

        return HostDevice()
    if name == "gpu":
        from toolkit.devices.gpu import GpuDevice

        return GpuDevice()
    orders = ", ".join(SUM_ORDERS)
    raise ToolkitError(
        f"unknown device {name!r}; known are {', '.join(NAMES)} and reference[ORDER] with ORDER of {orders}"
    )
