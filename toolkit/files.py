"""Writing files so that a reader sees all of one or nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from toolkit.errors import ToolkitError


def write_whole(path: Path, text: str | bytes) -> None:
    """Write ``text`` (a string in UTF-8) under a temporary name in the same folder, flush it to the disk, then rename it.

    Raises ToolkitError, leaving nothing behind, when the folder cannot be written or the disk is full.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise ToolkitError(
            f"{path} cannot be written: {error.strerror}; choose another place or free some room"
        ) from None
