"""Every op case on device cpu built with the address and undefined-behaviour sanitizers.

They must be loaded before Python, so the cases run in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolkit.devices import kernels
from toolkit.devices.host import HostDevice, HostModule, build, compiler
from toolkit.devices.launching import Launch
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw

ROOT = Path(__file__).parents[2]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1")

BROKEN = """
ENTRY(write_at, 32, float* x, int index) {
    THREADS(32) {
        if (thread == 0) x[index] = 1.0f;
    }
}
ENTRY(shift_by, 32, float* x, int places) {
    THREADS(32) {
        if (thread == 0) x[0] = (float)(1 << places);
    }
}
"""


class Sanitized(HostDevice):
    matrix_unit = True  # those providers too, each lane computing its share of a tile

    def __init__(self, wave: int) -> None:
        super().__init__(wave=wave)
        self._extra = SANITIZERS


def run_every_case(wave: int) -> int:
    """Run all cases of all ops; a sanitizer ends the process. Returns how many there were."""
    device, count = Sanitized(wave), 0
    for op in REGISTRY.values():
        for dtype in op.dtypes:
            for case in op.draw_cases(Draw(dtype)):
                # Fresh arrays: the allocator then has a red zone right behind each.
                args = tuple(np.array(a) if isinstance(a, np.ndarray) else a for a in case.args)
                kwargs = {k: np.array(a) if isinstance(a, np.ndarray) else a for k, a in case.kwargs.items()}
                device.run(op, args, kwargs)
                count += 1
    return count


def run_broken(entry: str, value: int) -> None:
    """Launch a kernel that is wrong for some ``value``."""
    device = Sanitized(32)
    library = build(kernels.source("norm.hip") + BROKEN, "broken.hip", SANITIZERS)
    device._modules["broken.hip"] = HostModule(library)
    device.launch("broken.hip", Launch(entry, (1,), (np.zeros(8, np.float32), value)))


def sanitized(call: str) -> subprocess.CompletedProcess[str]:
    """Python with the sanitizers' run-time library loaded first, running one of this module's functions."""
    command = [*compiler().command, "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip(f"{compiler().command[0]} has no address sanitizer")
    environment = os.environ | {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own are not ours to judge
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    }
    code = f"from tests.ops import test_sanitizers; print(test_sanitizers.{call})"
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("wave", [32, 64])
def test_every_case_is_clean(wave: int) -> None:
    done = sanitized(f"run_every_case({wave})")
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) >= len(REGISTRY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("run_broken('write_at', 8)", "heap-buffer-overflow"),
        ("run_broken('write_at', -1)", "heap-buffer-overflow"),
        ("run_broken('shift_by', 40)", "shift exponent 40 is too large"),
    ],
)
def test_what_is_wrong_is_reported(call: str, words: str) -> None:
    done = sanitized(call)
    assert done.returncode != 0
    assert words in done.stderr
    assert sanitized(call.replace("8)", "7)").replace("-1)", "0)").replace("40)", "4)")).returncode == 0
