"""Small CuPy programs, written as a stranger would, on an emulated GPU: cupy-rocm as it is, on the stand-in runtime.

They need a Python with cupy-rocm-7-0: this one, or the one that NEARTIE_ROCM_PYTHON names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
SAMPLE = ("histogram", "shuffle", "elementwise", "graph")

pytestmark = pytest.mark.rocm


def emulate(target: str, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolkit.emulator", *options, target, "--", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_there_are_at_least_twenty_programs() -> None:
    assert len(PROGRAMS) >= 20


def test_sample_of_programs(rocm_python: str) -> None:
    chosen = [str(path) for path in PROGRAMS if path.stem in SAMPLE]
    assert len(chosen) == len(SAMPLE)
    done = emulate("gfx1200", rocm_python, str(HERE / "run_programs.py"), *chosen)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1100", "gfx1200", "gfx90a", "gfx942"])
def test_programs(rocm_python: str, target: str) -> None:
    done = emulate(target, rocm_python, str(HERE / "run_programs.py"), *map(str, PROGRAMS))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("order", ["reversed", "random:7"])
def test_programs_in_other_orders_of_waves(rocm_python: str, order: str) -> None:
    chosen = [str(path) for path in PROGRAMS if path.stem not in ("libm", "complex_numbers")]
    done = emulate("gfx1200", rocm_python, str(HERE / "run_programs.py"), *chosen, options=("--order", order))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("x @ x", "hipblasCreate"),
        ("cupy.fft.fft(x)", "hipfftCreate"),
        ("cupy.random.rand(3)", "hiprandCreateGenerator"),
        ("cupy.sort(x)", "was compiled ahead of time"),
    ],
)
def test_prebuilt_device_libraries_are_refused_by_name(rocm_python: str, statement: str, name: str) -> None:
    done = emulate("gfx1200", rocm_python, "-c", f"import cupy; x = cupy.ones((4, 4)); {statement}")
    assert done.returncode != 0
    assert name in done.stderr


def test_fault_in_a_kernel_reaches_the_program_with_its_place(rocm_python: str) -> None:
    program = """
import cupy
cupy.cuda.set_allocator(None)
kernel = cupy.RawKernel('extern "C" __global__ void f(int* x) { x[threadIdx.x] = 1; }', "f")
kernel((1,), (65,), (cupy.zeros(64, cupy.int32),))
"""
    done = emulate("gfx1200", rocm_python, "-c", program)
    assert done.returncode != 0
    assert "hipErrorIllegalAddress: kernel f, block (0, 0, 0), wave 2, instruction at" in done.stderr
    assert "0 bytes past the end of an allocation of 256 bytes" in done.stderr


def test_unknown_target_is_one_sentence() -> None:
    done = emulate("gfx803", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("target 'gfx803' is not emulated; choose one of gfx1100")
    assert done.stderr.count("\n") == 1
