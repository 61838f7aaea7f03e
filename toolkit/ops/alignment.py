"""What 16-byte loads need of an array."""

from __future__ import annotations

from typing import Any

import numpy as np


def aligned(array: Any) -> bool:
    """Whether a kernel may read ``array`` 16 bytes at a time. On the host any address will do."""
    return isinstance(array, np.ndarray) or array.data.ptr % 16 == 0
