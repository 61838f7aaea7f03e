"""Devices that run kernels: choosing a provider, allocating outputs, and launching."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.devices.base import Device, NoKernel
from toolkit.devices.recording import Recording

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

    matrix_unit = False
    """Whether the device multiplies matrices in hardware."""

    def __init__(self) -> None:
        super().__init__()
        self._recording: Recording | None = None

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An uninitialised array, to be filled by a kernel."""

    @abstractmethod
    def write(self, array: Any, values: np.ndarray[Any, Any]) -> None:
        """Replace the contents of a device array."""

    @abstractmethod
    def prepare(self, file: str, launch: Launch) -> tuple[Callable[[], object], Any]:
        """A call that runs one kernel of kernels/``file``, any number of times, and what must be kept alive for it."""

    def launch(self, file: str, launch: Launch) -> None:
        """Run one kernel of kernels/``file``."""
        call, kept = self.prepare(file, launch)
        call()
        if self._recording is not None:
            self._recording.add(call, kept, launch)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Keep every launch of the block, which runs as usual, for replaying.

        Moving data between host and device inside the block is refused: a replay would not repeat it.
        """
        if self._recording is not None:
            raise RuntimeError("a recording is already being made")
        before = Counter(self.statistics.selections), Counter(self.statistics.declines)
        self._recording = made = Recording(self.statistics)
        try:
            yield made
        finally:
            self._recording = None
            made.selections = self.statistics.selections - before[0]
            made.declines = self.statistics.declines - before[1]

    def refuse_while_recording(self, what: str) -> None:
        """For what a replay would leave out. Raises RuntimeError while a recording is made."""
        if self._recording is not None:
            raise RuntimeError(f"{what} while launches are recorded: a replay would leave it out")

    def admits(self, op: Op[..., Any], provider: Provider) -> bool:
        """Whether this device lets ``provider`` be considered at all."""
        return self.matrix_unit or not provider.matrix_unit

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
