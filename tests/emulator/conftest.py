"""The Python whose CuPy sees an emulated GPU."""

from __future__ import annotations

import os

import pytest

from toolkit.errors import ToolkitError
from toolkit.investigations import amd_execution


@pytest.fixture(scope="session")
def rocm_python() -> str:
    """A Python with cupy-rocm-7-0. Where there is none its tests are skipped, but never where changes are judged."""
    try:
        return amd_execution.rocm_python()
    except ToolkitError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
