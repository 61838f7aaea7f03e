"""The record of an investigation: what was asked, of what, and what came out; and what it was made with.

``record.json`` holds ``digested`` (investigation, question, rule, parameters, weights' hash, results, verdict: no clock,
no host, no path), its ``digest``, and ``provenance`` (kernel sources' hash, compilers, versions, targets), which is
reported but not digested: the same result under another compiler is the same result. ``run.json`` beside it holds
everything that changes from run to run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.files import write_whole
from toolkit.records.canonical import digest, rounded

SCHEMA = 1
MAX_BYTES = 64 << 20
MAX_DEPTH = 32
FIELDS = {"schema", "complete", "digest", "digested", "provenance"}


@dataclass(frozen=True)
class Record:
    """A record; ``digested`` is plain data, rounded to the stated precision."""

    digested: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest(self.digested)

    @property
    def verdict(self) -> str:
        return str(self.digested["verdict"]["verdict"])


def record(digested: dict[str, Any], provenance: dict[str, Any]) -> Record:
    """A record of plain data, which is rounded here. Raises TypeError for what is not plain."""
    return Record(rounded(digested), json.loads(json.dumps(provenance, allow_nan=False)))


def write(made: Record, folder: Path, run: dict[str, Any]) -> Path:
    """Write record.json, and run.json with the volatile part, into ``folder``; returns the record's path.

    Both are written whole or not at all; run.json comes first, so that a record is never without it.
    """
    write_whole(folder / "run.json", json.dumps(run, indent=1, sort_keys=True) + "\n")
    path = folder / "record.json"
    content = {
        "schema": SCHEMA,
        "complete": True,
        "digest": made.digest,
        "digested": made.digested,
        "provenance": made.provenance,
    }
    write_whole(path, json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read(path: str | Path) -> Record:
    """The record at ``path`` (the file or its folder), checked.

    Raises ToolkitError, one sentence, when it is missing, incomplete, too large, no record, of another schema, or does
    not match its own digest.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "record.json"
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ToolkitError(f"{path} cannot be read: {error.strerror}; give a record.json or its folder") from None
    if len(raw) > MAX_BYTES:
        raise ToolkitError(f"{path} is larger than any record ({MAX_BYTES >> 20} MiB); is it the right file?")
    try:
        content = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ToolkitError(f"{path} is not a record: {error}; write it again with toolkit reproduce") from None
    if isinstance(content, dict) and content.get("complete") is False:
        raise ToolkitError(
            f"{path} is incomplete: its investigation did not finish; run it again with toolkit reproduce"
        )
    if not isinstance(content, dict) or set(content) != FIELDS or not isinstance(content["digested"], dict):
        raise ToolkitError(f"{path} is not a record: it does not have the fields {', '.join(sorted(FIELDS))}")
    if content["schema"] != SCHEMA:
        raise ToolkitError(
            f"{path} has schema {content['schema']!r}, this toolkit reads {SCHEMA}; use the version that made it"
        )
    if _depth(content) > MAX_DEPTH:
        raise ToolkitError(f"{path} is nested deeper than any record; it was not written by this toolkit")
    if not isinstance(content["provenance"], dict) or content["complete"] is not True:
        raise ToolkitError(f"{path} is not a record: provenance or complete is of the wrong kind")
    found = Record(content["digested"], content["provenance"])
    if found.digest != content["digest"]:
        raise ToolkitError(f"{path} does not match its own digest: it was changed after it was made; make it again")
    return found


@dataclass(frozen=True)
class Difference:
    """Two records at one place, by its path of keys and indices."""

    where: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.where}: {_short(self.ours)} and {_short(self.theirs)}"


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[Difference]:
    """Every place where two pieces of plain data differ; what only one has is shown against "absent"."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            place = f"{where}.{key}" if where else key
            if key not in ours or key not in theirs:
                yield Difference(place, ours.get(key, "absent"), theirs.get(key, "absent"))
            else:
                yield from differences(ours[key], theirs[key], place)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield Difference(f"{where} (length)", len(ours), len(theirs))
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(one, other, f"{where}[{index}]")
    elif type(ours) is not type(theirs) or ours != theirs:
        yield Difference(where, ours, theirs)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _depth(value: Any) -> int:
    # json.loads has bounded the recursion already.
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
