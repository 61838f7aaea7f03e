"""JSON from a stranger's file: UTF-8, bounded in size, no repeated names, no NaN or infinity, else one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from toolkit.checkpoints.files import read_bytes
from toolkit.errors import ToolkitError

# Parsed JSON takes up to 25 times the room of its text ("[]," three bytes, an empty list and its slot 64), so the
# text's limit is what bounds the memory.
MAX_BYTES = 8 << 20


def decode(content: bytes, *, where: str) -> str:
    """The text of ``content``. Raises ToolkitError, naming ``where`` and the byte, unless it is UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolkitError(f"{where} is not UTF-8: byte {error.start} is not a character; write it again") from error


def parse(content: bytes, *, where: str, constants: bool = False) -> Any:
    """The JSON value in ``content``. Raises ToolkitError, naming ``where``, unless it is strict JSON in UTF-8.

    With ``constants``, NaN and Infinity are let through as Python writes them, for a reader who refuses them by name.
    """
    text = decode(content, where=where)
    constant = float if constants else _not_a_number
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=constant)
    except RecursionError as error:
        raise ToolkitError(f"{where} is nested too deeply to be what it should be; write it again") from error
    except ValueError as error:
        raise ToolkitError(f"{where} is not valid JSON: {error}") from error


def parse_object(content: bytes, *, where: str, constants: bool = False) -> dict[str, Any]:
    """Like parse, but the value must be an object."""
    value = parse(content, where=where, constants=constants)
    if not isinstance(value, dict):
        raise ToolkitError(f"{where} holds a JSON {_kind(value)} where an object is expected; write it again")
    return value


def read_object(path: Path, *, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The JSON object in the file at ``path``, of at most ``limit`` bytes."""
    return parse_object(read_bytes(path, limit=limit), where=str(path))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r:.80} is given twice")
        found[name] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def _not_a_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _kind(value: Any) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
