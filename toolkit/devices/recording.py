"""Launches that are kept, ready to be sent again: a repeated step then costs the driver's calls and no Python of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolkit.devices.base import ProviderStatistics


@dataclass
class Recording:
    """The launches of one piece of work in order, made once and replayed any number of times.

    A replay reads and writes the very arrays of the first run: change an input by writing into its array. Whatever else
    varies between runs (positions, lengths, slots) must be in such arrays too, since grids and scalar arguments stay as
    they were. The arrays live as long as the recording.
    """

    statistics: ProviderStatistics
    calls: list[Callable[[], object]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    selections: Counter[tuple[str, str]] = field(default_factory=Counter)
    declines: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, call: Callable[[], object], *kept: Any) -> None:
        """Append a launch, and what must stay alive for it."""
        self.calls.append(call)
        self.kept.extend(kept)

    def replay(self) -> None:
        """Make every launch again, in order, on the stream of the first run. Counted as the first run was."""
        for call in self.calls:
            call()
        self.statistics.selections.update(self.selections)
        self.statistics.declines.update(self.declines)
