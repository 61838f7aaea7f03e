"""Inputs for cross-device tests: seeded, of one storage dtype, with the shapes and values that break kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from toolkit.devices.arithmetic import Array
from toolkit.ops.declare import Case


class Draw:
    """Draws an op's inputs. The same seed and dtype give the same cases everywhere."""

    def __init__(self, dtype: np.dtype[Any], seed: int = 0) -> None:
        self.dtype = dtype
        self.random = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape: int, scale: float = 1.0, dtype: np.dtype[Any] | None = None) -> Array:
        """Normally distributed numbers of standard deviation ``scale``."""
        return (self.random.standard_normal(shape) * scale).astype(np.float32).astype(dtype or self.dtype)

    def weight(self, *shape: int) -> Array:
        """As a norm's weight: around one."""
        return (1.0 + 0.1 * self.random.standard_normal(shape)).astype(np.float32).astype(self.dtype)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        """Uniform int32 in [low, high)."""
        return self.random.integers(low, high, shape, dtype=np.int32)

    def special(self) -> Array:
        """The dtype's landmarks, of both signs: zero, denormals, the smallest normal, one, the largest, infinity, NaN."""
        info: Any = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        smallest, normal, largest = float(info.smallest_subnormal), float(info.smallest_normal), float(info.max)
        values = np.array([0.0, smallest, normal / 2, normal, 1.0, largest, np.inf, np.nan])
        return np.concatenate([values, -values]).astype(self.dtype)

    def case(self, *args: Any, **kwargs: Any) -> Case:
        return Case(args, kwargs)
