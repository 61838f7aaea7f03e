"""What a device is: where arrays live, and how an op is run on them."""

from __future__ import annotations

import atexit
import os
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from toolkit.ops.declare import Op

# DLPack's device types of memory on a GPU: CUDA, ROCm, CUDA managed.
DLPACK_GPUS = (2, 10, 13)

_current: ContextVar[Device | None] = ContextVar("device", default=None)


class NoKernel(ToolkitError):
    """An op has no kernel on a device, or none that applies to the arguments."""


@dataclass
class ProviderStatistics:
    """Which provider ran each op, how often each was selected or declined, and how often an op found none.

    ``TOOLKIT_OP_STATS=1`` prints a line when an op is first resolved and the counts at the end of the process.
    """

    device: str
    selections: Counter[tuple[str, str]] = field(default_factory=Counter)
    declines: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.loud = os.environ.get("TOOLKIT_OP_STATS") == "1"
        if self.loud:
            atexit.register(self.print_counts)

    def selected(self, op: str, provider: str) -> None:
        if self.loud and not any(known == op for known, _ in self.selections):
            print(f"[toolkit op] op={op} device={self.device} selected={provider}", file=sys.stderr)
        self.selections[op, provider] += 1

    def declined(self, op: str, provider: str) -> None:
        self.declines[op, provider] += 1

    def refused(self, op: str) -> None:
        self.refusals[op] += 1

    def print_counts(self) -> None:
        """The counts, one line per op and provider, on standard error."""
        for row in self.table():
            print(
                f"[toolkit op] op={row['op']} device={self.device} provider={row['provider']} "
                f"selections={row['selections']} declines={row['declines']}",
                file=sys.stderr,
            )
        print(f"[toolkit op] device={self.device} refusals={sum(self.refusals.values())} fallbacks=0", file=sys.stderr)

    def table(self) -> list[dict[str, Any]]:
        """The counts as rows, sorted by op and provider, for records."""
        return [
            {
                "op": op,
                "provider": provider,
                "selections": self.selections[op, provider],
                "declines": self.declines[op, provider],
            }
            for op, provider in sorted({*self.selections, *self.declines})
        ]


class Device(ABC):
    """A place where arrays live and ops run. ``with device:`` makes it the current one."""

    name: str
    layer: int | None = None
    """The decoder layer whose ops are running, for messages and for planted faults; None outside the layers."""

    def __init__(self) -> None:
        self.statistics = ProviderStatistics(self.name)
        self._tokens: list[Token[Device | None]] = []

    @abstractmethod
    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """The device's form of ``array``: a copy, or the array itself where that is the same thing."""

    @abstractmethod
    def get(self, array: Any) -> np.ndarray[Any, Any]:
        """A device array as a NumPy array."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array of zeros, to be written in place by ops."""

    @abstractmethod
    def run(self, op: Op[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``op``. Raises NoKernel when the device has no kernel for it."""

    def put_weight(self, array: np.ndarray[Any, Any]) -> Any:
        """``put`` for an array that will never be written: devices may keep other forms of it."""
        return self.put(array)

    def describe(self) -> dict[str, Any]:
        """Provenance: what this device is made of (compiler, versions, target), for records."""
        return {"device": self.name}

    def __enter__(self) -> Device:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())


def current_device(arguments: Iterable[Any] = ()) -> Device:
    """The device of the innermost ``with device:`` block.

    Outside of one: device gpu when one of ``arguments`` is an array on a GPU (CuPy's, or another library's that says so
    through DLPack), else the reference device.
    """
    device = _current.get()
    if device is not None:
        return device
    if any(_on_gpu(argument) for argument in arguments):
        from toolkit.devices.gpu import default_gpu

        return default_gpu()
    from toolkit.devices.numpy_devices import default_reference

    return default_reference()


def _on_gpu(argument: Any) -> bool:
    place = getattr(argument, "__dlpack_device__", None)
    return place is not None and place()[0] in DLPACK_GPUS
