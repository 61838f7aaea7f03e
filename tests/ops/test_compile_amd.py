"""Every kernel file through AMD's real compiler, as CuPy would hand it over, for AMD targets that nobody has here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache

import pytest

from toolkit.devices import kernels
from toolkit.devices.compile_options import ADDED_BY_CUPY_ON_HIP, AMD_TARGETS, AmdTarget, amd_target, hip_options
from toolkit.devices.host import build
from toolkit.emulator.code_object import CodeObject
from toolkit.emulator.errors import CompileError
from toolkit.emulator.hiprtc import HipRTC

pytestmark = pytest.mark.rocm

LDS_LIMIT = 64 * 1024

# The RDNA3 and RDNA4 chips are in the quick suite.
QUICK = ("gfx1100", "gfx1200")
TARGETS = [
    pytest.param(amd_target(name), id=name, marks=() if name in QUICK else pytest.mark.slow) for name in AMD_TARGETS
]


def options(target: AmdTarget) -> list[str]:
    """As CuPy passes them, the target aside (and its include folders: no kernel includes from them)."""
    return [*hip_options(target)[:-1], *ADDED_BY_CUPY_ON_HIP]


@cache
def host_entries(name: str, wave: int) -> dict[str, int]:
    """Entry → threads per block of a kernel file, from its build for the host, which exports both."""
    nm = shutil.which("nm") or shutil.which("llvm-nm")
    if nm is None:
        pytest.skip("there is no nm to list what the host's build exports")
    library = build(kernels.source(name, wave=wave), name)
    listed = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    loaded = ctypes.CDLL(str(library))
    return {
        symbol.removesuffix("_threads"): getattr(loaded, symbol)()
        for symbol in exported
        if symbol.endswith("_threads") and symbol.removesuffix("_threads") in exported
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", kernels.names())
def test_kernel_file_compiles_without_a_warning(name: str, target: AmdTarget, compiler: HipRTC) -> None:
    text = kernels.source(name, wave=target.wave)
    binary, log = compiler.compile_with_log(text, target.name, options(target), name)
    assert log == ""
    code = CodeObject(binary)
    assert code.target.split(":")[0] == target.processor
    assert {entry: k.max_flat_workgroup_size for entry, k in code.kernels.items()} == host_entries(name, target.wave)
    for kernel in code.kernels.values():
        assert kernel.wavefront_size == target.wave, kernel.name
        assert kernel.lds <= LDS_LIMIT, kernel.name
        assert (kernel.vgpr_spills, kernel.sgpr_spills) == (0, 0), f"{kernel.name} spills registers on {target.name}"


def test_an_error_is_reported_in_its_own_file_and_line(compiler: HipRTC) -> None:
    lines = (kernels.folder() / "norm.hip").read_text().count("\n")
    text = kernels.source("norm.hip") + "DEVICE int broken() { return missing; }\n"
    with pytest.raises(
        CompileError, match=rf"norm\.hip:{lines + 1}:\d+: error: use of undeclared identifier 'missing'"
    ):
        compiler.compile(text, "gfx1200", options(amd_target("gfx1200")), "norm.hip")
