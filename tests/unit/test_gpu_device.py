"""What of device gpu can be checked without one: options, arguments, recordings, and what it says when it cannot run."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from toolkit.devices import device, gpu_runtime, kernels
from toolkit.devices.base import ProviderStatistics
from toolkit.devices.compile_options import AMD_TARGETS, amd_target, cuda_options, hip_options
from toolkit.devices.gpu import Arguments
from toolkit.devices.launching import Launch
from toolkit.devices.occupancy import waves_per_simd
from toolkit.devices.recording import Recording
from toolkit.errors import ToolkitError


class DeviceArray:
    """As much of a CuPy array as an argument needs."""

    dtype = np.dtype(np.float32)

    def __init__(self, pointer: int, contiguous: bool = True) -> None:
        self.data = SimpleNamespace(ptr=pointer)
        self.flags = SimpleNamespace(c_contiguous=contiguous)


def read(arguments: Arguments, index: int, kind: Any) -> Any:
    pointer = (ctypes.c_void_p * (index + 1)).from_address(arguments.address)[index]
    return kind.from_address(pointer).value


def test_arguments_reach_the_driver_as_the_kernel_declares_them() -> None:
    launch = Launch(
        "f",
        (1,),
        (DeviceArray(0xABCDEF012345), -7, 0.1, True, np.float64(0.1), np.int64(-(2**40)), np.uint64(2**63), None),
    )
    packed = Arguments(DeviceArray, launch)
    assert read(packed, 0, ctypes.c_uint64) == 0xABCDEF012345
    assert read(packed, 1, ctypes.c_int32) == -7
    assert read(packed, 2, ctypes.c_float) == float(np.float32(0.1))
    assert read(packed, 3, ctypes.c_int32) == 1
    assert read(packed, 4, ctypes.c_double) == 0.1
    assert read(packed, 5, ctypes.c_int64) == -(2**40)
    assert read(packed, 6, ctypes.c_uint64) == 2**63
    assert read(packed, 7, ctypes.c_uint64) == 0


def test_an_argument_that_no_kernel_takes_is_refused_by_name() -> None:
    with pytest.raises(ToolkitError, match=r"kernel f .* not contiguous"):
        Arguments(DeviceArray, Launch("f", (1,), (DeviceArray(8, contiguous=False),)))
    with pytest.raises(ToolkitError, match="kernel f was given a str"):
        Arguments(DeviceArray, Launch("f", (1,), ("x",)))
    with pytest.raises(ToolkitError, match="kernel f was given a ndarray"):
        Arguments(DeviceArray, Launch("f", (1,), (np.zeros(2),)))


def test_a_replay_repeats_the_calls_in_order_and_counts_them() -> None:
    sent: list[int] = []
    statistics = ProviderStatistics("gpu")
    recording = Recording(statistics)
    recording.add(lambda: sent.append(1), object())
    recording.add(lambda: sent.append(2))
    recording.selections["rms_norm", "row-per-block"] = 2
    recording.declines["linear", "matrix-vector"] = 1
    recording.replay()
    recording.replay()
    assert sent == [1, 2, 1, 2]
    assert statistics.selections["rms_norm", "row-per-block"] == 4
    assert statistics.declines["linear", "matrix-vector"] == 2


@pytest.mark.parametrize("name", [*AMD_TARGETS, "gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-"])
def test_the_target_of_a_device_is_the_target_that_is_compiled_for(name: str) -> None:
    target = amd_target(name)
    assert target.name == name
    assert f"--offload-arch={name}" in hip_options(target)
    assert target.wave == (64 if name.startswith("gfx9") else 32)


@pytest.mark.parametrize("name", ["", "gfx", "gfx11", "sm_90", "gfx1100:xnack", "gfx1100 ", "GFX1100"])
def test_what_is_no_target_is_refused(name: str) -> None:
    with pytest.raises(ToolkitError, match="is no AMD target"):
        amd_target(name)


def test_no_compiler_may_contract() -> None:
    assert "-ffp-contract=off" in hip_options(amd_target("gfx1100"))
    assert "-fmad=false" in cuda_options()


@pytest.mark.parametrize("name", kernels.names())
def test_an_assembled_source_has_no_trace_of_its_headers_guards(name: str) -> None:
    text = kernels.source(name)
    assert "#pragma once" not in text
    assert '#include "' not in text


@pytest.mark.parametrize(
    ("target", "vgprs", "lds_bytes", "threads", "waves"),
    [
        ("gfx1100", 96, 0, 256, 16),  # 1536 / 96
        ("gfx1100", 97, 0, 256, 12),  # rounded up to 120 registers
        ("gfx1102", 96, 0, 256, 10),  # a smaller file: 1024 / 96
        ("gfx1100", 256, 0, 256, 4),  # room for five, in work-groups of two per SIMD
        ("gfx1100", 24, 64 * 1024, 256, 4),  # two work-groups of 8 waves on 4 SIMDs
        ("gfx90a", 64, 0, 256, 8),
        ("gfx90a", 65, 0, 256, 7),  # 512 / 72
        ("gfx942", 512, 0, 256, 1),
        ("gfx90a", 8, 33 * 1024, 1024, 4),  # one work-group of 16 waves
        ("gfx1030", 8, 129 * 1024, 64, 0),  # does not fit
    ],
)
def test_occupancy_is_what_registers_and_shared_memory_leave(
    target: str, vgprs: int, lds_bytes: int, threads: int, waves: int
) -> None:
    found = waves_per_simd(amd_target(target), vgprs=vgprs, sgprs=32, lds_bytes=lds_bytes, threads=threads)
    assert found == waves


def test_without_cupy_device_gpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_runtime.require_cupy.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(gpu_runtime.NoGpu, match=r"neartie-toolkit\[rocm\].*neartie-toolkit\[cuda\]"):
        device("gpu")


class FakeCupy:
    """CuPy as it is when something around it is missing."""

    __version__ = "14.2.0"

    def __init__(self, *, hip: bool, count: int = 1, error: str = "") -> None:
        class CUDARuntimeError(Exception):
            pass

        def get_device_count() -> int:
            if error:
                raise CUDARuntimeError(error)
            return count

        runtime = SimpleNamespace(is_hip=hip, getDeviceCount=get_device_count, CUDARuntimeError=CUDARuntimeError)
        self.cuda = SimpleNamespace(runtime=runtime)


def test_without_a_gpu_the_driver_and_its_device_file_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for fake, words in (
        (FakeCupy(hip=False, error="cudaErrorNoDevice"), "no NVIDIA GPU .*cudaErrorNoDevice.*driver"),
        (FakeCupy(hip=True, error="hipErrorNoDevice"), "no AMD GPU .*hipErrorNoDevice.*/no/such/kfd does not exist"),
        (FakeCupy(hip=False, count=0), "no NVIDIA GPU"),
    ):
        gpu_runtime.require_cupy.cache_clear()
        monkeypatch.setitem(sys.modules, "cupy", fake)
        monkeypatch.setattr(gpu_runtime, "KFD", gpu_runtime.Path("/no/such/kfd"))
        with pytest.raises(gpu_runtime.NoGpu, match=words):
            gpu_runtime.require_cupy()


def test_without_hipcc_the_folder_to_add_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    gpu_runtime.require_cupy.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(hip=True))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(gpu_runtime.NoGpu, match=r"hipcc is not on PATH.*/opt/rocm/bin"):
        gpu_runtime.require_cupy()


def test_a_library_that_cupy_does_not_find_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text(
        "try:\n"
        "    raise ImportError('libamdhip64.so.7: cannot open shared object file: No such file or directory')\n"
        "except ImportError as error:\n"
        "    raise ImportError('Failed to import CuPy. ====') from error\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(gpu_runtime.NoGpu, match=r"libamdhip64\.so\.7: install ROCm 7"):
        gpu_runtime.import_cupy()
