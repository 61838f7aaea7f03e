"""Every kernel file through AMD's real compiler, as CuPy would hand it over, for AMD targets that nobody has here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache

import pytest

from toolkit.devices import kernels
from toolkit.devices.compile_options import AMD_TARGETS, amd_target
from toolkit.devices.host import build
from toolkit.devices.targets import NO_SPILLS, compile_file

pytestmark = [pytest.mark.rocm, pytest.mark.usefixtures("compiler")]

LDS_LIMIT = 64 * 1024
TARGETS = [pytest.param(name, marks=[] if name in NO_SPILLS else pytest.mark.slow) for name in AMD_TARGETS]


@cache
def host_entries(file: str, wave: int) -> dict[str, int]:
    """Entry → threads per block of a kernel file, from its build for the host, which exports both."""
    nm = shutil.which("nm") or shutil.which("llvm-nm")
    if nm is None:
        pytest.skip("there is no nm to list what the host's build exports")
    library = build(kernels.source(file, wave=wave), file)
    listed = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    loaded = ctypes.CDLL(str(library))
    return {
        symbol.removesuffix("_threads"): getattr(loaded, symbol)()
        for symbol in exported
        if symbol.endswith("_threads") and symbol.removesuffix("_threads") in exported
    }


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("file", kernels.names())
def test_kernel_file_compiles_to_what_the_host_runs(file: str, name: str) -> None:
    target = amd_target(name)
    compiled = compile_file(file, target)
    assert compiled.problems == []
    assert {use.kernel: use.threads for use in compiled.kernels} == host_entries(file, target.wave)
    for use in compiled.kernels:
        assert use.lds_bytes <= LDS_LIMIT, use.kernel
        assert use.waves_per_simd >= 1, use.kernel


def test_an_error_is_reported_in_its_own_file_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (kernels.folder() / "norm.hip").read_text().count("\n")
    broken = kernels.source("norm.hip") + "DEVICE int broken() { return missing; }\n"
    monkeypatch.setattr(kernels, "source", lambda file, wave: broken)
    error = compile_file("norm.hip", amd_target("gfx1200")).error
    assert f"norm.hip:{lines + 1}:" in error
    assert "undeclared identifier 'missing'" in error
