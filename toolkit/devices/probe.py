"""What this machine has for each device, and the one thing to do for what it lacks."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolkit.devices import gpu_runtime, host, kernels
from toolkit.devices.compile_options import AMD_TARGETS, amd_target
from toolkit.emulator import hiprtc
from toolkit.emulator.errors import EmulatorError
from toolkit.errors import ToolkitError

NVIDIA = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class Finding:
    """``found`` is what is there; ``problem`` says, in one sentence, what is not and what to do about it."""

    what: str
    found: str
    problem: str = ""


def probe() -> list[Finding]:
    """Everything that decides which devices this machine can use. Nothing is installed, built or downloaded."""
    return [*_machine(), *_compilers(), *_cupy(), *_devices()]


def _machine() -> Iterator[Finding]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Finding(
        "machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB memory"
    )
    yield Finding("Python", platform.python_version())
    yield Finding("kernel sources", f"{len(kernels.names())} files in {kernels.folder()}")
    yield Finding("GPU device files", ", ".join(str(p) for p in (gpu_runtime.KFD, NVIDIA) if p.exists()) or "none")


def _compilers() -> Iterator[Finding]:
    try:
        yield Finding("C++ compiler", host.compiler().version)
    except ToolkitError as error:
        yield Finding("C++ compiler", "none", str(error))
    try:
        installed = hiprtc.system()
    except EmulatorError as error:
        yield Finding("ROCm's hipRTC", "broken", str(error))
    else:
        yield Finding("ROCm's hipRTC", f"{installed.version} in {installed.folder}" if installed else "none")
    chosen = os.environ.get(hiprtc.FOLDER_VARIABLE)
    pinned = f"${hiprtc.FOLDER_VARIABLE}: {chosen}" if chosen else "in the cache" if hiprtc.available() else ""
    yield Finding("hipRTC without a GPU", pinned or "not here yet; `toolkit kernels` downloads it once (88 MB)")


def _cupy() -> Iterator[Finding]:
    try:
        cupy = gpu_runtime.import_cupy()
    except gpu_runtime.NoGpu:
        yield Finding("CuPy", "not installed" if find_spec("cupy") is None else "does not load")
        return
    runtime = cupy.cuda.runtime
    yield Finding("CuPy", f"{cupy.__version__} for {'ROCm (HIP)' if runtime.is_hip else 'CUDA'}")
    yield _versions(runtime)
    if runtime.is_hip:
        yield from _rocm()
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        count = 0
    for index in range(count):
        yield _gpu(cupy, index)


def _versions(runtime: Any) -> Finding:
    from cupy_backends.cuda.libs import nvrtc

    try:
        driver = runtime.driverGetVersion()
        loaded = runtime.runtimeGetVersion()
        compiler = ".".join(map(str, nvrtc.getVersion()))
    except (runtime.CUDARuntimeError, RuntimeError) as error:
        return Finding("run-time libraries", "incomplete", f"CuPy's libraries do not answer: {error}")
    return Finding("run-time libraries", f"driver {driver}, runtime {loaded}, run-time compiler {compiler}")


def _rocm() -> Iterator[Finding]:
    yield Finding(str(gpu_runtime.KFD), gpu_runtime.kfd_problem() or "usable")
    hipcc = shutil.which("hipcc")
    yield Finding("hipcc", hipcc or "none", "" if hipcc else "add ROCm's bin folder (usually /opt/rocm/bin) to PATH")
    home = os.environ.get("ROCM_HOME")
    missing = home and not Path(home).is_dir()
    yield Finding(
        "ROCM_HOME", home or "not set", f"{home} does not exist: correct ROCM_HOME or unset it" if missing else ""
    )


def _gpu(cupy: Any, index: int) -> Finding:
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    memory = properties["totalGlobalMem"] / 2**30
    name, wave = properties["name"].decode(), properties["warpSize"]
    if not cupy.cuda.runtime.is_hip:
        return Finding(
            f"GPU {index}", f"{name}, sm_{properties['major']}{properties['minor']}, wave {wave}, {memory:.0f} GiB"
        )
    target = properties["gcnArchName"].decode()
    known = amd_target(target).processor in AMD_TARGETS
    problem = "" if known else f"no kernel was ever compiled for {target}: run `toolkit kernels --target {target}`"
    return Finding(f"GPU {index}", f"{name}, {target}, wave {wave}, {memory:.0f} GiB", problem)


def _devices() -> Iterator[Finding]:
    yield Finding("device reference", "ready")
    try:
        host.compiler()
        yield Finding("device cpu", "ready")
    except ToolkitError as error:
        yield Finding("device cpu", "not usable", str(error))
    try:
        gpu_runtime.require_cupy()
        yield Finding("device gpu", "ready")
    except gpu_runtime.NoGpu as error:
        yield Finding("device gpu", "not usable", _first_step(error))


def _first_step(error: ToolkitError) -> str:
    """What to do about device gpu: install the CuPy of the GPU that is there; nothing when none is."""
    if find_spec("cupy") is not None:
        return str(error)
    if gpu_runtime.KFD.exists():
        return "there is an AMD GPU: `pip install 'neartie-toolkit[rocm]'` (ROCm 7 must be installed)"
    if NVIDIA.exists():
        return "there is an NVIDIA GPU: `pip install 'neartie-toolkit[cuda]'`"
    return "there is no GPU here; devices exact, reference and cpu answer every question without one"
