"""Every op's cases on the GPU of this process: what ran, how far from the reference, and whether with device cpu's bits.

``python -m toolkit.investigations.op_cases OUT [RECORD [OPS]]`` writes the table as JSON. RECORD is the folder in which an
emulated GPU keeps the code objects that were loaded and the launches that ran to their end; OPS, separated by commas, are
the ops to run instead of all.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.devices import kernels as sources
from toolkit.devices.gpu import GpuDevice
from toolkit.devices.host import HostDevice
from toolkit.devices.launching import KernelDevice
from toolkit.devices.numpy_devices import reference
from toolkit.emulator.code_object import CodeObject
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Op


class LaunchLog:
    """What an emulated GPU wrote into ``folder`` (NEARTIE_EMULATOR_RECORD): nothing without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._seen = 0

    def kernels(self) -> list[str]:
        """The kernels that have run to their end since the last look."""
        if self._folder is None or not (self._folder / "launches.txt").is_file():
            return []
        with (self._folder / "launches.txt").open("rb") as file:
            file.seek(self._seen)
            lines = file.read().decode().splitlines()
            self._seen = file.tell()
        return [line.split()[1] for line in lines]

    def code_objects(self) -> set[Path]:
        """The code objects that were loaded so far."""
        return set() if self._folder is None else set(self._folder.glob("*.co"))


def load_all(device: GpuDevice, log: LaunchLog, files: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Load the code object of each of ``files``: its sha256 and its kernels, by file; nothing without a log."""
    loaded = {}
    for file in files:
        before = log.code_objects()
        device._module(file)
        for path in log.code_objects() - before:
            code = path.read_bytes()
            loaded[file] = {"sha256": hashlib.sha256(code).hexdigest(), "kernels": sorted(CodeObject(code).kernels)}
    return loaded


def run_case(device: Any, op: Op[..., Any], case: Case) -> list[np.ndarray[Any, Any]]:
    """The outputs of a case on ``device``, what it writes in place among them, on the host."""
    # Each device gets copies of its own: an op may write into its arguments.
    args, kwargs = copy.deepcopy((case.args, case.kwargs))
    args = tuple(device.put(value) if isinstance(value, np.ndarray) else value for value in args)
    kwargs = {name: device.put(value) if isinstance(value, np.ndarray) else value for name, value in kwargs.items()}
    result = device.run(op, args, kwargs)
    results = [] if result is None else list(result) if isinstance(result, tuple) else [result]
    bound = op.bind(args, kwargs)
    return [np.array(device.get(value)) for value in results + [bound[name] for name in op.mutates]]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are equal to the last bit; a NaN's sign and payload are the processor's choice."""
    nan = np.isnan(a) if a.dtype.kind != "i" else np.zeros(a.shape, bool)
    other = np.isnan(b) if b.dtype.kind != "i" else np.zeros(b.shape, bool)
    return bool((nan == other).all()) and a[~nan].tobytes() == b[~nan].tobytes()


def table(device: KernelDevice, log: LaunchLog, ops: Iterable[str]) -> list[dict[str, Any]]:
    """One row for each op and dtype: cases run, within the tolerance, and with the bits of device cpu.

    ``kernels`` has these three counts for each kernel that the cases launched.
    """
    oracle, cpu = reference(), HostDevice(wave=getattr(device, "wave", 32))
    rows = []
    for op in (REGISTRY[name] for name in ops):
        for dtype in op.dtypes:
            before = device.statistics.selections.copy()
            kernels: dict[str, list[int]] = {}
            count, within, equal, worst = 0, 0, 0, 0.0
            for case in op.draw_cases(Draw(dtype)):
                want, ours = run_case(oracle, op, case), run_case(cpu, op, case)
                log.kernels()
                got = run_case(device, op, case)
                ran = sorted(set(log.kernels()))
                bound = op.bind(case.args, case.kwargs)
                pairs = enumerate(zip(got, want, strict=True))
                checks = [op.tolerance.of(index).check(a, b, bound) for index, (a, b) in pairs]
                fine = all(check.ok for check in checks)
                same = all(same_bits(a, b) for a, b in zip(got, ours, strict=True))
                count, within, equal = count + 1, within + fine, equal + same
                for name in ran:
                    kernels[name] = [a + b for a, b in zip(kernels.get(name, [0, 0, 0]), (1, fine, same), strict=True)]
                worst = max([worst, *(check.worst for check in checks)])
            selected = {provider for _, provider in device.statistics.selections - before}
            rows.append(
                {
                    "op": op.name,
                    "dtype": dtype.name,
                    "cases": count,
                    "within": within,
                    "bits_of_cpu": equal,
                    "worst": worst,
                    "matrix_unit": any(p.matrix_unit for p in op.providers if p.name in selected),
                    "providers": sorted(selected),
                    "file": op.kernel,
                    "kernels": dict(sorted(kernels.items())),
                }
            )
    return rows


def main(out: str, record: str | None = None, ops: str = "") -> None:
    """Run everything on the GPU, every array in an allocation of its own, and write the table to ``out``."""
    device = GpuDevice()
    device._cupy.cuda.set_allocator(None)  # so that each array ends at a page without access
    log = LaunchLog(Path(record) if record else None)
    chosen = ops.split(",") if ops else list(REGISTRY)
    files = sorted({REGISTRY[name].kernel for name in chosen}) if ops else sources.names()
    found = {
        "device": device.describe(),
        "code_objects": load_all(device, log, files),
        "rows": table(device, log, chosen),
    }
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
