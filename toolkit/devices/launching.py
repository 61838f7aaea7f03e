"""Devices that run kernels: choosing a provider, allocating outputs, and launching."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.devices.base import Device, NoKernel

if TYPE_CHECKING:
    import numpy as np

    from toolkit.ops.declare import Bound, Op, Provider


# An array becomes a pointer, an int a 32-bit integer, a float a 32-bit float; NumPy scalars keep their type.
Argument: TypeAlias = Any


@dataclass(frozen=True)
class Launch:
    """One kernel launch: entry point, blocks in x, y and z, and the arguments in the entry's order.

    The number of threads of a block belongs to the entry (kernels declare it), so it is not repeated here.
    """

    entry: str
    grid: tuple[int, ...]
    arguments: tuple[Argument, ...]


class KernelDevice(Device):
    """Runs an op by its first provider that applies. Nothing falls back: without one the op is refused by name."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array, to be filled by a kernel."""

    @abstractmethod
    def launch(self, file: str, launch: Launch) -> None:
        """Run one kernel of kernels/``file``."""

    def admits(self, op: Op[..., Any], provider: Provider) -> bool:
        """Whether this device lets ``provider`` be considered at all (a test pins one, a target lacks a unit)."""
        return True

    def select(self, op: Op[..., Any], bound: Bound) -> Provider:
        """The provider that will run ``op`` on these arguments; counted. Raises NoKernel when none applies."""
        for provider in op.providers:
            if self.admits(op, provider) and provider.when(**bound):
                self.statistics.selected(op.name, provider.name)
                return provider
            self.statistics.declined(op.name, provider.name)
        self.statistics.refused(op.name)
        tried = ", ".join(provider.name for provider in op.providers) or "it has no provider"
        where = "" if self.layer is None else f" (layer {self.layer})"
        raise NoKernel(
            f"no kernel of op {op.name}{where} on device {self.name} takes these arguments (tried: {tried}); "
            "run it on device reference or choose arguments that a provider accepts"
        )

    def run(self, op: Op[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = op.bind(args, kwargs)
        provider = self.select(op, bound)
        outputs = tuple(self.empty(spec.shape, spec.dtype) for spec in op.output_specs(bound))
        out: Any = outputs if len(outputs) > 1 else outputs[0] if outputs else None
        launches: Launch | Sequence[Launch] = provider.launches(out=out, **bound)
        for launch in launches if isinstance(launches, (list, tuple)) else (launches,):
            if all(launch.grid):
                self.launch(op.kernel, launch)
        return out
