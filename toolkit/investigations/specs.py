"""Specifications: the question, hypotheses, outcomes and rule of an investigation, fixed before it is run."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError


@dataclass(frozen=True)
class Spec:
    """specs/NAME/spec.toml.

    ``parameters`` are the defaults of the notebook's parameters cell; a parameter's type is that of its default.
    """

    name: str
    folder: Path
    question: str
    hypotheses: dict[str, str]
    outcomes: dict[str, str]
    rule: str
    notebook: Path
    parameters: dict[str, Any]

    def checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """The defaults overridden by ``given``.

        Raises ToolkitError for a name that the spec does not have and for a value of another type.
        """
        for name, value in given.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters)
                raise ToolkitError(f"{self.name} has no parameter {name!r}; it has {known}")
            wanted = type(self.parameters[name])
            if type(value) is not wanted:
                raise ToolkitError(f"parameter {name} of {self.name} is a {wanted.__name__}, not {value!r}")
        return {**self.parameters, **given}


def root(part: str) -> Path:
    """specs/ or notebooks/ of the checkout, or their copies inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_data" / part, package.parent / part):
        if candidate.is_dir():
            return candidate
    raise ToolkitError(f"{part}/ is missing beside {package}; install neartie-toolkit again")


def names() -> list[str]:
    """Every spec that can be reproduced."""
    return sorted(path.parent.name for path in root("specs").glob("*/spec.toml"))


def read(name: str) -> Spec:
    """The spec called ``name``, or the one of a folder. Raises ToolkitError when there is none or it is malformed."""
    folder = Path(name) if (Path(name) / "spec.toml").is_file() else root("specs") / name
    path = folder / "spec.toml"
    if not path.is_file():
        raise ToolkitError(f"there is no spec {name!r}; known are {', '.join(names())}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Spec(
            name=folder.resolve().name,
            folder=folder,
            question=data["question"],
            hypotheses=dict(data["hypotheses"]),
            outcomes=dict(data["outcomes"]),
            rule=data["rule"],
            notebook=root("notebooks") / data["notebook"],
            parameters=dict(data["parameters"]),
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise ToolkitError(f"{path} is not a spec: {error}; compare it with specs/near-tie/spec.toml") from None
