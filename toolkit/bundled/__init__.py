"""Two small trained models that come with the toolkit: the default of every investigation, with nothing to download."""

from __future__ import annotations

from pathlib import Path

from toolkit.errors import ToolkitError

NAMES = ("qwen3-tiny", "gemma3-tiny")
PROMPTS = Path(__file__).with_name("prompts.txt")


def folder(name: str) -> Path:
    """The checkpoint folder of the bundled model called ``name``; an unknown name raises ToolkitError."""
    if name not in NAMES:
        raise ToolkitError(f"there is no bundled model {name!r}; the bundled ones are {', '.join(NAMES)}")
    return Path(__file__).with_name(name)
