"""The storage dtypes of models and caches, by the names that configurations and records use."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from toolkit.errors import ToolkitError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

FLOATS: dict[str, np.dtype[Any]] = {
    "bfloat16": BFLOAT16,
    "float16": FLOAT16,
    "float32": FLOAT32,
    "float64": FLOAT64,
}


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called ``name`` ("bfloat16", "float16", "float32" or "float64").

    Raises ToolkitError for any other name.
    """
    try:
        return FLOATS[name]
    except KeyError:
        raise ToolkitError(f"unknown dtype {name!r}; known are {', '.join(FLOATS)}") from None


def name(of: np.dtype[Any]) -> str:
    """The dtype's name as records write it."""
    return np.dtype(of).name


def mantissa_bits(of: np.dtype[Any]) -> int:
    """Stored significand bits: 7 for bfloat16, 10 for float16, 23 for float32, 52 for float64."""
    return int(ml_dtypes.finfo(of).nmant)  # type: ignore[no-untyped-call]
