"""CuPy and what it needs to drive a GPU: found, or one sentence that says what is missing and what to do."""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError

KFD = Path("/dev/kfd")
INSTALL = "`pip install 'neartie-toolkit[rocm]'` for an AMD GPU or `pip install 'neartie-toolkit[cuda]'` for NVIDIA's"


class NoGpu(ToolkitError):
    """Device gpu cannot be used on this machine."""


def import_cupy() -> Any:
    """The cupy module. Raises NoGpu when it is not installed, or cannot load the libraries it is built on."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise
        raise NoGpu(f"device gpu needs CuPy, which is not installed: {INSTALL}") from None
    except ImportError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[-1]
        library = re.match(r"(lib\S+): cannot open shared object", reason)
        if library:
            raise NoGpu(
                f"CuPy is installed but does not find {library[1]}: install ROCm 7, or add the folder that holds that "
                "library to LD_LIBRARY_PATH"
            ) from None
        raise NoGpu(
            f"CuPy is installed but does not load: {reason}; is its ROCm or CUDA release the one that it was built for?"
        ) from None
    return cupy


def kfd_problem() -> str | None:
    """Why this user cannot use AMD's kernel driver, and what to do; None when nothing is wrong."""
    if not KFD.exists():
        return f"{KFD} does not exist: there is no AMD GPU, or its kernel driver (module amdgpu) is not loaded"
    if os.access(KFD, os.R_OK | os.W_OK):
        return None
    try:
        group = KFD.group()
    except KeyError:  # a container that does not know the host's groups
        group = str(KFD.stat().st_gid)
    return f"{KFD} cannot be opened by this user: join its group ({group}), then log in again"


@cache
def require_cupy() -> Any:
    """The cupy module, with a GPU that it sees and all that it compiles kernels with.

    Raises NoGpu, with what to do, when anything is missing.
    """
    cupy = import_cupy()
    runtime = cupy.cuda.runtime
    vendor = "AMD" if runtime.is_hip else "NVIDIA"
    try:
        count = runtime.getDeviceCount()
        reason = "it counts none"
    except runtime.CUDARuntimeError as error:
        count, reason = 0, str(error)
    if count == 0:
        hint = kfd_problem() if runtime.is_hip else None
        hint = hint or f"check that the {vendor} driver is loaded and its devices are visible to this process"
        raise NoGpu(f"CuPy {cupy.__version__} sees no {vendor} GPU ({reason}); {hint}")
    if runtime.is_hip and shutil.which("hipcc") is None:
        raise NoGpu(
            "CuPy asks hipcc where ROCm's headers are, and hipcc is not on PATH: add ROCm's bin folder to PATH "
            "(usually /opt/rocm/bin)"
        )
    return cupy
