"""The record of an investigation: what was asked, of what, and what came out; and what it was made with.

``record.json`` holds ``digested`` (investigation, question, rule, parameters, hash of weights or data, results, verdict: no
clock, no host, no path), its ``digest``, and ``provenance`` (kernel sources' hash, compilers, versions, targets), which is
reported but not digested: the same result under another compiler is the same result. ``run.json`` beside it holds
everything that changes from run to run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.files import write_whole
from toolkit.records.canonical import digest, rounded, unrounded

SCHEMA = 1
MAX_BYTES = 64 << 20
MAX_DEPTH = 32
FIELDS = {"schema", "complete", "digest", "digested", "provenance"}
ASKED = {"investigation": str, "question": str, "rule": str, "parameters": dict}
SUBJECTS = ("weights", "data")
FOUND = {"results": dict, "verdict": dict}


@dataclass(frozen=True)
class Record:
    """A record; ``digested`` is plain data whose results and verdict are rounded to the stated precision."""

    digested: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest(self.digested)

    @property
    def verdict(self) -> str:
        return str(self.digested["verdict"]["verdict"])


def record(digested: dict[str, Any], provenance: dict[str, Any]) -> Record:
    """A record of plain data. Results and verdict are rounded here; what was asked is kept exactly, to be asked again.

    Provenance loses the folders of the paths in it. Raises TypeError for what is not plain data, and ToolkitError for a
    missing part and for a parameter that is not finite or names a place on this machine.
    """
    wrong = _wrong_part(digested)
    if wrong:
        raise ToolkitError(f"no record can be made: {wrong}")
    for name, value in digested["parameters"].items():
        if unrounded(value) != value:
            raise ToolkitError(f"parameter {name} is {value!r}, which is no number that can be recorded")
        if isinstance(value, str) and _without_folders(value) != value:
            raise ToolkitError(
                f"parameter {name} is {value!r}, a place on this machine; record the name of what is there"
            )
    return Record(
        {key: rounded(value) if key in FOUND else unrounded(value) for key, value in digested.items()},
        _without_folders(unrounded(provenance)),
    )


_PATH = re.compile(r"(?:(?<![\w.~/:])|(?<=-[IL]))~?(?:/[\w.+@-]+)+/?")


def _without_folders(value: Any) -> Any:
    """Plain data whose texts name files and not where they are: they would say whose machine it was."""
    if isinstance(value, str):
        return _PATH.sub(lambda match: match.group().rstrip("/").rsplit("/", 1)[1], value)
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    return value


def write_incomplete(folder: Path, investigation: str) -> None:
    """Mark ``folder`` as that of an investigation that has begun: unless it finishes, its record is refused."""
    _write(folder / "record.json", {"schema": SCHEMA, "complete": False, "investigation": investigation})


def write(made: Record, folder: Path, run: dict[str, Any]) -> Path:
    """Write record.json, and run.json with the volatile part, into ``folder``; returns the record's path.

    Both are written whole or not at all; run.json comes first, so that a record is never without it. Raises ToolkitError
    when the folder cannot be written.
    """
    _write(folder / "run.json", unrounded(run))
    path = folder / "record.json"
    content = {
        "schema": SCHEMA,
        "complete": True,
        "digest": made.digest,
        "digested": made.digested,
        "provenance": made.provenance,
    }
    _write(path, content)
    return path


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # Half a surrogate pair is no character, but JSON has a form for it.
    text = "".join(c if not "\ud800" <= c <= "\udfff" else f"\\u{ord(c):04x}" for c in text)
    write_whole(path, text + "\n")


def read(path: str | Path) -> Record:
    """The record at ``path`` (the file or its folder), checked.

    Raises ToolkitError, one sentence, when it is missing, incomplete, too large, no record, of another schema, or does
    not match its own digest.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "record.json"
    content = _read_object(path)
    if content.get("complete") is False:
        raise ToolkitError(
            f"{path} is incomplete: its investigation did not finish; run it again with toolkit reproduce"
        )
    schema = content.get("schema")
    if type(schema) is int and schema != SCHEMA:
        raise ToolkitError(f"{path} has schema {schema}, this toolkit reads {SCHEMA}; use the version that made it")
    if set(content) != FIELDS or content["complete"] is not True or type(schema) is not int:
        raise ToolkitError(f"{path} is not a record: it does not have the fields {', '.join(sorted(FIELDS))}")
    if not isinstance(content["digested"], dict) or not isinstance(content["provenance"], dict):
        raise ToolkitError(f"{path} is not a record: digested or provenance is no object")
    found = Record(content["digested"], content["provenance"])
    if found.digest != content["digest"]:
        raise ToolkitError(f"{path} does not match its own digest: it was changed after it was made; make it again")
    wrong = _wrong_part(found.digested)
    if wrong:
        raise ToolkitError(f"{path} is not a record: {wrong}")
    return found


def _read_object(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ToolkitError(f"{path} cannot be read: {error.strerror}; give a record.json or its folder") from None
    if len(raw) > MAX_BYTES:
        raise ToolkitError(f"{path} is larger than any record ({MAX_BYTES >> 20} MiB); is it the right file?")
    try:
        content = json.loads(
            raw.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise ToolkitError(f"{path} is not a record: {error}; write it again with toolkit reproduce") from None
    except RecursionError:
        content = None
    if content is None or _deeper_than(content, MAX_DEPTH):
        raise ToolkitError(f"{path} is nested deeper than any record; it was not written by this toolkit")
    if not isinstance(content, dict):
        raise ToolkitError(f"{path} is not a record: it holds no object")
    return content


def _wrong_part(digested: dict[str, Any]) -> str:
    """What is missing in the digested part of a record, or of the wrong kind; empty when nothing is."""
    for name, kind in (ASKED | FOUND).items():
        if not isinstance(digested.get(name), kind):
            return f"{name!r} is missing or no {'text' if kind is str else 'object'}"
    if not any(isinstance(digested.get(name), str) for name in SUBJECTS):
        return "'weights' is missing or no text, and so is 'data': nothing tells what was looked at"
    if not isinstance(digested["verdict"].get("verdict"), str):
        return "its verdict says nothing"
    return ""


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


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _deeper_than(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested deeper than ``depth``, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return bool(level)
