"""Beginning and finishing an investigation inside its notebook, running it as a whole, and running it again."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from toolkit import records
from toolkit.errors import ToolkitError
from toolkit.investigations import execution, specs
from toolkit.investigations.investigation import Investigation
from toolkit.records import Difference, Record

# By spec: the module and class of its investigation, imported when it is run.
INVESTIGATIONS = {
    "amd-execution": "toolkit.investigations.amd_execution:AmdExecution",
    "near-tie": "toolkit.investigations.showing:NearTieNotebook",
    "gfx1200-m2": "toolkit.investigations.gfx1200_m2:Gfx1200M2",
}


@dataclass(frozen=True)
class Verification:
    """A record made again: whether the results are the same, where not, and how the provenance differs."""

    same: bool
    results: list[Difference]
    provenance: list[Difference]


def investigation(name: str) -> type[Investigation]:
    """The class of the investigation called ``name``. Raises ToolkitError when there is none."""
    if name not in INVESTIGATIONS:
        raise ToolkitError(f"there is no investigation {name!r}; known are {', '.join(INVESTIGATIONS)}")
    module, _, kind = INVESTIGATIONS[name].partition(":")
    found: type[Investigation] = getattr(import_module(module), kind)
    return found


def begin(name: str, namespace: dict[str, Any]) -> Any:
    """A notebook's first call: check its parameters, leave an incomplete record, and open model and devices.

    ``namespace`` is the notebook's ``globals()``. Raises ToolkitError for a parameter that the notebook does not have,
    for one of the wrong type, and for an untagged parameters cell.
    """
    spec = specs.read(name)
    execution.refuse_foreign_names(namespace, set(spec.parameters))
    parameters = spec.checked({key: namespace[key] for key in spec.parameters if key in namespace})
    kind = investigation(name)
    records.write_incomplete(Path(parameters["out"]), name)
    return kind(parameters)


def finish(investigation: Investigation) -> Record:
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
    kind = investigation(asked["investigation"])
    place = Path(path) if Path(path).is_dir() else Path(path).parent
    with tempfile.TemporaryDirectory(prefix="toolkit-verify-") as folder:
        parameters = kind.again(asked, place, Path(folder))
        new = reproduce(asked["investigation"], parameters, Path(folder) / "out")
    for subject in ("weights", "data"):
        ours, theirs = new.digested.get(subject), asked.get(subject)
        if ours != theirs:
            of = f" of {parameters['model']}" if "model" in parameters else ""
            raise ToolkitError(
                f"the {subject}{of} are not those that the record was made with ({str(ours)[:12]}… and "
                f"{str(theirs)[:12]}…); give back the {subject} it was made with"
            )
    results = list(records.differences(asked, new.digested))
    return Verification(not results, results, list(records.differences(old.provenance, new.provenance)))


def _digested(investigation: Investigation) -> dict[str, Any]:
    spec = investigation.spec
    return {
        "investigation": spec.name,
        "question": spec.question,
        "rule": spec.rule,
        "parameters": investigation.asked(),
        **investigation.subject(),
        "results": investigation.results(),
        "verdict": investigation.concluded(),
    }


def _provenance(investigation: Investigation) -> dict[str, Any]:
    return {
        "toolkit": metadata.version("neartie-toolkit"),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in ("numpy", "ml-dtypes", "tokenizers", "safetensors")},
        **investigation.made_with(),
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
