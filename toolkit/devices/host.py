"""Device ``cpu``: the kernel sources built by a C++ compiler and run on the host."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.devices import kernels
from toolkit.devices.launching import KernelDevice, Launch
from toolkit.errors import ToolkitError

# Same arithmetic everywhere: no contraction, no reassociation. Nobody reads errno or the floating-point exception flags;
# keeping them would keep loops from becoming vector instructions.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-pthread",
    "-fvisibility=default",
)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command and the first line of its version, which is part of the cache's key."""

    command: tuple[str, ...]
    version: str


@cache
def compiler() -> Compiler:
    """$CXX, else c++, g++ or clang++ on PATH, else the one of the ziglang package. ToolkitError when there is none."""
    candidates = [tuple(os.environ["CXX"].split())] if os.environ.get("CXX") else []
    candidates += [(name,) for name in ("c++", "g++", "clang++") if shutil.which(name)]
    if find_spec("ziglang"):
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
    for command in candidates:
        try:
            said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            if os.environ.get("CXX"):
                raise ToolkitError(
                    f"CXX names {' '.join(command)!r}, which does not run; set CXX to a C++ compiler"
                ) from None
            continue
        return Compiler(command, said.stdout.splitlines()[0].strip() if said.stdout else "unknown")
    raise ToolkitError(
        "no C++ compiler for device cpu: install g++ or clang++, or `pip install ziglang`, or set CXX to a compiler"
    )


@cache
def architecture_flags() -> tuple[str, ...]:
    """The widest x86-64 level that this processor has. Results do not depend on it (see portable.h), speed does."""
    if platform.machine() != "x86_64":
        return ()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ()
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    zig = "ziglang" in compiler().command
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags:
        return ("-mcpu=x86_64_v4",) if zig else ("-march=x86-64-v4",)
    if {"avx2", "fma", "bmi2", "f16c"} <= flags:
        return ("-mcpu=x86_64_v3",) if zig else ("-march=x86-64-v3",)
    return ()


def cache_folder() -> Path:
    """Where built kernels are kept: $TOOLKIT_CACHE, else neartie-toolkit in the user's cache folder.

    A home that cannot be written is replaced by a private folder of this process's user under the temporary folder.
    """
    chosen = os.environ.get("TOOLKIT_CACHE")
    root = (
        Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neartie-toolkit"
    )
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError as error:
        if chosen:
            raise ToolkitError(
                f"TOOLKIT_CACHE={chosen} cannot be made: {error.strerror}; name a writable folder"
            ) from None
    if chosen:
        raise ToolkitError(f"TOOLKIT_CACHE={chosen} cannot be written; name a writable folder")
    private = Path(tempfile.gettempdir()) / f"neartie-toolkit-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.stat().st_uid != os.getuid():
        raise ToolkitError(f"{private} belongs to somebody else; set TOOLKIT_CACHE to a folder of your own")
    return private


class HostModule:
    """One kernel source as a loaded shared library."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._entries: dict[str, Any] = {}

    def entry(self, name: str) -> Any:
        known = self._entries.get(name)
        if known is None:
            try:
                known = getattr(self._library, name)
            except AttributeError:
                raise ToolkitError(f"kernel entry {name} is in no build for device cpu; its source lacks it") from None
            known.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
            known.restype = None
            self._entries[name] = known
        return known


def build(text: str, name: str, extra: tuple[str, ...] = ()) -> Path:
    """The shared library of one assembled source, from the cache or compiled now.

    The key covers the text, the compiler and the flags. The library is written under a temporary name and renamed, so
    that two processes building the same one, or one killed while building, leave nothing half-written behind.
    """
    using = compiler()
    flags = (*FLAGS, *architecture_flags(), *extra)
    key = hashlib.sha256("\0".join([text, *using.command, using.version, *flags]).encode()).hexdigest()[:32]
    folder = cache_folder() / "cpu"
    folder.mkdir(exist_ok=True)
    library = folder / f"{Path(name).stem}-{key}.so"
    if library.is_file():
        return library
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as work:
        source = Path(work) / f"{Path(name).stem}.cpp"
        source.write_text(text, encoding="utf-8")
        built = Path(work) / library.name
        command = [*using.command, *flags, "-shared", str(source), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shown = "\n".join(done.stderr.splitlines()[:20])
            raise ToolkitError(f"{using.command[0]} could not build {name} for device cpu:\n{shown}")
        os.replace(built, library)
    return library


class HostDevice(KernelDevice):
    """The kernels on the host. ``wave`` 64 runs them as a machine with 64-wide waves would."""

    def __init__(self, *, wave: int = 32, poison: bool = False) -> None:
        self.name = "cpu" if wave == 32 else f"cpu[wave{wave}]"
        super().__init__()
        self.wave = wave
        self._extra = ("-DHOST_POISON",) if poison else ()
        self._modules: dict[str, HostModule] = {}

    def put(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.refuse_while_recording("put")
        return np.ascontiguousarray(array)

    def get(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.refuse_while_recording("get")
        return array

    def write(self, array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        self.refuse_while_recording("write")
        array[...] = values

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        self.refuse_while_recording("zeros")
        return np.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def build_all(self) -> None:
        """Build every kernel file now, side by side, instead of at its first use."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(self.module, kernels.names()))

    def source(self, file: str) -> str:
        """The text that is compiled for ``file``."""
        return kernels.source(file, wave=self.wave)

    def module(self, file: str) -> HostModule:
        known = self._modules.get(file)
        if known is None:
            known = self._modules[file] = HostModule(build(self.source(file), file, self._extra))
        return known

    def prepare(self, file: str, launch: Launch) -> tuple[Callable[[], object], Any]:
        holders = [_holder(launch.entry, argument) for argument in launch.arguments]
        pointers = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
        x, y, z = (*launch.grid, 1, 1)[:3]
        return partial(self.module(file).entry(launch.entry), (ctypes.c_uint * 3)(x, y, z), pointers), holders

    def describe(self) -> dict[str, Any]:
        return {
            "device": self.name,
            "wave": self.wave,
            "compiler": compiler().version,
            "flags": [*FLAGS, *architecture_flags(), *self._extra],
            "kernels": kernels.sources_hash(),
        }


def _holder(entry: str, argument: Any) -> Any:
    """The argument as a ctypes object: its address is what the kernel reads."""
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise ToolkitError(
                f"kernel {entry} was given a {argument.dtype} array that is not contiguous; copy it first"
            )
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, (bool, int, np.int32)):
        return ctypes.c_int(int(argument))
    if isinstance(argument, np.float64):  # before float, which it is too
        return ctypes.c_double(float(argument))
    if isinstance(argument, (float, np.float32)):
        return ctypes.c_float(float(argument))
    if isinstance(argument, np.int64):
        return ctypes.c_longlong(int(argument))
    if isinstance(argument, np.uint64):
        return ctypes.c_ulonglong(int(argument))
    raise ToolkitError(f"kernel {entry} was given a {type(argument).__name__}, which no kernel takes")
