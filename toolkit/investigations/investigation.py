"""What every investigation is, whatever it looks at: a spec, parameters, results, a verdict, pictures.

A new one is a class here, a line in ``running.INVESTIGATIONS``, a notebook whose first code cell is tagged ``parameters``,
second calls ``toolkit.begin(NAME, globals())`` and last calls ``toolkit.finish``, and specs/NAME/spec.toml with the defaults
of the parameters (``out`` among them).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.investigations.specs import Spec, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Parameters that say where files are: they are not part of what was asked.
PLACES = ("out", "prompts")


class Investigation(ABC):
    """One run of the investigation ``name``; ``parameters`` are all of its spec's.

    ``figures`` are saved beside the record under their names.
    """

    name: ClassVar[str]
    parameters: dict[str, Any]

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters
        self.spec: Spec = read(self.name)
        self.figures: dict[str, Figure] = {}
        self.started = time.time()

    def asked(self) -> dict[str, Any]:
        """The parameters as the record keeps them: without the places of this machine."""
        return {key: value for key, value in self.parameters.items() if key not in PLACES}

    @abstractmethod
    def subject(self) -> dict[str, Any]:
        """What was looked at: the hash ``weights`` of a checkpoint or ``data`` of files, and what else belongs to it."""

    @abstractmethod
    def results(self) -> dict[str, Any]:
        """Everything that was found, as plain data."""

    @abstractmethod
    def concluded(self) -> dict[str, Any]:
        """The verdict as plain data: ``verdict`` (one of the spec's outcomes), ``rule`` and ``reason``."""

    def providers(self) -> dict[str, list[dict[str, Any]]]:
        """Which provider ran each op, by device; kept in run.json."""
        return {}

    def made_with(self) -> dict[str, Any]:
        """Provenance beyond the versions of packages: devices, compilers. Reported, not digested."""
        return {}

    @classmethod
    def again(cls, digested: dict[str, Any], record: Path, scratch: Path) -> dict[str, Any]:
        """The parameters that make a record again: its own, completed by the places that it does not hold.

        ``digested`` is the record's, ``record`` its folder, ``scratch`` an empty folder for what must be a file.
        """
        return dict(digested["parameters"])
