"""Launches that are kept, ready to be sent again: what a decode step costs is then the driver's call, not Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolkit.devices.base import ProviderStatistics

# What the driver's launch function takes: function, grid x y z, block x y z, shared bytes, stream, arguments, extra.
DriverCall: TypeAlias = tuple[int, ...]


@dataclass
class Recording:
    """The launches of one piece of work in order, made once and replayed any number of times.

    A replay reads and writes the very buffers of the first run: change an input by writing into its array. Whatever
    else varies between runs (positions, lengths, slots) must be in such arrays too, since grids and scalar arguments
    are kept as they were. The buffers live as long as the recording.
    """

    send: Callable[..., None]
    statistics: ProviderStatistics
    calls: list[DriverCall] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    selections: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, call: DriverCall, *kept: Any) -> None:
        """Append a launch, and what must stay alive for it: its argument buffer and arrays."""
        self.calls.append(call)
        self.kept.extend(kept)

    def replay(self) -> None:
        """Send every launch again, in order, to the stream of the first run. Counted as the first run was."""
        send = self.send
        for call in self.calls:
            send(*call)
        self.statistics.selections.update(self.selections)
