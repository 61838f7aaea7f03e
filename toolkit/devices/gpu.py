"""Device ``gpu``: the kernel sources compiled by hipRTC or NVRTC and launched through CuPy."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.devices import kernels
from toolkit.devices.compile_options import amd_target, cuda_options, hip_options
from toolkit.devices.gpu_runtime import require_cupy
from toolkit.devices.launching import KernelDevice, Launch
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from toolkit.ops.declare import Op

# Two of these are the pinned host memory that weights pass through.
STAGING_BYTES = 32 << 20

SLOT_BYTES = 8

# The first compute capability whose matrix units take bfloat16.
CUDA_MATRIX_UNIT = 8


class GpuDevice(KernelDevice):
    """The kernels on the GPU that is CuPy's current device, an AMD or an NVIDIA one.

    Ops take CuPy arrays and any array that exports itself from that GPU through DLPack. Raises NoGpu when CuPy, a
    driver, a GPU or the compiler's surroundings are missing.
    """

    name = "gpu"

    def __init__(self) -> None:
        super().__init__()
        cupy = require_cupy()
        from cupy_backends.cuda.api import driver  # the launch call without CuPy's boxing of arguments

        self._cupy = cupy
        self._launch = driver.launchKernel
        self.is_hip: bool = cupy.cuda.runtime.is_hip
        self.index: int = cupy.cuda.Device().id
        self.properties: dict[str, Any] = cupy.cuda.runtime.getDeviceProperties(self.index)
        self.wave = int(self.properties["warpSize"])
        if self.is_hip:
            self.target = self.properties["gcnArchName"].decode()
            self.options = hip_options(amd_target(self.target))
            self.matrix_unit = amd_target(self.target).matrix_unit
        else:
            self.target = f"sm_{cupy.cuda.Device().compute_capability}"
            self.options = cuda_options()
            self.matrix_unit = int(self.properties["major"]) >= CUDA_MATRIX_UNIT
        self._modules: dict[str, Any] = {}
        self._entries: dict[str, tuple[int, int]] = {}
        self._functions: list[Any] = []
        self._staging: Staging | None = None
        cupy.cuda.runtime.free(0)  # makes the context, which launches do not

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        self.refuse_while_recording("put")
        return self._cupy.asarray(np.asarray(array, order="C"))

    def put_weight(self, array: np.ndarray[Any, Any]) -> Any:
        self.refuse_while_recording("put_weight")
        if self._staging is None:
            self._staging = Staging(self._cupy, STAGING_BYTES)
        target = self.empty(array.shape, array.dtype)
        self._staging.copy(np.asarray(array, order="C"), target)
        return target

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        self.refuse_while_recording("get")
        try:
            host: np.ndarray[Any, Any] = self._cupy.asnumpy(array)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise ToolkitError(
                f"a kernel failed on device gpu ({self.target}) before its result could be read: {error}; "
                "run again under compute-sanitizer (NVIDIA) or with AMD_LOG_LEVEL=3 to see which"
            ) from None
        return host

    def write(self, array: Any, values: np.ndarray[Any, Any]) -> None:
        self.refuse_while_recording("write")
        array.set(values)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        self.refuse_while_recording("zeros")
        return self._cupy.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self._cupy.empty(shape, dtype)

    def run(self, op: Op[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().run(
            op,
            tuple(self._own(op, value) for value in args),
            {name: self._own(op, value) for name, value in kwargs.items()},
        )

    def prepare(self, file: str, launch: Launch) -> tuple[Callable[[], object], Any]:
        function, threads = self._entry(file, launch.entry)
        arguments = Arguments(self._cupy.ndarray, launch)
        x, y, z = (*launch.grid, 1, 1)[:3]
        stream = self._cupy.cuda.get_current_stream().ptr
        no_shared, no_extra = 0, 0
        call = partial(self._launch, function, x, y, z, threads, 1, 1, no_shared, stream, arguments.address, no_extra)
        return call, arguments

    def synchronize(self) -> None:
        """Wait until everything that was launched on the current stream has run."""
        self._cupy.cuda.get_current_stream().synchronize()

    def source(self, file: str) -> str:
        """The text that is compiled for ``file``."""
        return kernels.source(file, wave=self.wave)

    def build_all(self) -> None:
        """Compile every kernel file now instead of at its first use."""
        for file in kernels.names():
            self._module(file)

    def describe(self) -> dict[str, Any]:
        from cupy_backends.cuda.libs import nvrtc

        runtime = self._cupy.cuda.runtime
        return {
            "device": self.name,
            "gpu": self.properties["name"].decode(),
            "target": self.target,
            "wave": self.wave,
            "matrix unit": self.matrix_unit,
            "platform": "HIP" if self.is_hip else "CUDA",
            "driver": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(),
            "compiler": "{} {}.{}".format("hipRTC" if self.is_hip else "NVRTC", *nvrtc.getVersion()),
            "cupy": self._cupy.__version__,
            "options": list(self.options),
            "kernels": kernels.sources_hash(),
        }

    def _own(self, op: Op[..., Any], value: Any) -> Any:
        """An argument as an op takes it: arrays of other libraries become CuPy's, without a copy."""
        if isinstance(value, self._cupy.ndarray):
            return value
        if isinstance(value, np.ndarray):
            raise ToolkitError(
                f"op {op.name} on device gpu was given a NumPy array ({value.dtype}{list(value.shape)}); "
                "put it on the device first: device.put(array)"
            )
        if hasattr(value, "__dlpack__"):
            try:
                return self._cupy.from_dlpack(value)
            except (BufferError, RuntimeError, ValueError) as error:
                raise ToolkitError(
                    f"op {op.name} on device gpu cannot take a {type(value).__name__}: {error}; move it to the GPU "
                    "that the device uses"
                ) from None
        return value

    def _module(self, file: str) -> Any:
        known = self._modules.get(file)
        if known is None:
            known = self._cupy.RawModule(code=self.source(file), options=self.options)
            try:
                known.compile()
            except self._cupy.cuda.compiler.CompileException as error:
                log = "\n".join(error.get_message().splitlines()[:20])
                raise ToolkitError(f"{file} does not compile for {self.target} on device gpu:\n{log}") from None
            except RuntimeError as error:
                # What CuPy raises when the compiler's library or ROCm's folder is not found.
                raise ToolkitError(f"device gpu cannot compile {file}: {error}; `toolkit doctor` tells more") from None
            self._modules[file] = known
        return known

    def _entry(self, file: str, name: str) -> tuple[int, int]:
        """A kernel's handle and its threads per block: the launch bound that its source declares."""
        known = self._entries.get(name)
        if known is None:
            try:
                kernel = self._module(file).get_function(name)
                known = (kernel.kernel.ptr, kernel.max_threads_per_block)
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise ToolkitError(f"{file} has no kernel entry {name} for device gpu ({error})") from None
            self._functions.append(kernel)
            self._entries[name] = known
        return known


class Arguments:
    """A launch's arguments as the driver takes them: an array of pointers, each to one value in a buffer of slots."""

    __slots__ = ("_pointers", "_values", "address")

    def __init__(self, array_type: Any, launch: Launch) -> None:
        packed = b"".join(_packed(array_type, launch.entry, argument) for argument in launch.arguments)
        self._values = ctypes.create_string_buffer(packed, len(packed))
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * len(launch.arguments))(*range(first, first + len(packed), SLOT_BYTES))
        self.address = ctypes.addressof(self._pointers)


def _packed(array_type: Any, entry: str, argument: Any) -> bytes:
    """One argument in a slot of SLOT_BYTES: an array as a pointer, numbers as the kernel's parameter holds them."""
    if isinstance(argument, array_type):
        if not argument.flags.c_contiguous:
            raise ToolkitError(
                f"kernel {entry} was given a {argument.dtype} array that is not contiguous; copy it first"
            )
        return struct.pack("=Q", argument.data.ptr)
    if argument is None:
        return bytes(SLOT_BYTES)
    if isinstance(argument, (bool, int, np.int32)):
        return struct.pack("=i4x", argument)
    if isinstance(argument, np.float64):  # before float, which it is too
        return struct.pack("=d", argument)
    if isinstance(argument, (float, np.float32)):
        return struct.pack("=f4x", argument)
    if isinstance(argument, np.int64):
        return struct.pack("=q", argument)
    if isinstance(argument, np.uint64):
        return struct.pack("=Q", argument)
    raise ToolkitError(f"kernel {entry} was given a {type(argument).__name__}, which no kernel takes")


class Staging:
    """Two pinned buffers through which large arrays go to the GPU, one filled while the other is sent.

    Anonymous host memory stays at these two buffers whatever is copied: a mapped file's pages are read straight into
    them. (HIP cannot pin the mapping itself.)
    """

    def __init__(self, cupy: Any, size: int) -> None:
        self._cupy = cupy
        self._size = size
        self._memory = [cupy.cuda.alloc_pinned_memory(size) for _ in range(2)]
        self._sent = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]

    def copy(self, source: np.ndarray[Any, Any], target: Any) -> None:
        """Fill ``target`` with the contiguous host array ``source``; returns when the source may be changed."""
        flat = source.reshape(-1).view(np.uint8)
        stream = self._cupy.cuda.get_current_stream()
        for number, start in enumerate(range(0, flat.size, self._size)):
            part = flat[start : start + self._size]
            memory, sent = self._memory[number % 2], self._sent[number % 2]
            sent.synchronize()
            np.frombuffer(memory, np.uint8, part.size)[:] = part
            (target.data + start).copy_from_host_async(ctypes.c_void_p(memory.ptr), part.size, stream)
            sent.record(stream)


@cache
def default_gpu() -> GpuDevice:
    """The device on which an op runs that is called on the GPU's arrays without ``with device:``."""
    return GpuDevice()
