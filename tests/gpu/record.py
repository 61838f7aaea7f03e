"""Everything that this project claims of a GPU, run on the one of this machine and written down.

    python -m tests.gpu.record --out FOLDER [--model FILE ...] [--only SECTION ...]

Each section is a process of its own, so that one that fails leaves the others standing; record.json holds what they
found and FOLDER/logs what they printed. Exits with 1 when a section fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu.random_models import SHAPES
from toolkit import bundled

ROOT = Path(__file__).parents[2]


class Recorder:
    """Runs sections and keeps what they found."""

    def __init__(self, out: Path, only: list[str]) -> None:
        self.out = out
        self.only = only
        self.found: dict[str, Any] = {}
        self.failed: list[str] = []
        (out / "logs").mkdir(parents=True, exist_ok=True)

    def run(self, section: str, command: list[str], read: Callable[[str], Any], **environment: str) -> None:
        """Run ``command`` and keep what ``read`` makes of its output."""
        if self.only and section not in self.only:
            return
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        seconds = time.perf_counter() - begin
        (self.out / "logs" / f"{section.replace(' ', '-')}.txt").write_text(done.stdout)
        print(f"{section}: exit {done.returncode}, {seconds:.0f} s", flush=True)
        if done.returncode:
            self.failed.append(section)
            print(done.stdout[-1500:], flush=True)
        try:
            self.found[section] = read(done.stdout)
        except (ValueError, AttributeError, OSError) as error:
            self.failed.append(section)
            self.found[section] = {"unreadable": str(error)}


def dumps(found: dict[str, Any]) -> str:
    """The record as JSON: a row of a table on one line, everything else on one line a name."""

    def rows(value: list[Any]) -> str:
        return "[\n   " + ",\n   ".join(json.dumps(row, sort_keys=True) for row in value) + "\n  ]"

    def one(value: Any) -> str:
        is_table = isinstance(value, list) and len(value) > 1 and isinstance(value[0], dict)
        return rows(value) if is_table else json.dumps(value, sort_keys=True)

    def section(value: dict[str, Any]) -> str:
        return "{\n  " + ",\n  ".join(f"{json.dumps(name)}: {one(value[name])}" for name in sorted(value)) + "\n }"

    return "{\n " + ",\n ".join(f"{json.dumps(name)}: {section(found[name])}" for name in sorted(found)) + "\n}\n"


def last_json(printed: str) -> Any:
    """The JSON document that ends what was printed."""
    return json.loads(printed[printed.index("\n{") if not printed.startswith("{") else 0 :])


def counts(printed: str) -> dict[str, int]:
    """pytest's closing line as numbers."""
    (*_, closing) = re.findall(r"^=* ?(.*\d+ passed.*) in [\d.]+s", printed, re.MULTILINE) or [""]
    found = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped)", closing)}
    if not found.get("passed"):
        raise ValueError("no test passed")
    return found


def checked(printed: str) -> dict[str, Any]:
    """compute-sanitizer's summary beside pytest's."""
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: .*", printed)
    if summary is None:
        raise ValueError("compute-sanitizer printed no summary")
    return {"summary": summary[0], **counts(printed)}


def compared(code: str) -> list[str]:
    """A command that prints, as JSON, what ``code`` leaves in ``made``."""
    return [sys.executable, "-c", f"import json\n{code}\nprint(json.dumps(made, indent=1))"]


COMPARE_SHAPE = """
from tests.gpu.comparison import SHORT_PROMPTS, compare
from tests.gpu.random_models import checkpoint
from toolkit.devices.gpu import GpuDevice
made = compare(checkpoint({shape!r}), SHORT_PROMPTS[{shape!r}], GpuDevice(), tokens=4, orders=()).summary()
"""
NEAR_TIE = """
from toolkit import study
from toolkit.investigations import specs
from toolkit.investigations.near_tie import NearTie
parameters = specs.read("near-tie").parameters | {{"model": {model!r}, "device_b": "gpu", "repeats": 5}}
investigation = NearTie(parameters)
verdict = investigation.run()
found = investigation.results()
battery = found.pop("battery")
equal = sum(row["tokens"]["reference"] == row["tokens"]["backend"] for row in battery)
made = {{
    "verdict": study.plain(verdict),
    "weights": investigation.checkpoint.weights_hash,
    "prompts": len(battery),
    "prompts with equal tokens": equal,
    "providers": investigation.providers()["backend"],
    "refused ops": sum(investigation.sides["backend"].engine.device.statistics.refusals.values()),
    **found,
}}
if verdict.verdict not in ("identical", "near-tie"):
    raise SystemExit(str(verdict))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[], help="a checkpoint to compare beside the bundled ones")
    parser.add_argument("--only", action="append", default=[], metavar="SECTION")
    options = parser.parse_args()
    record = Recorder(options.out.resolve(), options.only)
    describe = "import json; from toolkit.devices.gpu import GpuDevice; print(json.dumps(GpuDevice().describe()))"
    record.run("device", [sys.executable, "-c", describe], last_json)

    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    table = record.out / "ops.json"
    record.run(
        "ops",
        [*pytest, "tests/ops/test_cases.py", "-m", "gpu", "--op-report", str(table)],
        lambda printed: {"table": json.loads(table.read_text()), **counts(printed)},
    )
    record.run(
        "gpu tests", [*pytest, "tests/gpu/test_device.py", "tests/ops/test_providers.py", "-m", "not rocm"], counts
    )
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer:
        for tool in ("memcheck", "racecheck"):
            cases = [*pytest, "tests/ops/test_cases.py", "-m", "gpu"]
            record.run(
                tool, [sanitizer, "--tool", tool, "--error-exitcode", "9", *cases], checked, TOOLKIT_TEST_BANDS="0"
            )
    for model in (*bundled.NAMES, *options.model):
        record.run(f"near-tie {Path(model).stem}", compared(NEAR_TIE.format(model=model)), last_json)
    for shape in SHAPES:
        record.run(f"shape {shape}", compared(COMPARE_SHAPE.format(shape=shape)), last_json)
        record.run(f"speed {shape}", [sys.executable, "-m", "tests.gpu.decode_speed", "--shape", shape], last_json)
    (record.out / "record.json").write_text(dumps(record.found), encoding="utf-8")
    print(f"{len(record.found)} sections, failed: {', '.join(record.failed) or 'none'}")
    return 1 if record.failed else 0


if __name__ == "__main__":
    sys.exit(main())
