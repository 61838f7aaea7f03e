"""Goldens: a folder of oracle records, all of one battery and one model.

    anchor.json       what our engine said when the goldens were made: its tokens are what all others are forced on
    reference.json    the engine to agree with: greedy, two runs or more, and forced on the anchor
    exact.json        the same weights in float32 or float64, forced on the anchor: the arbiter
    noise-NAME.json   one or more further honest engines in the reference's dtype, forced on the anchor

Each is written by ``toolkit gate anchor`` or ``toolkit oracle capture``, with its arrays beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.errors import CheckFailed, ToolkitError
from toolkit.oracles import OracleRecord, read, write

ANCHOR, REFERENCE, EXACT, NOISE = "anchor.json", "reference.json", "exact.json", "noise-*.json"
REASONS = "reasons"
EXACT_DTYPES = ("float32", "float64")
MAKE = "specs/gate/README.md shows how goldens are made"


@dataclass(frozen=True)
class Goldens:
    """Everything that a run is held against; all records are of the anchor's prompts and forced on its tokens."""

    anchor: OracleRecord
    reference: OracleRecord
    exact: OracleRecord
    noise: tuple[OracleRecord, ...]

    @property
    def honest(self) -> tuple[OracleRecord, ...]:
        """The engines that measure how far rounding moves a margin: the reference and the noise."""
        return (self.reference, *self.noise)


def read_anchor(folder: Path) -> OracleRecord:
    """The anchor in ``folder``. Raises CheckFailed when there is none."""
    path = folder / ANCHOR
    if not path.is_file():
        raise CheckFailed(f"{path} is missing: without an anchor nothing is checked; make it with toolkit gate anchor")
    return read(path)


def read_goldens(folder: Path) -> Goldens:
    """The goldens in ``folder``.

    Raises CheckFailed when one is missing or was forced on other tokens than the anchor's: a gate without its goldens
    has checked nothing. Raises ToolkitError for records that cannot be what an implementation said.
    """
    anchor = read_anchor(folder)
    for name in (REFERENCE, EXACT):
        if not (folder / name).is_file():
            raise CheckFailed(f"{folder / name} is missing, so nothing is checked; {MAKE}")
    noise = sorted(folder.glob(NOISE))
    if not noise:
        raise CheckFailed(f"{folder} has no {NOISE}: the noise of honest engines is not measured; {MAKE}")
    found = Goldens(anchor, read(folder / REFERENCE), read(folder / EXACT), tuple(read(path) for path in noise))
    if found.exact.dtype not in EXACT_DTYPES:
        raise ToolkitError(f"{folder / EXACT} is of {found.exact.dtype}; the arbiter is {' or '.join(EXACT_DTYPES)}")
    if found.reference.runs < 2:
        raise ToolkitError(
            f"{folder / REFERENCE} has {found.reference.runs} greedy runs, which shows nothing of how it repeats itself; "
            "capture it with --repeats 2 or more"
        )
    names = {REFERENCE: found.reference, EXACT: found.exact}
    names |= {path.name: record for path, record in zip(noise, found.noise, strict=True)}
    for name, record in names.items():
        _forced_on(anchor, record, folder / name)
    hashes = {record.weights for record in names.values() if record.weights is not None}
    if len(hashes) > 1:
        raise ToolkitError(f"the goldens in {folder} are of different weights; capture all of them on one checkpoint")
    return found


def _forced_on(anchor: OracleRecord, record: OracleRecord, path: Path) -> None:
    if [p.ids for p in record.prompts] != [p.ids for p in anchor.prompts]:
        raise CheckFailed(f"{path} is not of the anchor's prompts, by their token ids; capture it with --forced-on")
    for number, (prompt, ours) in enumerate(zip(record.prompts, anchor.prompts, strict=True)):
        given = () if prompt.forced is None else tuple(prompt.forced.continuation.tolist())
        if given != ours.tokens:
            raise CheckFailed(
                f"{path} was not forced on the anchor's tokens of prompt {number}; capture it again with --forced-on "
                f"{ANCHOR}"
            )


def new_anchor(folder: Path, ours: OracleRecord, because: str) -> str:
    """Write ``ours`` as the anchor of ``folder``, with ``because`` after the reasons of those before; what was done.

    Raises ToolkitError for an empty reason, and when the anchor says the same already.
    """
    if not because.strip():
        raise ToolkitError("an anchor takes a reason; say with --because why these are the tokens to expect")
    path = folder / ANCHOR
    history, cells = [], ""
    if path.is_file():
        old = read(path)
        history = str(old.settings.get(REASONS, "")).split("\n")
        if old.by_ids().keys() == ours.by_ids().keys():
            known = old.by_ids()
            drifted = [p for p in ours.prompts if known[p.ids].tokens != p.tokens]
            if not drifted:
                raise ToolkitError(f"{path} holds these tokens already; nothing was written")
            cells = f", {len(drifted)} of {len(ours.prompts)} prompts changed"
    reasons = "\n".join([*history, " ".join(because.split()) + cells])
    write(replace(ours, settings={**ours.settings, REASONS: reasons}), path)
    return f"{path}: anchor number {len(history) + 1}{cells}; the other goldens must be forced on it"
