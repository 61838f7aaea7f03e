"""The same record digest on other kinds of CPU, imitated in a child process that checks that the imitation took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import ctypes, json, os, sys
from pathlib import Path

import numpy as np
from numpy._core._multiarray_umath import __cpu_features__ as features

for name in os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split():
    assert not features[name], f"{name} is still on"
wanted = os.environ.get("OPENBLAS_CORETYPE")
if wanted:
    (library,) = (Path(np.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas64_*.so")
    corename = ctypes.CDLL(str(library)).scipy_openblas_get_corename64_
    corename.restype = ctypes.c_char_p
    found = corename().decode()
    # OpenBLAS builds for many CPUs call their Prescott kernels by an older name.
    names = {"Prescott": ("Prescott", "Katmai")}.get(wanted, (wanted,))
    assert found in names, f"OpenBLAS runs as {found}, not {wanted}"

from toolkit import records
from toolkit.investigations import specs
from toolkit.investigations.running import _digested
from toolkit.investigations.showing import NearTieNotebook

parameters = {"model": sys.argv[1], "prompts": sys.argv[2], "tokens": 6, "repeats": 2}
study = NearTieNotebook(specs.read("near-tie").checked(parameters))
study.run()
print(records.record(_digested(study), {}).digest)
"""


def digest(model: str, prompts: Path, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "NPY_"))}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, model, str(prompts)],
        env=clean | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()[-1]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    path.write_text("The capital of France is\nMy favourite colour is\nThe winner of the race was the\n")
    return path


@pytest.mark.parametrize("model", ["qwen3-tiny", "gemma3-tiny"])
def test_same_digest(model: str, prompts: Path) -> None:
    from numpy._core._multiarray_umath import __cpu_features__ as features

    here = digest(model, prompts)
    # A kind needs the instructions that it is named for: OpenBLAS dies of an illegal one otherwise.
    kinds = ["Prescott"] + ["Haswell"] * features.get("X86_V3", False) + ["SkylakeX"] * features.get("X86_V4", False)
    others = [{"OPENBLAS_CORETYPE": kind} for kind in kinds]
    if os.environ.get("CI") and os.environ.get("OPENBLAS_CORETYPE"):
        others = []  # the machine needs the type that it sets
    known = [name for name in ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR") if features.get(name)]
    if known:
        others.append({"NPY_DISABLE_CPU_FEATURES": " ".join(known)})
    if not others:
        pytest.skip("this machine's OPENBLAS_CORETYPE is fixed and its NumPy has no CPU features to turn off")
    assert [digest(model, prompts, **other) for other in others] == [here] * len(others)
