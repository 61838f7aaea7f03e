"""An emulated GPU in this process, through the stand-in HIP runtime: for tests and tools that need no CuPy.

Every array gets an allocation of its own, which ends at a page without access.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import build, environment
from .errors import EmulatorError

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class KernelError(EmulatorError):
    """A kernel stopped: memory fault, data race, unknown instruction. The message names kernel, block and instruction."""

    exit_code = 1


@functools.cache
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.runtime() / "libamdhip64.so.7"))
    lib.hipGetErrorString.restype = ctypes.c_char_p
    return lib


def _check(status: int) -> None:
    if status:
        lib = _library()
        text = lib.hipGetErrorString(status).decode()
        lib.hipGetLastError()
        raise KernelError(text)


class Device:
    """One emulated GPU.

    Args:
        target: for example "gfx1200".
        order: of a block's waves: "forward", "reversed" or "random:SEED" (time slices).
        lds: "strict" reports data races and uninitialised words in LDS, "races" only races, "off" neither.
        threads: host threads that run blocks, 0 = one for each core.

    Raises:
        EmulatorError: the target is not emulated, or the emulator cannot be built here.
    """

    def __init__(self, target: str, *, order: str = "forward", lds: str = "strict", threads: int = 0) -> None:
        self.target = target
        self._settings = environment.variables(target) | {
            "NEARTIE_EMULATOR_ORDER": order,
            "NEARTIE_EMULATOR_LDS": lds,
            "NEARTIE_EMULATOR_THREADS": str(threads),
            "NEARTIE_EMULATOR_QUIET": "1",
        }
        self._lib = _library()

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        mine = {name: value for name, value in self._settings.items() if name.startswith("NEARTIE_EMULATOR_")}
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def load(self, code: bytes) -> Module:
        """Load a code object.

        Raises:
            KernelError: it is for another target, or cannot be translated.
        """
        handle = ctypes.c_void_p()
        image = ctypes.create_string_buffer(code, len(code))
        with self._active():
            _check(self._lib.hipModuleLoadData(ctypes.byref(handle), image))
        return Module(self, handle)


class Module:
    """A loaded code object."""

    def __init__(self, device: Device, handle: ctypes.c_void_p) -> None:
        self._device, self._handle = device, handle

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: np.ndarray[Any, Any] | np.generic,
        shared: int = 0,
    ) -> None:
        """Run ``kernel`` on ``grid`` blocks of ``block`` threads.

        Arrays (C order) are passed as pointers to device copies, and hold what the kernel left there afterwards; NumPy
        scalars are passed by value.

        Raises:
            KernelError: the kernel does not exist or stopped.
        """
        lib, function = self._device._lib, ctypes.c_void_p()
        _check(lib.hipModuleGetFunction(ctypes.byref(function), self._handle, kernel.encode()))
        buffers: dict[int, tuple[np.ndarray[Any, Any], ctypes.c_void_p]] = {}
        values: list[Any] = []
        try:
            for argument in arguments:
                if not isinstance(argument, np.ndarray):
                    values.append(ctypes.create_string_buffer(argument.tobytes()))
                    continue
                if not argument.flags.c_contiguous:
                    raise EmulatorError("arrays for a kernel are in C order")
                if id(argument) not in buffers:
                    pointer = ctypes.c_void_p()
                    _check(lib.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(argument.nbytes, 1))))
                    buffers[id(argument)] = argument, pointer
                    self._copy(pointer, argument.ctypes.data, argument.nbytes, HOST_TO_DEVICE)
                values.append(buffers[id(argument)][1])
            addresses = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
            sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block)), shared]
            with self._device._active():
                _check(lib.hipModuleLaunchKernel(function, *map(ctypes.c_uint, sizes), None, addresses, None))
            for array, pointer in buffers.values():
                if array.flags.writeable:
                    self._copy(array.ctypes.data, pointer, array.nbytes, DEVICE_TO_HOST)
        finally:
            for _, pointer in buffers.values():
                lib.hipFree(pointer)

    def _copy(self, to: Any, origin: Any, size: int, kind: int) -> None:
        pointer = ctypes.c_void_p
        to, origin = (value if isinstance(value, pointer) else pointer(value) for value in (to, origin))
        _check(self._device._lib.hipMemcpy(to, origin, ctypes.c_size_t(size), kind))
