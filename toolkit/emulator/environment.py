"""The surroundings in which an unmodified CuPy for ROCm finds an emulated GPU: libraries, a hipcc, headers, variables."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from . import build, hiprtc
from .cache import cache_dir, folder
from .errors import EmulatorError

TARGETS = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201", "gfx90a", "gfx942")
PACKAGE = Path(__file__).parent

# CuPy asks hipcc for its include folders; hipRTC's own header covers the rest.
HIPCC = """#!/bin/sh
# Stands in for hipcc where CuPy asks for include folders; it compiles nothing.
case " $* " in
*" -E "*) ;;
*) echo "hipcc: only 'hipcc -E -v' is answered here (kernels are compiled by hipRTC)" >&2; exit 1 ;;
esac
printf '#include <...> search starts here:\\n {include}\\nEnd of search list.\\n' >&2
"""


def wave_size(target: str) -> int:
    """Lanes of a wave on ``target``."""
    return 64 if target.startswith("gfx9") else 32


def variables(target: str) -> dict[str, str]:
    """What to set in a process's environment so that its HIP device is an emulated ``target``.

    Builds and downloads what is missing. Variables that hold a search path are extended.

    Raises:
        EmulatorError: unknown target, or the emulator cannot be built here.
    """
    if target not in TARGETS:
        raise EmulatorError(f"target {target!r} is not emulated; choose one of {', '.join(TARGETS)}")
    libraries = hiprtc.ensure_folder()
    engine = build.engine(wave_size(target))
    home = _home(build.runtime(), libraries)
    llvm = next(iter(sorted(libraries.glob("libLLVM*"))), None)
    if llvm is None:
        raise EmulatorError(f"no libLLVM beside hipRTC in {libraries}")
    appended = os.environ.get("HIPRTC_COMPILE_OPTIONS_APPEND", "")
    return {
        "NEARTIE_EMULATOR_TARGET": target,
        "NEARTIE_EMULATOR_ENGINE": str(engine),
        "NEARTIE_EMULATOR_PYTHON": sys.executable,
        "NEARTIE_EMULATOR_ROOT": str(PACKAGE.parent.parent),
        "NEARTIE_EMULATOR_LLVM": str(llvm),
        "NEARTIE_EMULATOR_CACHE": str(_programs(llvm)),
        "ROCM_HOME": str(home),
        "LD_LIBRARY_PATH": _extended("LD_LIBRARY_PATH", home / "lib"),
        "PATH": _extended("PATH", home / "bin"),
        "HIPRTC_COMPILE_OPTIONS_APPEND": f"{appended} --offload-arch={target}".strip(),
    }


def _extended(name: str, first: Path) -> str:
    rest = [part for part in os.environ.get(name, "").split(":") if part and part != str(first)]
    return ":".join([str(first), *rest])


def _home(runtime: Path, compiler: Path) -> Path:
    """A folder in the shape of a ROCm installation."""
    headers = PACKAGE / "include"
    key = hashlib.sha256(f"{runtime}\0{compiler}\0{headers}\0{HIPCC}".encode()).hexdigest()[:16]
    target = cache_dir("emulator") / f"rocm-{key}"

    def fill(place: Path) -> None:
        (place / "lib").mkdir()
        (place / "bin").mkdir()
        (place / "include").symlink_to(headers)
        for library in runtime.glob("*.so*"):
            (place / "lib" / library.name).symlink_to(library)
        for library in compiler.glob("lib*"):
            # The genuine runtime stays out of sight of everything but hipRTC's own search path.
            if not library.name.startswith("libamdhip64"):
                (place / "lib" / library.name).symlink_to(library)
        hipcc = place / "bin" / "hipcc"
        hipcc.write_text(HIPCC.format(include=headers))
        hipcc.chmod(0o755)

    return folder(target, fill)


def _programs(llvm: Path) -> Path:
    """Cache of translated programs; a change of the translator or of LLVM starts an empty one."""
    digest = hashlib.sha256(str(llvm).encode())
    for name in ("translate", "operands", "semantics", "codegen", "code_object", "disassembly"):
        digest.update((PACKAGE / f"{name}.py").read_bytes())
    return cache_dir("emulator", f"programs-{digest.hexdigest()[:16]}")
