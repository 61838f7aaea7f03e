"""How far a kernel's output may be from the reference, and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from toolkit.devices.arithmetic import Array


@dataclass(frozen=True)
class Agreement:
    """``worst`` is the largest error in units of what is allowed: the op is within its tolerance when it is <= 1."""

    ok: bool
    worst: float
    where: tuple[int, ...]
    bit_equal: bool


class Tolerance(ABC):
    """A bound with a reason. NaN agrees with NaN and with nothing else; infinities must be equal."""

    because: str

    @abstractmethod
    def allowed(self, want: Array, arguments: dict[str, Any]) -> Array:
        """The largest |got - want| allowed, elementwise, in float64."""

    def equal(self, a: Array, b: Array) -> Array:
        """Where two numbers, as float64, are the same."""
        same: Array = a == b
        return same

    def of(self, output: int) -> Tolerance:
        """The tolerance of one output, counted as the op returns them, then what it writes in place."""
        return self

    def check(self, got: Array, want: Array, arguments: dict[str, Any]) -> Agreement:
        """Compare a kernel's output with the reference's. Raises ValueError when shape or dtype differ."""
        if got.shape != want.shape or got.dtype != want.dtype:
            raise ValueError(f"got {got.dtype}{list(got.shape)}, the reference gives {want.dtype}{list(want.shape)}")
        bit_equal = got.tobytes() == want.tobytes()
        if got.size == 0:
            return Agreement(True, 0.0, (), bit_equal)
        with np.errstate(invalid="ignore", divide="ignore"):
            a, b = got.astype(np.float64), want.astype(np.float64)
            special = ~np.isfinite(a) | ~np.isfinite(b)
            agree = (np.isnan(a) & np.isnan(b)) | self.equal(a, b)
            error = np.abs(a - b) / np.broadcast_to(self.allowed(want, arguments), b.shape)
        error = np.where(agree, 0.0, np.where(special | np.isnan(error), np.inf, error))
        index = np.unravel_index(int(np.argmax(error)), error.shape)
        worst = float(error[index])
        return Agreement(worst <= 1.0, worst, tuple(int(i) for i in index), bit_equal)


@dataclass(frozen=True)
class BitExact(Tolerance):
    """The same numbers, to the sign of a zero: for copies, gathers, casts and selections."""

    because: str = "nothing is computed"

    def equal(self, a: Array, b: Array) -> Array:
        same: Array = (a == b) & (np.signbit(a) == np.signbit(b))
        return same

    def allowed(self, want: Array, arguments: dict[str, Any]) -> Array:
        return np.zeros(())


@dataclass(frozen=True)
class Ulps(Tolerance):
    """Within ``count`` units in the last place of the output dtype, at the reference's magnitude.

    ``float32`` is the count for float32 outputs where it differs: a chain of float32 roundings shows there in full,
    while a narrower output only sees whether a rounding boundary was crossed.
    """

    count: float
    because: str
    float32: float | None = None

    def allowed(self, want: Array, arguments: dict[str, Any]) -> Array:
        count = self.float32 if self.float32 is not None and want.dtype == np.float32 else self.count
        return count * spacing(want)


@dataclass(frozen=True)
class Within(Tolerance):
    """Within one ULP of the output plus ``bound(**arguments)``: an error bound from the op's own inputs, such as
    K epsilon sum |x w| for a float32 sum of K products, which cancellation can make many ULPs of a small result."""

    bound: Callable[..., Array]
    because: str

    def allowed(self, want: Array, arguments: dict[str, Any]) -> Array:
        return spacing(want) + self.bound(**arguments)


class PerOutput(Tolerance):
    """A tolerance for each output: the op's results in order, then what it writes in place."""

    def __init__(self, *tolerances: Tolerance) -> None:
        self.tolerances = tolerances
        self.because = "; ".join(dict.fromkeys(tolerance.because for tolerance in tolerances))

    def of(self, output: int) -> Tolerance:
        return self.tolerances[output]

    def allowed(self, want: Array, arguments: dict[str, Any]) -> Array:
        raise TypeError("each output has a tolerance of its own: ask of(output)")


def spacing(values: Array) -> Array:
    """The distance between neighbouring numbers of ``values``' dtype at their magnitude, in float64.

    Below the smallest normal float32 it is that number: denormals are flushed.
    """
    info = ml_dtypes.finfo(values.dtype)  # type: ignore[no-untyped-call]
    magnitude = np.abs(values.astype(np.float64))
    smallest = float(info.smallest_normal)
    with np.errstate(invalid="ignore", divide="ignore"):
        exponent = np.floor(np.log2(np.maximum(magnitude, smallest)))
    step = np.exp2(exponent - int(info.nmant))
    floor = float(np.finfo(np.float32).tiny) if values.dtype != np.float16 else 0.0
    return np.where(np.isfinite(magnitude), np.maximum(step, floor), np.nan)
