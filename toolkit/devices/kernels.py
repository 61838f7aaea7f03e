"""The kernel sources: where they are, how a source becomes one text for a compiler, and its hash."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from toolkit.errors import ToolkitError

_INCLUDE = re.compile(r'^#include "([a-z_]+\.h)"$', re.MULTILINE)


@cache
def folder() -> Path:
    """kernels/ of the checkout, or its copy inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_data" / "kernels", package.parent / "kernels"):
        if (candidate / "portable.h").is_file():
            return candidate
    raise ToolkitError(f"the kernel sources are missing beside {package}; install neartie-toolkit again")


def names() -> list[str]:
    """Every kernel file, sorted."""
    return sorted(path.name for path in folder().glob("*.hip"))


def source(name: str, *, wave: int = 32) -> str:
    """``name`` with its headers put in place of their #include lines, under a prelude that fixes the parameters.

    Run-time compilers see one self-contained text, so that a source and its header can never be out of step; #line
    keeps their messages pointing into the right file.
    """
    return f"#define WAVE {wave}\n" + _expand(name, set())


def sources_hash() -> str:
    """sha256 over the names and contents of every file in kernels/: the provenance of a record."""
    digest = hashlib.sha256()
    for path in sorted(folder().glob("*.h")) + sorted(folder().glob("*.hip")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _expand(name: str, seen: set[str]) -> str:
    text = (folder() / name).read_text(encoding="utf-8")

    def put(match: re.Match[str]) -> str:
        header = match.group(1)
        if header in seen:
            return ""
        seen.add(header)
        line = text.count("\n", 0, match.end()) + 2
        return f'{_expand(header, seen)}\n#line {line} "{name}"'

    # A header that has become part of the main file is warned about for its guard; `seen` is what guards it here.
    return f'#line 1 "{name}"\n' + _INCLUDE.sub(put, text).replace("#pragma once\n", "\n")
