"""What a judgement was made with, and the texts of its tokens."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.judging.judgement import Decode


def provenance() -> dict[str, Any]:
    """Versions of what computes a judgement; the engines' own are theirs to tell."""
    return {
        "toolkit": metadata.version("neartie-toolkit"),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in ("numpy", "ml-dtypes")},
    }


def decoder(path: Path) -> Decode:
    """Decoding by the tokenizer.json at ``path``. Raises ToolkitError when it is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ToolkitError(f"{path} is no tokenizer.json: {error}") from None

    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    return decode
