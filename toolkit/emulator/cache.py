"""Where downloaded and derived files are kept: ``$XDG_CACHE_HOME/neartie-toolkit``, filled atomically."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """The folder ``parts`` of the cache; it is created."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(root, "neartie-toolkit", *parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """``target``, filled by ``fill`` into a temporary folder beside it unless it exists: seen whole or not at all."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(temporary)
        temporary.chmod(0o755)
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():  # lost a race against another process: its folder is as good as ours
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def write(target: Path, data: bytes) -> Path:
    """Write ``data`` to ``target`` through a temporary name in the same folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    return target
