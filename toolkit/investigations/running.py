"""Beginning and finishing an investigation inside its notebook, running it as a whole, and running it again."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from toolkit import records
from toolkit.errors import ToolkitError
from toolkit.investigations import execution, specs
from toolkit.investigations.showing import NearTieNotebook
from toolkit.records import Difference, Record

# Parameters that say where files are: they are not part of what was asked.
PLACES = ("out", "prompts")

INVESTIGATIONS = {"near-tie": NearTieNotebook}


@dataclass(frozen=True)
class Verification:
    """A record made again: whether the results are the same, where not, and how the provenance differs."""

    same: bool
    results: list[Difference]
    provenance: list[Difference]


def begin(name: str, namespace: dict[str, Any]) -> NearTieNotebook:
    """A notebook's first call: check its parameters, leave an incomplete record, and open model and devices.

    ``namespace`` is the notebook's ``globals()``. Raises ToolkitError for a parameter that the notebook does not have,
    for one of the wrong type, and for an untagged parameters cell.
    """
    spec = specs.read(name)
    execution.refuse_foreign_names(namespace, set(spec.parameters))
    parameters = spec.checked({key: namespace[key] for key in spec.parameters if key in namespace})
    records.write_incomplete(Path(parameters["out"]), name)
    return INVESTIGATIONS[name](parameters)


def finish(investigation: NearTieNotebook) -> Record:
    """A notebook's last call: write record.json, run.json and the figures, and report completion."""
    out = Path(investigation.parameters["out"])
    made = records.record(_digested(investigation), _provenance(investigation))
    for name, figure in investigation.figures.items():
        figure.savefig(out / f"{name}.png", dpi=110)
    run = {
        "began": investigation.started,
        "seconds": round(time.time() - investigation.started, 3),
        "parameters": investigation.parameters,
        "providers": investigation.providers(),
        "host": platform.node(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "python": sys.version,
    }
    records.write(made, out, run)
    print(f"{execution.MARK}: {made.verdict}, digest {made.digest}")
    return made


def reproduce(name: str, parameters: dict[str, Any], out: str | Path) -> Record:
    """Run the investigation ``name`` into the folder ``out``: record.json, run.json, the executed notebook, figures.

    ``parameters`` override those of the spec. Raises ToolkitError for unknown ones, and CheckFailed, naming the partial
    notebook, when a cell fails or the kernel dies; the record in ``out`` is then marked incomplete.
    """
    spec = specs.read(name)
    given = spec.checked({**parameters, "out": str(out)})
    execution.execute(spec.notebook, Path(out) / "notebook.ipynb", given)
    return records.read(out)


def verify(path: str | Path) -> Verification:
    """Run a record's investigation again, in a folder of its own, and compare what comes out.

    Raises ToolkitError when it cannot run here: the record is unreadable or incomplete, or its model or device is not
    to be had.
    """
    old = records.read(path)
    asked = old.digested
    with tempfile.TemporaryDirectory(prefix="toolkit-verify-") as folder:
        prompts = Path(folder) / "prompts.json"
        prompts.write_text(json.dumps([row["prompt"] for row in asked["results"]["battery"]]), encoding="utf-8")
        parameters = {**asked["parameters"], "model": _model(path, asked), "prompts": str(prompts)}
        new = reproduce(asked["investigation"], parameters, Path(folder) / "out")
    if new.digested["weights"] != asked["weights"]:
        raise ToolkitError(
            f"the model {parameters['model']} has other weights ({new.digested['weights'][:12]}…) than the record was made "
            f"with ({asked['weights'][:12]}…); give back the weights it was made with"
        )
    results = list(records.differences(asked, new.digested))
    return Verification(not results, results, list(records.differences(old.provenance, new.provenance)))


def _model(path: str | Path, asked: dict[str, Any]) -> str:
    """The model to run again: where the run of that record found it, if that is still there, else by its name."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    try:
        given = json.loads((folder / "run.json").read_text(encoding="utf-8"))["parameters"]["model"]
    except (OSError, ValueError, KeyError, TypeError):
        given = None
    return given if isinstance(given, str) and Path(given).exists() else str(asked["parameters"]["model"])


def _digested(investigation: NearTieNotebook) -> dict[str, Any]:
    spec = investigation.spec
    asked = {key: value for key, value in investigation.parameters.items() if key not in PLACES}
    asked["model"] = Path(asked["model"]).name
    return {
        "investigation": spec.name,
        "question": spec.question,
        "rule": spec.rule,
        "parameters": asked,
        "weights_dtype": investigation.checkpoint.weights_dtype,
        "weights": investigation.checkpoint.weights_hash,
        "results": investigation.results(),
        "verdict": investigation.verdict.to_json(),
    }


def _provenance(investigation: NearTieNotebook) -> dict[str, Any]:
    return {
        "toolkit": metadata.version("neartie-toolkit"),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in ("numpy", "ml-dtypes", "tokenizers", "safetensors")},
        "devices": {name: side.engine.device.describe() for name, side in investigation.sides.items()},
    }


def parse_parameters(name: str, given: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts as parameters of the spec ``name``, each of the type of its default.

    Raises ToolkitError for a text without "=", an unknown name, and a value that is not of the type.
    """
    spec = specs.read(name)
    parameters: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise ToolkitError(f"{text!r} is not NAME=VALUE; write for example -p tokens=16")
        default = spec.parameters.get(key)
        if default is None:
            raise ToolkitError(f"{name} has no parameter {key!r}; it has {', '.join(spec.parameters)}")
        try:
            parameters[key] = type(default)(value)
        except ValueError:
            raise ToolkitError(f"parameter {key} of {name} is a {type(default).__name__}, not {value!r}") from None
    return parameters
