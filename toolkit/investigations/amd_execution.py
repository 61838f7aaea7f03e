"""The amd-execution investigation: every op's cases on AMD machine code that a CPU executes.

Each target runs in a process of its own, in which an unmodified CuPy for ROCm finds an emulated GPU
(``toolkit.investigations.op_cases``); what it found is put together here, for the notebook to show.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.emulator import hiprtc
from toolkit.emulator.environment import TARGETS
from toolkit.emulator.errors import EmulatorError
from toolkit.errors import CheckFailed, ToolkitError
from toolkit.investigations.execution_figure import execution_figure
from toolkit.investigations.investigation import Investigation
from toolkit.investigations.tables import Badge, Table
from toolkit.ops import REGISTRY
from toolkit.progress import track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXECUTED, DEFECT, INCOMPLETE = "executed-in-emulation", "defect", "incomplete"
PYTHON_VARIABLE = "NEARTIE_ROCM_PYTHON"


class AmdExecution(Investigation):
    """One run of the investigation; ``parameters`` as in specs/amd-execution/spec.toml.

    Raises ToolkitError for a target that is not emulated, an unknown op, and where CuPy for ROCm or hipRTC is missing.
    """

    name = "amd-execution"

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(parameters)
        self.targets = chosen("targets", parameters["targets"], TARGETS)
        self.ops = chosen("ops", parameters["ops"], tuple(REGISTRY)) if parameters["ops"] else list(REGISTRY)
        self.python = rocm_python()
        self.found: dict[str, dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"amd-execution: {len(self.ops)} ops on emulated {', '.join(self.targets)}"

    def run(self) -> Table:
        """Run all cases on every target; a row per target."""
        for target in track(self.targets, "targets", len(self.targets)):
            self.found[target] = run_cases(target, self.python, self.parameters["ops"])
        return Table([self._summary(target) for target in self.targets])

    def _summary(self, target: str) -> dict[str, Any]:
        rows = self.found[target]["rows"]
        plain = [row for row in rows if not row["matrix_unit"]]
        executed, compiled = executed_kernels(self.found[target])
        return {
            "target": target,
            "ops and dtypes": len(rows),
            "cases": sum(row["cases"] for row in rows),
            "within tolerance": sum(row["within"] for row in rows),
            "without a matrix unit": sum(row["cases"] for row in plain),
            "with the bits of cpu": sum(row["bits_of_cpu"] for row in plain),
            "kernels executed": len(executed),
            "kernels compiled": len(compiled),
            "largest error (1 = all that is allowed)": max((row["worst"] for row in rows), default=0.0),
        }

    def show_ops(self) -> Table:
        """Op by op: the worst error of each dtype as a share of what is allowed, and whether the bits are cpu's."""
        return Table(
            [
                {
                    "target": target,
                    "op": row["op"],
                    "dtype": row["dtype"],
                    "cases": row["cases"],
                    "error / allowed": row["worst"],
                    "bits of cpu": f"{row['bits_of_cpu']} of {row['cases']}",
                    "providers": ", ".join(row["providers"]),
                }
                for target in self.targets
                for row in self.found[target]["rows"]
            ]
        )

    def show_kernels(self) -> Table:
        """Kernel by kernel: in how many cases it ran on each target."""
        return Table(self._kernels() or [{"kernels": 0}])

    def show_code_objects(self) -> Table:
        """The code objects that were executed."""
        return Table(
            [
                {"target": target, "file": file, "sha256": code["sha256"], "kernels": len(code["kernels"])}
                for target in self.targets
                for file, code in sorted(self.found[target]["code_objects"].items())
            ]
        )

    def figure(self) -> Figure:
        """Errors and equal bits, op by op."""
        self.figures["execution"] = execution_figure({t: self.found[t]["rows"] for t in self.targets})
        return self.figures["execution"]

    def judge(self) -> Badge:
        """The verdict."""
        said = verdict(self.found, len(self.ops))
        return Badge(said["verdict"], said["rule"], said["reason"])

    def subject(self) -> dict[str, Any]:
        # What was looked at is the ops and their cases; the sources that were compiled are provenance, as everywhere.
        asked = json.dumps([[name, [dtype.name for dtype in REGISTRY[name].dtypes]] for name in sorted(self.ops)])
        return {"data": hashlib.sha256(asked.encode()).hexdigest()}

    def _kernels(self) -> list[dict[str, Any]]:
        return [
            {"target": target, "file": row["file"], "op": row["op"], "dtype": row["dtype"], "kernel": kernel}
            | dict(zip(("cases", "within", "bits_of_cpu"), counts, strict=True))
            for target in self.targets
            for row in self.found[target]["rows"]
            for kernel, counts in row["kernels"].items()
        ]

    def results(self) -> dict[str, Any]:
        kept = ("op", "dtype", "cases", "within", "bits_of_cpu", "worst", "matrix_unit", "providers")
        not_executed = {}
        for target in self.targets:
            executed, compiled = executed_kernels(self.found[target])
            not_executed[target] = sorted(compiled - executed)
        return {
            "summary": [self._summary(target) for target in self.targets],
            "ops": [{"target": t, **{k: row[k] for k in kept}} for t in self.targets for row in self.found[t]["rows"]],
            "kernels": self._kernels(),
            "not_executed": not_executed,
        }

    def concluded(self) -> dict[str, Any]:
        return verdict(self.found, len(self.ops))

    def made_with(self) -> dict[str, Any]:
        return {
            "hiprtc": hiprtc.ensure().version,
            "devices": {target: self.found[target]["device"] for target in self.targets},
            "code_objects": {
                target: {file: code["sha256"] for file, code in self.found[target]["code_objects"].items()}
                for target in self.targets
            },
        }


def chosen(parameter: str, text: str, known: tuple[str, ...]) -> list[str]:
    """The names in ``text``, separated by commas. Raises ToolkitError for one that is not among ``known``."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ToolkitError(f"{name!r} in {parameter} is unknown; there are {', '.join(known)}")
    return sorted(set(names), key=names.index)


def rocm_python() -> str:
    """A Python with CuPy for ROCm: $NEARTIE_ROCM_PYTHON, the environment that make puts beside this one, or this one.

    Raises ToolkitError when there is none.
    """
    given = os.environ.get(PYTHON_VARIABLE)
    if given:
        return given
    beside = Path(f"{sys.prefix}-rocm", "bin", "python")
    if beside.is_file():
        return str(beside)
    if find_spec("cupy") is not None:
        return sys.executable
    raise ToolkitError(
        "an emulated GPU is used through CuPy for ROCm, which is not installed: run make "
        f"{beside.parents[1].name}/installed, or name a Python that has it in {PYTHON_VARIABLE}"
    )


def run_cases(target: str, python: str, ops: str = "") -> dict[str, Any]:
    """The table of ``op_cases`` on an emulated ``target``.

    Raises CheckFailed, with the emulator's words, when a kernel faulted, raced or could not be emulated, and
    ToolkitError when the emulator cannot be set up here.
    """
    try:
        hiprtc.ensure_folder()
    except EmulatorError as error:
        raise ToolkitError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="amd-execution-") as folder:
        out = Path(folder, "table.json")
        command = [sys.executable, "-m", "toolkit.emulator", target, "--", python]
        command += ["-m", "toolkit.investigations.op_cases", str(out), folder, ops]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "NEARTIE_EMULATOR_RECORD": folder}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        if done.returncode or not out.is_file():
            lines = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"]
            said = next((line for line in lines if line.startswith("emulated GPU: ")), lines[-1])
            raise CheckFailed(f"the cases did not run to their end on emulated {target}: {said}")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if found["device"]["target"] != target:
        raise CheckFailed(f"the cases ran on {found['device']['target']}, not on emulated {target}")
    return found


def executed_kernels(found: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The kernels that ran on a target, and all that its code objects hold."""
    executed = {kernel for row in found["rows"] for kernel in row["kernels"]}
    compiled = {kernel for code in found["code_objects"].values() for kernel in code["kernels"]}
    return executed, compiled


def verdict(found: dict[str, dict[str, Any]], ops: int) -> dict[str, Any]:
    """The verdict on what every target showed, by the rule of the spec; ``ops`` is the number of ops that were asked."""
    failed = [
        f"{row['op']} in {row['dtype']} on {target}"
        for target, table in found.items()
        for row in table["rows"]
        if row["within"] < row["cases"] or (row["bits_of_cpu"] < row["cases"] and not row["matrix_unit"])
    ]
    if failed:
        reason = f"not every case passes: {', '.join(failed)}"
        return {"verdict": DEFECT, "rule": "every-case-passes", "reason": reason}
    silent = [
        target
        for target, table in found.items()
        if len({row["op"] for row in table["rows"] if row["cases"] and row["kernels"]}) < ops
    ]
    if silent or not found:
        reason = f"some op ran no case on {', '.join(silent) or 'any target'}"
        return {"verdict": INCOMPLETE, "rule": "every-op-ran", "reason": reason}
    cases = sum(row["cases"] for table in found.values() for row in table["rows"])
    reason = (
        f"all {cases} cases on {', '.join(found)} are within their tolerances, and have the bits of device cpu where no "
        "matrix unit adds; executed on a CPU, not on a GPU"
    )
    return {"verdict": EXECUTED, "rule": "every-case-passes", "reason": reason}
