"""Opening a stranger's files: regular files only, read up to a bound, every failure one sentence."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from toolkit.errors import ToolkitError


def open_regular(path: Path) -> BinaryIO:
    """``path`` opened for reading. Raises ToolkitError when it is missing, unreadable or not a regular file."""
    try:
        # A pipe would block for ever where a file is expected.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ToolkitError(f"{path} is not a file; give the path of a regular file")
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError as error:
        raise ToolkitError(f"{path} does not exist; check the path") from error
    except (OSError, ValueError) as error:
        raise ToolkitError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def read_bytes(path: Path, *, limit: int) -> bytes:
    """The file's content, at most ``limit`` bytes. Raises ToolkitError when it cannot be read or is longer."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ToolkitError(f"{path} is longer than {limit} bytes, more than such a file holds; check what it is")
        try:
            return file.read(size)  # not the limit: reading allocates what it is asked for
        except OSError as error:
            raise ToolkitError(f"{path} cannot be read: {error.strerror or error}") from error
