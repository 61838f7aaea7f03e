"""Prompt files: three forms, UTF-8 only, and a line number in every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.checkpoints import read_prompts
from toolkit.errors import ToolkitError


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("p.txt", b"one\ntwo", ["one", "two"]),
        ("p.txt", b"one\ntwo\n", ["one", "two"]),
        ("p", b"one\r\ntwo\r\n", ["one", "two"]),
        ("p.txt", b"\xef\xbb\xbfone", ["one"]),
        (
            "p.txt",
            "  naïve 東京 👩\u200d🚀\ttab \u2028 still\n".encode(),
            ["  naïve 東京 👩\u200d🚀\ttab \u2028 still"],
        ),
        ("p.txt", b'["a", "b"]\n', ['["a", "b"]']),
        ("p.txt", rb"def f():\n", [r"def f():\n"]),
        ("p.json", b'["one\\ntwo", {"prompt": "\\u00e9", "id": 3}]', ["one\ntwo", "é"]),
        ("p.json", b'\xef\xbb\xbf["\\ud83d\\ude00"]', ["😀"]),
        ("p.jsonl", b'{"prompt": "a"}\r\n"b"\n', ["a", "b"]),
    ],
)
def test_reads(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    assert read_prompts(write(tmp_path, name, content)) == expected


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.txt", b"", ["empty"]),
        ("p.txt", b"\n\n \n", ["empty"]),
        ("p.txt", b"\xef\xbb\xbf", ["empty"]),
        ("p.txt", b"one\n\ntwo\n", ["line 2", "empty"]),
        ("p.txt", b"one\n  \n", ["line 2", "empty"]),
        ("p.txt", b"one\ntwo\n\n", ["line 3", "empty"]),
        ("p.txt", "one\nzwei".encode("utf-16"), ["UTF-16"]),
        ("p.txt", b"caf\xe9", ["UTF-8", "byte 3"]),
        ("p.txt", b"\xed\xa0\x80", ["UTF-8"]),
        ("p.txt", b"one\ntwo\x00", ["line 2", "control character"]),
        ("p.txt", b"one\rtwo\n", ["line 1", "control character"]),
        ("p.txt", b"x\n" + b"y" * (1 << 20) + b"y", ["line 2", "longer than"]),
        ("p.txt", b"x" * (9 << 20), ["longer than"]),
        ("p.json", b"[]", ["at least one"]),
        ("p.json", b'{"prompt": "a"}', ["list"]),
        ("p.json", b'["a", ""]', ["item 2", "empty"]),
        ("p.json", b'["a", 3]', ["item 2", "neither"]),
        ("p.json", b'["\\ud800"]', ["item 1", "surrogate"]),
        ("p.json", b'["a"', ["not valid JSON"]),
        ("p.jsonl", b'"a"\n{"text": "b"}\n', ["line 2", "neither"]),
        ("p.jsonl", b'"a"\n\n"b"\n', ["line 2", "not valid JSON"]),
        ("p.jsonl", b'{"prompt": "\\udc00 x"}\n', ["line 1", "surrogate"]),
    ],
)
def test_refusals(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    with pytest.raises(ToolkitError) as caught:
        read_prompts(write(tmp_path, name, content))
    message = str(caught.value)
    assert "\n" not in message
    for word in [name, *words]:
        assert word in message


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ToolkitError, match="does not exist"):
        read_prompts(tmp_path / "p.txt")
    with pytest.raises(ToolkitError, match="is not a file"):
        read_prompts(str(tmp_path))
