"""Every op's cases on emulated AMD GPUs: CuPy for ROCm, the real hipRTC's machine code, a CPU that executes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.ops import REGISTRY

ROOT = Path(__file__).parents[2]
TARGETS = ["gfx1200", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gfx1100", "gfx90a", "gfx942"))]

pytestmark = [pytest.mark.rocm, pytest.mark.usefixtures("compiler")]


@pytest.mark.parametrize("target", TARGETS)
def test_ops_on_an_emulated_gpu_give_the_bits_of_the_host(target: str, tmp_path: Path) -> None:
    python = os.environ.get("NEARTIE_ROCM_PYTHON")
    if python is None and not os.environ.get("CI"):
        pytest.skip("NEARTIE_ROCM_PYTHON names no Python with cupy-rocm-7-0; make test sets it")
    report = tmp_path / "ops.json"
    command = [sys.executable, "-m", "toolkit.emulator", target, "--", str(python), "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", "-k", "gpu", "--op-report", str(report), "tests/ops/test_cases.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())
    assert {(row["op"], row["dtype"]) for row in rows} == {
        (op.name, dtype.name) for op in REGISTRY.values() for dtype in op.dtypes
    }
    for row in rows:
        # A matrix unit adds in an order of its own.
        assert row["same_bits_as_cpu"] or "matrix-unit" in row["providers"], f"{row['op']} {row['dtype']}"
