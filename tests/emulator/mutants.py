"""Kernels of the project with one defect each, and what a tier says about them: run as a program, on the GPU or the host.

``python -m tests.emulator.mutants MUTANT TIER`` prints one line: "clean", "values" (an output is beyond its tolerance),
"bits" (within it, but not those of the unchanged kernel on device cpu), or "stopped: ..." with the words of the emulator.
TIER is cpu-wave32, cpu-wave64 or gpu. Everything is built from a copy of kernels/ with the defect in it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.devices import kernels
from toolkit.dtypes import BFLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.investigations.op_cases import run_case, same_bits
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw


@dataclass(frozen=True)
class Mutant:
    """``old`` in kernels/``file`` becomes ``new``; ``op`` in ``dtype`` is what shows it."""

    what: str
    file: str
    old: str
    new: str
    op: str = "rms_norm"
    dtype: Any = FLOAT32


MUTANTS = {
    "none": Mutant("unchanged", "norm.hip", "", ""),
    "barrier": Mutant(
        "a removed barrier", "portable.h", "    BARRIER();\n    T result = waves[0];", "    T result = waves[0];"
    ),
    "half-wave": Mutant(
        "a reduction over 32 lanes only",
        "portable.h",
        "for (int mask = WAVE / 2; mask; mask /= 2) values[0]",
        "for (int mask = 16; mask; mask /= 2) values[0]",
    ),
    "tile": Mutant(
        "a matrix tile with two lanes swapped",
        "portable.h",
        "    return *reinterpret_cast<const UnitRows*>(tile + lane % UNIT_TILE * stride + share * UNIT_TERMS);",
        "    const int row = lane % UNIT_TILE, swapped = row == 3 ? 7 : row == 7 ? 3 : row;\n"
        "    return *reinterpret_cast<const UnitRows*>(tile + swapped * stride + share * UNIT_TERMS);",
        op="linear",
        dtype=BFLOAT16,
    ),
    "past-the-end": Mutant(
        "a read past the end",
        "norm.hip",
        "            float value = widen(x[row + column]);",
        "            float value = widen(x[row + column]) + widen(x[row + column + 1]) * 0.0f;",
    ),
    "unwritten": Mutant(
        "an uninitialised word of shared memory",
        "portable.h",
        "        if (thread % WAVE == 0) waves[thread / WAVE] = values[thread];",
        "        if (thread % WAVE == 0 && thread != 64) waves[thread / WAVE] = values[thread];",
    ),
}


def device_of(tier: str) -> Any:
    """A fresh device for ``tier``; arrays on a GPU end at a page without access, on the host at a band of NaN."""
    from tests.devices import GuardedHost
    from toolkit.devices.gpu import GpuDevice

    if tier != "gpu":
        return GuardedHost(wave=int(tier.removeprefix("cpu-wave")), poison=True)
    device = GpuDevice()
    device._cupy.cuda.set_allocator(None)
    return device


def examine(name: str, tier: str) -> str:
    """What ``tier`` says about the mutant ``name``."""
    from toolkit.devices.host import HostDevice
    from toolkit.devices.numpy_devices import reference

    mutant = MUTANTS[name]
    op = REGISTRY[mutant.op]
    cases = list(op.draw_cases(Draw(mutant.dtype)))
    device, oracle = device_of(tier), reference()
    cpu = HostDevice(wave=device.wave)
    wanted = [(run_case(oracle, op, case), run_case(cpu, op, case)) for case in cases]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(kernels.folder(), Path(folder, "kernels")))
        text = (copy / mutant.file).read_text(encoding="utf-8")
        assert not mutant.old or text.count(mutant.old) == 1, f"{mutant.file} has changed: adapt the mutant {name}"
        if mutant.old:
            (copy / mutant.file).write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        kernels.folder = lambda: copy  # type: ignore[assignment]
        said = "clean"
        for case, (want, ours) in zip(cases, wanted, strict=True):
            try:
                got = run_case(device, op, case)
            except (RuntimeError, ToolkitError) as error:
                return f"stopped: {' '.join(str(error).split())}"
            bound = op.bind(case.args, case.kwargs)
            checks = [op.tolerance.of(n).check(a, b, bound).ok for n, (a, b) in enumerate(zip(got, want, strict=True))]
            if not all(checks):
                return "values"
            if not all(same_bits(a, b) for a, b in zip(got, ours, strict=True)):
                said = "bits"
        return said


if __name__ == "__main__":
    print(examine(*sys.argv[1:]))
