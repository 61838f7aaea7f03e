"""Files of prompts, in UTF-8.

``*.json``: a list whose items are strings or objects with a "prompt". ``*.jsonl``: one such item a line. Any other
name: a text file with one prompt a line, taken literally. There is no escape in it, so a prompt that holds a line break
is written in one of the JSON forms, as ``"first line\\nsecond line"``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.checkpoints import strict_json
from toolkit.checkpoints.files import read_bytes
from toolkit.errors import ToolkitError

MAX_PROMPT_CHARACTERS = 1 << 20
BYTE_ORDER_MARK = "\ufeff"


def read_prompts(path: str | Path) -> list[str]:
    """The prompts of the file at ``path``, in its order.

    Raises ToolkitError, naming file and line (or item), for a file that is empty, too long or not UTF-8 and for a
    prompt that is empty, over-long, not Unicode or, in a text file, holds a control character.
    """
    path = Path(path)
    content = read_bytes(path, limit=strict_json.MAX_BYTES)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolkitError(f"{path} is in UTF-16; save it as UTF-8")
    text = strict_json.decode(content, where=str(path)).removeprefix(BYTE_ORDER_MARK)
    if not text.strip():
        raise ToolkitError(f"{path} is empty; write one prompt a line")
    if path.suffix == ".json":
        prompts = _from_list(strict_json.parse(text.encode(), where=str(path)), str(path))
    elif path.suffix == ".jsonl":
        prompts = [
            (where, _from_item(strict_json.parse(line.encode(), where=where), where))
            for where, line in _lines(text, path)
        ]
    else:
        prompts = list(_lines(text, path))
        for where, prompt in prompts:
            _refuse_control_characters(prompt, where)
    for where, prompt in prompts:
        _check(prompt, where)
    return [prompt for _, prompt in prompts]


def _lines(text: str, path: Path) -> list[tuple[str, str]]:
    """Each line and where it stands; a line ends with LF or CR LF, and the last one may end without."""
    lines = text.removesuffix("\n").split("\n")
    return [(f"{path}, line {number}", line.removesuffix("\r")) for number, line in enumerate(lines, 1)]


def _from_list(value: Any, path: str) -> list[tuple[str, str]]:
    if not isinstance(value, list) or not value:
        raise ToolkitError(f"{path} must hold a JSON list with at least one prompt")
    places = [f"{path}, item {number}" for number in range(1, len(value) + 1)]
    return [(where, _from_item(item, where)) for where, item in zip(places, value, strict=True)]


def _from_item(item: Any, where: str) -> str:
    prompt = item.get("prompt") if isinstance(item, dict) else item
    if not isinstance(prompt, str):
        raise ToolkitError(f'{where} is neither a string nor an object with a string "prompt"; write it so')
    return prompt


def _refuse_control_characters(prompt: str, where: str) -> None:
    for character in prompt:
        if character < " " and character != "\t":
            raise ToolkitError(
                f"{where} holds the control character {character!r}; write such a prompt in a .json file, where it is "
                "escaped"
            )


def _check(prompt: str, where: str) -> None:
    if not prompt.strip(" "):
        raise ToolkitError(f"{where} is an empty prompt; remove it")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise ToolkitError(f"{where} is longer than {MAX_PROMPT_CHARACTERS} characters; shorten or split it")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise ToolkitError(f"{where} holds half of a surrogate pair, which is not a character; correct the escape")
